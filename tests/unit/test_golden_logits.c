/* test_golden_logits.c - logits against float32 Transformers + PEFT
 *
 * For every family under golden/models: all its sequences, of the base and of every adapter, as one
 * batch of prefills; the logits at the recorded positions must agree to 1e-4 of the largest. */
#include <math.h>

#include "golden.h"

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
    golden_set g = golden_open(be, dir);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(logits_agree_with_transformers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
