/* tokenizer.c - see tokenizer.h: the parts put together */
#include "text/tokenizer.h"

#include <malloc.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "text/added.h"
#include "text/bpe.h"
#include "text/component.h"
#include "text/detokenizer.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/template.h"
#include "text/utf8.h"

/* tokenizer.json of the largest vocabularies is near 35 MB. */
#define MAX_JSON_FILE ((size_t)256 << 20)

#define MAX_TEXT ((size_t)64 << 20)

struct tokenizer {
    bpe *model;
    added_tokens *added;
    normalizer *normalize;
    pretokenizer *pretokenize;
    decoder *decode;
    template around;
    size_t longest; /* see tokenizer_longest() */
};

/* truncation and padding are ignored: they prepare batches for training, Transformers switches both
 * off unless a call asks for them, and a server must not cut prompts. */
static int load_parts(tokenizer *t, const json_t *doc, err *e)
{
    const char *version = "1.0";
    if (!json_is_object(doc))
        return err_set(e, "must be a JSON object");
    if (component_keys(doc,
                       "version truncation padding added_tokens normalizer pre_tokenizer post_processor "
                       "decoder model",
                       e) ||
        json_get_string(doc, "version", &version, e))
        return -1;
    if (strcmp(version, "1.0") != 0)
        return err_set(e, "version \"%s\" is not supported; only 1.0 is", version);
    if (!(t->model = bpe_new(json_object_get(doc, "model"), e)))
        return err_wrap(e, "model");
    if (!(t->normalize = normalizer_new(json_object_get(doc, "normalizer"), e)) ||
        !(t->pretokenize = pretokenizer_new(json_object_get(doc, "pre_tokenizer"), e)) ||
        !(t->decode = decoder_new(json_object_get(doc, "decoder"), e)) ||
        !(t->added = added_tokens_new(json_object_get(doc, "added_tokens"), bpe_vocab(t->model), t->normalize, e)))
        return -1;
    return template_init(&t->around, json_object_get(doc, "post_processor"), e);
}

/* Returns the id of a token that tokenizer_config.json has as a string or as an object with "content"; -1: none. */
static int config_token(const tokenizer *t, const json_t *config, const char *key)
{
    const json_t *v = json_object_get(config, key);
    if (json_is_object(v))
        v = json_object_get(v, "content");
    return json_is_string(v) ? tokenizer_token_id(t, json_string_value(v)) : -1;
}

/* Llama's tokenizer classes rebuild the template from add_bos_token and add_eos_token when they
 * load; others take tokenizer.json as it is. */
static int apply_config(tokenizer *t, const json_t *config, err *e)
{
    const char *class = "";
    if (!json_is_object(config))
        return err_set(e, "must be a JSON object");
    if (json_get_string(config, "tokenizer_class", &class, e))
        return -1;
    if (strncmp(class, "LlamaTokenizer", 14) != 0 && strncmp(class, "CodeLlamaTokenizer", 18) != 0)
        return 0;
    int bos = config_token(t, config, "bos_token"), eos = config_token(t, config, "eos_token");
    bool add_bos = false, add_eos = false;
    if (json_get_bool(config, "add_bos_token", &add_bos, e) || json_get_bool(config, "add_eos_token", &add_eos, e))
        return -1;
    if (bos >= 0 && json_member(config, "add_bos_token"))
        template_set_first(&t->around, bos, add_bos);
    if (eos >= 0 && json_member(config, "add_eos_token"))
        template_set_last(&t->around, eos, add_eos);
    return 0;
}

/* Returns whether ordinary text may be dropped since a special token is all that the model can make of it. */
static bool drops_special_chars(const tokenizer *t)
{
    for (size_t id = 0; id < added_tokens_n_ids(t->added) && bpe_unknown(t->model) < 0; id++)
        if (tokenizer_is_special(t, (int)id) && bpe_is_of_char(t->model, (int)id))
            return true;
    return false;
}

/* Returns tokenizer_longest(): the bytes that the longest token, or an unknown character of 4, had before
 * normalisation. */
static size_t find_longest(const tokenizer *t)
{
    size_t shrink = normalizer_most_shrink(t->normalize), added = added_tokens_longest(t->added),
           longest = bpe_vocab(t->model)->max_len;
    if (!pretokenizer_keeps_all(t->pretokenize) || !bpe_keeps_all(t->model, pretokenizer_makes_bytes(t->pretokenize)) ||
        !added || drops_special_chars(t))
        return 0;
    longest = longest > added ? longest : added;
    return (longest > 4 ? longest : 4) * shrink;
}

/* Takes ownership of doc and config. */
static tokenizer *make(json_t *doc, json_t *config, err *e)
{
    tokenizer *t = XNEW(tokenizer);
    int rc = load_parts(t, doc, e);
    if (rc == 0 && config && (rc = apply_config(t, config, e)))
        err_wrap(e, "tokenizer_config.json");
    json_decref(doc);
    json_decref(config);
    if (rc == 0) {
        t->longest = find_longest(t);
        return t;
    }
    tokenizer_free(t);
    return NULL;
}

tokenizer *tokenizer_from_json(const char *json, size_t n, const char *config, size_t n_config, err *e)
{
    json_t *doc = json_read_text(json, n, e);
    json_t *second = doc && config ? json_read_text(config, n_config, e) : NULL;
    if (doc && (second || !config))
        return make(doc, second, e);
    json_decref(doc);
    return NULL;
}

tokenizer *tokenizer_load(const char *dir, err *e)
{
    char *path = path_join(dir, "tokenizer.json"), *config_path = path_join(dir, "tokenizer_config.json");
    tokenizer *t = NULL;
    json_t *config = NULL, *doc = json_read_file(path, MAX_JSON_FILE, e);
    if (doc && file_exists(config_path) && !(config = json_read_file(config_path, MAX_JSON_FILE, e))) {
        json_decref(doc);
        doc = NULL;
    }
    if (doc && !(t = make(doc, config, e)))
        err_wrap(e, "%s", path);
    malloc_trim(0); /* the parsed file took several times what the tokenizer keeps */
    free(path);
    free(config_path);
    return t;
}

void tokenizer_free(tokenizer *t)
{
    if (!t)
        return;
    bpe_free(t->model);
    added_tokens_free(t->added);
    normalizer_free(t->normalize);
    pretokenizer_free(t->pretokenize);
    decoder_free(t->decode);
    template_deinit(&t->around);
    free(t);
}

/* The state of one call of tokenizer_encode_within(). */
typedef struct {
    const tokenizer *t;
    matcher *m;
    bpe_scratch *bpe;
    pretokenizer_scratch *pieces;
    buf normalized;
    ids *out;
    const encode_limits *limits; /* NULL: none */
    const text_spans *own;       /* where special tokens are recognised; NULL: anywhere */
    bool guards_normalized;      /* own is set, and some special tokens are looked for in the normalised text */
    size_t max_n;                /* out->n may not pass this */
    bool stopped;
} encoding;

/* Returns 0 to go on, or -1, with stopped set, when a limit was passed or *stop is true. */
static int check_limits(encoding *c)
{
    const encode_limits *l = c->limits;
    c->stopped = l && (c->out->n > c->max_n || (l->stop && atomic_load_explicit(l->stop, memory_order_relaxed)));
    return c->stopped ? -1 : 0;
}

static int add_one(encoding *c, int id)
{
    ids_add(c->out, id);
    return check_limits(c);
}

static bool contains_token(const tokenizer *t, int id, const char *text, size_t n)
{
    size_t n_token;
    const char *token = vocab_text(bpe_vocab(t->model), id, &n_token);
    return memmem(text, n, token, n_token) != NULL;
}

/* Returns whether a special token is among the ids since `from`, which the model made of this ordinary text: some
 * vocabularies have merges that lead to one. The unknown token counts if the text has its name: then it may stand for
 * that instead of for an unknown character. */
static bool has_special(const encoding *c, size_t from, const char *text, size_t n)
{
    int unknown = bpe_unknown(c->t->model);
    bool has_unknown = false;
    for (size_t i = from; i < c->out->n; i++) {
        int id = c->out->items[i];
        if (id != unknown && tokenizer_is_special(c->t, id))
            return true;
        has_unknown |= id == unknown && tokenizer_is_special(c->t, id);
    }
    return has_unknown && contains_token(c->t, unknown, text, n);
}

/* Encodes one character. If that gives a special token, the character counts as one without a token. */
static int encode_char(encoding *c, const char *text, size_t n, err *e)
{
    int unknown = bpe_unknown(c->t->model);
    size_t before = c->out->n;
    if (bpe_encode(c->t->model, c->bpe, text, n, c->out, e))
        return -1;
    if (!has_special(c, before, text, n))
        return 0;
    c->out->n = before;
    if (bpe_encode_bytes(c->t->model, text, n, c->out) && !has_special(c, before, text, n))
        return 0;
    c->out->n = before;
    if (unknown >= 0)
        ids_add(c->out, unknown);
    return 0;
}

/* Encodes a piece character by character, so that no merge can make a special token of it. */
static int encode_chars(encoding *c, const char *text, size_t n, err *e)
{
    for (const char *p = text, *next = text; p < text + n; p = next) {
        utf8_next(&next);
        if (encode_char(c, p, (size_t)(next - p), e))
            return -1;
    }
    return 0;
}

static int encode_piece(void *self, const char *text, size_t n, err *e)
{
    encoding *c = self;
    size_t before = c->out->n;
    if (bpe_encode(c->t->model, c->bpe, text, n, c->out, e))
        return -1;
    if (c->own && has_special(c, before, text, n)) {
        c->out->n = before;
        if (encode_chars(c, text, n, e))
            return -1;
    }
    return check_limits(c);
}

/* Picks a noncharacter (U+FDD0 to U+FDEF) that neither the text has nor the normalizer inserts, and writes it to
 * sentinel: then those in the normalised text are some of those put in, in the same order. NULL: there is none. */
static const char *find_sentinel(const normalizer *z, const char *text, size_t n, char sentinel[4])
{
    for (int i = 0; i < 32; i++) {
        memcpy(sentinel, (char[]){'\xef', '\xb7', (char)(0x90 + i), 0}, 4);
        if (!memmem(text, n, sentinel, 3) && !normalizer_inserts(z, sentinel, 3))
            return sentinel;
    }
    return NULL;
}

/* Appends the text, which begins at `start` of the whole, with a sentinel wherever a span of `own` begins or ends
 * in it. Returns how many these are. */
static size_t add_marked(buf *out, const char *text, size_t n, size_t start, const text_spans *own,
                         const char *sentinel)
{
    size_t at = start, end = start + n, n_marks = 0;
    for (size_t i = text_spans_find(own, start); i < own->n && own->at[i].from < end; i++) {
        const size_t edge[] = {own->at[i].from, own->at[i].to};
        for (int k = 0; k < 2; k++)
            if (edge[k] > start && edge[k] < end) {
                buf_add(out, text + (at - start), edge[k] - at);
                buf_add(out, sentinel, 3);
                at = edge[k];
                n_marks++;
            }
    }
    buf_add(out, text + (at - start), end - at);
    return n_marks;
}

/* Adds to out the spans of the normalised text that are own. `marked` is the text normalised with n_marks sentinels,
 * each of which begins or ends such a span; is_own: whether the text begins with one. Adds none if a sentinel was lost,
 * or if they changed how the rest was normalised. */
static void read_marked(const buf *marked, const char *sentinel, size_t n_marks, bool is_own, const buf *normalized,
                        text_spans *out)
{
    buf plain = {0};
    size_t n_found = 0;
    for (const char *p = marked->data, *end = marked->data + marked->len; p <= end; is_own = !is_own) {
        const char *next = memmem(p, (size_t)(end - p), sentinel, 3), *stop = next ? next : end;
        if (is_own)
            text_spans_add(out, plain.len, plain.len + (size_t)(stop - p));
        buf_add(&plain, p, (size_t)(stop - p));
        n_found += next != NULL;
        p = next ? next + 3 : end + 1;
    }
    if (n_found != n_marks || plain.len != normalized->len || memcmp(plain.data, normalized->data, plain.len) != 0)
        text_spans_free(out);
    buf_free(&plain);
}

/* Maps c->own, whose offsets are of the text before normalisation, to spans of c->normalized: normalises the text a
 * second time with sentinels at the edges of the spans. out stays empty where that does not give the same text with all
 * sentinels, and where an edge lies within a character: no special token is recognised there. */
static int find_own_normalized(encoding *c, const char *text, size_t n, size_t start, text_spans *out, err *e)
{
    char sentinel[4];
    buf with = {0}, marked = {0};
    bool lost;
    int rc = 0;
    if (!find_sentinel(c->t->normalize, text, n, sentinel))
        return 0;
    size_t n_marks = add_marked(&with, text, n, start, c->own, sentinel);
    if (!utf8_is_valid(with.data, with.len))
        goto out;
    rc = normalizer_apply(c->t->normalize, c->m, with.data, with.len, &marked, &lost, e);
    if (rc == 0)
        read_marked(&marked, sentinel, n_marks, text_spans_cover(c->own, start, start + 1), &c->normalized, out);
out:
    buf_free(&with);
    buf_free(&marked);
    return rc;
}

/* Adds to out the parts of [start, start + n) that `all` covers, as offsets from start. */
static void copy_spans(const text_spans *all, size_t start, size_t n, text_spans *out)
{
    for (size_t i = text_spans_find(all, start); i < all->n && all->at[i].from < start + n; i++) {
        size_t from = all->at[i].from > start ? all->at[i].from : start,
               to = all->at[i].to < start + n ? all->at[i].to : start + n;
        text_spans_add(out, from - start, to - start);
    }
}

/* Encodes text between added tokens, which begins at `start` of the whole: normalises it, finds the
 * added tokens that are `normalized`, and gives the rest to the model. */
static int encode_between(encoding *c, const char *text, size_t n, size_t start, err *e)
{
    bool head_lost = false, at_start = start == 0;
    text_spans own = {0};
    int rc = 0;
    if (!normalizer_is_empty(c->t->normalize)) {
        if (normalizer_apply(c->t->normalize, c->m, text, n, &c->normalized, &head_lost, e))
            return -1;
        if (c->guards_normalized)
            rc = find_own_normalized(c, text, n, start, &own, e);
        text = c->normalized.data;
        n = c->normalized.len;
    } else if (c->guards_normalized) {
        copy_spans(c->own, start, n, &own);
    }
    added_scan scan;
    added_span span;
    added_scan_begin(&scan, c->t->added, true, c->m, text, n);
    scan.own = c->guards_normalized ? &own : NULL;
    while (rc == 0 && added_scan_next(&scan, &span)) {
        bool first = at_start && !head_lost && span.start == 0;
        rc = span.token ? add_one(c, span.token->id)
                        : pretokenizer_run(c->t->pretokenize, c->pieces, c->m, text + span.start, span.end - span.start,
                                           first, encode_piece, c, e);
    }
    text_spans_free(&own);
    return rc;
}

static int encode_text(encoding *c, const char *text, size_t n, err *e)
{
    added_scan scan;
    added_span span;
    added_scan_begin(&scan, c->t->added, false, c->m, text, n);
    scan.own = c->own;
    while (added_scan_next(&scan, &span)) {
        if (span.token ? add_one(c, span.token->id)
                       : encode_between(c, text + span.start, span.end - span.start, span.start, e))
            return -1;
    }
    return 0;
}

static int encode_around(encoding *c, const char *text, size_t n, bool add_special, err *e)
{
    const ids *around = &c->t->around.items;
    for (size_t i = 0; i < around->n; i++) {
        if (around->items[i] == TEMPLATE_TEXT) {
            if (encode_text(c, text, n, e))
                return -1;
        } else if (add_special && add_one(c, around->items[i])) {
            return -1;
        }
    }
    return 0;
}

int tokenizer_encode(const tokenizer *t, const char *text, size_t n, bool add_special, ids *out, err *e)
{
    return tokenizer_encode_within(t, text, n, add_special, NULL, out, e);
}

int tokenizer_encode_within(const tokenizer *t, const char *text, size_t n, bool add_special, const encode_limits *l,
                            ids *out, err *e)
{
    if (l && t->longest && n / t->longest > l->max_ids)
        return 1; /* too long by its bytes alone */
    if (n > MAX_TEXT)
        return err_set(e, "the text has %zu bytes; at most %zu can be encoded", n, MAX_TEXT);
    buf repaired = {0};
    const text_spans none = {0}, *own = l ? l->own : NULL;
    if (!utf8_is_valid(text, n)) {
        own = own ? &none : NULL; /* the repair moves the bytes: its offsets no longer hold */
        utf8_tail tail = {0};
        utf8_repair(&tail, text, n, &repaired);
        utf8_repair_end(&tail, &repaired);
        text = repaired.data;
        n = repaired.len;
    }
    size_t before = out->n;
    encoding c = {
        .t = t, .m = matcher_new(n), .out = out, .limits = l, .own = own, .max_n = before + (l ? l->max_ids : 0)};
    c.guards_normalized = own && added_tokens_has_normalized_special(t->added);
    c.bpe = bpe_scratch_new();
    c.pieces = pretokenizer_scratch_new();
    int rc = encode_around(&c, text, n, add_special, e);
    if (rc)
        out->n = before;
    buf_free(&c.normalized);
    pretokenizer_scratch_free(c.pieces);
    bpe_scratch_free(c.bpe);
    matcher_free(c.m);
    buf_free(&repaired);
    return c.stopped ? 1 : rc;
}

size_t tokenizer_longest(const tokenizer *t)
{
    return t->longest;
}

void tokenizer_decode(const tokenizer *t, const int *id, size_t n, bool skip_special, buf *out)
{
    detokenizer d;
    detokenizer_init(&d, t, skip_special, NULL, 0);
    for (size_t i = 0; i < n; i++)
        detokenizer_add(&d, id[i], out);
    detokenizer_finish(&d, out);
    detokenizer_deinit(&d);
}

int tokenizer_vocab_size(const tokenizer *t)
{
    size_t model = bpe_vocab(t->model)->n_ids, added = added_tokens_n_ids(t->added);
    return (int)(model > added ? model : added);
}

int tokenizer_token_id(const tokenizer *t, const char *token)
{
    const added_token *a = added_tokens_find(t->added, token, strlen(token));
    return a ? a->id : vocab_find(bpe_vocab(t->model), token, strlen(token));
}

bool tokenizer_is_special(const tokenizer *t, int id)
{
    const added_token *a = added_tokens_by_id(t->added, id);
    return a && a->special;
}

const char *tokenizer_token_text(const tokenizer *t, int id, size_t *n)
{
    const added_token *a = added_tokens_by_id(t->added, id);
    if (a) {
        *n = a->n_sought;
        return a->sought;
    }
    return vocab_has(bpe_vocab(t->model), id) ? vocab_text(bpe_vocab(t->model), id, n) : NULL;
}

const decoder *tokenizer_decoder(const tokenizer *t)
{
    return t->decode;
}
