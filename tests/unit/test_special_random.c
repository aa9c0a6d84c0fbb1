/* test_special_random.c - no special token without bytes of the template's own, whatever the tokenizer
 *
 * Every special token here holds one of the characters > and §. Random tokenizers, whose normalizers make, move, join
 * and delete these, encode random texts with random parts that are own; of those two characters each special token
 * must take one that is own. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "support/test.h"
#include "text/tokenizer.h"

#define N_TOKENIZERS 600
#define N_TEXTS 30
#define COUNT(list) (sizeof(list) / sizeof *(list))
#define PICK(list) (list)[below(COUNT(list))]

static uint64_t seed, n_draws;

static size_t below(size_t n)
{
    return (size_t)(rng_u64(seed, n_draws++) % n);
}

#define REGEX(pattern, content) \
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"" pattern "\"},\"content\":\"" content "\"}"
#define STRING(pattern, content) \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" pattern "\"},\"content\":\"" content "\"}"
#define PREPEND(text) "{\"type\":\"Prepend\",\"prepend\":\"" text "\"}"

/* Only q becomes one of the two characters, and no own part has a q. */
static const char *const normalizers[] = {
    "{\"type\":\"NFC\"}",
    "{\"type\":\"NFD\"}",
    "{\"type\":\"NFKC\"}",
    "{\"type\":\"NFKD\"}",
    "{\"type\":\"Lowercase\"}",
    "{\"type\":\"StripAccents\"}",
    "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}",
    "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":false}",
    PREPEND("▁"),
    PREPEND("<"),
    PREPEND("<e"),
    STRING(" ", "▁"),
    STRING("|", ""),
    STRING("q", ">"),
    STRING("q", "<e>"),
    STRING("aa", ""),
    STRING("e", "ee"),
    STRING("<e>", "e>"),
    REGEX("\\\\p{C}", ""),
    REGEX("\\\\p{Cn}+", "x"),
    REGEX("\\\\p{C}.", "b"),
    REGEX(".\\\\p{C}", "b"),
    REGEX("(?<=\\\\p{C})<", "a"),
    REGEX("<e>(?=<e>)", ""),
    REGEX("b\\\\p{C}", "\ufdd0b"),
    REGEX("\\\\x{fdd0}<e>", "<e>\ufdd0"),
    REGEX("\\\\s+", " "),
};

static const char *const specials[] = {"<e>", "<E>", "e>", ">", "§", "a§", "|e>", "<é>", "x<e> ", "▁>", "<<e>"};

/* What others say; some is not valid UTF-8 or comes apart where an own part ends. */
static const char *const said[] = {"<", "e", ">", "<e>", "<E>",    "<|e>",    "<e>",    "q",  "＜", "＞",   "＜Ｅ＞",
                                   "|", "§", " ", "  ",  "\u00e9", "e\u0301", "▁",      "a",  "aa", "b",    "<\u00e9>",
                                   "½", "x", "€", "\n",  "\u0301", "\ufdd0",  "\ufdd1", "a§", "e>", "\xc2", "<u>"};
static const char *const written[] = {"a", "b", "<", "e", " ", "  ", "x", "<e", "|", "▁", "\u0301", "\ufdd0", "½", "é"};

static void add_specials(buf *json)
{
    size_t next = 19, n = 1 + below(4);
    buf_add_str(json, "\"added_tokens\":[{\"id\":0,\"content\":\"<u>\",\"special\":true,\"normalized\":false}");
    for (size_t i = 0, first = below(COUNT(specials)); i < n; i++) {
        const char *content = specials[(first + i) % COUNT(specials)];
        size_t id = strcmp(content, "<e>") == 0  ? 11
                    : strcmp(content, ">") == 0  ? 3
                    : strcmp(content, "§") == 0  ? 5
                    : strcmp(content, "e>") == 0 ? 12
                                                 : next++;
        buf_printf(json,
                   ",{\"id\":%zu,\"content\":\"%s\",\"special\":true,\"normalized\":%s,\"lstrip\":%s,\"rstrip\":%s,"
                   "\"single_word\":%s}",
                   id, content, below(3) ? "true" : "false", below(3) ? "false" : "true", below(3) ? "false" : "true",
                   below(3) ? "false" : "true");
    }
    buf_add_str(json, "]");
}

/* NULL when two special tokens are the same after normalisation, or one is nothing. */
static tokenizer *random_tokenizer(buf *json)
{
    static const char *const pre[] = {
        "null",
        "{\"type\":\"Metaspace\",\"replacement\":\"▁\"}",
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}",
        "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"Isolated\",\"invert\":false}",
    };
    static const char *const unknown[] = {"", ",\"unk_token\":\"<u>\"", ",\"unk_token\":\"<u>\",\"fuse_unk\":true"};
    err e;
    buf_clear(json);
    buf_add_str(json, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    for (size_t i = 0, n = below(4); i < n; i++)
        buf_printf(json, "%s%s", i ? "," : "", PICK(normalizers));
    buf_printf(json, "]},\"pre_tokenizer\":%s,", PICK(pre));
    add_specials(json);
    buf_printf(
        json,
        ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"<u>\":0,\"<\":1,\"e\":2,\">\":3,\"b\":4,\"§\":5,\"a\":6,\"▁\":"
        "7,\"<e\":8,\"|\":9,\"u\":10,\"<e>\":11,\"e>\":12,\"<0xC2>\":13,\"<0xA7>\":14,\"<0x3E>\":15,\" \":16,"
        "\"<u\":17,\"x\":18},\"merges\":[%s]%s%s%s}}",
        below(2) ? "\"< e\",\"<e >\",\"e >\",\"< u\",\"<u >\"" : "\"e >\",\"< e>\"", PICK(unknown),
        below(2) ? ",\"byte_fallback\":true" : "", below(2) ? ",\"ignore_merges\":true" : "");
    return tokenizer_from_json(json->data, json->len, NULL, 0, &e);
}

/* Some pieces that are said and some that the template writes, with special tokens or without. */
static void random_text(buf *text, text_spans *own)
{
    bool with_special = below(2);
    buf_clear(text);
    own->n = 0;
    for (size_t i = 0, n = 1 + below(10); i < n; i++) {
        bool is_own = below(3) == 0;
        size_t from = text->len;
        if (!is_own)
            buf_add_str(text, PICK(said));
        else if (with_special && below(2))
            buf_add_str(text, PICK(specials));
        else
            buf_add_str(text, PICK(written));
        if (is_own)
            text_spans_add(own, from, text->len);
        else if (below(20) == 0 && text->len > from + 1) /* in the middle of a character, perhaps */
            text_spans_add(own, from, from + 1);
    }
}

static size_t count_own(const buf *text, const text_spans *own)
{
    size_t n = 0;
    for (size_t i = 0; i < own->n; i++)
        for (size_t at = own->at[i].from; at < own->at[i].to; at++)
            n += text->data[at] == '>' || (text->data[at] == '\xc2' && at + 1 < own->at[i].to);
    return n;
}

/* How many special tokens the text has; unknown characters do not count. */
static size_t count_special(const tokenizer *t, const buf *text, const text_spans *own)
{
    ids x = {0};
    err e;
    size_t n = 0;
    if (tokenizer_encode_within(t, text->data, text->len, false, &(encode_limits){.max_ids = 1000, .own = own}, &x, &e))
        fail_msg("seed %llu: %s", (unsigned long long)seed, e.msg);
    for (size_t i = 0; i < x.n; i++)
        n += x.items[i] != 0 && tokenizer_is_special(t, x.items[i]);
    ids_free(&x);
    return n;
}

static void special_tokens_take_what_is_own(void **state)
{
    (void)state;
    buf json = {0}, text = {0};
    text_spans own = {0};
    size_t n_tokenizers = 0, n_found = 0, n_prevented = 0;
    for (seed = 1; seed <= N_TOKENIZERS; seed++) {
        n_draws = 0;
        tokenizer *t = random_tokenizer(&json);
        n_tokenizers += t != NULL;
        for (int i = 0; t && i < N_TEXTS; i++) {
            random_text(&text, &own);
            size_t most = count_own(&text, &own), found = count_special(t, &text, &own);
            if (found > most)
                fail_msg("seed %llu, text %d: %zu special tokens, of which %zu may be, in %s\n%s",
                         (unsigned long long)seed, i, found, most, text.data, json.data);
            n_found += found;
            n_prevented += count_special(t, &text, NULL) > found;
        }
        tokenizer_free(t);
    }
    assert_true(n_tokenizers > N_TOKENIZERS / 2 && n_found > 1000 && n_prevented > 1000);
    buf_free(&json);
    buf_free(&text);
    text_spans_free(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(special_tokens_take_what_is_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
