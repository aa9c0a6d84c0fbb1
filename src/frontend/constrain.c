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

/* A text that was good. */
typedef struct {
    digest of;      /* of whose it is, its kind and itself */
    uint64_t owner; /* whose it is, in short: among two that are taken for one, one may evict the other's */
    uint64_t used;  /* clock when it was last asked for */
} known_text;

struct grammar_checks {
    pthread_mutex_t lock;
    known_text good[KNOWN]; /* [n] */
    int n;
    uint64_t clock;
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
        if ((found = memcmp(&c->good[i].of, d, sizeof *d) == 0))
            c->good[i].used = ++c->clock;
    pthread_mutex_unlock(&c->lock);
    return found;
}

/* Returns the place of the least recently used text of the owner that has most. */
static known_text *oldest_of_most(grammar_checks *c)
{
    known_text *oldest = NULL;
    int most = 0;
    for (int i = 0; i < c->n; i++) {
        known_text *x = &c->good[i];
        int n = 0;
        for (int k = 0; k < c->n; k++)
            n += c->good[k].owner == x->owner;
        if (n > most || (n == most && x->used < oldest->used))
            oldest = x;
        most = n > most ? n : most;
    }
    return oldest;
}

static void remember(grammar_checks *c, const digest *d, uint64_t owner)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    known_text *at = c->n < KNOWN ? &c->good[c->n++] : oldest_of_most(c);
    *at = (known_text){.of = *d, .owner = owner, .used = ++c->clock};
    pthread_mutex_unlock(&c->lock);
}

/* Names a grammar, and whose it is: of a tenant, and of a cache salt. */
static digest name_of(const Sampling *s, const char *tenant, uint64_t *owner)
{
    digest d;
    tenant = tenant ? tenant : "";
    digest_of_parts(&d, &(digest_part){tenant, strlen(tenant)}, 1);
    memcpy(owner, d.byte, sizeof *owner);
    digest_of_parts(&d,
                    (digest_part[]){{tenant, strlen(tenant) + 1},
                                    {s->cache_salt, strlen(s->cache_salt) + 1},
                                    {&s->grammar_kind, sizeof s->grammar_kind},
                                    {s->grammar.data, s->grammar.len}},
                    4);
    return d;
}

static int check_grammar(const api_request *r, const constrain_tools *w, api_error *e)
{
    const Sampling *s = &r->sampling;
    if (s->grammar_kind == GRAMMAR_NONE)
        return 0;
    if (s->grammar.len > MAX_TEXT)
        return api_error_set(e, 400, r->grammar_field, NULL, "\"%s\" has %zu bytes; at most %u are taken",
                             r->grammar_field, s->grammar.len, MAX_TEXT);
    uint64_t owner;
    const digest d = name_of(s, w->tenant, &owner);
    if (is_known(w->known, &d))
        return 0;
    err why;
    bool takes_long = false;
    grammar_kind kind = (grammar_kind)s->grammar_kind;
    const char *text = (const char *)s->grammar.data;
    size_t n = s->grammar.len;
    grammar *g = w->soon ? grammar_compile_soon(kind, text, n, &takes_long, &why)
                         : grammar_compile(kind, text, n, w->stop, &why);
    if (takes_long)
        return 1;
    if (!g)
        return api_error_set(e, 400, r->grammar_field, NULL, "\"%s\": %s", r->grammar_field, why.msg);
    grammar_free(g);
    remember(w->known, &d, owner);
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

int constrain(api_request *r, const constrain_tools *w, api_error *e)
{
    const Sampling *s = &r->sampling;
    if (s->n_allowed_ids > (size_t)w->vocab)
        return api_error_set(e, 400, "allowed_token_ids", NULL,
                             "\"allowed_token_ids\" has %zu ids; the vocabulary has %d", s->n_allowed_ids, w->vocab);
    if (check_ids(s->stop_ids, s->n_stop_ids, w->vocab, "stop_token_ids", e) ||
        check_ids(s->biased, s->n_biased, w->vocab, "logit_bias", e) ||
        check_ids(s->allowed_ids, s->n_allowed_ids, w->vocab, "allowed_token_ids", e) || tokenize_words(r, w->t, e))
        return -1;
    return check_grammar(r, w, e);
}

bool constrain_takes_long(const api_request *r)
{
    return r->sampling.grammar_kind != GRAMMAR_NONE || r->conversation.tools;
}
