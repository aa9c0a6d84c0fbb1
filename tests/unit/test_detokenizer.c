/* test_detokenizer.c - the pieces of a stream add up to the decoded text, whatever the ids, and no
 * piece holds half a character; a stream can be taken up in the middle */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/golden_tokenizer.h"
#include "support/test.h"
#include "text/detokenizer.h"
#include "text/token_bytes.h"
#include "text/utf8.h"

static void check_equal(const buf *got, const buf *want, const char *what)
{
    if (got->len != want->len || (got->len && memcmp(got->data, want->data, got->len) != 0))
        fail_msg("%s: streamed \"%s\", decoded \"%s\"", what, got->data, want->data);
}

/* Stream the ids, taking the stream up anew after `cut` of them. */
static void stream(const tokenizer *t, const int *id, size_t n, size_t cut, bool skip, buf *out)
{
    detokenizer d;
    detokenizer_init(&d, t, skip, NULL, 0);
    for (size_t i = 0; i < n; i++) {
        if (i == cut) {
            detokenizer_deinit(&d);
            detokenizer_init(&d, t, skip, id, i);
        }
        size_t before = out->len;
        detokenizer_add(&d, id[i], out);
        assert_true(utf8_is_valid(out->data + before, out->len - before));
    }
    detokenizer_finish(&d, out);
    detokenizer_deinit(&d);
}

static void check_ids(const tokenizer *t, const int *id, size_t n, uint64_t seed, const char *what)
{
    for (int skip = 0; skip < 2; skip++) {
        buf whole = {0}, pieces = {0};
        buf_add(&whole, "", 0);
        buf_add(&pieces, "", 0);
        tokenizer_decode(t, id, n, skip, &whole);
        stream(t, id, n, rng_u64(seed, 1) % (n + 1), skip, &pieces);
        check_equal(&pieces, &whole, what);
        buf_free(&whole);
        buf_free(&pieces);
    }
}

static void test_random_ids(void **state)
{
    (void)state;
    static const char *const names[] = {"llama2", "llama2_metaspace", "mistral", "llama3", "qwen2",
                                        "gpt2",   "unknown",          "words"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        tokenizer *t = golden_tokenizer(names[k]);
        uint64_t size = (uint64_t)tokenizer_vocab_size(t) + 20;
        for (uint64_t seed = 0; seed < 1500; seed++) {
            int id[24];
            size_t n = rng_u64(seed, 0) % 24;
            /* half of the lists from the first 300 ids, where the tokens of bytes are */
            for (size_t i = 0; i < n; i++)
                id[i] = (int)(rng_u64(seed, 10 + i) % (seed % 2 ? size : 300));
            check_ids(t, id, n, seed, names[k]);
        }
        tokenizer_free(t);
    }
}

static void expect(detokenizer *d, int id, const char *text)
{
    buf out = {0};
    buf_add(&out, "", 0);
    detokenizer_add(d, id, &out);
    assert_string_equal(out.data, text);
    buf_free(&out);
}

static void expect_end(detokenizer *d, const char *text)
{
    buf out = {0};
    buf_add(&out, "", 0);
    detokenizer_finish(d, &out);
    assert_string_equal(out.data, text);
    buf_free(&out);
    detokenizer_deinit(d);
}

/* A character comes out with its last byte. */
static void test_byte_level(void **state)
{
    (void)state;
    tokenizer *t = golden_tokenizer("llama3");
    int e2 = tokenizer_token_id(t, "â"), b82 = tokenizer_token_id(t, "Ĥ"), ac = tokenizer_token_id(t, "¬"),
        a = tokenizer_token_id(t, "a");
    assert_true(e2 >= 0 && b82 >= 0 && ac >= 0 && a >= 0);
    detokenizer d;
    detokenizer_init(&d, t, true, NULL, 0);
    expect(&d, e2, "");
    expect(&d, b82, "");
    expect(&d, ac, "€");
    expect(&d, e2, "");
    expect(&d, a, "\ufffda"); /* it can never be completed: one U+FFFD */
    expect(&d, b82, "\ufffd");
    expect(&d, e2, "");
    expect_end(&d, "\ufffd");
    /* taken up between the bytes of a character */
    detokenizer_init(&d, t, true, (int[]){a, e2, b82}, 3);
    expect(&d, ac, "€");
    expect_end(&d, "");
    tokenizer_free(t);
}

/* A run of byte tokens waits for its end: one wrong byte makes all of them U+FFFD. */
static void test_byte_fallback(void **state)
{
    (void)state;
    tokenizer *t = golden_tokenizer("llama2");
    int e2 = tokenizer_token_id(t, "<0xE2>"), b82 = tokenizer_token_id(t, "<0x82>"),
        ac = tokenizer_token_id(t, "<0xAC>");
    int a = tokenizer_token_id(t, "a"), blank = tokenizer_token_id(t, "▁"), bos = tokenizer_token_id(t, "<s>");
    detokenizer d;
    detokenizer_init(&d, t, true, NULL, 0);
    expect(&d, bos, "");
    expect(&d, blank, ""); /* the blank that encoding put in front */
    expect(&d, blank, " ");
    expect(&d, e2, "");
    expect(&d, b82, "");
    expect(&d, ac, "");
    expect(&d, a, "€a");
    expect(&d, ac, "");
    expect(&d, e2, "");
    expect(&d, a, "\ufffd\ufffda");
    expect(&d, e2, "");
    expect(&d, 1 << 30, "");
    expect_end(&d, "\ufffd");
    detokenizer_init(&d, t, true, (int[]){blank, e2, b82}, 3);
    expect(&d, ac, "");
    expect(&d, blank, "€ ");
    expect_end(&d, "");
    tokenizer_free(t);
}

static void check_decoder(const char *decoder_json, const int *id, size_t n, const char *text)
{
    err e = {{0}};
    char *json = xasprintf("{\"decoder\":%s,\"model\":{\"vocab\":{\"a\":0,\"_\":1,\"__a__\":2,\"___\":3,\"<0x5F>\":4,"
                           "\"<0x\\tA>\":5,\"<0x A>\":6,\"<0x+A>\":7,\"<0x5 >\":8},\"merges\":[]}}",
                           decoder_json);
    tokenizer *t = tokenizer_from_json(json, strlen(json), NULL, 0, &e);
    if (!t)
        fail_msg("%s", e.msg);
    buf out = {0};
    buf_add(&out, "", 0);
    tokenizer_decode(t, id, n, true, &out);
    assert_string_equal(out.data, text);
    for (uint64_t seed = 0; seed < 200; seed++) {
        int random[12];
        size_t k = rng_u64(seed, 0) % 12;
        for (size_t i = 0; i < k; i++)
            random[i] = (int)(rng_u64(seed, i + 1) % 10);
        check_ids(t, random, k, seed, decoder_json);
    }
    buf_free(&out);
    tokenizer_free(t);
    free(json);
}

#define IDS(...) (const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int)
#define STRIP(start, stop) "{\"type\":\"Strip\",\"content\":\"_\",\"start\":" #start ",\"stop\":" #stop "}"

static void test_steps(void **state)
{
    (void)state;
    check_decoder("null", IDS(0, 0, 9, 1), "a a _");
    check_decoder(STRIP(1, 1), IDS(2, 1, 3), "_a__");
    check_decoder("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"}," STRIP(1, 0) "]}", IDS(1, 1, 0, 1), "_a_");
    check_decoder("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"}," STRIP(2, 3) "]}", IDS(3, 2, 1, 1, 1),
                  "___a__");
    check_decoder("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"}," STRIP(0, 4) "]}", IDS(0, 1, 1, 0, 1, 1),
                  "a__a");
    check_decoder("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"}," STRIP(1, 1) "," STRIP(1, 1) "]}",
                  IDS(3, 0, 3), "_a_");
    check_decoder("{\"type\":\"Metaspace\",\"replacement\":\"_\"}", IDS(2, 2), "a  a  ");
    check_decoder("{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"never\"}", IDS(2, 1), "  a   ");
    check_decoder("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"_+\"},\"content\":\"-\"}", IDS(2, 3), "-a--");
    check_decoder("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Replace\",\"pattern\":{"
                  "\"String\":\"_\"},\"content\":\"+\"}]}",
                  IDS(4, 4, 0, 4), "++a+");
    check_decoder("{\"type\":\"ByteFallback\"}", IDS(4, 5, 6, 7, 8), "_<0x\tA><0x A><0x+A><0x5 >");
    check_decoder("{\"type\":\"ByteLevel\"}", IDS(0, 4, 3), "a<0x5F>___");
    check_decoder("{\"type\":\"Sequence\",\"decoders\":[]}", IDS(0, 3), "a___");
}

static void check_bytes(const tokenizer *t, int id, const char *bytes)
{
    buf out = {0};
    token_bytes(t, id, &out);
    buf_add(&out, "", 0);
    assert_string_equal(out.data, bytes);
    buf_free(&out);
}

/* What only looks like <0xNN> is spelt in the alphabet of byte-level BPE. */
static void test_token_bytes(void **state)
{
    (void)state;
    err e = {{0}};
    const char *json = "{\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"vocab\":{\"<0xé>\":0,\"<0xE9>\":1,"
                       "\"<0xa+>\":2},\"merges\":[]}}";
    tokenizer *t = tokenizer_from_json(json, strlen(json), NULL, 0, &e);
    assert_non_null(t);
    check_bytes(t, 0, "<0x\xe9>");
    check_bytes(t, 1, "\xe9");
    check_bytes(t, 2, "<0xa+>");
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_ids), cmocka_unit_test(test_byte_level),  cmocka_unit_test(test_byte_fallback),
        cmocka_unit_test(test_steps),      cmocka_unit_test(test_token_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
