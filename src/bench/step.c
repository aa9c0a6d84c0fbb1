/* step.c - see step.h */
#include "bench/step.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend/devices.h"
#include "backend/group.h"
#include "bench/matrix_rate.h"
#include "bench/shapes.h"

enum { SHALLOW = 4, DEEP = 12 }; /* depths whose difference gives a layer's time */

/* What the device can do: bytes and operations a second. */
typedef struct { double bandwidth, flops; } ceilings;

/* The benches of a run: the whole model, or one of each depth. */
typedef struct {
    decode_bench *at[2];
    int n;
    double layers;
} benches;

step_options step_options_default(bool per_layer)
{
    step_options o = {.device = "cpu",
                      .tp = 1,
                      .shape = "llama2-7b",
                      .type = DTYPE_F16,
                      .n_ranks = 1,
                      .rank = {16},
                      .per_layer = per_layer,
                      .n_batches = 5,
                      .batch = {1, 8, 32, 64, 128},
                      .n_contexts = 2,
                      .context = {512, 2048},
                      .n_prompts = 1};
    if (per_layer) {
        o.n_batches = 6;
        memcpy(o.batch, (const int[]){1, 2, 4, 8, 16, 32}, 6 * sizeof(int));
    }
    return o;
}

/* The most cached positions of any batch that fits. */
static int most_positions(const step_options *o, double limit)
{
    double most = 0;
    for (int b = 0; b < o->n_batches; b++)
        for (int c = 0; c < o->n_contexts; c++) {
            double n = (double)o->batch[b] * o->context[c];
            most = n > most && n <= limit ? n : most;
        }
    return (int)most;
}

static double mean_rank(const step_options *o)
{
    double sum = 0;
    for (int i = 0; i < o->n_ranks; i++)
        sum += o->rank[i];
    return sum / o->n_ranks;
}

/* "16", or "3+17+128". Valid until the next call. */
static const char *rank_names(const step_options *o)
{
    static char names[8 * MAX_DECODE_RANKS];
    for (int i = 0, n = 0; i < o->n_ranks; i++)
        n += snprintf(names + n, sizeof names - (size_t)n, "%s%d", i ? "+" : "", o->rank[i]);
    return names;
}

/* Positions whose keys and values fit beside weights, adapters and scratch. */
static double positions_that_fit(const step_options *o, backend *be, const model_config *c, int n_layers, int max_batch)
{
    double size = (double)dtype_size(o->type), matrices = shape_row_flops(c) / 2 * (o->form == WEIGHTS_FP8 ? 1 : size);
    double per_layer = (matrices + shape_lora_params(c, 1) * mean_rank(o) * max_batch * size) / c->n_layers;
    double weights = per_layer * n_layers + 2.0 * c->vocab * c->hidden * size;
    double position = 2.0 * n_layers * c->n_kv_heads * c->head_dim *
                      (o->kv == KV_FP8 ? 1 + 4.0 / c->head_dim : (double)dtype_size(be->act));
    return ((double)be->ops->available(be) * 0.97 - weights - 2e9) / position;
}

static int largest(const int *size, int n)
{
    int most = 0;
    for (int i = 0; i < n; i++)
        most = size[i] > most ? size[i] : most;
    return most;
}

static int open_benches(const step_options *o, backend *be, const model_config *c, benches *out, int *max_positions,
                        err *e)
{
    int max_batch = largest(o->batch, o->n_batches);
    double fit = positions_that_fit(o, be, c, o->per_layer ? SHALLOW + DEEP : c->n_layers, max_batch);
    if ((*max_positions = most_positions(o, fit)) == 0)
        return err_set(e, "not enough memory on %s for %s with %d adapters of rank %s", be->name, o->shape, max_batch,
                       rank_names(o));
    decode_options d = {.shape = o->shape,
                        .n_ranks = o->n_ranks,
                        .form = o->form,
                        .kv = o->kv,
                        .max_batch = max_batch,
                        .max_positions = *max_positions,
                        .max_prompt = largest(o->prompt, o->n_prompts),
                        .samples = !o->per_layer,
                        .masked = o->masked};
    memcpy(d.rank, o->rank, sizeof d.rank);
    *out = (benches){.n = o->per_layer ? 2 : 1, .layers = o->per_layer ? DEEP - SHALLOW : 1};
    for (int i = 0; i < out->n; i++) {
        d.n_layers = !o->per_layer ? 0 : i ? DEEP : SHALLOW;
        if (!(out->at[i] = decode_new(be, &d, o->type, e)))
            return -1;
    }
    return 0;
}

/* Measures the seconds of the whole model, or of one layer; the latter may be below 0 when times are short and others
 * use the machine. */
static int measure(const benches *b, decode_rows r, double *seconds, decode_floor *work, err *e)
{
    *seconds = decode_time(b->at[b->n - 1], r, work, e);
    if (b->n == 1 || *seconds < 0)
        return *seconds < 0 ? -1 : 0;
    decode_floor less;
    double shallow = decode_time(b->at[0], r, &less, e);
    if (shallow < 0)
        return -1;
    *work = (decode_floor){(work->weights - less.weights) / b->layers, (work->adapters - less.adapters) / b->layers,
                           (work->kv - less.kv) / b->layers, (work->flops - less.flops) / b->layers};
    *seconds = (*seconds - shallow) / b->layers;
    return 0;
}

/* Seconds of the same step with less in it; 0: not measured. */
typedef struct { double no_adapters, no_prompt; } without;

static void print_row(const step_options *o, decode_rows r, double seconds, const decode_floor *work, ceilings most,
                      without less, FILE *csv)
{
    double bytes = (work->weights + work->adapters + work->kv) / most.bandwidth, flops = work->flops / most.flops;
    double floor = bytes > flops ? bytes : flops, unit = o->per_layer ? 1e6 : 1e3;
    printf("%5d %8d %-10s %6d %9.3f %9.3f %7.2f", r.batch, r.context, workload_name(r.w), r.prompt, seconds * unit,
           floor * unit, seconds / floor);
    if (!o->per_layer)
        printf(" %9.0f", (r.batch + (r.prompt > 0)) / seconds);
    if (r.prompt > 0 && less.no_prompt > 0)
        printf("  %+6.1f%%  %.1f us a token of the prompt", 100 * (seconds / less.no_prompt - 1),
               (seconds - less.no_prompt) * 1e6 / r.prompt);
    else if (less.no_adapters > 0 && r.w != WORKLOAD_NONE)
        printf("  %+6.1f%%  %.2f x the adapters' bytes", 100 * (seconds / less.no_adapters - 1),
               (seconds - less.no_adapters) / (work->adapters / most.bandwidth));
    putchar('\n');
    fflush(stdout);
    if (csv)
        fprintf(csv, "%s,%s,%s,%s,%d,%d,%s,%d,%.3f,%.3f,%.3f,%.0f,%.0f,%.0f,%s,%d,%d,%.0f,%.3f\n",
                o->per_layer ? "layer" : "step", o->shape, weights_name(o->form, QUANT_NONE, o->type), rank_names(o),
                r.batch, r.context, workload_name(r.w), r.prompt, seconds * 1e6, floor * 1e6, seconds / floor,
                work->weights, work->adapters, work->kv, o->kv == KV_FP8 ? "FP8" : "act", o->tp, o->masked, work->flops,
                flops * 1e6);
}

/* Measures one batch at one context: every workload, with every prompt. */
static int measure_batch(const step_options *o, const benches *b, decode_rows r, ceilings most, FILE *csv, err *e)
{
    without less = {0};
    for (int w = 0; w < N_WORKLOADS; w++) {
        less.no_prompt = 0;
        for (int p = 0; p < o->n_prompts && o->run[w]; p++) {
            decode_floor work;
            double seconds;
            r.w = (workload)w;
            r.prompt = o->prompt[p];
            if (measure(b, r, &seconds, &work, e))
                return -1;
            if (r.prompt == 0)
                less.no_prompt = seconds;
            if (r.prompt == 0 && w == WORKLOAD_NONE)
                less.no_adapters = seconds;
            print_row(o, r, seconds, &work, most, less, csv);
        }
    }
    return 0;
}

static int measure_all(const step_options *o, const benches *b, int max_positions, ceilings most, FILE *csv, err *e)
{
    for (int c = 0; c < o->n_contexts; c++)
        for (int i = 0; i < o->n_batches; i++) {
            decode_rows r = {.batch = o->batch[i], .context = o->context[c]};
            if ((double)r.batch * r.context > max_positions)
                printf("%5d %8d does not fit: the KvCache holds %d positions\n", r.batch, r.context, max_positions);
            else if (measure_batch(o, b, r, most, csv, e))
                return -1;
        }
    return 0;
}

static void print_heading(const step_options *o, const backend *be, ceilings most)
{
    printf("punica " PUNICA_VERSION " bench %s on %s, memory reads at %.2f TB/s, products at %.0f TFLOP/s\n%s, %s%s, "
           "adapters of rank %s on all seven projections%s\n\n",
           o->per_layer ? "layer" : "step", be->name, most.bandwidth * 1e-12, most.flops * 1e-12, o->shape,
           weights_name(o->form, QUANT_NONE, o->type), o->kv == KV_FP8 ? " with a KvCache in FP8" : "", rank_names(o),
           o->masked ? ", draws masked" : "");
    printf("batch  context workload   prompt %9s %9s    over%s  over without\n", o->per_layer ? "us" : "ms", "floor",
           o->per_layer ? "" : "  tokens/s");
}

static int run_shape(const step_options *o, const model_config *c, err *e)
{
    FILE *csv = o->csv ? fopen(o->csv, "w") : NULL;
    if (o->csv && !csv)
        return err_set(e, "cannot write %s: %s", o->csv, strerror(errno));
    if (csv)
        fprintf(csv, "what,shape,dtype,rank,batch,context,workload,prompt,us,floor_us,over_floor,weight_bytes,adapter_"
                     "bytes,kv_bytes,kv,tp,masked,flops,flops_us\n");
    backend *be = backend_open(o->device, o->tp, o->type, 0, e);
    benches b = {.n = 0};
    int max_positions = 0, status = be ? 0 : -1;
    if (status == 0) {
        ceilings most = {be->ops->read_bandwidth(be), matrix_rate(group_device(be, 0), e) * group_devices(be)};
        status = most.flops < 0 ? -1 : 0;
        if (status == 0) {
            print_heading(o, be, most);
            status = open_benches(o, be, c, &b, &max_positions, e);
        }
        if (status == 0)
            status = measure_all(o, &b, max_positions, most, csv, e);
    }
    for (int i = 0; i < b.n; i++)
        decode_free(b.at[i]);
    backend_close(be);
    if (csv && fclose(csv) != 0 && status == 0)
        status = err_set(e, "cannot write %s: %s", o->csv, strerror(errno));
    return status;
}

int step_run(const step_options *o, err *e)
{
    model_config c;
    if (shape_find(o->shape, o->type, &c, e))
        return -1;
    int status = run_shape(o, &c, e);
    model_config_deinit(&c);
    return status;
}
