/* test_split.c - models split over ranks compute what whole ones do, and what cannot be split is refused */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/devices.h"
#include "backend/group.h"
#include "base/file.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "model/split.h"
#include "support/test.h"
#include "support/golden.h"

static const int TP[] = {2, 3, 4};
enum { N_TP = sizeof TP / sizeof TP[0] };

static int n_split[N_TP]; /* families that could be split so */

static double log_of_sum(const float *x, int n)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        max = fmax(max, x[i]);
    for (int i = 0; i < n; i++)
        sum += exp(x[i] - max);
    return max + log(sum);
}

static int best(const float *x, int n)
{
    int at = 0;
    for (int i = 1; i < n; i++)
        at = x[i] > x[at] ? i : at;
    return at;
}

/* The largest difference of two rows' log-probabilities. */
static double compare(const float *got, const float *want, int n)
{
    double a = log_of_sum(got, n), b = log_of_sum(want, n), worst = 0;
    for (int i = 0; i < n; i++)
        worst = fmax(worst, fabs((got[i] - a) - (want[i] - b)));
    return worst;
}

/* Ranks on devices of their own, as on several GPUs: each is a CPU. All may read all memory, so sums are those of ranks
 * on one. */
typedef struct {
    comm base;
    comm *sum;
    int n;
} many_cpus;

static void many_all_reduce(comm *c, tensor *y, const tensor *part)
{
    comm *sum = ((many_cpus *)c)->sum;
    sum->ops->all_reduce(sum, y, part);
}

static void many_add_rms_norm(comm *c, tensor *y, tensor *x, const tensor *part, const tensor *const *w, float eps)
{
    comm *sum = ((many_cpus *)c)->sum;
    sum->ops->add_rms_norm(sum, y, x, part, w, eps);
}

static void many_all_gather(comm *c, tensor *y, const tensor *part)
{
    many_cpus *m = (many_cpus *)c;
    for (int d = 0; d < m->n; d++)
        m->sum->ops->all_gather(m->sum, &y[d], part);
}

static void many_free(comm *c)
{
    many_cpus *m = (many_cpus *)c;
    m->sum->ops->free(m->sum);
    free(m);
}

static backend *open_apart(int n)
{
    static const comm_ops ops = {many_all_reduce, many_add_rms_norm, many_all_gather, many_free};
    backend *device[MAX_RANKS];
    for (int i = 0; i < n; i++)
        device[i] = backend_cpu_new(1);
    many_cpus *m = XNEW(many_cpus);
    *m = (many_cpus){{&ops}, comm_cpu_new(device[0], n), n};
    group_join(device, n, n, &m->base);
    return device[0];
}

static float *logits_of(const char *dir, int tp, bool apart, int *rows, int *vocab)
{
    err e;
    backend *be = apart ? open_apart(tp) : backend_open("cpu", tp, DTYPE_F32, 2, &e);
    golden_set g = golden_open(be, dir, KV_PLAIN);
    float *logits = golden_run(&g);
    *rows = g.n_rows;
    *vocab = g.m->config.vocab;
    golden_close(&g);
    backend_close(be);
    return logits;
}

static bool can_split(const char *dir, int tp)
{
    err e;
    model_config c;
    char *path = path_join(dir, "model");
    assert_int_equal(model_config_read(&c, path, &e), 0);
    int status = split_check(&c, tp, &e);
    model_config_deinit(&c);
    if (status) { /* the same is said by those who load it */
        err loading;
        backend *be = backend_open("cpu", tp, DTYPE_F32, 1, &loading);
        assert_null(model_load(be, path, WEIGHTS_STORED, &loading));
        assert_string_equal(e.msg, loading.msg);
        backend_close(be);
    }
    free(path);
    return status == 0;
}

static void check_family(const char *dir, const char *family)
{
    int rows, vocab;
    float *whole = logits_of(dir, 1, false, &rows, &vocab);
    for (int k = 0; k < N_TP; k++) {
        if (!can_split(dir, TP[k]))
            continue;
        n_split[k]++;
        float *logits = logits_of(dir, TP[k], false, &rows, &vocab),
              *apart = logits_of(dir, TP[k], true, &rows, &vocab);
        double worst = 0;
        for (int r = 0; r < rows; r++) {
            const float *got = logits + (size_t)r * (size_t)vocab, *want = whole + (size_t)r * (size_t)vocab;
            worst = fmax(worst, compare(got, want, vocab));
            assert_int_equal(best(got, vocab), best(want, vocab));
        }
        printf("%s over %d ranks: %d rows, log-probabilities differ by at most %.2g\n", family, TP[k], rows, worst);
        assert_true(worst < 1e-4);
        assert_memory_equal(apart, logits, (size_t)rows * (size_t)vocab * sizeof(float));
        free(apart);
        free(logits);
    }
    free(whole);
}

static void split_models_compute_the_same(void **state)
{
    (void)state;
    golden_each_family(check_family);
    for (int k = 0; k < N_TP; k++)
        assert_true(n_split[k] >= 2);
}

/* Each device's share. An engine on the CPU takes them as they are, since it has nothing to copy. */
static lora *load_by_name(void *ctx, const char *name, err *e)
{
    const golden_set *g = ctx;
    lora *host = golden_adapter(g, name), *shares = lora_upload(host, g->be, e);
    lora_free(host, NULL);
    return shares;
}

/* The engine over devices makes the reference's tokens, with adapters that come and go. */
static void check_engine(const char *dir, const char *family)
{
    err e;
    if (strcmp(family, "qwen3") != 0)
        return;
    golden_set g = golden_open(open_apart(2), dir, KV_PLAIN);
    engine_options o = engine_options_default();
    o.n_pages = 512;
    o.n_adapter_slots = 2;
    o.adapters = (adapter_source){.load = load_by_name, .ctx = &g};
    engine *eng = engine_new(g.m, &o, &e);
    assert_non_null(eng);
    int *n_made = XNEW_ARRAY(int, (size_t)g.n), n_adapted = 0;
    for (int i = 0; i < g.n; i++) {
        engine_request r = golden_request(&g, i);
        assert_int_equal(engine_add(eng, &r, &e), 0);
        n_adapted += r.adapter != NULL;
    }
    while (!engine_is_idle(eng)) {
        const event *events;
        int n;
        assert_int_equal(engine_step(eng, &events, &n, &e), 0);
        for (int k = 0; k < n; k++) {
            const golden_case *c = &g.at[events[k].id];
            assert_true(events[k].kind == EVENT_TOKEN || events[k].kind == EVENT_FINISHED);
            if (events[k].kind == EVENT_TOKEN)
                assert_int_equal(events[k].drawn.token, c->token[c->n_prompt + n_made[events[k].id]++]);
        }
    }
    for (int i = 0; i < g.n; i++)
        assert_int_equal(n_made[i], g.at[i].n_tokens - g.at[i].n_prompt);
    assert_true(n_adapted > 2);
    backend *be = g.be;
    free(n_made);
    engine_free(eng);
    golden_close(&g);
    backend_close(be);
}

static void engines_over_devices_make_the_same_tokens(void **state)
{
    (void)state;
    golden_each_family(check_engine);
}

/* Every element has one rank, or so many as share a key and value head. */
static void check_cover(int n, const split_stretch *s, int n_ranks, int times)
{
    int *seen = XNEW_ARRAY(int, (size_t)n);
    for (int r = 0; r < n_ranks; r++)
        for (int i = s[r].from; i < s[r].from + s[r].n; i++) {
            assert_true(i >= 0 && i < n);
            seen[i]++;
        }
    for (int i = 0; i < n; i++)
        assert_int_equal(seen[i], times);
    free(seen);
}

static void shares_cover_everything(void **state)
{
    (void)state;
    static const model_config shapes[] = {
        {.n_heads = 32, .n_kv_heads = 32, .head_dim = 128, .hidden = 4096, .ffn = 11008, .vocab = 32000},
        {.n_heads = 64, .n_kv_heads = 8, .head_dim = 128, .hidden = 8192, .ffn = 28672, .vocab = 128256},
        {.n_heads = 8, .n_kv_heads = 2, .head_dim = 16, .hidden = 64, .ffn = 136, .vocab = 301},
        {.n_heads = 16, .n_kv_heads = 1, .head_dim = 64, .hidden = 72, .ffn = 1000, .vocab = 280},
        {.n_heads = 16,
         .n_kv_heads = 4,
         .head_dim = 128,
         .hidden = 1024,
         .ffn = 2112,
         .vocab = 280,
         .quant = QUANT_BLOCK},
    };
    err e;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int n = 1; n <= 8; n *= 2) {
            const model_config *c = &shapes[i];
            split_stretch q[8], k[8], ffn[8], vocab[8];
            assert_int_equal(split_check(c, n, &e), 0);
            for (int r = 0; r < n; r++) {
                split s = {r, n};
                q[r] = split_out(c, s, SITE_QKV, 0);
                k[r] = split_out(c, s, SITE_QKV, 1);
                ffn[r] = split_out(c, s, SITE_GATE_UP, 1);
                vocab[r] = split_vocab(c, s);
                assert_int_equal(split_in(c, s, SITE_O).from, q[r].from);
                assert_int_equal(split_in(c, s, SITE_DOWN).n, ffn[r].n);
                assert_int_equal(split_out(c, s, SITE_DOWN, 0).n, c->hidden);
                assert_true(c->quant != QUANT_BLOCK || ffn[r].from % SCALE_BLOCK == 0);
                heads h = split_heads(c, s); /* a query head finds its key among the rank's own */
                int per_key = c->n_heads / c->n_kv_heads, first = q[r].from / c->head_dim;
                for (int head = 0; head < h.n_heads; head++)
                    assert_int_equal((first + head) / per_key,
                                     k[r].from / c->head_dim + head / (h.n_heads / h.n_kv_heads));
            }
            check_cover(c->n_heads * c->head_dim, q, n, 1);
            check_cover(c->n_kv_heads * c->head_dim, k, n, n > c->n_kv_heads ? n / c->n_kv_heads : 1);
            check_cover(c->ffn, ffn, n, 1);
            check_cover(c->vocab, vocab, n, 1);
        }
}

static void refuses(model_config c, int n, const char *why)
{
    err e = {""};
    assert_int_equal(split_check(&c, n, &e), -1);
    if (!strstr(e.msg, why))
        fail_msg("\"%s\" does not say \"%s\"", e.msg, why);
}

static void what_cannot_be_split_is_refused(void **state)
{
    (void)state;
    model_config c = {.n_heads = 12, .n_kv_heads = 4, .head_dim = 64, .hidden = 768, .ffn = 2048, .vocab = 32000},
                 odd = c;
    refuses(c, 5, "12 attention heads");
    refuses(c, 6, "4 key and value heads");
    refuses(c, 3, "4 key and value heads");
    odd.ffn = 24;
    refuses(odd, 4, "too small");
    odd = c;
    odd.quant = QUANT_BLOCK;
    refuses(odd, 4, "cut through");
    err e;
    assert_null(backend_open("cuda:0-2", 2, DTYPE_F16, 0, &e));
    assert_non_null(strstr(e.msg, "3 devices"));
    assert_null(backend_open("cuda:2-0", 1, DTYPE_F16, 0, &e));
    assert_non_null(strstr(e.msg, "unknown device"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_cover_everything),
        cmocka_unit_test(what_cannot_be_split_is_refused),
        cmocka_unit_test(split_models_compute_the_same),
        cmocka_unit_test(engines_over_devices_make_the_same_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
