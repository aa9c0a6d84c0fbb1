/* test_golden_logits.c - logits, and scores of prompts, against float32 Transformers + PEFT
 *
 * For every family under golden/models: all its sequences, of the base and of every adapter, as one
 * batch of prefills; the logits at the recorded positions must agree to 1e-4 of the largest. The same
 * sequences as prompts that the engine scores, in chunks: the logprobs of the tokens behind these positions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "support/test.h"
#include "support/golden.h"

static int base64_value(int c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *p = c ? strchr(digits, c) : NULL;
    return p ? (int)(p - digits) : -1;
}

static float *decode_floats(const char *text, int n)
{
    unsigned char *out = xcalloc((size_t)n * 4 + 4, 1);
    unsigned bits = 0;
    int n_bits = 0;
    size_t k = 0;
    for (; *text && base64_value(*text) >= 0; text++) {
        bits = bits << 6 | (unsigned)base64_value(*text);
        if ((n_bits += 6) >= 8)
            out[k++] = (unsigned char)(bits >> (n_bits -= 8));
    }
    assert_int_equal(k, (size_t)n * 4);
    return (float *)out;
}

/* Largest difference over the largest reference value. */
static double compare(const float *got, const float *want, int n)
{
    double diff = 0, scale = 0;
    for (int i = 0; i < n; i++) {
        diff = fmax(diff, fabs((double)got[i] - (double)want[i]));
        scale = fmax(scale, fabs((double)want[i]));
        assert_true(isfinite(got[i]));
    }
    return diff / scale;
}

static void check_family(const char *dir, const char *family)
{
    backend *be = backend_cpu_new(2);
    golden_set g = golden_open(be, dir, KV_PLAIN);
    int vocab = g.m->config.vocab, n = 0;
    float *logits = golden_run(&g);
    double worst = 0;
    for (int i = 0; i < g.n; i++) {
        const json_t *recorded = json_object_get(g.at[i].doc, "logits");
        for (size_t k = 0; k < json_array_size(recorded); k++, n++) {
            const json_t *at = json_array_get(recorded, k);
            int row = g.at[i].row + (int)json_integer_value(json_object_get(at, "position"));
            float *want = decode_floats(json_string_value(json_object_get(at, "values_b64")), vocab);
            worst = fmax(worst, compare(logits + (size_t)row * (size_t)vocab, want, vocab));
            free(want);
        }
    }
    printf("%s: %d sequences, %d logit vectors, largest relative difference %.2g\n", family, g.n, n, worst);
    assert_true(n > 0 && worst < 1e-4);
    free(logits);
    golden_close(&g);
    be->ops->free(be);
}

static void logits_agree_with_transformers(void **state)
{
    (void)state;
    golden_each_family(check_family);
}

/* Scores of one sequence, by the place of the token. */
typedef struct {
    sample_result *at;
    int n;
} scores;

static lora *load_golden(void *ctx, const char *name, err *e)
{
    (void)e;
    return golden_adapter(ctx, name);
}

static engine *score_all(golden_set *g, scores *of)
{
    err e;
    engine_options o = engine_options_default();
    o.prefill_rows = 24;
    o.n_pages = 1024;
    o.adapters = (adapter_source){.load = load_golden, .ctx = g};
    engine *on = engine_new(g->m, &o, &e);
    assert_non_null(on);
    for (int i = 0; i < g->n; i++) {
        engine_request r = {.id = (uint64_t)i,
                            .adapter = g->at[i].adapter,
                            .token = g->at[i].token,
                            .n_tokens = g->at[i].n_tokens,
                            .n_prompt = g->at[i].n_tokens,
                            .sampling = sampling_default()};
        r.sampling.n_prompt_logprobs = 3;
        r.sampling.max_tokens = 0;
        of[i] = (scores){.at = XNEW_ARRAY(sample_result, (size_t)g->at[i].n_tokens), .n = 1};
        assert_int_equal(engine_add(on, &r, &e), 0);
    }
    while (!engine_is_idle(on)) {
        const event *ev;
        int n;
        assert_int_equal(engine_step(on, &ev, &n, &e), 0);
        for (int i = 0; i < n; i++)
            if (ev[i].kind == EVENT_SCORE)
                of[ev[i].id].at[of[ev[i].id].n++] = ev[i].drawn;
            else
                assert_int_equal(ev[i].kind, EVENT_FINISHED);
    }
    return on;
}

static double logprob_of(const float *logits, int n, int token)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        max = fmax(max, (double)logits[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    return (double)logits[token] - max - log(sum);
}

/* What is said of a token, by the logits that the reference has before it. */
static void check_score(const sample_result *got, const float *want, int vocab, int token)
{
    int above = 1, close = 0;
    for (int i = 0; i < vocab; i++) {
        above += (double)want[i] > (double)want[token] + 1e-3;
        close += fabs((double)want[i] - (double)want[token]) <= 1e-3;
    }
    assert_int_equal(got->token, token);
    assert_true(fabs((double)got->logprob - logprob_of(want, vocab, token)) < 1e-3);
    assert_true(got->rank >= above && got->rank <= above + close);
    for (int k = 0; k < 3; k++)
        assert_true(fabs((double)got->top[k].logprob - logprob_of(want, vocab, got->top[k].token)) < 1e-3);
    assert_true(got->rank > 3 || got->top[got->rank - 1].logprob == got->logprob);
}

static void check_scores(const char *dir, const char *family)
{
    backend *be = backend_cpu_new(2);
    golden_set g = golden_open(be, dir, KV_PLAIN);
    scores *of = XNEW_ARRAY(scores, (size_t)g.n);
    engine *on = score_all(&g, of);
    int vocab = g.m->config.vocab, n = 0;
    for (int i = 0; i < g.n; i++) {
        const json_t *recorded = json_object_get(g.at[i].doc, "logits");
        assert_int_equal(of[i].n, g.at[i].n_tokens);
        for (size_t k = 0; k < json_array_size(recorded); k++) {
            const json_t *at = json_array_get(recorded, k);
            int behind = (int)json_integer_value(json_object_get(at, "position")) + 1;
            float *want = decode_floats(json_string_value(json_object_get(at, "values_b64")), vocab);
            if (behind < g.at[i].n_tokens) {
                check_score(&of[i].at[behind], want, vocab, g.at[i].token[behind]);
                n++;
            }
            free(want);
        }
        free(of[i].at);
    }
    printf("%s: %d scores\n", family, n);
    assert_true(n > 0);
    free(of);
    engine_free(on);
    golden_close(&g);
    be->ops->free(be);
}

static void scores_agree_with_transformers(void **state)
{
    (void)state;
    golden_each_family(check_scores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(logits_agree_with_transformers),
                                       cmocka_unit_test(scores_agree_with_transformers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
