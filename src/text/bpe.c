/* bpe.c - see bpe.h
 *
 * Speed comes from doing less. A pre-token is cut wherever two neighbouring characters can never
 * be joined: no merge has a left part ending in the one and a right part starting with the other.
 * So even a model that takes a whole document as one pre-token works on pieces about the size of
 * words. A piece that is a token and known to encode to just that token is done; the answer is
 * memoised in a byte per token. Small pieces are merged in an array; long ones (a megabyte of one
 * letter) with a heap, in O(n log n). */
#include "text/bpe.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "text/byte_level.h"
#include "text/component.h"
#include "text/utf8.h"

#define NO_RANK UINT32_MAX
#define SMALL 40        /* symbols up to which the array is faster than the heap */
#define N_DIRECT 0x3000 /* code points whose token is looked up in an array */
#define JOIN_BITS 20

typedef struct { uint32_t left, right, rank, id; } merge; /* rank NO_RANK: empty slot */

enum { SELF_UNKNOWN, SELF_YES, SELF_NO };

struct bpe {
    vocab v;
    merge *merges; /* [mask + 1], open addressing */
    size_t mask;
    uint8_t *joinable;    /* [2^JOIN_BITS bits] pairs of characters some merge may join, by hash */
    int direct[N_DIRECT]; /* token of a code point, or -1 */
    int byte_id[256];     /* <0xNN>, or -1 */
    int unk_id;           /* -1: there is none */
    char *unk_token;      /* or NULL */
    bool fuse_unk, byte_fallback, ignore_merges;
    _Atomic unsigned char *self; /* [n_ids] whether a token's text encodes to that token alone */
};

typedef struct {
    int id;
    uint32_t rank, merged;
    int prev, next;
} symbol; /* rank: of the merge with next */

struct bpe_scratch {
    symbol *symbols; /* of one pre-token */
    size_t n, cap;
    uint64_t *heap; /* rank << 32 | position */
    size_t n_heap, heap_cap;
};

static size_t pair_hash(uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    return (size_t)(h ^ h >> 29 ^ h >> 47);
}

static merge *find_merge(const bpe *b, uint32_t left, uint32_t right)
{
    for (size_t i = pair_hash(left, right) & b->mask;; i = (i + 1) & b->mask) {
        merge *m = &b->merges[i];
        if (m->rank == NO_RANK || (m->left == left && m->right == right))
            return m;
    }
}

static uint32_t join_bit(uint32_t left, uint32_t right)
{
    return (left * 0x9e3779b1u ^ right * 0x85ebca77u) * 0xc2b2ae3du >> (32 - JOIN_BITS);
}

static bool is_joinable(const bpe *b, uint32_t left, uint32_t right)
{
    uint32_t bit = join_bit(left, right);
    return b->joinable[bit / 8] >> bit % 8 & 1;
}

/* The token of one character, or -1. */
static int char_id(const bpe *b, uint32_t cp, const char *s, size_t n)
{
    return cp < N_DIRECT ? b->direct[cp] : vocab_find(&b->v, s, n);
}

typedef struct {
    const char *left, *right;
    size_t n_left, n_right;
} merge_text;

/* A merge is "left right" or ["left", "right"]. */
static int read_merge(merge_text *m, const json_t *spec, err *e)
{
    if (json_is_string(spec)) {
        const char *s = json_string_value(spec);
        size_t n = json_string_length(spec);
        const char *space = memchr(s, ' ', n);
        if (!space || memchr(space + 1, ' ', n - (size_t)(space + 1 - s)))
            return err_set(e, "\"%s\" is not two tokens with a space between", s);
        *m = (merge_text){s, space + 1, (size_t)(space - s), n - (size_t)(space + 1 - s)};
        return 0;
    }
    const json_t *l = json_array_get(spec, 0), *r = json_array_get(spec, 1);
    if (json_array_size(spec) != 2 || !json_is_string(l) || !json_is_string(r))
        return err_set(e, "it must be \"left right\" or [\"left\", \"right\"]");
    *m = (merge_text){json_string_value(l), json_string_value(r), json_string_length(l), json_string_length(r)};
    return 0;
}

static int find_token(const bpe *b, const char *s, size_t n, int *id, err *e)
{
    *id = vocab_find(&b->v, s, n);
    return *id >= 0 ? 0 : err_set(e, "\"%.*s\" is not in the vocabulary", n > 100 ? 100 : (int)n, s);
}

static void note_joinable(bpe *b, const merge_text *m)
{
    if (m->n_left == 0 || m->n_right == 0)
        return;
    const char *last = utf8_back(m->left + m->n_left), *first = m->right;
    uint32_t left = utf8_next(&last);
    uint32_t bit = join_bit(left, utf8_next(&first));
    b->joinable[bit / 8] |= (uint8_t)(1 << bit % 8);
}

static int add_merge(bpe *b, const json_t *spec, uint32_t rank, buf *joined, err *e)
{
    merge_text m = {0};
    int left, right, id;
    if (read_merge(&m, spec, e) || find_token(b, m.left, m.n_left, &left, e) ||
        find_token(b, m.right, m.n_right, &right, e))
        return -1;
    buf_clear(joined);
    buf_add(joined, m.left, m.n_left);
    buf_add(joined, m.right, m.n_right);
    if (find_token(b, joined->data, joined->len, &id, e))
        return -1;
    /* Of a pair that is listed twice the later rank counts. */
    *find_merge(b, (uint32_t)left, (uint32_t)right) =
        (merge){.left = (uint32_t)left, .right = (uint32_t)right, .rank = rank, .id = (uint32_t)id};
    note_joinable(b, &m);
    return 0;
}

/* Returns whether this is the line "#version..." of merges.txt, which some lists of merges still have. */
static bool is_version_line(const json_t *spec)
{
    return json_is_string(spec) && strncmp(json_string_value(spec), "#version", 8) == 0;
}

static int load_merges(bpe *b, const json_t *list, err *e)
{
    if (!json_is_array(list))
        return err_set(e, "\"merges\" must be an array");
    size_t n = json_array_size(list), n_slots = 16;
    while (n_slots * 2 < n * 3)
        n_slots *= 2;
    b->mask = n_slots - 1;
    b->merges = xmalloc(n_slots * sizeof *b->merges);
    memset(b->merges, 0xff, n_slots * sizeof *b->merges);
    b->joinable = XNEW_ARRAY(uint8_t, (size_t)1 << (JOIN_BITS - 3));
    buf joined = {0};
    int rc = 0;
    uint32_t rank = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const json_t *spec = json_array_get(list, i);
        if (is_version_line(spec))
            continue;
        rc = add_merge(b, spec, rank++, &joined, e);
        if (rc)
            err_wrap(e, "merge %zu", i);
    }
    buf_free(&joined);
    return rc;
}

static void find_special_ids(bpe *b)
{
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        b->byte_id[i] = vocab_find(&b->v, name, 6);
    }
    buf one = {0};
    for (uint32_t cp = 0; cp < N_DIRECT; cp++) {
        buf_clear(&one);
        utf8_add(&one, cp);
        b->direct[cp] = vocab_find(&b->v, one.data, one.len);
    }
    buf_free(&one);
    b->unk_id = b->unk_token ? vocab_find(&b->v, b->unk_token, strlen(b->unk_token)) : -1;
}

static int load_options(bpe *b, const json_t *model, err *e)
{
    const char *type = "BPE", *unk = NULL, *prefix = "", *suffix = "";
    double dropout = 0;
    if (component_keys(model,
                       "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk "
                       "byte_fallback ignore_merges vocab merges",
                       e) ||
        json_get_string(model, "type", &type, e) || json_get_string(model, "unk_token", &unk, e) ||
        json_get_string(model, "continuing_subword_prefix", &prefix, e) ||
        json_get_string(model, "end_of_word_suffix", &suffix, e) || json_get_double(model, "dropout", &dropout, e) ||
        json_get_bool(model, "fuse_unk", &b->fuse_unk, e) ||
        json_get_bool(model, "byte_fallback", &b->byte_fallback, e) ||
        json_get_bool(model, "ignore_merges", &b->ignore_merges, e))
        return -1;
    if (strcmp(type, "BPE") != 0)
        return err_set(e, "type \"%s\" is not supported; only BPE is", type);
    if (*prefix || *suffix)
        return err_set(e, "continuing_subword_prefix and end_of_word_suffix are not supported");
    if (dropout != 0)
        return err_set(e, "dropout is not supported: the same text must always give the same ids");
    b->unk_token = unk ? xstrdup(unk) : NULL;
    return 0;
}

bpe *bpe_new(const json_t *model, err *e)
{
    bpe *b = XNEW(bpe);
    if (!json_is_object(model)) {
        err_set(e, "\"model\" must be an object");
        goto fail;
    }
    if (load_options(b, model, e) || vocab_init(&b->v, json_object_get(model, "vocab"), e) ||
        load_merges(b, json_object_get(model, "merges"), e))
        goto fail;
    find_special_ids(b);
    b->self = xcalloc(b->v.n_ids, 1);
    return b;
fail:
    bpe_free(b);
    return NULL;
}

void bpe_free(bpe *b)
{
    if (!b)
        return;
    vocab_deinit(&b->v);
    free(b->merges);
    free(b->joinable);
    free(b->unk_token);
    free((void *)b->self);
    free(b);
}

static bool has_all_bytes(const bpe *b)
{
    for (int i = 0; i < 256; i++)
        if (b->byte_id[i] < 0)
            return false;
    return true;
}

static bool has_byte_alphabet(const bpe *b)
{
    bool all = true;
    for (int i = 0; i < 256 && all; i++) {
        char byte = (char)i;
        buf text = {0};
        byte_level_encode(&byte, 1, &text);
        all = vocab_find(&b->v, text.data, text.len) >= 0;
        buf_free(&text);
    }
    return all;
}

bool bpe_keeps_all(const bpe *b, bool bytes_only)
{
    if (b->byte_fallback && has_all_bytes(b))
        return true;
    return (b->unk_id >= 0 && !b->fuse_unk) || (bytes_only && has_byte_alphabet(b));
}

int bpe_unknown(const bpe *b)
{
    return b->unk_id;
}

bool bpe_is_of_char(const bpe *b, int id)
{
    size_t n;
    if (!vocab_has(&b->v, id))
        return false;
    for (int i = 0; i < 256; i++)
        if (b->byte_id[i] == id)
            return true;
    const char *text = vocab_text(&b->v, id, &n);
    return utf8_is_one_char(text, n);
}

const vocab *bpe_vocab(const bpe *b)
{
    return &b->v;
}

bpe_scratch *bpe_scratch_new(void)
{
    return XNEW(bpe_scratch);
}

void bpe_scratch_free(bpe_scratch *s)
{
    if (!s)
        return;
    free(s->symbols);
    free(s->heap);
    free(s);
}

/* Looks up the merge of x with its right neighbour. */
static void rank_pair(const bpe *b, symbol *x, const symbol *right)
{
    const merge *m = find_merge(b, (uint32_t)x->id, (uint32_t)right->id);
    x->rank = m->rank;
    x->merged = m->id;
}

/* Merges n symbols in place, closing the gap after each merge. Returns how many are left. */
static size_t merge_small(const bpe *b, symbol *x, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++)
        rank_pair(b, &x[i], &x[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (x[i].rank < x[best].rank)
                best = i;
        if (x[best].rank == NO_RANK)
            break;
        x[best].id = (int)x[best].merged;
        memmove(&x[best + 1], &x[best + 2], (n - best - 2) * sizeof *x);
        n--;
        if (best > 0)
            rank_pair(b, &x[best - 1], &x[best]);
        if (best + 1 < n)
            rank_pair(b, &x[best], &x[best + 1]);
    }
    return n;
}

static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t x = heap[i];
    for (size_t child; (child = 4 * i + 1) < n; i = child) {
        size_t end = child + 4 < n ? child + 4 : n;
        for (size_t k = child + 1; k < end; k++)
            if (heap[k] < heap[child])
                child = k;
        if (heap[child] >= x)
            break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

static void push(bpe_scratch *s, uint32_t rank, size_t position)
{
    if (rank == NO_RANK)
        return;
    if (s->n_heap == s->heap_cap)
        s->heap = xgrow(s->heap, &s->heap_cap, s->n_heap + 1, sizeof *s->heap);
    uint64_t x = (uint64_t)rank << 32 | position;
    size_t i = s->n_heap++;
    for (; i > 0 && s->heap[(i - 1) / 4] > x; i = (i - 1) / 4)
        s->heap[i] = s->heap[(i - 1) / 4];
    s->heap[i] = x;
}

static uint64_t pop(bpe_scratch *s)
{
    uint64_t top = s->heap[0];
    s->heap[0] = s->heap[--s->n_heap];
    if (s->n_heap > 0)
        sift_down(s->heap, s->n_heap, 0);
    return top;
}

static void start_heap(const bpe *b, bpe_scratch *s, symbol *x, size_t n)
{
    s->n_heap = 0;
    s->heap = xgrow(s->heap, &s->heap_cap, n, sizeof *s->heap);
    for (size_t i = 0; i < n; i++) {
        x[i].prev = (int)i - 1;
        x[i].next = i + 1 < n ? (int)i + 1 : -1;
        x[i].rank = NO_RANK;
        if (i + 1 < n)
            rank_pair(b, &x[i], &x[i + 1]);
        if (x[i].rank != NO_RANK)
            s->heap[s->n_heap++] = (uint64_t)x[i].rank << 32 | i;
    }
    for (size_t i = s->n_heap / 4 + 1; i-- > 0;)
        if (i < s->n_heap)
            sift_down(s->heap, s->n_heap, i);
}

/* Merges like merge_small(), with a heap over a linked list. A heap entry is stale when its symbol no longer has the
 * entry's rank; a rank belongs to one pair only. */
static size_t merge_large(const bpe *b, bpe_scratch *s, symbol *x, size_t n)
{
    start_heap(b, s, x, n);
    while (s->n_heap > 0) {
        uint64_t top = pop(s);
        symbol *left = &x[(uint32_t)top];
        if (left->rank != top >> 32)
            continue;
        symbol *right = &x[left->next];
        left->id = (int)left->merged;
        left->next = right->next;
        left->rank = right->rank = NO_RANK;
        if (left->next >= 0) {
            x[left->next].prev = (int)(left - x);
            rank_pair(b, left, &x[left->next]);
            push(s, left->rank, (size_t)(left - x));
        }
        if (left->prev >= 0) {
            rank_pair(b, &x[left->prev], left);
            push(s, x[left->prev].rank, (size_t)left->prev);
        }
    }
    size_t kept = 0;
    for (int i = 0; i >= 0; kept++) {
        int next = x[i].next;
        x[kept].id = x[i].id;
        i = next;
    }
    return kept;
}

/* A part of a pre-token; its symbols lie in the scratch. plain: each symbol is the token of one character
 * of its text, none is a byte token or unk_token. */
typedef struct {
    const char *text;
    bool plain;
} piece;

static void add_symbol(bpe_scratch *s, int id)
{
    if (s->n == s->cap)
        s->symbols = xgrow(s->symbols, &s->cap, s->n + 1, sizeof *s->symbols);
    s->symbols[s->n++].id = id;
}

/* Returns whether the text is a token known to encode to itself alone. *id: the token of this text, or -1. */
static bool is_self(const bpe *b, const char *text, size_t n, int *id)
{
    *id = vocab_find(&b->v, text, n);
    return *id >= 0 && atomic_load_explicit(&b->self[*id], memory_order_relaxed) == SELF_YES;
}

/* Merges the collected symbols of the piece, whose text ends at `end`, and appends their ids. */
static void finish_piece(const bpe *b, bpe_scratch *s, const piece *p, const char *end, ids *out)
{
    symbol *x = s->symbols;
    size_t n = s->n;
    int whole = -1;
    s->n = 0;
    if (n == 1) {
        ids_add(out, x->id);
        return;
    }
    if (n == 0)
        return;
    if (p->plain && is_self(b, p->text, (size_t)(end - p->text), &whole)) {
        ids_add(out, whole);
        return;
    }
    n = n <= SMALL ? merge_small(b, x, n) : merge_large(b, s, x, n);
    if (whole >= 0)
        atomic_store_explicit(&b->self[whole], n == 1 ? SELF_YES : SELF_NO, memory_order_relaxed);
    for (size_t i = 0; i < n; i++)
        ids_add(out, x[i].id);
}

static bool has_byte_tokens(const bpe *b, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (b->byte_id[(unsigned char)text[i]] < 0)
            return false;
    return b->byte_fallback;
}

/* Adds the byte tokens of a character that is no token. False, with nothing added, if it has none. */
static bool add_bytes(const bpe *b, bpe_scratch *s, const char *text, size_t n)
{
    if (!has_byte_tokens(b, text, n))
        return false;
    for (size_t i = 0; i < n; i++)
        add_symbol(s, b->byte_id[(unsigned char)text[i]]);
    return true;
}

/* Notes an unknown character. As in the reference its symbol is added only when a known one follows or the
 * text ends, so that several can be fused; without unk_token it is dropped. */
static int add_unknown(const bpe *b, bpe_scratch *s, bool *pending, err *e)
{
    if (!b->unk_token)
        return 0;
    if (b->unk_id < 0)
        return err_set(e, "a character has no token, and unk_token \"%s\" is not in the vocabulary", b->unk_token);
    if (*pending && !b->fuse_unk)
        add_symbol(s, b->unk_id);
    *pending = true;
    return 0;
}

static int encode_pieces(const bpe *b, bpe_scratch *s, const char *text, size_t n, ids *out, err *e)
{
    piece p = {.text = text, .plain = true};
    bool unknown = false; /* an unknown symbol is pending */
    uint32_t before = 0;
    bool has_before = false; /* the last symbol is the plain character `before` */
    s->n = 0;
    for (const char *at = text; at < text + n;) {
        const char *start = at;
        uint32_t cp = utf8_next(&at);
        int id = char_id(b, cp, start, (size_t)(at - start));
        if (id < 0) {
            if (!add_bytes(b, s, start, (size_t)(at - start)) && add_unknown(b, s, &unknown, e))
                return -1;
            p.plain = has_before = false;
            continue;
        }
        if (unknown)
            add_symbol(s, b->unk_id);
        unknown = false;
        if (has_before && !is_joinable(b, before, cp)) {
            finish_piece(b, s, &p, start, out);
            p = (piece){.text = start, .plain = true};
        }
        add_symbol(s, id);
        before = cp;
        has_before = true;
    }
    if (unknown)
        add_symbol(s, b->unk_id);
    finish_piece(b, s, &p, text + n, out);
    return 0;
}

int bpe_encode(const bpe *b, bpe_scratch *s, const char *text, size_t n, ids *out, err *e)
{
    int whole;
    if (n == 0)
        return 0;
    if (is_self(b, text, n, &whole) || (b->ignore_merges && whole >= 0)) {
        ids_add(out, whole);
        return 0;
    }
    return encode_pieces(b, s, text, n, out, e);
}

bool bpe_encode_bytes(const bpe *b, const char *text, size_t n, ids *out)
{
    if (!has_byte_tokens(b, text, n))
        return false;
    for (size_t i = 0; i < n; i++)
        ids_add(out, b->byte_id[(unsigned char)text[i]]);
    return true;
}
