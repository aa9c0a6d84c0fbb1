/* step_model.c - see step_model.h */
#include "sim/step_model.h"

#include <stdio.h>

#include "base/json.h"

/* Reads a member that must be there and positive. */
static int get_positive(const json_t *obj, const char *key, double *out, err *e)
{
    *out = 0;
    if (json_get_double(obj, key, out, e))
        return -1;
    return *out > 0 ? 0 : err_set(e, "\"%s\" must be a number above 0", key);
}

static int read_point(step_model *m, const json_t *step, err *e)
{
    step_point *p = &m->point[m->n_points];
    if (get_positive(step, "batch", &p->batch, e) || get_positive(step, "identical_ms", &p->identical, e) ||
        get_positive(step, "distinct_ms", &p->distinct, e))
        return err_wrap(e, "step %d", m->n_points);
    p->identical /= 1e3;
    p->distinct /= 1e3;
    if (m->n_points > 0 && p->batch <= p[-1].batch)
        return err_set(e, "step %d: batch sizes must rise", m->n_points);
    m->n_points++;
    return 0;
}

static int read_points(step_model *m, const json_t *doc, err *e)
{
    const json_t *steps = json_member(doc, "steps"), *step;
    size_t i, n = json_is_array(steps) ? json_array_size(steps) : 0;
    if (n < 2 || n > MAX_STEP_POINTS)
        return err_set(e, "\"steps\" must be a list of 2 to %d measured steps", MAX_STEP_POINTS);
    json_array_foreach(steps, i, step) if (read_point(m, step, e)) return -1;
    return 0;
}

static int read_model(step_model *m, const json_t *doc, err *e)
{
    double bytes, bandwidth, prefill, prefill_rate, load;
    const char *about = "";
    if (get_positive(doc, "context", &m->context, e) || read_points(m, doc, e) ||
        get_positive(doc, "kv_bytes_per_token", &bytes, e) || get_positive(doc, "bytes_per_second", &bandwidth, e) ||
        get_positive(doc, "prefill_ms", &prefill, e) ||
        get_positive(doc, "prefill_tokens_per_second", &prefill_rate, e) ||
        get_positive(doc, "adapter_load_ms", &load, e) || json_get_string(doc, "about", &about, e))
        return -1;
    m->kv_token_time = bytes / bandwidth;
    m->prefill_time = prefill / 1e3;
    m->prefill_token_time = 1 / prefill_rate;
    m->adapter_load_time = load / 1e3;
    snprintf(m->about, sizeof m->about, "%s", about);
    return 0;
}

int step_model_load(step_model *m, const char *path, err *e)
{
    *m = (step_model){0};
    json_t *doc = json_read_file(path, 1 << 20, e);
    if (!doc)
        return -1;
    int status = read_model(m, doc, e);
    json_decref(doc);
    return status ? err_wrap(e, "%s", path) : 0;
}

double step_model_time(const step_model *m, int batch, int n_adapters, double n_positions, int n_prefill)
{
    const step_point *p = m->point;
    while (p < &m->point[m->n_points - 2] && p[1].batch < batch)
        p++;
    double at = (batch - p[0].batch) / (p[1].batch - p[0].batch);
    double identical = p[0].identical + at * (p[1].identical - p[0].identical);
    double distinct = p[0].distinct + at * (p[1].distinct - p[0].distinct);
    double mix = batch > 1 ? (n_adapters - 1.0) / (batch - 1.0) : 0;
    double time = identical + mix * (distinct - identical) + (n_positions - batch * m->context) * m->kv_token_time;
    double least = 0.25 * m->point[0].identical; /* floor of what is extrapolated */
    double prefill = n_prefill > 0 ? m->prefill_time + n_prefill * m->prefill_token_time : 0;
    return (time > least ? time : least) + prefill;
}
