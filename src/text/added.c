/* added.c - see added.h
 *
 * The strings looked for lie sorted in an array, which serves as a trie: those with a common
 * beginning are a range, and each further byte of the text narrows it. */
#include "text/added.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "text/component.h"
#include "text/unicode.h"
#include "text/utf8.h"

#define MAX_ADDED_LEN 1024 /* bytes; a search step costs at most this much */

typedef struct {
    const added_token **sorted; /* [n] by what is sought; tokens borrowed from added_tokens */
    size_t n;
    size_t first[257]; /* those starting with byte b are [first[b], first[b + 1]) */
} token_index;

struct added_tokens {
    added_token *token; /* [n] */
    size_t n, cap;
    map *by_content; /* index into token */
    uint32_t *by_id; /* [n_ids] index into token, plus 1; 0: not an added token */
    size_t n_ids;
    size_t next_id; /* for the next token that is not in the vocabulary */
    token_index plain, normalized;
    pattern *word; /* matches one word character */
};

static int read_token(added_token *t, long *id, const json_t *spec, err *e)
{
    const char *content;
    *t = (added_token){.normalized = true};
    *id = -1;
    if (!json_is_object(spec))
        return err_set(e, "must be an object");
    if (component_keys(spec, "id content single_word lstrip rstrip normalized special", e) ||
        component_text(spec, "content", &content, &t->n, e) || json_get_int(spec, "id", 0, INT32_MAX - 1, id, e) ||
        json_get_bool(spec, "single_word", &t->single_word, e) || json_get_bool(spec, "lstrip", &t->lstrip, e) ||
        json_get_bool(spec, "rstrip", &t->rstrip, e) || json_get_bool(spec, "special", &t->special, e) ||
        json_get_bool(spec, "normalized", &t->normalized, e))
        return -1;
    if (t->n == 0 || t->n > MAX_ADDED_LEN)
        return err_set(e, "\"content\" has %zu bytes; it must be 1 to %d", t->n, MAX_ADDED_LEN);
    if (*id < 0)
        return err_set(e, "\"%s\" has no id", content);
    t->content = xstrndup(content, t->n);
    return 0;
}

static int set_sought(added_token *t, const normalizer *z, matcher *m, err *e)
{
    buf out = {0};
    bool head_lost;
    int rc = 0;
    if (t->normalized)
        rc = normalizer_apply(z, m, t->content, t->n, &out, &head_lost, e);
    else
        buf_add(&out, t->content, t->n);
    if (rc == 0 && (out.len == 0 || out.len > 16 * MAX_ADDED_LEN))
        rc = err_set(e, "\"%s\" has %zu bytes after normalisation", t->content, out.len);
    t->n_sought = out.len;
    t->sought = buf_take(&out);
    return rc;
}

/* The reference ignores the id written beside a token: it takes the one its string already has, else
 * the next free one. Where the two differ, one of them is wrong, and we do not guess which. */
static int check_id(added_tokens *a, const added_token *t, long id, const vocab *v, err *e)
{
    const added_token *same = added_tokens_find(a, t->content, t->n);
    long expected = same ? same->id : vocab_find(v, t->content, t->n);
    if (expected < 0)
        expected = (long)a->next_id++;
    if (id != expected)
        return err_set(e, "\"%s\" has id %ld, but by its place in the vocabulary it is %ld", t->content, id, expected);
    return 0;
}

/* A token listed again replaces the earlier one, but once special is always special. */
static void put_token(added_tokens *a, added_token t)
{
    int64_t at;
    if (map_get(a->by_content, t.content, t.n, &at)) {
        added_token *old = &a->token[at];
        t.special |= old->special;
        free(old->content);
        free(old->sought);
        *old = t;
        return;
    }
    a->token = xgrow(a->token, &a->cap, a->n + 1, sizeof *a->token);
    a->token[a->n] = t;
    map_put(a->by_content, t.content, t.n, (int64_t)a->n);
    a->n++;
    if ((size_t)t.id >= a->n_ids)
        a->n_ids = (size_t)t.id + 1;
}

static int add_token(added_tokens *a, const json_t *spec, const vocab *v, const normalizer *z, matcher *m, err *e)
{
    added_token t;
    long id;
    if (read_token(&t, &id, spec, e) == 0 && set_sought(&t, z, m, e) == 0 && check_id(a, &t, id, v, e) == 0) {
        t.id = (int)id;
        put_token(a, t);
        return 0;
    }
    free(t.content);
    free(t.sought);
    return -1;
}

static int compare_sought(const void *x, const void *y)
{
    const added_token *a = *(const added_token *const *)x, *b = *(const added_token *const *)y;
    size_t n = a->n_sought < b->n_sought ? a->n_sought : b->n_sought;
    int order = memcmp(a->sought, b->sought, n);
    return order ? order : (a->n_sought > b->n_sought) - (a->n_sought < b->n_sought);
}

static int build_index(token_index *x, const added_tokens *a, bool normalized, err *e)
{
    x->sorted = XNEW_ARRAY(const added_token *, a->n);
    for (size_t i = 0; i < a->n; i++)
        if (a->token[i].normalized == normalized)
            x->sorted[x->n++] = &a->token[i];
    qsort(x->sorted, x->n, sizeof *x->sorted, compare_sought);
    for (size_t i = 1; i < x->n; i++)
        if (compare_sought(&x->sorted[i - 1], &x->sorted[i]) == 0)
            return err_set(e, "\"%s\" and \"%s\" are the same when normalised", x->sorted[i - 1]->content,
                           x->sorted[i]->content);
    size_t at = 0;
    for (int b = 0; b <= 256; b++) {
        while (at < x->n && (unsigned char)x->sorted[at]->sought[0] < b)
            at++;
        x->first[b] = at;
    }
    return 0;
}

static int load_tokens(added_tokens *a, const json_t *list, const vocab *v, const normalizer *z, err *e)
{
    if (list && !json_is_null(list) && !json_is_array(list))
        return err_set(e, "must be an array");
    matcher *m = matcher_new(0);
    int rc = 0;
    a->next_id = v->n_tokens;
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++)
        if ((rc = add_token(a, json_array_get(list, i), v, z, m, e)))
            err_wrap(e, "entry %zu", i);
    matcher_free(m);
    a->by_id = XNEW_ARRAY(uint32_t, a->n_ids);
    for (size_t i = 0; i < a->n; i++)
        a->by_id[a->token[i].id] = (uint32_t)i + 1;
    return rc;
}

added_tokens *added_tokens_new(const json_t *list, const vocab *v, const normalizer *z, err *e)
{
    added_tokens *a = XNEW(added_tokens);
    a->by_content = map_new(64);
    a->word = pattern_new_regex("[" WORD_CHARS "]", strlen("[" WORD_CHARS "]"), e);
    CHECK(a->word);
    if (load_tokens(a, list, v, z, e) == 0 && build_index(&a->plain, a, false, e) == 0 &&
        build_index(&a->normalized, a, true, e) == 0)
        return a;
    err_wrap(e, "added_tokens");
    added_tokens_free(a);
    return NULL;
}

void added_tokens_free(added_tokens *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < a->n; i++) {
        free(a->token[i].content);
        free(a->token[i].sought);
    }
    free(a->token);
    free(a->plain.sorted);
    free(a->normalized.sorted);
    map_free(a->by_content);
    free(a->by_id);
    pattern_free(a->word);
    free(a);
}

size_t added_tokens_longest(const added_tokens *a)
{
    size_t longest = 1;
    for (size_t i = 0; i < a->n; i++) {
        const added_token *t = &a->token[i];
        if (t->lstrip || t->rstrip)
            return 0;
        longest = t->n > longest ? t->n : longest;
        longest = t->n_sought > longest ? t->n_sought : longest;
    }
    return longest;
}

bool added_tokens_has_normalized_special(const added_tokens *a)
{
    for (size_t i = 0; i < a->normalized.n; i++)
        if (a->normalized.sorted[i]->special)
            return true;
    return false;
}

size_t added_tokens_n_ids(const added_tokens *a)
{
    return a->n_ids;
}

const added_token *added_tokens_by_id(const added_tokens *a, int id)
{
    uint32_t at = id >= 0 && (size_t)id < a->n_ids ? a->by_id[id] : 0;
    return at ? &a->token[at - 1] : NULL;
}

const added_token *added_tokens_find(const added_tokens *a, const char *content, size_t n)
{
    int64_t at;
    return map_get(a->by_content, content, n, &at) ? &a->token[at] : NULL;
}

/* Returns the first in [lo, hi) whose byte at this depth is >= b; all strings there are longer than depth. */
static size_t lower_bound(const token_index *x, size_t lo, size_t hi, size_t depth, int b)
{
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if ((unsigned char)x->sorted[mid]->sought[depth] < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Returns whether the token may be matched at `at`. A special token must lie in a span of s->own, except for a prefix
 * that the normaliser put before its content. */
static bool may_stand(const added_scan *s, const added_token *t, size_t at)
{
    if (!s->own || !t->special)
        return true;
    size_t end = at + t->n_sought;
    bool has_prefix = t->n_sought > t->n && memcmp(t->sought + t->n_sought - t->n, t->content, t->n) == 0;
    return text_spans_cover(s->own, has_prefix ? end - t->n : at, end);
}

/* Returns the longest token that the text has at `from` and that may be matched there, or NULL. */
static const added_token *longest_at(const added_scan *s, const token_index *x, size_t from)
{
    const unsigned char *text = (const unsigned char *)s->text + from;
    const added_token *best = NULL;
    size_t n = s->n - from, lo = x->first[text[0]], hi = x->first[text[0] + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        if (x->sorted[lo]->n_sought == depth) {
            best = may_stand(s, x->sorted[lo], from) ? x->sorted[lo] : best;
            lo++;
        }
        if (depth == n)
            break;
        lo = lower_bound(x, lo, hi, depth, text[depth]);
        hi = lower_bound(x, lo, hi, depth, text[depth] + 1);
    }
    return best;
}

void added_scan_begin(added_scan *s, const added_tokens *a, bool normalized, matcher *m, const char *text, size_t n)
{
    *s = (added_scan){.a = a, .normalized = normalized, .m = m, .text = text, .n = n};
}

static bool is_word_char(const added_scan *s, const char *start)
{
    const char *end = start;
    size_t from, to;
    err ignored;
    pattern_scan scan;
    utf8_next(&end);
    pattern_scan_begin(&scan, s->a->word, s->m, start, (size_t)(end - start));
    bool found = pattern_scan_next(&scan, &from, &to, &ignored) > 0;
    pattern_scan_end(&scan);
    return found;
}

static bool stands_alone(const added_scan *s, size_t start, size_t end)
{
    return (start == 0 || !is_word_char(s, utf8_back(s->text + start))) &&
           (end == s->n || !is_word_char(s, s->text + end));
}

/* Extends the found token over the white space on the sides where it takes it, but not into spans handed out. */
static void widen(added_scan *s)
{
    while (s->found->lstrip && s->found_start > s->done) {
        const char *last = utf8_back(s->text + s->found_start), *at = last;
        if (!unicode_is_space(utf8_next(&at)))
            break;
        s->found_start = (size_t)(last - s->text);
    }
    while (s->found->rstrip && s->found_end < s->n) {
        const char *at = s->text + s->found_end;
        if (!unicode_is_space(utf8_next(&at)))
            break;
        s->found_end = (size_t)(at - s->text);
    }
}

/* Finds the next token from s->from on. A single_word token that does not stand alone is skipped as
 * a whole. The next search begins at the end of the token's string, before white space it took. */
static bool find_token(added_scan *s)
{
    const token_index *x = s->normalized ? &s->a->normalized : &s->a->plain;
    const unsigned char *text = (const unsigned char *)s->text;
    if (x->n == 0)
        return false;
    for (size_t at = s->from; at < s->n; at++) {
        if (x->first[text[at]] == x->first[text[at] + 1])
            continue;
        const added_token *t = longest_at(s, x, at);
        if (!t)
            continue;
        size_t end = at + t->n_sought;
        if (!t->single_word || stands_alone(s, at, end)) {
            s->found = t;
            s->found_start = at;
            s->found_end = s->from = end;
            widen(s);
            return true;
        }
        at = end - 1;
    }
    s->from = s->n;
    return false;
}

bool added_scan_next(added_scan *s, added_span *span)
{
    if (!s->found && !find_token(s)) {
        *span = (added_span){.start = s->done, .end = s->n};
        s->done = s->n;
        return span->start < span->end;
    }
    if (s->done < s->found_start) {
        *span = (added_span){.start = s->done, .end = s->found_start};
        s->done = s->found_start;
        return true;
    }
    *span = (added_span){.token = s->found, .start = s->found_start, .end = s->found_end};
    s->done = s->found_end;
    s->found = NULL;
    return true;
}
