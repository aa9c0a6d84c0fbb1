/* toy.c - see toy.h */
#include "sim/toy.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/lora.h"

enum { EOS_EVERY = 28 };              /* tokens, on average */
static const uint64_t NOT_FINITE = 0; /* in place of a hash or a record */

/* FIFO of batches of copies. A batch is copied only when it ends, so that whatever happened to its pages meanwhile
 * shows. size: [n] pieces of each batch; n_copied: pieces that were copied ahead of their batch's end. */
typedef struct {
    copy_piece *piece;
    size_t piece_cap;
    int n_pieces;
    int *size;
    size_t size_cap;
    int n;
    int n_copied;
} copy_queue;

struct toy {
    backend be; /* first */
    model m;
    bool slides; /* false: its one layer has no sliding window */
    bool broken;
    int room;        /* for so many adapters more; -1: unlimited */
    const batch *b;  /* borrowed: of the invocation */
    uint64_t *state; /* [n_state] hash of each row whose logits are wanted */
    size_t n_state, state_cap;
    sample_result *drawn[2]; /* of the samples not collected, oldest first; behind them, of the last collected */
    int n_drawn[2];
    size_t drawn_cap[2];
    int n_outstanding;
    copy_queue copies[N_COPY_LANES];
    uint64_t n_asked; /* times that copy_ended() drew whether a batch has */
};

static toy *toy_of(backend *be)
{
    return (toy *)be;
}

/* Returns what a position leaves in the KvCache. */
static uint64_t record_of(int token, int position, uint64_t content)
{
    return rng_u64(rng_u64(content, (uint64_t)position), (uint64_t)token);
}

static uint64_t add_record(uint64_t state, uint64_t record)
{
    return rng_mix(state * 0x9e3779b97f4a7c15u + record);
}

enum { ALL_LETTERS = (1 << 26) - 1, FIRST_HALF = (1 << 13) - 1 };

/* Draws a token. letters: those that may come, as a bit set. */
static int token_of(uint64_t state, uint64_t seed, uint64_t position, bool may_end, unsigned letters)
{
    uint64_t x = rng_u64(state ^ rng_mix(seed), position);
    if (may_end && x % EOS_EVERY == 0)
        return TOY_EOS;
    for (int skip = (int)(x / EOS_EVERY % (unsigned)__builtin_popcount(letters)); skip > 0; skip--)
        letters &= letters - 1;
    return 'a' + __builtin_ctz(letters);
}

/* Hashes a seen token, for a penalty. Hashes are summed, so the order of tokens does not matter. */
static uint64_t mark_of(int token, int n_in_output)
{
    return rng_u64((uint64_t)token + 1, (uint64_t)n_in_output);
}

static uint64_t marks_of(const int *token, int n, int n_prompt)
{
    int count[TOY_VOCAB] = {0};
    bool seen[TOY_VOCAB] = {0};
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        seen[token[i]] = true;
        count[token[i]] += i >= n_prompt;
    }
    for (int i = 0; i < TOY_VOCAB; i++)
        sum += seen[i] ? mark_of(i, count[i]) : 0;
    return sum;
}

int toy_next(const int *token, int n, int n_prompt, uint64_t content, const toy_sampling *sampling)
{
    uint64_t state = 0;
    for (int i = 0; i < n; i++)
        state = add_record(state, record_of(token[i], i, content));
    state += sampling->penalized ? marks_of(token, n, n_prompt) : 0;
    bool odd = sampling->alternates && (n - n_prompt) % 2;
    return token_of(state, sampling->seed, (uint64_t)n, n - n_prompt >= sampling->min_tokens && !odd,
                    !sampling->alternates ? ALL_LETTERS
                    : odd                 ? ALL_LETTERS & ~FIRST_HALF
                                          : FIRST_HALF);
}

/* Returns a logprob that a float holds exactly. */
static float score_of(uint64_t state, int token)
{
    return -(float)(rng_u64(state, (uint64_t)token) % 4096) / 64;
}

float toy_score(const int *token, int n, uint64_t content)
{
    uint64_t state = 0;
    for (int i = 0; i < n; i++)
        state = add_record(state, record_of(token[i], i, content));
    return score_of(state, token[n]);
}

/* Ops that do something. */

static invocation begin(backend *be, const batch *b, const void *owner)
{
    (void)owner;
    toy_of(be)->b = b;
    return (invocation){.n_rows = b->n_rows, .n_out = b->n_out};
}

/* One position of a page. The token itself is kept for kills(). */
typedef struct {
    uint64_t record;
    int64_t token;
} slot;

static slot *slot_at(const kv_cache *kv, const batch *b, int sequence, int position)
{
    int page = b->page[b->page_indptr[sequence] + position / kv->page_len];
    return (slot *)((char *)kv->data + (size_t)page * kv_page_bytes(kv)) + position % kv->page_len;
}

static uint64_t content_of(const batch *b, int row)
{
    int i = 0;
    while (b->segs.indptr[i + 1] <= row)
        i++;
    return b->segs.lora[i] ? *(const uint64_t *)b->segs.lora[i]->data : 0;
}

static bool kills(const kv_cache *kv, const batch *b, int sequence, int position)
{
    return position > 0 && slot_at(kv, b, sequence, 0)->token == TOY_KILLER &&
           slot_at(kv, b, sequence, 1)->token == position;
}

static void compute_row(toy *t, const batch *b, const kv_cache *kv, int sequence, int row)
{
    int position = b->position[row], token = b->token[row];
    if (token < 0) /* drawn by the sample before this one */
        token = t->drawn[t->n_outstanding - 1][-1 - token].token;
    uint64_t content = content_of(b, row);
    *slot_at(kv, b, sequence, position) =
        (slot){content == TOY_POISON ? NOT_FINITE : record_of(token, position, content), token};
    t->broken |= kills(kv, b, sequence, position);
}

static void hash_row(toy *t, const batch *b, const kv_cache *kv, int sequence, int row)
{
    uint64_t state = 0;
    bool finite = content_of(b, row) != TOY_POISON;
    for (int i = 0; i <= b->position[row]; i++) {
        uint64_t record = slot_at(kv, b, sequence, i)->record;
        finite &= record != NOT_FINITE;
        state = add_record(state, record);
    }
    t->state = xgrow(t->state, &t->state_cap, t->n_state + 1, sizeof *t->state);
    t->state[t->n_state++] = finite ? state : NOT_FINITE;
}

static void attend(backend *be, tensor *qkv, heads h, const head_norms *norms, const float *inv_freq, const adapted *a,
                   const batch *b, kv_cache *kv, int layer)
{
    (void)qkv, (void)h, (void)norms, (void)inv_freq, (void)a, (void)layer;
    toy *t = toy_of(be);
    int n_sequences = b->n_prefills + b->n_decodes, first_decode = b->prefill_indptr[b->n_prefills], out = 0;
    t->n_state = 0;
    for (int s = 0; s < n_sequences; s++) {
        int from = s < b->n_prefills ? b->prefill_indptr[s] : first_decode + s - b->n_prefills;
        int to = s < b->n_prefills ? b->prefill_indptr[s + 1] : from + 1;
        for (int row = from; row < to; row++) {
            compute_row(t, b, kv, s, row);
            if (out < b->n_out && b->out_row[out] == row) {
                hash_row(t, b, kv, s, row);
                out++;
            }
        }
    }
    CHECK(out == b->n_out);
}

static bool is_banned(const sample_spec *s, int token)
{
    for (int i = 0; i < s->n_banned; i++)
        if (s->banned[i] == token)
            return true;
    return false;
}

static bool is_allowed(const sample_spec *s, int token)
{
    return !s->mask || (s->mask[token / 32] >> token % 32 & 1);
}

static int draw(uint64_t state, const sample_spec *s)
{
    if (state == NOT_FINITE)
        return -1;
    for (int i = 0; i < s->n_seen && s->presence_penalty != 0; i++)
        state += mark_of(s->seen[i], s->seen_output[i]);
    unsigned letters = 0;
    for (int i = 0; i < 26; i++)
        letters |= (unsigned)is_allowed(s, 'a' + i) << i;
    return letters ? token_of(state, s->seed, s->position, !is_banned(s, TOY_EOS) && is_allowed(s, TOY_EOS), letters)
                   : -1;
}

static sample_result result_of(uint64_t state, const sample_spec *s)
{
    if (!s->given || state == NOT_FINITE)
        return (sample_result){.token = draw(state, s)};
    return (sample_result){.token = s->token, .logprob = score_of(state, s->token), .rank = 1};
}

static void sample(backend *be, const tensor *logits, const sample_spec *spec, int n)
{
    (void)logits;
    toy *t = toy_of(be);
    int at = t->n_outstanding++;
    CHECK(at < 2 && (size_t)n == t->n_state);
    t->drawn[at] = xgrow(t->drawn[at], &t->drawn_cap[at], (size_t)n + 1, sizeof **t->drawn);
    for (int i = 0; i < n; i++)
        t->drawn[at][i] = result_of(t->state[i], &spec[i]);
    t->n_drawn[at] = n;
}

static const sample_result *collect(backend *be, err *e)
{
    toy *t = toy_of(be);
    if (t->broken) {
        err_set(e, "the model has killed its device");
        return NULL;
    }
    CHECK(t->n_outstanding > 0);
    sample_result *first = t->drawn[0];
    size_t cap = t->drawn_cap[0];
    t->drawn[0] = t->drawn[1];
    t->drawn_cap[0] = t->drawn_cap[1];
    t->n_drawn[0] = t->n_drawn[1];
    t->drawn[1] = first;
    t->drawn_cap[1] = cap;
    t->n_outstanding--;
    return first;
}

/* Ops that do nothing, and memory. */

static void end(backend *be)
{
    (void)be;
}

static void forget(backend *be, const void *owner)
{
    (void)be, (void)owner;
}

static void embed(backend *be, tensor *y, const tensor *table, int first, const batch *b)
{
    (void)be, (void)y, (void)table, (void)first, (void)b;
}

static void rms_norm(backend *be, tensor *y, const tensor *x, const tensor *w, float eps)
{
    (void)be, (void)y, (void)x, (void)w, (void)eps;
}

static void linear_of(backend *be, tensor *y, const tensor *x, const struct linear *w)
{
    (void)be, (void)y, (void)x, (void)w;
}

static void attention(backend *be, tensor *y, const tensor *qkv, heads h, const batch *b, const kv_cache *kv, int layer,
                      int window)
{
    (void)be, (void)y, (void)qkv, (void)h, (void)b, (void)kv, (void)layer, (void)window;
}

static void gather(backend *be, tensor *y, const tensor *x, const batch *b)
{
    (void)be, (void)y, (void)x, (void)b;
}

static void linear_shrink(backend *be, tensor *y, const tensor *x, const adapted *a, const batch *b)
{
    (void)be, (void)y, (void)x, (void)a, (void)b;
}

static void expand_add(backend *be, tensor *delta, tensor *y, tensor *x, const tensor *w, float eps, const adapted *a,
                       const batch *b)
{
    (void)be, (void)delta, (void)y, (void)x, (void)w, (void)eps, (void)a, (void)b;
}

static void expand_silu(backend *be, tensor *gate_up, tensor *y, const adapted *a, const batch *b)
{
    (void)be, (void)gate_up, (void)y, (void)a, (void)b;
}

static int reserve(backend *be, const extent *x, err *e)
{
    (void)be, (void)x, (void)e;
    return 0;
}

static void *alloc(backend *be, size_t bytes, err *e)
{
    toy *t = toy_of(be);
    if (t->room == 0) {
        err_set(e, "the device's memory is full");
        return NULL;
    }
    t->room -= t->room > 0;
    return xmalloc(bytes + 1);
}

static void release(backend *be, void *p)
{
    toy *t = toy_of(be);
    t->room += t->room >= 0 && p;
    free(p);
}

static void *alloc_host(backend *be, size_t bytes)
{
    (void)be;
    return xmalloc(bytes);
}

static void release_host(backend *be, void *p)
{
    (void)be;
    free(p);
}

static void upload(backend *be, void *to, const void *from, size_t bytes)
{
    (void)be;
    memcpy(to, from, bytes);
}

static void copy_begin(backend *be, copy_lane lane, const copy_piece *piece, int n, bool behind_ops)
{
    (void)behind_ops;
    copy_queue *q = &toy_of(be)->copies[lane];
    q->piece = xgrow(q->piece, &q->piece_cap, (size_t)(q->n_pieces + n), sizeof *q->piece);
    q->size = xgrow(q->size, &q->size_cap, (size_t)q->n + 1, sizeof *q->size);
    memcpy(q->piece + q->n_pieces, piece, (size_t)n * sizeof *piece);
    q->n_pieces += n;
    q->size[q->n++] = n;
}

static void copy_first(copy_queue *q, int n)
{
    for (; q->n_copied < n; q->n_copied++)
        memcpy(q->piece[q->n_copied].dst, q->piece[q->n_copied].src, q->piece[q->n_copied].bytes);
}

/* Ends the oldest batch: if asked to wait, at once; else now and then, at random. */
static bool copy_ended(backend *be, copy_lane lane, bool wait, double *seconds)
{
    toy *t = toy_of(be);
    copy_queue *q = &t->copies[lane];
    if (q->n == 0 || (!wait && rng_u64(1, t->n_asked++) % 3))
        return false;
    int n = q->size[0];
    copy_first(q, n);
    q->n_pieces -= n;
    q->n_copied -= n;
    memmove(q->piece, q->piece + n, (size_t)q->n_pieces * sizeof *q->piece);
    memmove(q->size, q->size + 1, (size_t)--q->n * sizeof *q->size);
    *seconds = 0.001 * n;
    return true;
}

static void copy_order(backend *be)
{
    for (int lane = 0; lane < N_COPY_LANES; lane++)
        copy_first(&toy_of(be)->copies[lane], toy_of(be)->copies[lane].n_pieces);
}

static size_t lora_table_bytes(backend *be, int n_sites)
{
    (void)be, (void)n_sites;
    return 0;
}

static void bind_lora(backend *be, lora *l, void *memory)
{
    (void)be, (void)l, (void)memory;
}

static size_t memory(backend *be)
{
    (void)be;
    return 0;
}

static size_t available(backend *be)
{
    (void)be;
    return (size_t)1 << 40;
}

static const backend_ops ops = {.begin = begin,
                                .end = end,
                                .forget = forget,
                                .embed = embed,
                                .rms_norm = rms_norm,
                                .linear = linear_of,
                                .attention = attention,
                                .gather = gather,
                                .linear_shrink = linear_shrink,
                                .expand_rope_append = attend,
                                .expand_add_rms_norm = expand_add,
                                .expand_silu_mul = expand_silu,
                                .sample = sample,
                                .collect = collect,
                                .reserve = reserve,
                                .alloc = alloc,
                                .release = release,
                                .available = available,
                                .memory = memory,
                                .alloc_host = alloc_host,
                                .release_host = release_host,
                                .upload = upload,
                                .copy_begin = copy_begin,
                                .copy_ended = copy_ended,
                                .copy_order = copy_order,
                                .lora_table_bytes = lora_table_bytes,
                                .bind_lora = bind_lora};

toy *toy_new(bool runs_ahead, bool own_memory)
{
    toy *t = XNEW(toy);
    t->be = (backend){
        .ops = &ops, .name = "toy", .act = DTYPE_F32, .owns_host_memory = !own_memory, .runs_ahead = runs_ahead};
    t->room = -1;
    t->m = (model){.be = &t->be, .rank = XNEW(model_rank)};
    t->m.rank->layer = XNEW(model_layer);
    t->m.config = (model_config){.family = "toy",
                                 .n_layers = 1,
                                 .hidden = 1,
                                 .n_heads = 1,
                                 .n_kv_heads = 1,
                                 .head_dim = 2,
                                 .ffn = 1,
                                 .vocab = TOY_VOCAB,
                                 .max_positions = TOY_CONTEXT,
                                 .layer_slides = &t->slides,
                                 .bos = -1,
                                 .n_eos = 1,
                                 .eos = {TOY_EOS}};
    return t;
}

void toy_free(toy *t)
{
    if (!t)
        return;
    free(t->m.rank->layer);
    free(t->m.rank);
    free(t->state);
    free(t->drawn[0]);
    free(t->drawn[1]);
    for (int lane = 0; lane < N_COPY_LANES; lane++) {
        free(t->copies[lane].piece);
        free(t->copies[lane].size);
    }
    free(t);
}

const model *toy_model(const toy *t)
{
    return &t->m;
}

bool toy_is_copying(const toy *t)
{
    return t->copies[COPY_IN].n > 0;
}

void toy_limit_adapters(toy *t, int n)
{
    t->room = n;
}

lora *toy_adapter(uint64_t content)
{
    lora *l = lora_new(1);
    l->site[0].part[0] = (lora_part){.rank = 1, .scale = 1, .a = {NULL, DTYPE_F32, 1, 2}, .b = {NULL, DTYPE_F32, 1, 1}};
    lora_place(l);
    memset(l->data, 0, l->bytes);
    memcpy(l->data, &content, sizeof content);
    return l;
}

/* Appends the character that stands for a byte in a byte-level vocabulary, as UTF-8: printable bytes stand for
 * themselves, the others are numbered from U+0100 on. */
static void add_byte_name(buf *out, int byte, int *n_others)
{
    bool is_printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    int c = is_printable ? byte : 256 + (*n_others)++;
    if (c == '"' || c == '\\')
        buf_add_char(out, '\\');
    if (c < 128) {
        buf_add_char(out, (char)c);
    } else {
        buf_add_char(out, (char)(0xc0 | c >> 6));
        buf_add_char(out, (char)(0x80 | (c & 0x3f)));
    }
}

const tokenizer *toy_tokenizer(void)
{
    static tokenizer *made;
    if (made)
        return made;
    buf json = {0};
    int n_others = 0;
    buf_printf(
        &json,
        "{\"added_tokens\":[{\"id\":%d,\"content\":\"<end>\",\"special\":true,\"single_word\":false,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":false}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_"
        "prefix_space\":false,"
        "\"trim_offsets\":true,\"use_regex\":false},\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},"
        "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{",
        TOY_EOS);
    for (int byte = 0; byte < 256; byte++) {
        buf_add_str(&json, byte ? ",\"" : "\"");
        add_byte_name(&json, byte, &n_others);
        buf_printf(&json, "\":%d", byte);
    }
    buf_add_str(&json, "}}}");
    err e;
    made = tokenizer_from_json(json.data, json.len, NULL, 0, &e);
    CHECK(made);
    buf_free(&json);
    return made;
}

static const char *byte_token(void *ctx, int id, size_t *n)
{
    char *byte = ctx;
    *byte = (char)id;
    *n = id < TOY_EOS;
    return byte;
}

token_trie *toy_vocabulary(void *ctx, err *e)
{
    (void)ctx, (void)e;
    char byte;
    return token_trie_new(TOY_VOCAB, byte_token, &byte);
}
