/* test_golden_logits.c - logits against float32 Transformers + PEFT
 *
 * For every family under golden/models: all its sequences, of the base and of every adapter, as one
 * batch of prefills; the logits at the recorded positions must agree to 1e-4 of the largest. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/batch_builder.h"
#include "model/adapter.h"
#include "model/forward.h"
#include "test.h"

enum { MAX_CASES = 64, MAX_OUT = 512 };

typedef struct { int *token, n_tokens; lora *lora; kv_seq kv; const json_t *doc; } golden_case;

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

static int push_ids(int *out, const json_t *array)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        out[i] = (int)json_integer_value(json_array_get(array, i));
    return (int)json_array_size(array);
}

static lora *load_adapter(const model *m, const char *dir, const char *name)
{
    err e;
    char *path = xasprintf("%s/adapters/%s", dir, name);
    adapter *a = adapter_open(path, &m->config, &e);
    if (!a)
        fail_msg("%s", e.msg);
    lora *l = adapter_to_backend(a, m->be, &e);
    assert_non_null(l);
    adapter_close(a);
    free(path);
    return l;
}

static golden_case read_case(const model *m, const char *dir, const json_t *doc, kv_pool *pool)
{
    const json_t *prompt = json_object_get(doc, "prompt"), *tokens = json_object_get(doc, "tokens");
    golden_case c = {.doc = doc, .token = XNEW_ARRAY(int, json_array_size(prompt) + json_array_size(tokens))};
    c.n_tokens = push_ids(c.token, prompt);
    c.n_tokens += push_ids(c.token + c.n_tokens, tokens);
    const char *name = json_string_value(json_object_get(doc, "adapter"));
    c.lora = name ? load_adapter(m, dir, name) : NULL;
    assert_int_equal(kv_pool_reserve(pool, &c.kv, c.n_tokens), 0);
    return c;
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

/* The batch as built asks for no logits; here every recorded position is wanted. */
static void run_batch(const model *m, golden_case *cases, int n, kv_cache *kv, const char *family)
{
    err e;
    static batch_item items[MAX_CASES + 1];
    static int out_row[MAX_OUT];
    int n_out = 0, n_rows = 0;
    for (int i = 0; i < n; i++, n_rows += cases[i - 1].n_tokens)
        items[i] = (batch_item){.owner = &cases[i], .token = cases[i].token, .n_rows = cases[i].n_tokens, .kv = &cases[i].kv, .lora = cases[i].lora};
    batch_builder *bb = batch_builder_new();
    batch b = *batch_build(bb, items, n, items + n, 0);
    for (int i = 0; i < n; i++) {
        const json_t *logits = json_object_get(((golden_case *)items[i].owner)->doc, "logits");
        for (size_t k = 0; k < json_array_size(logits); k++)
            out_row[n_out++] = b.prefill_indptr[i] + (int)json_integer_value(json_object_get(json_array_get(logits, k), "position"));
    }
    b.n_out = n_out;
    b.out_row = out_row;
    forward *f = forward_new(m, &(forward_limits){n_rows, n_out, kv->n_pages, 3 * LORA_MAX_RANK}, &e);
    const float *got = forward_run(f, &b, kv)->data;
    assert_int_equal(m->be->ops->sync(m->be, &e), 0);

    double worst = 0;
    for (int i = 0, o = 0; i < n; i++) {
        const json_t *logits = json_object_get(((golden_case *)items[i].owner)->doc, "logits");
        for (size_t k = 0; k < json_array_size(logits); k++, o++) {
            float *want = decode_floats(json_string_value(json_object_get(json_array_get(logits, k), "values_b64")), m->config.vocab);
            worst = fmax(worst, compare(got + (size_t)o * (size_t)m->config.vocab, want, m->config.vocab));
            free(want);
        }
    }
    printf("%s: %d sequences, %d logit vectors, largest relative difference %.2g\n", family, n, n_out, worst);
    assert_true(n_out > 0 && worst < 1e-4);
    forward_free(f);
    batch_builder_free(bb);
}

static void check_family(const char *dir, const char *family)
{
    err e;
    static golden_case cases[MAX_CASES];
    char *model_dir = path_join(dir, "model"), *golden_path = path_join(dir, "golden.json");
    backend *be = backend_cpu_new(2);
    model *m = model_load(be, model_dir, &e);
    if (!m)
        fail_msg("%s", e.msg);
    json_t *golden = json_read_file(golden_path, (size_t)64 << 20, &e);
    assert_non_null(golden);
    const json_t *list = json_object_get(golden, "cases");
    int n = (int)json_array_size(list);
    assert_in_range(n, 1, MAX_CASES);

    const model_config *c = &m->config;
    kv_cache kv = {.type = be->act, .n_pages = 1024, .n_layers = c->n_layers, .n_kv_heads = c->n_kv_heads, .page_len = 16, .head_dim = c->head_dim};
    kv.data = be->ops->alloc(be, (size_t)kv.n_pages * (size_t)(2 * kv.n_layers * kv.n_kv_heads * kv.page_len * kv.head_dim) * 4, &e);
    kv_pool *pool = kv_pool_new(kv.n_pages, kv.page_len);
    for (int i = 0; i < n; i++)
        cases[i] = read_case(m, dir, json_array_get(list, (size_t)i), pool);
    run_batch(m, cases, n, &kv, family);

    for (int i = 0; i < n; i++) {
        kv_pool_release(pool, &cases[i].kv);
        lora_free(cases[i].lora, be);
        free(cases[i].token);
    }
    kv_pool_free(pool);
    be->ops->release(be, kv.data);
    json_decref(golden);
    model_free(m);
    be->ops->free(be);
    free(model_dir);
    free(golden_path);
}

static void logits_agree_with_transformers(void **state)
{
    (void)state;
    int n = 0;
    DIR *families = opendir(TEST_DATA "/golden/models");
    assert_non_null(families);
    for (struct dirent *d; (d = readdir(families));) {
        if (d->d_name[0] == '.')
            continue;
        char *dir = path_join(TEST_DATA "/golden/models", d->d_name);
        check_family(dir, d->d_name);
        free(dir);
        n++;
    }
    closedir(families);
    assert_true(n >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(logits_agree_with_transformers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
