/* test_answer.c - stop strings and the text of an output: whatever the token borders, nothing of a stop string is
 * shown, and all pieces together are the text before it */
#include <string.h>

#include "base/buf.h"
#include "base/rng.h"
#include "frontend/answer.h"
#include "support/golden_tokenizer.h"
#include "support/test.h"
#include "text/utf8.h"

static stop_string stops[4];

static int set_stops(const char *a, const char *b)
{
    stops[0] = (stop_string){.text = (char *)a, .n = strlen(a)};
    stops[1] = (stop_string){.text = (char *)b, .n = b ? strlen(b) : 0};
    return b ? 2 : 1;
}

static size_t found(const char *text, size_t from, int n)
{
    size_t at;
    return stop_find(stops, n, text, from, strlen(text), &at, &(size_t){0}) ? at : SIZE_MAX;
}

static void test_find(void **state)
{
    (void)state;
    int n = set_stops("END", "\n\n");
    assert_int_equal(found("the END\n\n", 0, n), 4);
    assert_int_equal(found("the\n\nEND", 0, n), 3);
    assert_int_equal(found("the END", 5, n), SIZE_MAX);
    assert_int_equal(found("the EN", 0, n), SIZE_MAX);
    assert_int_equal(found("", 0, n), SIZE_MAX);
    assert_int_equal(found("END", 0, 0), SIZE_MAX);
}

static size_t safe(const char *text, size_t from, int n)
{
    return stop_safe(stops, n, text, from, strlen(text));
}

static void test_safe(void **state)
{
    (void)state;
    int n = set_stops("ababc", "bd");
    assert_int_equal(safe("xyz", 0, n), 3);
    assert_int_equal(safe("xyza", 0, n), 3);
    assert_int_equal(safe("xababa", 0, n), 3); /* "aba" may go on to "ababc" */
    assert_int_equal(safe("xabab", 0, n), 1);
    assert_int_equal(safe("b", 0, n), 0);
    assert_int_equal(safe("b", 1, n), 1);
    assert_int_equal(safe("", 0, n), 0);
    assert_int_equal(safe("abab", 0, 0), 4);
}

/* Against the plain way: at any length, what may be shown is the longest part no continuation could cut. */
static void test_safe_random(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        char text[13] = {0}, a[5] = {0}, b[4] = {0};
        for (uint64_t i = 0; i < 12; i++)
            text[i] = (char)('a' + rng_u64(seed, i) % 2);
        for (uint64_t i = 0; i < 1 + rng_u64(seed, 20) % 4; i++)
            a[i] = (char)('a' + rng_u64(seed, 30 + i) % 2);
        for (uint64_t i = 0; i < 1 + rng_u64(seed, 21) % 3; i++)
            b[i] = (char)('a' + rng_u64(seed, 40 + i) % 2);
        int n = set_stops(a, b);
        size_t len = found(text, 0, n) == SIZE_MAX ? 12 : found(text, 0, n);
        text[len] = 0;
        size_t got = safe(text, 0, n);
        for (size_t start = 0; start <= len; start++) {
            bool open = (len - start < stops[0].n && strncmp(text + start, a, len - start) == 0) ||
                        (len - start < stops[1].n && strncmp(text + start, b, len - start) == 0);
            if (open) {
                assert_int_equal(got, start);
                break;
            }
        }
    }
}

typedef struct {
    ids tokens;
    buf text;
} script;

static script script_of(const tokenizer *t, const char *text)
{
    script s = {0};
    err e;
    assert_int_equal(tokenizer_encode(t, text, strlen(text), false, &s.tokens, &e), 0);
    tokenizer_decode(t, s.tokens.items, s.tokens.n, true, &s.text);
    return s;
}

static void script_free(script *s)
{
    ids_free(&s->tokens);
    buf_free(&s->text);
}

/* Feed the tokens one by one; the pieces, checked to be whole characters, in out. */
static answer_state run(const tokenizer *t, const answer_rules *r, const ids *tokens, buf *out, int *n_used)
{
    answer a;
    answer_init(&a, r, t, 0, NULL, 0);
    buf_clear(out);
    buf_add(out, "", 0);
    for (size_t i = 0; i < tokens->n && a.state == ANSWER_OPEN; i++) {
        answer_add(&a, tokens->items[i], NULL);
        if (!answer_has_news(&a))
            continue;
        api_choice c = answer_take(&a);
        assert_true(utf8_is_valid(c.text, c.n));
        assert_true((c.finish != NULL) == (a.state != ANSWER_OPEN));
        buf_add(out, c.text, c.n);
    }
    answer_finish(&a, ANSWER_LENGTH);
    api_choice rest = answer_take(&a), all = answer_all(&a);
    buf_add(out, rest.text, rest.n);
    assert_int_equal(all.n, out->len);
    assert_memory_equal(all.text, out->data, all.n);
    *n_used = a.n_tokens;
    answer_state why = a.state;
    answer_deinit(&a);
    return why;
}

/* The same without looking before the end, as for a client that takes no stream. */
static answer_state run_whole(const tokenizer *t, const answer_rules *r, const ids *tokens, buf *out)
{
    answer a;
    answer_init(&a, r, t, 0, NULL, 0);
    for (size_t i = 0; i < tokens->n && a.state == ANSWER_OPEN; i++)
        answer_add(&a, tokens->items[i], NULL);
    answer_finish(&a, ANSWER_LENGTH);
    api_choice all = answer_all(&a);
    buf_clear(out);
    buf_add(out, all.text, all.n);
    answer_state why = a.state;
    answer_deinit(&a);
    return why;
}

/* Every substring of a text as a stop string, with byte-level and with byte-fallback tokens. */
static void test_every_stop(void **state)
{
    (void)state;
    static const char text[] = "She bought 3 lamps 👩🛒 für Zoë; naïve, 日本語 and more.";
    static const char *const names[] = {"llama2", "llama3", "words"};
    for (size_t k = 0; k < 3; k++) {
        tokenizer *t = golden_tokenizer(names[k]);
        script s = script_of(t, text);
        buf got = {0};
        for (size_t at = 0; at < s.text.len; at++)
            for (size_t n = 1; n <= 9 && at + n <= s.text.len; n++) {
                if (!utf8_is_valid(s.text.data + at, n))
                    continue;
                stop_string stop = {.text = s.text.data + at, .n = n};
                answer_rules r = {.stop = &stop, .n_stops = 1, .max_tokens = 1000};
                int used;
                assert_int_equal(run(t, &r, &s.tokens, &got, &used), ANSWER_STOP);
                const char *hit = memmem(s.text.data, s.text.len, stop.text, stop.n);
                assert_int_equal(got.len, hit - s.text.data);
                assert_memory_equal(got.data, s.text.data, got.len);
                assert_int_equal(run_whole(t, &r, &s.tokens, &got), ANSWER_STOP);
                assert_int_equal(got.len, hit - s.text.data);
            }
        buf_free(&got);
        script_free(&s);
        tokenizer_free(t);
    }
}

static void test_ends(void **state)
{
    (void)state;
    tokenizer *t = golden_tokenizer("llama3");
    script s = script_of(t, "one two three four");
    buf got = {0};
    int used, last = s.tokens.items[s.tokens.n - 1];

    answer_rules r = {.max_tokens = 1000, .end_id = {last}, .n_end_ids = 1};
    assert_int_equal(run(t, &r, &s.tokens, &got, &used), ANSWER_STOP);
    assert_int_equal(used, s.tokens.n);
    assert_true(got.len < s.text.len && memcmp(got.data, s.text.data, got.len) == 0);

    r = (answer_rules){.max_tokens = 2};
    assert_int_equal(run(t, &r, &s.tokens, &got, &used), ANSWER_LENGTH);
    assert_int_equal(used, 2);

    /* a stop string that the last token completes wins over the length; before min_tokens it is not looked for */
    stop_string stop = {.text = "one", .n = 3};
    r = (answer_rules){.max_tokens = (int)s.tokens.n, .min_tokens = (int)s.tokens.n, .stop = &stop, .n_stops = 1};
    assert_int_equal(run(t, &r, &s.tokens, &got, &used), ANSWER_LENGTH);
    assert_string_equal(got.data, s.text.data);
    r.min_tokens = (int)s.tokens.n - 1;
    assert_int_equal(run(t, &r, &s.tokens, &got, &used), ANSWER_LENGTH);
    assert_int_equal(run_whole(t, &r, &s.tokens, &got), ANSWER_LENGTH);
    assert_string_equal(got.data, s.text.data);
    stop = (stop_string){.text = s.text.data + s.text.len - 2, .n = 2};
    r.min_tokens = 0;
    assert_int_equal(run(t, &r, &s.tokens, &got, &used), ANSWER_STOP);
    assert_int_equal(got.len, s.text.len - 2);

    /* what was held back as a possible stop string comes when there is no more */
    stop = (stop_string){.text = "four!", .n = 5};
    r.max_tokens = 1000;
    assert_int_equal(run(t, &r, &s.tokens, &got, &used), ANSWER_LENGTH);
    assert_string_equal(got.data, s.text.data);
    buf_free(&got);
    script_free(&s);
    tokenizer_free(t);
}

/* Logprobs: one for every token that is shown, each with the place where its text begins, none for what is cut off. */
static void test_logprobs(void **state)
{
    (void)state;
    tokenizer *t = golden_tokenizer("llama3");
    script s = script_of(t, "one two three four");
    size_t at = (size_t)(strstr(s.text.data, "three") - s.text.data);
    stop_string stop = {.text = s.text.data + at, .n = 5};
    answer_rules r = {.max_tokens = 1000, .logprobs = true, .stop = &stop, .n_stops = 1};
    TopLogprob top = TOP_LOGPROB__INIT, *tops[] = {&top};
    Logprobs p = LOGPROBS__INIT;
    p.top = tops;
    p.n_top = 1;
    answer a;
    answer_init(&a, &r, t, 0, NULL, 0);
    int told = 0;
    for (size_t i = 0; i < s.tokens.n && a.state == ANSWER_OPEN; i++) {
        p.logprob = top.logprob = -(float)i;
        top.token = s.tokens.items[i];
        answer_add(&a, s.tokens.items[i], &p);
        api_choice c = answer_take(&a);
        for (int k = 0; k < c.n_logprobs; k++, told++) {
            assert_true(c.logprob[k].token.logprob == -(float)told);
            assert_int_equal(c.logprob[k].n_top, 1);
            assert_string_equal(c.logprob[k].top[0].text, c.logprob[k].token.text);
            assert_memory_equal(s.text.data + c.logprob[k].offset, c.logprob[k].token.text, c.logprob[k].token.n);
        }
    }
    assert_int_equal(a.state, ANSWER_STOP);
    assert_int_equal(told, answer_all(&a).n_logprobs);
    const api_logprob *end = &a.logprob[told - 1];
    assert_true(end->offset < at && end->offset + end->token.n >= at);
    answer_deinit(&a);
    script_free(&s);
    tokenizer_free(t);
}

/* Characters that several tokens spell: their bytes together are the text, and each token's name is its own. */
static void test_bytes(void **state)
{
    (void)state;
    static const char *const names[] = {"llama2", "llama3", "qwen2"};
    for (size_t k = 0; k < 3; k++) {
        tokenizer *t = golden_tokenizer(names[k]);
        script s = script_of(t, "lamp \U0001f6d2\U0001fa81 \u65e5 end");
        answer_rules r = {.max_tokens = 1000, .logprobs = true};
        answer a;
        answer_init(&a, &r, t, s.tokens.items[s.tokens.n - 1], NULL, 0);
        for (size_t i = 0; i < s.tokens.n; i++)
            answer_add(&a, s.tokens.items[i], NULL);
        buf all = {0};
        int parts = 0;
        for (int i = 0; i < a.n_logprobs; i++) {
            const api_token *token = &a.logprob[i].token;
            assert_true(utf8_is_valid(token->text, token->n));
            if (token->bytes)
                assert_memory_equal(token->text, "bytes:\\x", 8);
            buf_add(&all, token->bytes ? token->bytes : token->text, token->bytes ? token->n_bytes : token->n);
            parts += token->bytes != NULL;
        }
        assert_true(parts > 2);
        const char *from = all.data + (all.data[0] == ' ' && s.text.data[0] != ' '); /* the blank llama2 begins with */
        assert_string_equal(from, s.text.data);
        buf_free(&all);
        answer_deinit(&a);
        script_free(&s);
        tokenizer_free(t);
    }
}

static void test_echo(void **state)
{
    (void)state;
    tokenizer *t = golden_tokenizer("llama3");
    script s = script_of(t, "stop here stop");
    stop_string stop = {.text = "stop", .n = 4};
    answer_rules r = {.max_tokens = 1000, .stop = &stop, .n_stops = 1};
    answer a;
    answer_init(&a, &r, t, 0, s.tokens.items, s.tokens.n);
    answer_echo(&a, &s.text);
    assert_true(answer_has_news(&a));
    for (size_t i = 0; i < s.tokens.n && a.state == ANSWER_OPEN; i++)
        answer_add(&a, s.tokens.items[i], NULL);
    assert_int_equal(a.state, ANSWER_STOP);
    assert_int_equal(answer_all(&a).n, s.text.len);
    answer_deinit(&a);
    script_free(&s);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),       cmocka_unit_test(test_safe), cmocka_unit_test(test_safe_random),
        cmocka_unit_test(test_every_stop), cmocka_unit_test(test_ends), cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_bytes),      cmocka_unit_test(test_echo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
