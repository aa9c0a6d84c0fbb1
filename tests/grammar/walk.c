/* walk.c - texts of grammars, at random: for tests that judge them with somebody else's validator
 *
 *   grammar_walk N SEED <lines.jsonl
 *
 * A line is {"kind": "json"|"schema"|"regex"|"choice"|"gbnf", "text": ...}; the text of a schema or a choice may also
 * stand there as JSON. For each line one line of output: {"error": ...}, or {"texts": [...], "cut": [...]} with N texts
 * in all: those that came to an end, and those that were cut off since they did not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "grammar/grammar.h"
#include "grammar/machine.h"

enum { LONG = 400, LONGEST = 4000 };

static uint64_t seed, counter;

static unsigned below(unsigned n)
{
    return (unsigned)(rng_u64(seed, counter++) % n);
}

/* A byte that may come; brackets and quotes that close are likelier in a long text. */
static int choose(machine *m, int place, size_t len)
{
    unsigned char can[256];
    unsigned n = 0;
    for (int c = 0; c < 256; c++)
        if (machine_next(m, place, (uint8_t)c) != PLACE_NONE)
            can[n++] = (unsigned char)c;
    for (const char *c = "\"]}"; len > LONG && *c; c++)
        if (machine_next(m, place, (uint8_t)*c) != PLACE_NONE && below(2))
            return *c;
    for (unsigned i = 0; i < 3 && n; i++) { /* ASCII rather than the many ways into other characters */
        int c = can[below(n)];
        if (c < 0x80)
            return c;
    }
    return n ? can[below(n)] : -1;
}

/* Returns whether it came to an end. */
static bool one_text(machine *m, buf *out)
{
    int place = machine_keep(m, machine_begin(m));
    buf_clear(out);
    buf_add(out, "", 0);
    while (out->len < LONGEST) {
        bool end = machine_may_end(m, place);
        int c = end && below(out->len > LONG ? 2 : 4) == 0 ? -1 : choose(m, place, out->len);
        if (c < 0) {
            if (!end)
                abort(); /* a place from which no way leads on must not be */
            return true;
        }
        buf_add_char(out, (char)c);
        place = machine_next(m, place, (uint8_t)c);
    }
    return false;
}

static grammar_kind kind_of(const char *name)
{
    static const char *const names[] = {"none", "json", "schema", "regex", "choice", "gbnf"};
    for (int i = 0; i < 6; i++)
        if (name && strcmp(name, names[i]) == 0)
            return (grammar_kind)i;
    return GRAMMAR_NONE;
}

static json_t *answer(const json_t *line, int n)
{
    const json_t *text = json_object_get(line, "text");
    grammar_kind kind = kind_of(json_string_value(json_object_get(line, "kind")));
    char *dumped = json_is_string(text) ? NULL : json_dumps(text, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *source = dumped ? dumped : json_string_value(text);
    err e;
    double start = clock_now();
    grammar *g =
        grammar_compile(kind, source ? source : "", dumped ? strlen(dumped) : json_string_length(text), NULL, &e);
    double seconds = clock_now() - start;
    free(dumped);
    if (!g)
        return json_pack("{s:s, s:f}", "error", e.msg, "seconds", seconds);
    machine *m = machine_new(g);
    buf out = {0};
    json_t *texts = json_array(), *cut = json_array();
    for (int i = 0; i < n; i++) {
        bool whole = one_text(m, &out);
        json_t *v = json_stringn(out.data, out.len); /* NULL where it is cut within a character */
        if (v)
            json_array_append_new(whole ? texts : cut, v);
        else if (whole)
            abort();
    }
    json_t *result =
        json_pack("{s:o, s:o, s:f, s:i}", "texts", texts, "cut", cut, "seconds", seconds, "states", g->n_states);
    buf_free(&out);
    machine_free(m);
    grammar_free(g);
    return result;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 5;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t len; (len = getline(&line, &cap, stdin)) > 0;) {
        err e;
        json_t *doc = json_read_text(line, (size_t)len, &e);
        json_t *out = doc ? answer(doc, n) : json_pack("{s:s}", "error", e.msg);
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(out);
        json_decref(doc);
    }
    free(line);
    return 0;
}
