/* mask.c - see mask.h
 *
 * The vocabulary is made up, but like those of byte-level BPE in what matters: all bytes, some 100k words with and
 * without a blank before them, and thousands of pieces of punctuation such as `",` and `"}`. Each row of the batch
 * draws at random among the tokens of its mask, which leads through more different states than a model would. */
#include "bench/mask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "bench/median.h"
#include "grammar/guide.h"

mask_options mask_options_default(void)
{
    return (mask_options){.vocab = 128256, .batch = 32, .threads = 8, .steps = 200};
}

typedef struct {
    buf text;
    uint64_t drawn;
} word_maker;

static uint64_t draw(word_maker *w, uint64_t n)
{
    return rng_u64(7, w->drawn++) % n;
}

static void make_word(word_maker *w, int id)
{
    static const char *const parts[] = {
        "th",  "er",  "in",  "on", "an", "re", "at", "en",   "ti",       "or",           "st",      "ar", "nd",
        "es",  "is",  "ing", "ed", "al", "it", "ou", "ment", "ation",    "le",           "co",      "de", "pro",
        "com", "ver", "ly",  "a",  "e",  "o",  "s",  "y",    "\xc3\xa9", "\xe4\xb8\xad", "\xd0\xb0"};
    if (id % 3)
        buf_add_char(&w->text, ' ');
    size_t from = w->text.len;
    for (uint64_t k = 1 + draw(w, 5); k > 0; k--)
        buf_add_str(&w->text, parts[draw(w, sizeof parts / sizeof *parts)]);
    if (draw(w, 4) == 0 && w->text.data[from] >= 'a')
        w->text.data[from] = (char)(w->text.data[from] - 'a' + 'A');
}

static void make_marks(word_maker *w)
{
    static const char *const marks[] = {"\"", ",", ":", "{", "}", "[", "]", " ",  "\n", ".",
                                        ")",  "(", "'", ";", "-", "0", "1", "\\", "//", "="};
    for (uint64_t k = 1 + draw(w, 4); k > 0; k--)
        buf_add_str(&w->text, marks[draw(w, sizeof marks / sizeof *marks)]);
}

static const char *token_of(void *ctx, int id, size_t *n)
{
    word_maker *w = ctx;
    buf_clear(&w->text);
    if (id < 256)
        buf_add_char(&w->text, (char)id);
    else if (id % 20 == 0)
        make_marks(w);
    else if (id % 50 == 1)
        buf_printf(&w->text, "%d", id % 1000);
    else
        make_word(w, id);
    *n = w->text.len;
    return w->text.data;
}

/* Writes a schema of about 10 KB: objects in objects, strings, numbers, enumerations, arrays. */
static void write_schema(buf *out, int depth, int *left)
{
    static const char *const leaves[] = {"{\"type\":\"string\"}",
                                         "{\"type\":\"integer\",\"minimum\":0,\"maximum\":100000}",
                                         "{\"enum\":[\"low\",\"medium\",\"high\"]}",
                                         "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":40}}",
                                         "{\"type\":\"string\",\"format\":\"date-time\"}",
                                         "{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"null\"}]}",
                                         "{\"type\":\"string\",\"pattern\":\"^[A-Z]{3}-[0-9]{4}$\"}"};
    buf_add_str(out, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{");
    for (int i = 0; i < 8; i++) {
        buf_printf(out, "%s\"property_%d_%d\":", i ? "," : "", depth, i);
        if (i == 3 && depth > 0 && *left > 0)
            write_schema(out, depth - 1, left);
        else
            buf_add_str(out, leaves[(unsigned)((*left)-- + 7000) % 7]);
    }
    buf_add_str(out, "},\"required\":[\"");
    buf_printf(out, "property_%d_0\",\"property_%d_3\"]}", depth, depth);
}

static int pick(const uint32_t *mask, int vocab, uint64_t x)
{
    int words = guide_mask_words(vocab), n = 0;
    for (int i = 0; i < words; i++)
        n += __builtin_popcount(mask[i]);
    if (n == 0)
        return -1;
    int skip = (int)(x % (unsigned)n);
    for (int i = 0;; i++) {
        int here = __builtin_popcount(mask[i]);
        if (skip >= here) {
            skip -= here;
            continue;
        }
        uint32_t bits = mask[i];
        for (; skip > 0; skip--)
            bits &= bits - 1;
        return 32 * i + __builtin_ctz(bits);
    }
}

typedef struct {
    guide_state **row;
    double *seconds;
} masks;

static void fill(void *arg, int item, int thread)
{
    (void)thread;
    masks *m = arg;
    double start = clock_now();
    guide_state_mask(m->row[item]);
    m->seconds[item] = clock_now() - start;
}

static void walk(const mask_options *o, const char *name, guide *g, pool *threads)
{
    int n = o->batch;
    guide_state **row = XNEW_ARRAY(guide_state *, (size_t)n);
    double *each = XNEW_ARRAY(double, (size_t)n *(size_t)o->steps), *step = XNEW_ARRAY(double, (size_t)o->steps);
    uint64_t drawn = 0;
    for (int i = 0; i < n; i++)
        row[i] = guide_state_new(g);
    for (int k = 0; k < o->steps; k++) {
        double start = clock_now();
        pool_run(threads, n, fill, &(masks){row, each + k * n});
        step[k] = clock_now() - start;
        for (int i = 0; i < n; i++) {
            int token = pick(guide_state_mask(row[i]), o->vocab, rng_u64(11, drawn++));
            if (token >= 0 && guide_state_add(row[i], token))
                continue;
            guide_state_free(row[i]);
            row[i] = guide_state_new(g);
        }
    }
    sort_times(each, (size_t)n * (size_t)o->steps);
    sort_times(step, (size_t)o->steps);
    size_t all = (size_t)n * (size_t)o->steps;
    printf("%-28s %9.1f %9.1f %9.1f   %9.1f %9.1f %9.1f\n", name, each[all / 2] * 1e6, each[all * 99 / 100] * 1e6,
           each[all - 1] * 1e6, step[o->steps / 2] * 1e6, step[o->steps * 99 / 100] * 1e6, step[o->steps - 1] * 1e6);
    for (int i = 0; i < n; i++)
        guide_state_free(row[i]);
    free(row);
    free(each);
    free(step);
}

static void run_one(const mask_options *o, const char *name, grammar_kind kind, const char *text, const token_trie *t,
                    pool *threads)
{
    err e;
    double start = clock_now();
    grammar *g = grammar_compile(kind, text, strlen(text), NULL, &e);
    if (!g) {
        printf("%s: %s\n", name, e.msg);
        return;
    }
    double compiled = clock_now();
    int n_states = g->n_states;
    guide *x = guide_new(g, t, NULL);
    printf("%-28s %zu bytes, compiled in %.1f ms to %d states; masks ahead in %.1f ms\n", name, strlen(text),
           (compiled - start) * 1e3, n_states, (clock_now() - compiled) * 1e3);
    walk(o, name, x, threads);
    guide_drop(x);
}

void mask_run(const mask_options *o)
{
    word_maker w = {0};
    double start = clock_now();
    token_trie *t = token_trie_new(o->vocab, token_of, &w);
    printf("%d tokens, %d nodes of their trie, made in %.0f ms; batch %d, %d threads, %d steps\n", o->vocab, t->n,
           (clock_now() - start) * 1e3, o->batch, o->threads, o->steps);
    printf("%-28s %29s   %29s\n%-28s %9s %9s %9s   %9s %9s %9s\n", "", "us a mask", "us a step", "", "median", "99 %",
           "most", "median", "99 %", "most");
    pool *threads = pool_new(o->threads);
    buf schema = {0};
    int left = 160;
    write_schema(&schema, 19, &left);
    run_one(o, "any JSON object", GRAMMAR_JSON, "", t, threads);
    run_one(o, "a schema of three fields", GRAMMAR_SCHEMA,
            "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\"},"
            "\"tags\":{\"type\":\"array\",\"items\":{\"type\":"
            "\"string\"}}},\"required\":[\"name\",\"age\",\"tags\"],\"additionalProperties\":false}",
            t, threads);
    run_one(o, "a schema of 10 KB", GRAMMAR_SCHEMA, schema.data, t, threads);
    run_one(o, "strings of up to 500", GRAMMAR_SCHEMA,
            "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":500}}", t, threads);
    run_one(o, "a regular expression", GRAMMAR_REGEX, "([A-Z][a-z]+ ?){3,8}, [0-9]{5}", t, threads);
    buf_free(&schema);
    buf_free(&w.text);
    pool_free(threads);
    token_trie_free(t);
}
