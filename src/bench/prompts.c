/* prompts.c - see prompts.h */
#include "bench/prompts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/devices.h"
#include "backend/group.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/matrix_rate.h"
#include "bench/median.h"
#include "bench/random_adapters.h"
#include "bench/shapes.h"

enum {
    STREAM_TOKENS = 1000, /* of a stream at most: more than there are steps with prompts */
    SETTLED = 8,          /* tokens of each stream before anything is measured */
    N_QUIET = 40,         /* times between tokens to measure without prompts */
};

/* One measurement: a length and a number of adapters. */
typedef struct {
    const prompts_options *o;
    const model *m;
    engine *g;
    int len, n_adapters;
    int *made;    /* [streams] tokens of each */
    double last;  /* when the first stream's last token came; 0: none has */
    double *gaps; /* [STREAM_TOKENS] between tokens of the first stream, since n_gaps was last set to 0 */
    int n_gaps;
    double *waits; /* [prompts] until the first token */
    int n_waits;
    double asked; /* when the prompts were added */
} run;

/* Its result, in seconds. */
typedef struct { double seconds, quiet, gap_50, gap_99, gap_most, first_mean, first_last; } result;

prompts_options prompts_options_default(void)
{
    return (prompts_options){.device = "cpu",
                             .tp = 1,
                             .type = DTYPE_F16,
                             .rank = 16,
                             .streams = 32,
                             .context = 512,
                             .prompts = 4,
                             .n_lens = 3,
                             .len = {1024, 8192, 32768},
                             .n_adapters = 3,
                             .adapters = {0, 1, 8}};
}

static int longest(const int *size, int n)
{
    int most = 0;
    for (int i = 0; i < n; i++)
        most = size[i] > most ? size[i] : most;
    return most;
}

/* Adds a request. Ids below o->streams are streams, the others prompts. */
static int add_request(run *r, int id, int n_tokens, int max_tokens, err *e)
{
    char name[16];
    int *token = XNEW_ARRAY(int, (size_t)n_tokens);
    for (int i = 0; i < n_tokens; i++)
        token[i] = (int)(rng_u64((uint64_t)id + 1, (uint64_t)i) % (uint64_t)r->m->config.vocab);
    snprintf(name, sizeof name, "%d", r->n_adapters ? id % r->n_adapters : 0);
    engine_request q = {.id = (uint64_t)id,
                        .arrival = (uint64_t)id,
                        .adapter = r->n_adapters ? name : NULL,
                        .token = token,
                        .n_tokens = n_tokens,
                        .n_prompt = n_tokens,
                        .sampling = sampling_default()};
    q.sampling.max_tokens = max_tokens;
    q.sampling.ignore_eos = true;
    int status = engine_add(r->g, &q, e);
    free(token);
    return status;
}

static void on_token(run *r, int id, double now)
{
    if (id >= r->o->streams) {
        r->waits[r->n_waits++] = now - r->asked;
        return;
    }
    r->made[id]++;
    if (id > 0)
        return;
    if (r->last > 0)
        r->gaps[r->n_gaps++] = now - r->last;
    r->last = now;
}

/* Runs one step. Fails if a stream ends or is evicted, since the load would not be the one to measure. */
static int step(run *r, err *e)
{
    const event *events;
    int n;
    if (engine_step(r->g, &events, &n, e))
        return -1;
    double now = clock_now();
    for (int i = 0; i < n; i++) {
        const event *ev = &events[i];
        if (ev->kind == EVENT_FAILED) {
            *e = ev->error;
            return -1;
        }
        if (ev->kind == EVENT_EVICTED || (ev->kind == EVENT_FINISHED && ev->id < (uint64_t)r->o->streams))
            return err_set(e, "a stream did not last: fewer streams, or fewer or shorter prompts, fit");
        if (ev->kind == EVENT_TOKEN)
            on_token(r, (int)ev->id, now);
    }
    return 0;
}

static int least_made(const run *r)
{
    int least = STREAM_TOKENS;
    for (int i = 0; i < r->o->streams; i++)
        least = r->made[i] < least ? r->made[i] : least;
    return least;
}

/* Starts the streams and lets each make some tokens; then measures the time between tokens without prompts. */
static int run_quietly(run *r, result *out, err *e)
{
    for (int i = 0; i < r->o->streams; i++)
        if (add_request(r, i, r->o->context, STREAM_TOKENS, e))
            return -1;
    while (least_made(r) < SETTLED)
        if (step(r, e))
            return -1;
    for (r->n_gaps = 0; r->o->streams > 0 && r->n_gaps < N_QUIET;)
        if (step(r, e))
            return -1;
    out->quiet = median(r->gaps, r->n_gaps);
    return 0;
}

static double percentile(const double *sorted, int n, int percent)
{
    return n ? sorted[(n * percent + 99) / 100 - 1] : 0;
}

static int run_prompts(run *r, result *out, err *e)
{
    r->n_gaps = 0;
    r->asked = clock_now();
    for (int i = 0; i < r->o->prompts; i++)
        if (add_request(r, r->o->streams + i, r->len, 1, e))
            return -1;
    while (r->n_waits < r->o->prompts)
        if (step(r, e))
            return -1;
    for (int i = 0; i < r->n_waits; i++)
        out->first_mean += r->waits[i] / r->n_waits;
    out->seconds = out->first_last = r->waits[r->n_waits - 1];
    sort_times(r->gaps, (size_t)r->n_gaps);
    out->gap_50 = percentile(r->gaps, r->n_gaps, 50);
    out->gap_99 = percentile(r->gaps, r->n_gaps, 99);
    out->gap_most = percentile(r->gaps, r->n_gaps, 100);
    return 0;
}

static int pages_of(int n_tokens, int page_len)
{
    return (n_tokens + page_len - 1) / page_len + 1;
}

static engine *make_engine(const run *r, random_adapters *source, err *e)
{
    const prompts_options *o = r->o;
    engine_options opt = engine_options_default();
    opt.max_batch = o->streams + o->prompts;
    opt.n_pages = o->streams * pages_of(o->context + STREAM_TOKENS, opt.page_len) +
                  o->prompts * pages_of(r->len + 1, opt.page_len) + opt.max_batch;
    opt.itl_target = o->itl_target / 1e3;
    opt.kv = o->kv;
    opt.now = clock_reading;
    opt.no_prefix_cache = true; /* so that all runs do the same work */
    opt.host_bytes = 0;
    opt.n_adapter_slots = r->n_adapters > 0 ? r->n_adapters : 1;
    opt.adapters = random_adapters_source(source);
    return engine_new(r->m, &opt, e);
}

static int measure(const prompts_options *o, const model *m, int len, int n_adapters, result *out, err *e)
{
    random_adapters source = {.m = m, .rank = o->rank, .type = backend_weight_type(m->be, o->type)};
    run r = {.o = o, .m = m, .len = len, .n_adapters = n_adapters};
    *out = (result){0};
    r.made = XNEW_ARRAY(int, (size_t)o->streams + 1);
    r.gaps = XNEW_ARRAY(double, (size_t)STREAM_TOKENS);
    r.waits = XNEW_ARRAY(double, (size_t)o->prompts);
    r.g = make_engine(&r, &source, e);
    int status = r.g && engine_warm_up(r.g, e) == 0 && random_adapters_preload(r.g, n_adapters, e) == 0 &&
                         run_quietly(&r, out, e) == 0
                     ? run_prompts(&r, out, e)
                     : -1;
    engine_free(r.g);
    free(r.made);
    free(r.gaps);
    free(r.waits);
    return status;
}

/* Floating-point operations of a prompt: the projections of all rows, attention to what stands before each, and the
 * head for its last row alone. */
static double prompt_flops(const model_config *c, int len)
{
    double attention = 4.0 * c->n_layers * c->n_heads * c->head_dim * len * (len + 1) / 2;
    return len * shape_row_flops(c) + attention + shape_head_flops(c);
}

static void print_row(const prompts_options *o, const model *m, int len, int n_adapters, const result *r, double peak,
                      FILE *csv)
{
    double tokens = (double)o->prompts * len / r->seconds,
           flops = o->prompts * prompt_flops(&m->config, len) / r->seconds;
    printf("%6d %8d %9.3f %9.0f %8.0f %5.0f%% %9.3f %9.3f %9.2f %9.2f %9.2f %9.2f\n", len, n_adapters, r->seconds,
           tokens, flops * 1e-9, 100 * flops / peak, r->first_mean, r->first_last, r->quiet * 1e3, r->gap_50 * 1e3,
           r->gap_99 * 1e3, r->gap_most * 1e3);
    fflush(stdout);
    if (csv)
        fprintf(csv, "%s,%d,%d,%d,%d,%d,%.6f,%.1f,%.4g,%.4f,%.6f,%.6f,%.4f,%.4f,%.4f,%.4f\n", o->shape, o->streams,
                o->context, o->prompts, len, n_adapters, r->seconds, tokens, flops, flops / peak, r->first_mean,
                r->first_last, r->quiet * 1e3, r->gap_50 * 1e3, r->gap_99 * 1e3, r->gap_most * 1e3);
}

static int measure_all(const prompts_options *o, const model *m, double peak, FILE *csv, err *e)
{
    printf("punica " PUNICA_VERSION
           " bench prompts on %s, products at %.0f GFLOP/s\n%s, %s; %d streams of %d tokens, %d "
           "prompts at once, adapters of rank %d on all seven projections\n\n",
           m->be->name, peak * 1e-9, o->shape, weights_name(o->form, QUANT_NONE, o->type), o->streams, o->context,
           o->prompts, o->rank);
    printf(
        "                                                         first token, s   ms between tokens of a stream\n"
        "   len adapters   seconds  tokens/s  GFLOP/s of peak     mean      last   without      50 %%      99 %%      "
        "most\n");
    for (int i = 0; i < o->n_lens; i++)
        for (int k = 0; k < o->n_adapters; k++) {
            result r;
            if (measure(o, m, o->len[i], o->adapters[k], &r, e))
                return err_wrap(e, "prompts of %d tokens", o->len[i]);
            print_row(o, m, o->len[i], o->adapters[k], &r, peak, csv);
        }
    return 0;
}

static model *make_model(const prompts_options *o, backend *be, err *e)
{
    model_config c;
    int stream = o->context + STREAM_TOKENS, prompt = longest(o->len, o->n_lens) + 1;
    if (shape_find(o->shape, o->type, &c, e))
        return NULL;
    c.max_positions = stream > prompt ? stream : prompt;
    return model_random(be, &c, o->form, 0, e);
}

static int run_on(const prompts_options *o, FILE *csv, err *e)
{
    backend *be = backend_open(o->device, o->tp, o->type, o->threads, e);
    model *m = be ? make_model(o, be, e) : NULL;
    double peak = m ? matrix_rate(group_device(be, 0), e) * group_devices(be) : -1;
    int status = peak > 0 ? measure_all(o, m, peak, csv, e) : -1;
    model_free(m);
    backend_close(be);
    return status;
}

int prompts_run(const prompts_options *o, err *e)
{
    FILE *csv = o->csv ? fopen(o->csv, "w") : NULL;
    if (o->csv && !csv)
        return err_set(e, "cannot write %s: %s", o->csv, strerror(errno));
    if (csv)
        fprintf(
            csv,
            "shape,streams,context,prompts,len,adapters,seconds,tokens_per_s,flops,of_peak,first_mean_s,first_last_s,"
            "quiet_ms,gap_50_ms,gap_99_ms,gap_most_ms\n");
    int status = run_on(o, csv, e);
    if (csv && fclose(csv) != 0 && status == 0)
        status = err_set(e, "cannot write %s: %s", o->csv, strerror(errno));
    return status;
}
