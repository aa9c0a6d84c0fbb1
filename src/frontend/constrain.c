/* constrain.c - see constrain.h */
#include "frontend/constrain.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/mem.h"
#include "grammar/grammar.h"

enum { KNOWN = 512 };
#define MAX_TEXT (256u << 10) /* bytes; sent with every choice */

struct grammar_checks {
    pthread_mutex_t lock;
    digest good[KNOWN]; /* a ring */
    int n, next;
};

grammar_checks *grammar_checks_new(void)
{
    grammar_checks *c = XNEW(grammar_checks);
    CHECK(pthread_mutex_init(&c->lock, NULL) == 0);
    return c;
}

void grammar_checks_free(grammar_checks *c)
{
    if (!c)
        return;
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static bool is_known(grammar_checks *c, const digest *d)
{
    bool found = false;
    if (!c)
        return false;
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->n && !found; i++)
        found = memcmp(&c->good[i], d, sizeof *d) == 0;
    pthread_mutex_unlock(&c->lock);
    return found;
}

static void remember(grammar_checks *c, const digest *d)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->good[c->next] = *d;
    c->next = (c->next + 1) % KNOWN;
    c->n += c->n < KNOWN;
    pthread_mutex_unlock(&c->lock);
}

static int check_grammar(const api_request *r, grammar_checks *known, bool soon, const atomic_bool *stop, api_error *e)
{
    const Sampling *s = &r->sampling;
    if (s->grammar_kind == GRAMMAR_NONE)
        return 0;
    if (s->grammar.len > MAX_TEXT)
        return api_error_set(e, 400, r->grammar_field, NULL, "\"%s\" has %zu bytes; at most %u are taken",
                             r->grammar_field, s->grammar.len, MAX_TEXT);
    digest d;
    digest_of_parts(&d, (digest_part[]){{&s->grammar_kind, sizeof s->grammar_kind}, {s->grammar.data, s->grammar.len}},
                    2);
    if (is_known(known, &d))
        return 0;
    err why;
    bool takes_long = false;
    grammar_kind kind = (grammar_kind)s->grammar_kind;
    const char *text = (const char *)s->grammar.data;
    size_t n = s->grammar.len;
    grammar *g =
        soon ? grammar_compile_soon(kind, text, n, &takes_long, &why) : grammar_compile(kind, text, n, stop, &why);
    if (takes_long)
        return 1;
    if (!g)
        return api_error_set(e, 400, r->grammar_field, NULL, "\"%s\": %s", r->grammar_field, why.msg);
    grammar_free(g);
    remember(known, &d);
    return 0;
}

static int check_ids(const int32_t *id, size_t n, int vocab, const char *field, api_error *e)
{
    for (size_t i = 0; i < n; i++)
        if (id[i] >= vocab)
            return api_error_set(e, 400, field, NULL, "\"%s\": token id %d is outside the vocabulary of %d", field,
                                 id[i], vocab);
    return 0;
}

/* Adds a bad word as tokens. */
static void add_word(Sampling *s, const ids *word, size_t *ids_cap, size_t *words_cap)
{
    if (word->n == 0)
        return;
    s->bad_ids = xgrow(s->bad_ids, ids_cap, s->n_bad_ids + word->n, sizeof *s->bad_ids);
    s->bad_lengths = xgrow(s->bad_lengths, words_cap, s->n_bad_lengths + 1, sizeof *s->bad_lengths);
    for (size_t i = 0; i < word->n; i++)
        s->bad_ids[s->n_bad_ids++] = word->items[i];
    s->bad_lengths[s->n_bad_lengths++] = (uint32_t)word->n;
}

/* Tokenizes each bad word twice: as it stands at the beginning of a text, and behind a blank. */
static int tokenize_words(api_request *r, const tokenizer *t, api_error *e)
{
    size_t ids_cap = 0, words_cap = 0;
    for (size_t i = 0; i < json_array_size(r->bad_words); i++) {
        const json_t *word = json_array_get(r->bad_words, i);
        buf text = {0};
        buf_add_str(&text, " ");
        buf_add(&text, json_string_value(word), json_string_length(word));
        for (int blank = 0; blank < 2; blank++) {
            ids x = {0};
            int rc = tokenizer_encode(t, text.data + 1 - blank, text.len - 1 + (size_t)blank, false, &x, &e->what);
            if (rc == 0)
                add_word(&r->sampling, &x, &ids_cap, &words_cap);
            ids_free(&x);
            if (rc) {
                buf_free(&text);
                return api_error_bad(e, "bad_words");
            }
        }
        buf_free(&text);
    }
    return 0;
}

int constrain(api_request *r, const tokenizer *t, int vocab, grammar_checks *known, bool soon, const atomic_bool *stop,
              api_error *e)
{
    if (r->sampling.n_allowed_ids > (size_t)vocab)
        return api_error_set(e, 400, "allowed_token_ids", NULL,
                             "\"allowed_token_ids\" has %zu ids; the vocabulary has %d", r->sampling.n_allowed_ids,
                             vocab);
    if (check_ids(r->sampling.stop_ids, r->sampling.n_stop_ids, vocab, "stop_token_ids", e) ||
        check_ids(r->sampling.biased, r->sampling.n_biased, vocab, "logit_bias", e) ||
        check_ids(r->sampling.allowed_ids, r->sampling.n_allowed_ids, vocab, "allowed_token_ids", e) ||
        tokenize_words(r, t, e))
        return -1;
    return check_grammar(r, known, soon, stop, e);
}

bool constrain_takes_long(const api_request *r)
{
    return r->sampling.grammar_kind != GRAMMAR_NONE || r->conversation.tools;
}
