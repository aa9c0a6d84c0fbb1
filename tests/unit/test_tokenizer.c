/* test_tokenizer.c - encoding and decoding against what the `tokenizers` library does (made by
 * tools/golden_tokenizer.py), files that must be refused, texts that must not be slow */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "support/golden_tokenizer.h"
#include "support/test.h"
#include "text/pattern.h"
#include "text/tokenizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

static const char *const names[] = {"llama2", "llama2_metaspace", "mistral", "llama3", "qwen2", "tekken",
                                    "gpt2",   "unknown",          "words"};

#define N_NAMES (sizeof names / sizeof names[0])

/* The lines of a file, parsed; owned by the caller. */
static json_t *read_lines(const char *path)
{
    err e;
    buf text = {0};
    json_t *lines = json_array();
    if (file_read(&text, path, 64 << 20, &e))
        fail_msg("%s", e.msg);
    for (char *at = text.data, *end; (end = strchr(at, '\n')); at = end + 1) {
        json_t *value = json_read_text(at, (size_t)(end - at), &e);
        if (!value)
            fail_msg("%s: %s", path, e.msg);
        json_array_append_new(lines, value);
    }
    buf_free(&text);
    return lines;
}

/* The bytes of a line of strings.jsonl. */
static void string_bytes(const json_t *line, buf *out)
{
    buf_clear(out);
    if (json_is_string(line)) {
        buf_add(out, json_string_value(line), json_string_length(line));
        return;
    }
    const char *hex = json_string_value(json_object_get(line, "hex"));
    for (unsigned byte; sscanf(hex, "%2x", &byte) == 1; hex += 2)
        buf_add_char(out, (char)byte);
}

static void add_ids(ids *x, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        ids_add(x, (int)json_integer_value(json_array_get(list, i)));
}

static void check_ids(const ids *got, const ids *want, const char *name, size_t line)
{
    if (got->n != want->n || (got->n && memcmp(got->items, want->items, got->n * sizeof(int)) != 0))
        fail_msg("%s, string %zu: other ids than the library gives", name, line);
}

static void check_text(const tokenizer *t, const ids *x, bool skip, const char *want, size_t n, const char *name,
                       size_t line)
{
    buf got = {0};
    tokenizer_decode(t, x->items, x->n, skip, &got);
    if (got.len != n || (n && memcmp(got.data, want, n) != 0))
        fail_msg("%s, line %zu: decoded \"%s\", not \"%s\"", name, line, got.data ? got.data : "", want);
    buf_free(&got);
}

/* What the string is once its bytes are repaired. */
static void repair(const buf *bytes, buf *out)
{
    utf8_tail tail = {0};
    buf_clear(out);
    buf_add(out, "", 0);
    utf8_repair(&tail, bytes->data, bytes->len, out);
    utf8_repair_end(&tail, out);
}

typedef struct {
    const tokenizer *t;
    const char *name;
    const json_t *head;
} golden;

static void check_string(const golden *g, const buf *bytes, const json_t *expected, size_t line)
{
    err e;
    ids plain = {0}, full = {0}, want_plain = {0}, want_full = {0};
    buf repaired = {0};
    add_ids(&want_plain, json_array_get(expected, 0));
    add_ids(&want_full, json_object_get(g->head, "before"));
    add_ids(&want_full, json_array_get(expected, 0));
    add_ids(&want_full, json_object_get(g->head, "after"));
    assert_int_equal(tokenizer_encode(g->t, bytes->data, bytes->len, false, &plain, &e), 0);
    assert_int_equal(tokenizer_encode(g->t, bytes->data, bytes->len, true, &full, &e), 0);
    check_ids(&plain, &want_plain, g->name, line);
    check_ids(&full, &want_full, g->name, line);
    repair(bytes, &repaired);
    for (int skip = 0; skip < 2; skip++) {
        const json_t *text = json_array_get(expected, (size_t)skip + 1);
        bool same = json_is_null(text);
        check_text(g->t, &full, skip, same ? repaired.data : json_string_value(text),
                   same ? repaired.len : json_string_length(text), g->name, line);
    }
    buf_free(&repaired);
    ids_free(&plain);
    ids_free(&full);
    ids_free(&want_plain);
    ids_free(&want_full);
}

static void check_id_list(const golden *g, const json_t *expected, size_t line)
{
    ids x = {0};
    const json_t *keep = json_object_get(expected, "keep"), *skip = json_object_get(expected, "skip");
    add_ids(&x, json_object_get(expected, "ids"));
    check_text(g->t, &x, false, json_string_value(keep), json_string_length(keep), g->name, line);
    check_text(g->t, &x, true, json_string_value(skip), json_string_length(skip), g->name, line);
    ids_free(&x);
}

static void test_golden(void **state)
{
    (void)state;
    json_t *strings = read_lines(GOLDEN "strings.jsonl");
    size_t n = json_array_size(strings);
    assert_true(n > 1000);
    for (size_t k = 0; k < N_NAMES; k++) {
        char *path = xasprintf(GOLDEN "%s/expected.jsonl", names[k]);
        json_t *lines = read_lines(path);
        tokenizer *t = golden_tokenizer(names[k]);
        golden g = {t, names[k], json_array_get(lines, 0)};
        buf bytes = {0};
        for (size_t i = 0; i < n; i++) {
            string_bytes(json_array_get(strings, i), &bytes);
            check_string(&g, &bytes, json_array_get(lines, i + 1), i);
        }
        for (size_t i = n + 1; i < json_array_size(lines); i++)
            check_id_list(&g, json_array_get(lines, i), i);
        buf_free(&bytes);
        tokenizer_free(t);
        json_decref(lines);
        free(path);
    }
    json_decref(strings);
}

static void test_tokens(void **state)
{
    (void)state;
    tokenizer *t = golden_tokenizer("llama3");
    int eot = tokenizer_token_id(t, "<|eot_id|>"), size = tokenizer_vocab_size(t);
    assert_true(eot > 0 && eot < size);
    assert_true(tokenizer_is_special(t, eot));
    assert_false(tokenizer_is_special(t, tokenizer_token_id(t, "<tool_call>")));
    assert_false(tokenizer_is_special(t, 5));
    assert_false(tokenizer_is_special(t, -1));
    assert_int_equal(tokenizer_token_id(t, "no such token"), -1);
    buf out = {0};
    tokenizer_decode(t, (int[]){-1, size, size + 1000, INT32_MAX, INT32_MIN}, 5, false, &out);
    assert_int_equal(out.len, 0);
    buf_free(&out);
    tokenizer_free(t);
}

/* A whole tokenizer.json from a few parts. */
static char *document(const char *parts)
{
    return xasprintf("{\"version\":\"1.0\",%s}", parts);
}

#define MODEL                                                                                         \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1,\"b\":2,\"ab\":3,\" " \
    "\":4,\"▁\":5},\"merges\":[\"a b\"]}"

static tokenizer *make(const char *parts, const char *config, err *e)
{
    char *json = document(parts);
    tokenizer *t = tokenizer_from_json(json, strlen(json), config, config ? strlen(config) : 0, e);
    free(json);
    return t;
}

static void check_refused(const char *parts, const char *reason)
{
    err e = {{0}};
    tokenizer *t = make(parts, NULL, &e);
    if (t)
        fail_msg("accepted: %s", parts);
    if (!strstr(e.msg, reason))
        fail_msg("%s: says \"%s\", not \"%s\"", parts, e.msg, reason);
}

#define SEQUENCE(of) "{\"type\":\"Sequence\",\"normalizers\":[" of "]}"
#define NESTED(of) SEQUENCE(SEQUENCE(SEQUENCE(SEQUENCE(of))))

static void test_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"\"x\":1," MODEL, "unknown member \"x\""},
        {"\"model\":null", "\"model\" must be an object"},
        {"\"model\":{\"type\":\"Unigram\",\"vocab\":[]}", "type \"Unigram\" is not supported"},
        {"\"model\":{\"type\":\"BPE\",\"vocab\":{}}", "\"merges\" must be an array"},
        {"\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}", "\"vocab\" must be an object"},
        {"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}", "token \"a\" has no usable id"},
        {"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}", "token \"a\" has no usable id"},
        {"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4000000000},\"merges\":[]}", "token \"a\" has no usable id"},
        {"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}", "have the same id 1"},
        {"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}",
         "merge 0: \"b\" is not in the vocabulary"},
        {"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}",
         "merge 0: \"aa\" is not in the vocabulary"},
        {"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}", "merge 0: \"a\" is not two tokens"},
        {"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}", "is not two tokens"},
        {"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}", "it must be \"left right\""},
        {"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[7]}", "it must be \"left right\""},
        {"\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[],\"dropout\":0.1}", "dropout is not supported"},
        {"\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[],\"end_of_word_suffix\":\"</w>\"}",
         "end_of_word_suffix"},
        {"\"normalizer\":{\"type\":\"Nmt\"}," MODEL, "normalizer Nmt: this type is not supported"},
        {"\"normalizer\":7," MODEL, "normalizer: must be null or an object"},
        {"\"normalizer\":{\"type\":\"NFC\",\"extra\":1}," MODEL, "normalizer NFC: unknown member \"extra\""},
        {"\"normalizer\":{\"type\":\"Sequence\"}," MODEL, "needs an array \"normalizers\""},
        {"\"normalizer\":" NESTED(NESTED(NESTED(NESTED(NESTED("{\"type\":\"NFC\"}"))))) "," MODEL,
         "normalizer Sequence: nested more than 16 deep"},
        {"\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"x\"}," MODEL,
         "the pattern is empty"},
        {"\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"x\"}," MODEL, "regex \"(\""},
        {"\"normalizer\":{\"type\":\"Replace\",\"pattern\":\"x\",\"content\":\"x\"}," MODEL, "\"pattern\" must be"},
        {"\"normalizer\":{\"type\":\"Prepend\"}," MODEL, "\"prepend\" must be a string"},
        {"\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}," MODEL,
         "pre_tokenizer BertPreTokenizer: this type is not"},
        {"\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"behavior\":\"Odd\",\"invert\":false}"
         "," MODEL,
         "behavior \"Odd\""},
        {"\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}," MODEL, "must be one character"},
        {"\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"often\"}," MODEL,
         "prepend_scheme \"often\""},
        {"\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":1}," MODEL, "\"use_regex\" must be true or false"},
        {"\"decoder\":{\"type\":\"WordPiece\"}," MODEL, "decoder WordPiece: this type is not supported"},
        {"\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}]}," MODEL,
         "it cannot follow Fuse"},
        {"\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}," MODEL, "\"start\" is -1"},
        {"\"post_processor\":{\"type\":\"RobertaProcessing\"}," MODEL, "post_processor RobertaProcessing: this type"},
        {"\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\",\"type_id\":"
         "0}}],\"pair\":[],\"special_tokens\":{}}," MODEL,
         "no ids for \"s\""},
        {"\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"B\",\"type_id\":0}}],"
         "\"pair\":[],\"special_tokens\":{}}," MODEL,
         "only SpecialToken and Sequence A"},
        {"\"added_tokens\":[{\"id\":9,\"content\":\"x\"}]," MODEL,
         "\"x\" has id 9, but by its place in the vocabulary it is 6"},
        {"\"added_tokens\":[{\"content\":\"x\"}]," MODEL, "\"x\" has no id"},
        {"\"added_tokens\":[{\"id\":6,\"content\":\"\"}]," MODEL, "\"content\" has 0 bytes"},
        {"\"added_tokens\":{}," MODEL, "added_tokens: must be an array"},
        {"\"normalizer\":{\"type\":\"Lowercase\"},\"added_tokens\":[{\"id\":6,\"content\":\"X\"},{\"id\":7,\"content\":"
         "\"x\"}]," MODEL,
         "are the same when normalised"},
        {"\"version\":1," MODEL, "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_refused(cases[i][0], cases[i][1]);
    err e;
    assert_null(tokenizer_load(GOLDEN "nowhere", &e));
    assert_non_null(strstr(e.msg, "nowhere/tokenizer.json"));
}

static void test_regex_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\\h",    "\\R",    "\\X",     "\\K",           "\\W",       "\\b",         "\\1",       "\\pL",
        "\\p{",   "\\p{L",  "\\p{}",   "\\p{Nonsense}", "\\xff",     "\\x{110000}", "\\x{d800}", "[[:alpha:]]",
        "[a[b]]", "[a&&b]", "[]a]",    "(?m:x)",        "x(?i)y",    "(?<n>x)",     "(*ACCEPT)", "(?#x)",
        "x{,3}",  "x{2}+",  "x{2}?",   "x{1,2}*",       "(",         ")",           "[",         "a**",
        "\\",     "\\C",    "\\Q.\\E", "\\g{1}",        "(?(1)a|b)", "(?R)",        "",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err e = {{0}};
        pattern *p = pattern_new_regex(bad[i], strlen(bad[i]), &e);
        if (p)
            fail_msg("accepted: %s", bad[i]);
        assert_true(e.msg[0] != 0);
    }
    static const char *const good[] = {"\\p{Han}+", "\\p{^L}", "\\P{L}",  "[\\w']+",  "\\u4e00",
                                       "\\x{4e00}", "(?i)abc", "a{2,3}?", "x++",      "(?<=a)b(?!c)",
                                       "[\\v\\b]",  "a{b",     "^$",      "[\\]\\[&]"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        err e = {{0}};
        pattern *p = pattern_new_regex(good[i], strlen(good[i]), &e);
        if (!p)
            fail_msg("refused: %s: %s", good[i], e.msg);
        pattern_free(p);
    }
}

/* An expression that backtracks without end, on a text made for it, fails in bounded time. */
static void test_regex_hang(void **state)
{
    (void)state;
    err e = {{0}};
    tokenizer *t = make(
        "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?:a+)+(?:a+)+c|x\"},\"behavior\":\"Isolated\","
        "\"invert\":false}," MODEL,
        NULL, &e);
    assert_non_null(t);
    char text[2001];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    ids out = {0};
    double start = clock_now();
    assert_int_equal(tokenizer_encode(t, text, strlen(text), true, &out, &e), -1);
    assert_non_null(strstr(e.msg, "regex"));
    assert_int_equal(out.n, 0);
    assert_true(clock_now() - start < 30);
    ids_free(&out);
    tokenizer_free(t);
}

static void check_encodes(const char *parts, const char *config, const char *text, const int *want, size_t n)
{
    err e = {{0}};
    ids out = {0};
    tokenizer *t = make(parts, config, &e);
    if (!t)
        fail_msg("%s", e.msg);
    assert_int_equal(tokenizer_encode(t, text, strlen(text), true, &out, &e), 0);
    check_ids(&out, &(ids){.items = (int *)want, .n = n}, text, 0);
    ids_free(&out);
    tokenizer_free(t);
}

#define IDS(...) (const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int)
#define BOS_TEMPLATE                                                                                                   \
    "\"added_tokens\":[{\"id\":6,\"content\":\"<s>\",\"special\":true,\"normalized\":false},{\"id\":7,\"content\":\"<" \
    "/s>\",\"special\":true,\"normalized\":false}],"                                                                   \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}" \
    "},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],"                                                      \
    "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[6],\"tokens\":[\"<s>\"]}}},"

/* Llama's tokenizer classes go by tokenizer_config.json, others by the template alone. */
static void test_config(void **state)
{
    (void)state;
    check_encodes(BOS_TEMPLATE MODEL, NULL, "ab", IDS(6, 3));
    check_encodes(BOS_TEMPLATE MODEL,
                  "{\"tokenizer_class\":\"LlamaTokenizer\",\"bos_token\":\"<s>\",\"add_bos_token\":false}", "ab",
                  IDS(3));
    check_encodes(
        BOS_TEMPLATE MODEL,
        "{\"tokenizer_class\":\"LlamaTokenizerFast\",\"eos_token\":{\"content\":\"</s>\"},\"add_eos_token\":true}",
        "ab", IDS(6, 3, 7));
    check_encodes(BOS_TEMPLATE MODEL,
                  "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"bos_token\":\"<s>\",\"add_bos_token\":false}",
                  "ab", IDS(6, 3));
    check_encodes(BOS_TEMPLATE MODEL, "{\"bos_token\":null,\"chat_template\":\"x\"}", "ab", IDS(6, 3));
    err e = {{0}};
    assert_null(make(MODEL, "[]", &e));
    assert_non_null(strstr(e.msg, "tokenizer_config.json"));
    assert_null(make(MODEL, "{", &e));
}

static void test_unknown_characters(void **state)
{
    (void)state;
    check_encodes(MODEL, NULL, "axxb", IDS(1, 0, 0, 2));
    check_encodes("\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[[\"a\",\"b\"]]}", NULL,
                  "axbz", IDS(2));
    check_encodes(
        "\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"fuse_unk\":true,\"vocab\":{\"u\":0,\"a\":1},\"merges\":[]}",
        NULL, "xyaxy", IDS(0, 1, 0));
    err e = {{0}};
    ids out = {0};
    tokenizer *t = make("\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"vocab\":{\"a\":1},\"merges\":[]}", NULL, &e);
    assert_int_equal(tokenizer_encode(t, "ab", 2, true, &out, &e), -1);
    assert_non_null(strstr(e.msg, "unk_token \"u\""));
    assert_int_equal(out.n, 0);
    ids_free(&out);
    tokenizer_free(t);
}

/* A normalizer that doubles the text sixteen times over is stopped. */
static void test_growth(void **state)
{
    (void)state;
    err e = {{0}};
    ids out = {0};
    buf parts = {0};
    buf_add_str(&parts, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 16; i++)
        buf_printf(&parts, "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaa\"}",
                   i ? "," : "");
    buf_add_str(&parts, "]}," MODEL);
    tokenizer *t = make(parts.data, NULL, &e);
    assert_non_null(t);
    assert_int_equal(tokenizer_encode(t, "a", 1, true, &out, &e), -1);
    assert_non_null(strstr(e.msg, "larger than"));
    buf_free(&parts);
    ids_free(&out);
    tokenizer_free(t);
}

static void test_normalize_long_runs(void **state)
{
    (void)state;
    buf text = {0}, out = {0}, again = {0};
    buf_add_char(&text, 'a');
    for (int i = 0; i < 200000; i++)
        buf_add_str(&text, i % 2 ? "\xcc\xa3" : "\xcc\x81"); /* U+0323 below, U+0301 above */
    double start = clock_now();
    unicode_normalize(FORM_NFC, text.data, text.len, &out);
    assert_true(clock_now() - start < 10);
    assert_memory_equal(out.data, "\xe1\xba\xa1\xcc\xa3", 5); /* a with dot below, then the other dots */
    unicode_normalize(FORM_NFC, out.data, out.len, &again);
    assert_int_equal(again.len, out.len);
    assert_memory_equal(again.data, out.data, out.len);
    buf_free(&text);
    buf_free(&out);
    buf_free(&again);
}

/* A megabyte of the same few bytes over and over: no pipeline may take more than linear time and
 * a logarithm. The limit is wide because the sanitizers run here. */
static void test_no_quadratic_case(void **state)
{
    (void)state;
    static const char *const units[] = {"a", " ", "\n", "🙂", "<|im_start|", "\xe2\x82"};
    size_t size = 1 << 20;
    char *text = xmalloc(size);
    static const char *const kinds[] = {"llama2", "llama3", "qwen2"};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        tokenizer *t = golden_tokenizer(kinds[k]);
        for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
            for (size_t i = 0; i < size; i++)
                text[i] = units[u][i % strlen(units[u])];
            err e;
            ids out = {0};
            double start = clock_now();
            assert_int_equal(tokenizer_encode(t, text, size, true, &out, &e), 0);
            if (clock_now() - start > 30)
                fail_msg("%s: a megabyte of \"%s\" takes %.1f s", kinds[k], units[u], clock_now() - start);
            ids_free(&out);
        }
        tokenizer_free(t);
    }
    free(text);
}

typedef struct {
    const tokenizer *t;
    const json_t *strings;
    ids out;
} job;

static void *encode_all(void *arg)
{
    job *j = arg;
    buf bytes = {0};
    err e;
    for (size_t i = 0; i < json_array_size(j->strings); i++) {
        string_bytes(json_array_get(j->strings, i), &bytes);
        if (tokenizer_encode(j->t, bytes.data, bytes.len, true, &j->out, &e))
            ids_add(&j->out, -1);
    }
    buf_free(&bytes);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    json_t *strings = read_lines(GOLDEN "strings.jsonl");
    tokenizer *t = golden_tokenizer("llama2");
    pthread_t thread[4];
    job jobs[4] = {{t, strings}, {t, strings}, {t, strings}, {t, strings}};
    for (int i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, encode_all, &jobs[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 4; i++) {
        check_ids(&jobs[i].out, &jobs[0].out, "threads", 0);
        if (i > 0)
            ids_free(&jobs[i].out);
    }
    ids_free(&jobs[0].out);
    tokenizer_free(t);
    json_decref(strings);
}

/* No text has fewer ids than its bytes and the longest id's say; and encoding stops where it is told to. */
static void check_limits(const tokenizer *t, const char *name, const buf *text)
{
    ids all = {0}, some = {0};
    err e;
    if (tokenizer_encode(t, text->data, text->len, false, &all, &e))
        fail_msg("%s: %s", name, e.msg);
    size_t longest = tokenizer_longest(t);
    if (longest && all.n * longest < text->len)
        fail_msg("%s: %zu bytes are %zu ids of at most %zu bytes", name, text->len, all.n, longest);
    const encode_limits enough = {.max_ids = all.n}, one_less = {.max_ids = all.n - 1};
    assert_int_equal(tokenizer_encode_within(t, text->data, text->len, false, &enough, &some, &e), 0);
    assert_int_equal(some.n, all.n);
    some.n = 0;
    if (all.n > 0) {
        assert_int_equal(tokenizer_encode_within(t, text->data, text->len, false, &one_less, &some, &e), 1);
        assert_int_equal(some.n, 0);
    }
    ids_free(&all);
    ids_free(&some);
}

/* The golden one without added tokens that take blanks around them with them: how much text these stand for has no
 * bound. */
static tokenizer *load_without_strips(const char *name)
{
    err e;
    char *path = xasprintf(GOLDEN "%s/tokenizer.json", name);
    json_t *doc = json_read_file(path, 64 << 20, &e), *added;
    size_t i;
    assert_non_null(doc);
    json_array_foreach(json_object_get(doc, "added_tokens"), i, added)
    {
        json_object_set_new(added, "lstrip", json_false());
        json_object_set_new(added, "rstrip", json_false());
    }
    char *text = json_dumps(doc, 0);
    tokenizer *t = tokenizer_from_json(text, strlen(text), NULL, 0, &e);
    if (!t)
        fail_msg("%s: %s", name, e.msg);
    free(text);
    free(path);
    json_decref(doc);
    return t;
}

/* What the template puts around a text counts too. */
static void test_limits_of_the_template(void **state)
{
    (void)state;
    tokenizer *t = golden_tokenizer("llama3");
    ids out = {0};
    err e;
    assert_int_equal(tokenizer_encode(t, "a word", 6, true, &out, &e), 0);
    const encode_limits enough = {.max_ids = out.n}, one_less = {.max_ids = out.n - 1}, none = {.max_ids = 0};
    out.n = 0;
    assert_int_equal(tokenizer_encode_within(t, "", 0, true, &none, &out, &e), 1);
    assert_int_equal(tokenizer_encode_within(t, "a word", 6, true, &one_less, &out, &e), 1);
    assert_int_equal(out.n, 0);
    assert_int_equal(tokenizer_encode_within(t, "a word", 6, true, &enough, &out, &e), 0);
    ids_free(&out);
    tokenizer_free(t);
}

static void test_limits(void **state)
{
    (void)state;
    json_t *strings = read_lines(GOLDEN "strings.jsonl");
    buf text = {0}, repeated = {0};
    int n_known = 0;
    for (size_t i = 0; i < N_NAMES; i++) {
        tokenizer *t = golden_tokenizer(names[i]);
        assert_int_equal(tokenizer_longest(t), 0);
        tokenizer_free(t);
        t = load_without_strips(names[i]);
        n_known += tokenizer_longest(t) > 0;
        for (size_t k = 0; k < json_array_size(strings); k++) {
            string_bytes(json_array_get(strings, k), &text);
            if (text.len == 0)
                continue;
            check_limits(t, names[i], &text);
            buf_clear(&repeated);
            for (int j = 0; j < 20; j++)
                buf_add(&repeated, text.data, text.len);
            check_limits(t, names[i], &repeated);
        }
        tokenizer_free(t);
    }
    assert_int_equal(n_known, 6); /* those that keep all text: all but gpt2, unknown and words */
    tokenizer *t = load_without_strips("llama3");
    buf_clear(&text);
    while (text.len < 8u << 20)
        buf_add_str(&text, "word and ");
    ids out = {0};
    err e;
    const atomic_bool stop = true;
    assert_true(tokenizer_longest(t) > 0);
    assert_int_equal(tokenizer_encode_within(t, text.data, text.len, true, &(encode_limits){.max_ids = 100}, &out, &e),
                     1);
    assert_int_equal(tokenizer_encode_within(t, text.data, text.len, true,
                                             &(encode_limits){.max_ids = SIZE_MAX / 2, .stop = &stop}, &out, &e),
                     1);
    ids_free(&out);
    tokenizer_free(t);
    buf_free(&text);
    buf_free(&repeated);
    json_decref(strings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_regex_refused),
        cmocka_unit_test(test_regex_hang),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_unknown_characters),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_normalize_long_runs),
        cmocka_unit_test(test_no_quadratic_case),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_limits_of_the_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
