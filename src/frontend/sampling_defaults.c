/* sampling_defaults.c - see sampling_defaults.h */
#include "frontend/sampling_defaults.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/sampling_limits.h"

static const size_t MAX_FILE = 1 << 20;

sampling_defaults sampling_defaults_openai(void)
{
    return (sampling_defaults){.temperature = 1, .top_p = 1, .repetition_penalty = 1, .max_tokens = INT32_MAX};
}

static int read_float(const json_t *doc, const char *key, double min, double max, float *out, err *e)
{
    double x = *out;
    if (json_get_double_in(doc, key, min, max, &x, e))
        return -1;
    *out = (float)x;
    return 0;
}

static int read_int(const json_t *doc, const char *key, long min, int *out, err *e)
{
    long x = *out;
    if (json_get_int(doc, key, min, INT32_MAX, &x, e))
        return -1;
    *out = (int)x;
    return 0;
}

static int read_values(sampling_defaults *d, const json_t *doc, err *e)
{
    if (!json_is_object(doc))
        return err_set(e, "it is no JSON object");
    if (read_float(doc, "temperature", 0, MAX_TEMPERATURE, &d->temperature, e) ||
        read_float(doc, "top_p", MIN_TOP_P, 1, &d->top_p, e) || read_float(doc, "min_p", 0, 1, &d->min_p, e) ||
        read_float(doc, "repetition_penalty", MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY, &d->repetition_penalty,
                   e) ||
        read_int(doc, "top_k", -1, &d->top_k, e) || read_int(doc, "max_new_tokens", 1, &d->max_tokens, e))
        return -1;
    d->top_k = d->top_k < 0 ? 0 : d->top_k;
    return 0;
}

static int read_file(sampling_defaults *d, const char *path, err *e)
{
    json_t *doc = json_read_file(path, MAX_FILE, e);
    int rc = doc ? read_values(d, doc, e) : -1;
    json_decref(doc);
    return rc ? err_wrap(e, "%s (--generation-config none does without)", path) : 0;
}

int sampling_defaults_read(sampling_defaults *d, const char *from, const char *model_dir, err *e)
{
    bool is_auto = strcmp(from, "auto") == 0;
    *d = sampling_defaults_openai();
    if (strcmp(from, "none") == 0 || strcmp(from, "vllm") == 0)
        return 0;
    char *path = path_join(is_auto ? model_dir : from, "generation_config.json");
    int rc = is_auto && !file_exists(path) ? 0 : read_file(d, path, e);
    free(path);
    return rc;
}

void sampling_defaults_write(const sampling_defaults *d, buf *out)
{
    const sampling_defaults usual = sampling_defaults_openai();
    const struct {
        const char *name;
        double is, usual;
    } all[] = {
        {"temperature", (double)d->temperature, (double)usual.temperature},
        {"top_p", (double)d->top_p, (double)usual.top_p},
        {"top_k", d->top_k, usual.top_k},
        {"min_p", (double)d->min_p, (double)usual.min_p},
        {"repetition_penalty", (double)d->repetition_penalty, (double)usual.repetition_penalty},
        {"max_tokens", d->max_tokens, usual.max_tokens},
    };
    buf_add_str(out, "");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].is != all[i].usual)
            buf_printf(out, "%s%s %g", out->len ? ", " : "", all[i].name, all[i].is);
}
