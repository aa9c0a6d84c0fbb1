/* textgen.c - see textgen.h */
#include "bench/textgen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/devices.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/machine.h"
#include "bench/random_adapters.h"
#include "bench/shapes.h"
#include "text/tokenizer.h"

/* The result of one workload's run. */
typedef struct {
    int n_adapters;
    double seconds;
    engine_stats stats;
    size_t kv_bytes, adapter_bytes;
} result;

textgen_options textgen_options_default(void)
{
    return (textgen_options){.device = "cpu",
                             .tp = 1,
                             .type = DTYPE_F16,
                             .requests = 64,
                             .batch = 32,
                             .rank = 16,
                             .prompt_len = 32,
                             .gen_len = 64};
}

static engine *make_engine(const textgen_options *o, const model *m, const bench_request *r, int n_adapters,
                           random_adapters *source, err *e)
{
    engine_options opt = engine_options_default();
    int longest = 0;
    for (int i = 0; i < o->requests; i++)
        if (r[i].prompt_len + r[i].gen_len > longest)
            longest = r[i].prompt_len + r[i].gen_len;
    opt.max_batch = o->batch;
    opt.prefill_rows = o->prefill_rows;
    opt.itl_target = o->itl_target / 1e3;
    opt.now = clock_reading;
    opt.n_pages = o->batch * ((longest + opt.page_len) / opt.page_len + 1);
    opt.kv = o->kv;
    opt.n_adapter_slots = n_adapters < 1 ? 1 : n_adapters < 256 ? n_adapters : 256;
    opt.adapters = random_adapters_source(source);
    return engine_new(m, &opt, e);
}

static int add_requests(engine *g, const textgen_options *o, const model_config *c, const bench_request *r, err *e)
{
    int status = 0;
    for (int i = 0; i < o->requests && status == 0; i++) {
        char name[16];
        int *token = XNEW_ARRAY(int, (size_t)r[i].prompt_len);
        for (int k = 0; k < r[i].prompt_len; k++)
            token[k] = (int)(rng_u64(o->seed + (uint64_t)i, (uint64_t)k) % (uint64_t)c->vocab);
        snprintf(name, sizeof name, "%d", r[i].adapter);
        engine_request q = {.id = (uint64_t)i,
                            .arrival = (uint64_t)i,
                            .adapter = r[i].adapter < 0 ? NULL : name,
                            .token = token,
                            .n_tokens = r[i].prompt_len,
                            .n_prompt = r[i].prompt_len,
                            .sampling = sampling_default()};
        q.sampling.max_tokens = r[i].gen_len;
        q.sampling.ignore_eos = true;
        status = engine_add(g, &q, e);
        free(token);
    }
    return status;
}

/* Loads the adapters before the clock starts if all have a slot; more than that load as they come. */
static int preload(engine *g, int n_adapters, err *e)
{
    return random_adapters_preload(g, n_adapters <= 256 ? n_adapters : 0, e);
}

static int step_until_idle(engine *g, err *e)
{
    while (!engine_is_idle(g)) {
        const event *events;
        int n;
        if (engine_step(g, &events, &n, e))
            return -1;
        for (int i = 0; i < n; i++)
            if (events[i].kind == EVENT_FAILED || events[i].kind == EVENT_EVICTED)
                return err_set(e, "request %llu did not finish: %s", (unsigned long long)events[i].id,
                               events[i].kind == EVENT_FAILED ? events[i].error.msg : "evicted");
    }
    return 0;
}

static int run_workload(const textgen_options *o, const model *m, workload w, result *out, err *e)
{
    bench_request *r = XNEW_ARRAY(bench_request, (size_t)o->requests);
    int limit = m->config.max_positions < 2048 ? m->config.max_positions : 2048;
    out->n_adapters = workload_make(w, o->requests, o->prompt_len, o->gen_len, limit, o->seed, r);
    random_adapters source = {.m = m, .rank = o->rank, .type = backend_weight_type(m->be, o->type)};
    engine *g = make_engine(o, m, r, out->n_adapters, &source, e);
    int status = g && engine_warm_up(g, e) == 0 && preload(g, out->n_adapters, e) == 0 &&
                         add_requests(g, o, &m->config, r, e) == 0
                     ? 0
                     : -1;
    if (status == 0) {
        double start = clock_now();
        status = step_until_idle(g, e);
        out->seconds = clock_now() - start;
        out->stats = engine_get_stats(g);
        out->kv_bytes = (size_t)out->stats.pages_peak * out->stats.page_bytes;
        out->adapter_bytes = (size_t)(shape_lora_params(&m->config, o->rank) * (double)dtype_size(o->type)) *
                             (size_t)(out->n_adapters < 256 ? out->n_adapters : 256);
    }
    engine_free(g);
    free(r);
    return status;
}

/* The operations and bytes that the run needs at least: every row through the layers, every token through the head;
 * every step reads the weights, its adapters, and its keys and values once. */
static double run_flops(const model_config *c, const result *r)
{
    return (double)r->stats.rows * shape_row_flops(c) + (double)r->stats.tokens * shape_head_flops(c);
}

static double run_bytes(const model *m, const result *r)
{
    const model_config *c = &m->config;
    double embed = c->tie_embeddings ? 0 : model_embed_bytes(m);
    return (double)r->stats.steps * ((double)m->weight_bytes - embed) + (double)r->stats.lora_bytes +
           (double)r->stats.kv_positions * (double)r->stats.page_bytes / r->stats.page_len;
}

static void print_row(const model *m, workload w, const result *r, double bandwidth, double backbone)
{
    double rate = (double)r->stats.tokens / r->seconds, steps = (double)r->stats.steps;
    double bytes = run_bytes(m, r) / r->seconds;
    printf("%-10s %8d %8llu %8.2f %9.1f %8.2f %8.1f %8.1f %7.1f %5.0f%%", workload_name(w), r->n_adapters,
           (unsigned long long)r->stats.tokens, r->seconds, rate, r->seconds / steps * 1e3,
           (double)r->stats.rows / steps, run_flops(&m->config, r) / r->seconds * 1e-9, bytes * 1e-9,
           100 * bytes / bandwidth);
    if (backbone > 0 && w != WORKLOAD_NONE)
        printf("   %+.1f%% time over none", 100 * (backbone / rate - 1));
    putchar('\n');
    fflush(stdout);
}

static void print_csv(FILE *csv, const textgen_options *o, const model *m, workload w, const result *r)
{
    fprintf(csv, "%s,%s,%s,%d,%d,%d,%d,%d,%d,%llu,%.4f,%.2f,%llu,%llu,%.2f,%.2f\n", o->shape ? o->shape : o->model_dir,
            weights_name(o->form, m->config.quant, m->config.type), workload_name(w), r->n_adapters, o->rank,
            o->requests, o->batch, o->prompt_len, o->gen_len, (unsigned long long)r->stats.tokens, r->seconds,
            (double)r->stats.tokens / r->seconds, (unsigned long long)r->stats.steps, (unsigned long long)r->stats.rows,
            run_flops(&m->config, r) / r->seconds * 1e-9, run_bytes(m, r) / r->seconds * 1e-9);
    fflush(csv);
}

/* Prints resident memory beside its budget: 1.15 times the weights, KvCache pages used, adapters, 200 MB. */
static void print_memory(const model *m, const result *largest)
{
    double mb = 1024 * 1024, weights = (double)m->weight_bytes / mb, kv = (double)largest->kv_bytes / mb;
    double adapters = (double)largest->adapter_bytes / mb, budget = 1.15 * weights + kv + adapters + 200;
    printf(
        "\nresident memory, peak: %.0f MB; budget %.0f MB (1.15 x weights %.0f + KvCache %.0f + adapters %.0f + 200)\n",
        (double)machine_resident_peak() / mb, budget, weights, kv, adapters);
}

static model *make_model(const textgen_options *o, backend *be, err *e)
{
    if (o->model_dir)
        return model_load(be, o->model_dir, o->form, e);
    model_config c;
    if (shape_find(o->shape, o->type, &c, e))
        return NULL;
    return model_random(be, &c, o->form, o->seed, e);
}

static FILE *open_csv(const char *path, err *e)
{
    FILE *f = fopen(path, "w");
    if (!f)
        err_set(e, "cannot write %s: %s", path, strerror(errno));
    else
        fprintf(f, "model,dtype,workload,adapters,rank,requests,batch,prompt_len,gen_len,tokens,seconds,tokens_per_s,"
                   "steps,rows,"
                   "gflop_per_s,gbyte_per_s\n");
    return f;
}

/* A user waits for this besides the weights; only a real model directory has a tokenizer. */
static int time_tokenizer(const char *dir, err *e)
{
    double start = clock_now();
    tokenizer *t = tokenizer_load(dir, e);
    if (!t)
        return -1;
    printf("tokenizer of %d entries loaded in %.2f s\n", tokenizer_vocab_size(t), clock_now() - start);
    tokenizer_free(t);
    return 0;
}

static void print_heading(const textgen_options *o, const model *m, double seconds, double bandwidth)
{
    char cpu[128];
    machine_cpu_name(cpu, sizeof cpu);
    printf("punica " PUNICA_VERSION " bench textgen on %s, %s\n", cpu, m->be->name);
    printf("%s, %s weights of %.2f GB %s in %.2f s; memory reads at %.1f GB/s\n", o->shape ? o->shape : o->model_dir,
           weights_name(o->form, m->config.quant, m->config.type), (double)m->weight_bytes * 1e-9,
           o->shape ? "made" : "loaded", seconds, bandwidth * 1e-9);
    printf("%d requests, batch %d, rank %d, ", o->requests, o->batch, o->rank);
    if (o->prompt_len)
        printf("prompt %d, output %d\n", o->prompt_len, o->gen_len);
    else
        printf("the paper's lengths\n");
}

static int run_workloads(const textgen_options *o, const model *m, double bandwidth, FILE *csv, err *e)
{
    result largest = {0};
    double backbone = 0;
    printf("\nworkload   adapters   tokens  seconds  tokens/s  ms/step rows/stp  GFLOP/s    GB/s of peak\n");
    for (int w = 0; w < N_WORKLOADS; w++) {
        result r = {0};
        if (!o->run[w])
            continue;
        if (run_workload(o, m, (workload)w, &r, e))
            return -1;
        print_row(m, (workload)w, &r, bandwidth, backbone);
        if (csv)
            print_csv(csv, o, m, (workload)w, &r);
        if (w == WORKLOAD_NONE)
            backbone = (double)r.stats.tokens / r.seconds;
        if (r.adapter_bytes + r.kv_bytes >= largest.adapter_bytes + largest.kv_bytes)
            largest = r;
    }
    if (strcmp(o->device, "cpu") == 0)
        print_memory(m, &largest);
    return 0;
}

int textgen_run(const textgen_options *o, err *e)
{
    FILE *csv = o->csv ? open_csv(o->csv, e) : NULL;
    if (o->csv && !csv)
        return -1;
    dtype type = o->type;
    backend *be = NULL;
    if (!o->model_dir || model_weights_type(o->model_dir, &type, e) == 0)
        be = backend_open(o->device, o->tp, type, o->threads, e);
    double bandwidth = be ? be->ops->read_bandwidth(be) : 0;
    machine_reset_peak();
    double start = clock_now();
    model *m = be ? make_model(o, be, e) : NULL;
    int status = m ? 0 : -1;
    if (status == 0) {
        print_heading(o, m, clock_now() - start, bandwidth);
        status = o->model_dir ? time_tokenizer(o->model_dir, e) : 0;
    }
    if (status == 0)
        status = run_workloads(o, m, bandwidth, csv, e);
    model_free(m);
    backend_close(be);
    if (csv && fclose(csv) != 0 && status == 0)
        status = err_set(e, "cannot write %s: %s", o->csv, strerror(errno));
    return status;
}
