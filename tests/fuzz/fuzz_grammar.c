/* fuzz_grammar.c - any bytes as a grammar: the first says of which kind. What compiles is followed for a while: from
 * every place that is reached, a way must lead on or the text may end, and masks must agree with trying a token's
 * bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "grammar/grammar.h"
#include "grammar/guide.h"
#include "grammar/machine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const words[] = {"\"",  "\":", "\",",   "{\"", "}",    "]",    "[",        " ",
                                    "\n ", "abc", "\\u00", "12",  "true", "\xc3", "\xc3\xa9", "\xa9"};
enum { N_WORDS = sizeof words / sizeof *words, VOCAB = 256 + N_WORDS };

static const char *text_of(void *ctx, int id, size_t *n)
{
    char *byte = ctx;
    *byte = (char)id;
    *n = id < 256 ? 1 : strlen(words[id - 256]);
    return id < 256 ? byte : words[id - 256];
}

static void follow(grammar *g)
{
    char byte;
    token_trie *t = token_trie_new(VOCAB, text_of, &byte);
    machine *m = machine_new(g);
    guide *x = guide_new(g, t, NULL);
    guide_state *s = guide_state_new(x);
    int place = machine_begin(m);
    for (uint64_t step = 0; step < 20 && place != PLACE_NONE; step++) {
        const uint32_t *mask = guide_state_mask(s);
        int can[VOCAB], n = 0;
        for (int id = 0; id < VOCAB; id++) {
            size_t len;
            const char *text = token_trie_text(t, id, &len);
            int to = place;
            for (size_t i = 0; i < len && to != PLACE_NONE; i++)
                to = machine_next(m, to, (uint8_t)text[i]);
            CHECK((to != PLACE_NONE) == (mask[id / 32] >> id % 32 & 1));
            if (to != PLACE_NONE)
                can[n++] = id;
        }
        CHECK(machine_may_end(m, place) == guide_state_may_end(s));
        CHECK(n > 0 || machine_may_end(m, place));
        if (n == 0)
            break;
        int id = can[rng_u64(1, step) % (unsigned)n];
        size_t len;
        const char *text = token_trie_text(t, id, &len);
        for (size_t i = 0; i < len; i++)
            place = machine_next(m, place, (uint8_t)text[i]);
        CHECK(guide_state_add(s, id));
    }
    guide_state_free(s);
    machine_free(m);
    guide_drop(x);
    token_trie_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    static const grammar_kind kinds[] = {GRAMMAR_SCHEMA, GRAMMAR_REGEX, GRAMMAR_GBNF, GRAMMAR_CHOICE};
    grammar_kind kind = data[0] == 's'   ? GRAMMAR_SCHEMA
                        : data[0] == 'r' ? GRAMMAR_REGEX
                        : data[0] == 'g' ? GRAMMAR_GBNF
                                         : kinds[data[0] % 4];
    char *text = xmalloc(size); /* of exactly this size, so that reading past its end is seen */
    err e;
    memcpy(text, data + 1, size - 1);
    grammar *g = grammar_compile(kind, text, size - 1, NULL, &e);
    free(text);
    if (g)
        follow(g);
    else
        CHECK(e.msg[0]);
    return 0;
}
