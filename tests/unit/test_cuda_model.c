/* test_cuda_model.c - whole models on the GPU: the golden sequences, against the CPU's float32
 *
 * A GPU computes in 16 bits, so near-equal tokens may change places. What must hold: over whole prompts all
 * logits are within the type's tolerance of the CPU's, and wherever the CPU's choice is clearer than that, the
 * GPU's is the same. In the engine, all sequences of a family in one batch, every token it makes is one that
 * the CPU, given the same tokens before it, finds best within the tolerance. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/devices.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "model/split.h"
#include "support/test.h"
#include "support/golden.h"

static kv_form form; /* what the KvCaches of this round hold */

/* How far a logit may be off, in parts of the row's largest, and how far all of them in the mean. These models
 * have random weights, which carry rounding further than trained ones do. A number of an FP8 KvCache that is rounded
 * the other way than the CPU's is a sixteenth off, and the coarser the GPU's type the more are; on the CPU an FP8
 * KvCache by itself changes these models' logits by 0.05 to 0.11 in the mean. */
static double tolerance(dtype act)
{
    return act == DTYPE_F16 ? form == KV_FP8 ? 0.3 : 0.02 : form == KV_FP8 ? 0.6 : 0.15;
}

static double mean_tolerance(dtype act)
{
    return act == DTYPE_F16 ? form == KV_FP8 ? 0.045 : 0.004 : form == KV_FP8 ? 0.08 : 0.03;
}

/* Logits of every position by the CPU. */
static float *reference(const char *dir)
{
    backend *cpu = backend_cpu_new(0);
    golden_set g = golden_open(cpu, dir, form);
    float *logits = golden_run(&g);
    golden_close(&g);
    cpu->ops->free(cpu);
    return logits;
}

/* Ranks that the models are split over, all on the one GPU. */
static int tp;

/* A backend for the family's model; NULL: it cannot be split so. */
static backend *open_gpu(const char *dir)
{
    err e;
    dtype type;
    char *model_dir = path_join(dir, "model");
    model_config c;
    if (model_weights_type(model_dir, &type, &e) || model_config_read(&c, model_dir, &e))
        fail_msg("%s", e.msg);
    free(model_dir);
    int cannot = split_check(&c, tp, &e);
    model_config_deinit(&c);
    if (cannot)
        return NULL;
    backend *be = backend_open("cuda", tp, type, 0, &e);
    if (!be)
        fail_msg("%s", e.msg);
    return be;
}

static int best_of(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* How far the best is ahead of the second, and the largest magnitude. */
static double margin_of(const float *x, int n, double *scale)
{
    int best = best_of(x, n);
    double second = -INFINITY;
    *scale = 0;
    for (int i = 0; i < n; i++) {
        *scale = fmax(*scale, fabs((double)x[i]));
        if (i != best)
            second = fmax(second, x[i]);
    }
    return x[best] - second;
}

static bool is_clear(const float *row, int n, dtype act)
{
    double scale, margin = margin_of(row, n, &scale);
    return margin > tolerance(act) * scale;
}

/* Under a sanitizer one family is enough. */
static bool is_left_out(const char *family)
{
    return getenv("PUNICA_TEST_QUICK") && strcmp(family, "llama3") != 0;
}

static void check_prompts(const char *dir, const char *family)
{
    if (is_left_out(family))
        return;
    backend *be = open_gpu(dir);
    if (!be)
        return;
    golden_set g = golden_open(be, dir, form);
    size_t vocab = (size_t)g.m->config.vocab;
    float *want = reference(dir), *got = golden_run(&g);
    double worst = 0, squares = 0, total = 0;
    int clear = 0;
    for (int r = 0; r < g.n_rows; r++) {
        const float *a = want + (size_t)r * vocab, *b = got + (size_t)r * vocab;
        double scale;
        margin_of(a, (int)vocab, &scale);
        for (size_t i = 0; i < vocab; i++) {
            double d = (double)b[i] - (double)a[i];
            if (!isfinite(b[i]))
                fail_msg("%s: logit %zu of row %d is %g", family, i, r, (double)b[i]);
            worst = fmax(worst, fabs(d) / scale);
            squares += d * d;
            total += (double)a[i] * (double)a[i];
        }
        if (is_clear(a, (int)vocab, be->act)) {
            clear++;
            assert_int_equal(best_of(b, (int)vocab), best_of(a, (int)vocab));
        }
    }
    printf("%s: %s, %d positions, logits differ by %.2g of the largest at most, %.2g in the mean; %d clear choices the "
           "same\n",
           family, dtype_name(be->act), g.n_rows, worst, sqrt(squares / total), clear);
    assert_true(worst < tolerance(be->act) && sqrt(squares / total) < mean_tolerance(be->act));
    free(want);
    free(got);
    golden_close(&g);
    backend_close(be);
}

static lora *load_by_name(void *ctx, const char *name, err *e)
{
    (void)e;
    return golden_adapter(ctx, name);
}

static void add_case(engine *eng, const golden_set *g, int i)
{
    err e;
    engine_request r = golden_request(g, i);
    if (engine_add(eng, &r, &e))
        fail_msg("%s", e.msg);
}

/* Run all cases to their end; made: [n][n_tokens] as the GPU continued them. */
static void run_engine(engine *eng, const golden_set *g, int **made, int *n_made)
{
    err e;
    for (int i = 0; i < g->n; i++)
        add_case(eng, g, i);
    while (!engine_is_idle(eng)) {
        const event *events;
        int n;
        if (engine_step(eng, &events, &n, &e))
            fail_msg("%s", e.msg);
        for (int k = 0; k < n; k++) {
            assert_true(events[k].kind == EVENT_TOKEN || events[k].kind == EVENT_FINISHED);
            if (events[k].kind == EVENT_TOKEN)
                made[events[k].id][n_made[events[k].id]++] = events[k].drawn.token;
        }
    }
}

/* The CPU's logits over prompts and what the GPU made of them. */
static float *reference_for(const char *dir, int **made)
{
    backend *cpu = backend_cpu_new(0);
    golden_set g = golden_open(cpu, dir, form);
    for (int i = 0; i < g.n; i++)
        memcpy(g.at[i].token + g.at[i].n_prompt, made[i], (size_t)(g.at[i].n_tokens - g.at[i].n_prompt) * sizeof(int));
    float *logits = golden_run(&g);
    golden_close(&g);
    cpu->ops->free(cpu);
    return logits;
}

/* Every token made must be the CPU's best, or as good within the tolerance. Returns how many are the best. */
static int check_case(const golden_case *c, const int *made, int n_made, const float *logits, int vocab, dtype act)
{
    int best = 0;
    assert_int_equal(n_made, c->n_tokens - c->n_prompt);
    for (int i = 0; i < n_made; i++) {
        const float *row = logits + (size_t)(c->row + c->n_prompt + i - 1) * (size_t)vocab;
        int top = best_of(row, vocab);
        double scale;
        margin_of(row, vocab, &scale);
        if (row[made[i]] < row[top] - tolerance(act) * scale)
            fail_msg("token %d is %d (%g), the CPU says %d (%g)", i, made[i], (double)row[made[i]], top,
                     (double)row[top]);
        best += made[i] == top;
    }
    return best;
}

static void check_engine(const char *dir, const char *family)
{
    err e;
    if (is_left_out(family))
        return;
    backend *be = open_gpu(dir);
    if (!be)
        return;
    golden_set g = golden_open(be, dir, form);
    engine_options o = engine_options_default();
    o.n_pages = 512;
    o.kv = form;
    o.adapters = (adapter_source){.load = load_by_name, .ctx = &g};
    engine *eng = engine_new(g.m, &o, &e);
    if (!eng)
        fail_msg("%s", e.msg);
    int **made = XNEW_ARRAY(int *, (size_t)g.n), *n_made = XNEW_ARRAY(int, (size_t)g.n), best = 0, all = 0;
    for (int i = 0; i < g.n; i++)
        made[i] = XNEW_ARRAY(int, (size_t)g.at[i].n_tokens);
    run_engine(eng, &g, made, n_made);
    float *logits = reference_for(dir, made);
    for (int i = 0; i < g.n; i++) {
        best += check_case(&g.at[i], made[i], n_made[i], logits, g.m->config.vocab, be->act);
        all += g.at[i].n_tokens - g.at[i].n_prompt;
        free(made[i]);
    }
    printf("%s: %d of %d tokens are the CPU's best, the others as good within the tolerance\n", family, best, all);
    assert_true(best >= all * 8 / 10);
    engine_free(eng);
    free(made);
    free(n_made);
    free(logits);
    golden_close(&g);
    backend_close(be);
}

/* Split over 1, 2, 3 and 4 ranks, those that can be; whole, and over 2, with an FP8 KvCache as well. PUNICA_TEST_SPLIT
 * names one of these six by its number, from 0. */
static void each_split(void (*check)(const char *dir, const char *family))
{
    const char *only = getenv("PUNICA_TEST_SPLIT");
    for (int i = 0; i < (getenv("PUNICA_TEST_QUICK") ? 2 : 6); i++) {
        if (only && atoi(only) != i)
            continue;
        tp = i < 4 ? i + 1 : i - 3;
        form = i < 4 ? KV_PLAIN : KV_FP8;
        printf("over %d ranks%s:\n", tp, form == KV_FP8 ? ", KvCache in FP8" : "");
        golden_each_family(check);
    }
    form = KV_PLAIN;
}

static void prompts_agree_with_the_cpu(void **state)
{
    (void)state;
    each_split(check_prompts);
}

static void the_engine_makes_the_cpus_tokens(void **state)
{
    (void)state;
    each_split(check_engine);
}

/* Conversations, one at a time, on a KvCache that holds all of them and on one that holds few, with the host behind it.
 */
enum { TALKS = 12, TURNS = 3, SAID = 150, MADE = 9, TALK_LEN = TURNS * (SAID + MADE) };
typedef struct {
    int token[TALK_LEN], n_tokens, n_cached[TURNS];
    float logprob[TURNS * MADE];
} gpu_talk;

static void answer(engine *g, gpu_talk *t, int turn)
{
    const event *events;
    int n, n_made = 0;
    err e;
    engine_request r = {
        .id = 1, .token = t->token, .n_tokens = t->n_tokens, .n_prompt = t->n_tokens, .sampling = sampling_default()};
    r.sampling.max_tokens = MADE;
    r.sampling.ignore_eos = true;
    r.sampling.n_logprobs = 0;
    assert_int_equal(engine_add(g, &r, &e), 0);
    while (!engine_is_idle(g)) {
        if (engine_step(g, &events, &n, &e))
            fail_msg("%s", e.msg);
        for (int i = 0; i < n; i++)
            if (events[i].kind == EVENT_TOKEN) {
                t->n_cached[turn] = n_made == 0 ? events[i].n_cached : t->n_cached[turn];
                t->logprob[turn * MADE + n_made++] = events[i].drawn.logprob;
                t->token[t->n_tokens++] = events[i].drawn.token;
            }
    }
}

static engine_stats converse(const model *m, gpu_talk *all, int n_pages, size_t host_bytes)
{
    err e;
    engine_options o = engine_options_default();
    o.max_batch = 2;
    o.n_pages = n_pages;
    o.host_bytes = host_bytes;
    engine *g = engine_new(m, &o, &e);
    if (!g)
        fail_msg("%s", e.msg);
    memset(all, 0, TALKS * sizeof *all);
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < TALKS; i++) {
            for (int k = 0; k < SAID; k++)
                all[i].token[all[i].n_tokens++] = (int)(rng_u64((uint64_t)(i * TURNS + turn), (uint64_t)k) % 512);
            answer(g, &all[i], turn);
        }
    engine_stats s = engine_get_stats(g);
    engine_free(g);
    return s;
}

/* What comes back from the host is bit for bit what went there: where as much of a prompt was cached, all that follows
 * is the same. */
static void pages_come_back_from_the_host(void **state)
{
    (void)state;
    static gpu_talk near[TALKS], far[TALKS];
    err e;
    model_config c = {.n_layers = 4,
                      .hidden = 256,
                      .n_heads = 4,
                      .n_kv_heads = 2,
                      .head_dim = 64,
                      .ffn = 512,
                      .vocab = 512,
                      .max_positions = 1024,
                      .rms_eps = 1e-5f,
                      .rope_theta = 10000,
                      .type = DTYPE_F16,
                      .bos = -1};
    c.layer_slides = XNEW_ARRAY(bool, 4);
    snprintf(c.family, sizeof c.family, "llama");
    backend *be = backend_cuda_new(0, DTYPE_F16, &e);
    model *m = be ? model_random(be, &c, WEIGHTS_STORED, 7, &e) : NULL;
    if (!m)
        fail_msg("%s", e.msg);
    converse(m, near, 1000, 0);
    engine_stats s = converse(m, far, 80, (size_t)64 << 20);
    int n_same = 0;
    for (int i = 0; i < TALKS; i++)
        for (int turn = 0; turn < TURNS && near[i].n_cached[turn] == far[i].n_cached[turn]; turn++) {
            int from = turn * (SAID + MADE), n = SAID + MADE;
            assert_memory_equal(near[i].token + from, far[i].token + from, (size_t)n * sizeof(int));
            assert_memory_equal(near[i].logprob + turn * MADE, far[i].logprob + turn * MADE, MADE * sizeof(float));
            n_same += turn > 0;
        }
    printf("%llu pages saved, %llu fetched; %d of %d turns found as much as on the device alone\n",
           (unsigned long long)s.pages_saved, (unsigned long long)s.pages_fetched, n_same, TALKS * (TURNS - 1));
    assert_true(s.pages_fetched > 50 && n_same > TALKS * (TURNS - 1) / 2);
    model_free(m);
    be->ops->free(be);
}

int main(void)
{
    err e;
    backend *be = backend_cuda_new(0, DTYPE_F16, &e);
    if (!be) {
        printf("not run: %s\n", e.msg);
        return getenv("PUNICA_TEST_GPU") ? 1 : 0;
    }
    be->ops->free(be);
    if (getenv("PUNICA_TEST_ONLY"))
        cmocka_set_test_filter(getenv("PUNICA_TEST_ONLY"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_agree_with_the_cpu),
        cmocka_unit_test(the_engine_makes_the_cpus_tokens),
        cmocka_unit_test(pages_come_back_from_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
