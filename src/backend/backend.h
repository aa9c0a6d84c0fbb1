/* backend.h - the op table: everything a model needs a device to do
 *
 * The model is written once against this table; cpu/ and cuda/ implement it. Activations are
 * tensors of the backend's own `act` type in backend memory; the residual stream and logits are F32
 * everywhere. Ops queue work in order and return nothing; the first failure of the device is kept and
 * reported by collect() and sync(). Kernels never allocate; scratch is claimed by reserve().
 *
 * Every op treats rows independently of each other. On the CPU what a row computes does not depend, to
 * the last bit, on which rows share the batch, on how a prompt was cut into chunks, or on the number of
 * threads; a GPU keeps this up to the rounding of its sums.
 *
 * Formulas below use x[row, :]; all accumulation is in float32. */
#ifndef PUNICA_BACKEND_BACKEND_H
#define PUNICA_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/batch.h"
#include "backend/tensor.h"
#include "base/err.h"

/* A projection of one input, x W^T + bias; a linear is n (1 to MAX_PARTS) of one input, whose outputs stand side by
 * side in one row. */
typedef struct {
    tensor w;     /* [out, in] */
    int stride;   /* elements from one row of w to the next, where w is some columns of a wider matrix that
                   * the CPU borrows; 0: no gaps */
    tensor bias;  /* [1, out] or absent */
    tensor scale; /* of an F8 w, else absent: F32 [n, out]; each row of W is cut into n pieces of
                   * proj_scaled() columns, the last may be shorter, and
                   * W[i, j] = w[i, j] * scale[j / proj_scaled(), i] */
} proj;
typedef struct linear {
    int n;
    proj part[MAX_PARTS];
} linear;

static inline int proj_scaled(const proj *p)
{
    return p->scale.rows > 1 ? SCALE_BLOCK : p->w.cols;
}

/* The layout of a qkv row: n_heads query heads, then n_kv_heads keys, then n_kv_heads values. */
typedef struct { int n_heads, n_kv_heads, head_dim; } heads;

/* A linear, its place among the model's linears (adapters file their parts under it), and the scratch that carries v
 * from its shrink to its expand. */
typedef struct {
    const linear *w;
    int site;
    tensor *v;
} adapted;

/* Norms of query and key heads; q_w and k_w absent: none. */
typedef struct {
    tensor q_w, k_w;
    float eps;
} head_norms;

/* How an invocation is to be run: see begin. */
typedef struct {
    int n_rows, n_out;
    bool replayed;
} invocation;

/* The size of the largest invocation. */
typedef struct {
    int max_rows, max_out;
    int max_sequences, max_pages, page_len; /* pages: of all sequences of one invocation together */
    int max_rank_sum, vocab;
    int n_sites; /* linears that adapters file their parts under */
    bool kv_fp8; /* the KvCache is F8 */
    heads h;
} extent;

/* What the sampler needs of one request. History lists each distinct token once. */
typedef struct {
    float temperature;                         /* 0: greedy */
    int top_k;                                 /* 0: off */
    float top_p, min_p;                        /* 1 and 0: off */
    float repetition_penalty;                  /* 1: off; over prompt and output tokens */
    float presence_penalty, frequency_penalty; /* 0: off; over output tokens */
    uint64_t seed, position;                   /* the draw is rng_uniform(seed, position) */
    int n_seen;                                /* distinct tokens of prompt and output so far */
    const int *seen;                           /* [n_seen] */
    const int *seen_output;                    /* [n_seen] how often each occurs in the output */
    int n_banned;
    const int *banned;    /* tokens that may not be drawn (end tokens before min_tokens) */
    const uint32_t *mask; /* [(vocab + 31) / 32] bit i % 32 of word i / 32: token i may be drawn; NULL: all may */
    int n_bias;
    const int *biased; /* [n_bias] distinct tokens */
    const float *bias; /* [n_bias] added to their logits before penalties */
    int n_logprobs;    /* -1: none; else the chosen token's, and this many most likely */
    /* `token` is there already: it is not drawn but scored. Of the above only n_logprobs counts, 0 or more. */
    bool given;
    int token;
} sample_spec;

#define MAX_LOGPROBS 20

typedef struct {
    int token;
    float logprob;
} token_logprob;

/* logprobs are log softmax of the logits as the model gave them (before bias, penalties and temperature), over the
 * tokens that the mask allows. */
typedef struct {
    int token; /* -1: the logits were not finite, or no token may be drawn */
    float logprob;
    int rank;                        /* of a given token: 1 + how many are likelier; else 0 */
    token_logprob top[MAX_LOGPROBS]; /* token -1 behind the last, where fewer are allowed */
} sample_result;

/* A copy between memory of alloc() and of alloc_host(), and its direction. */
typedef struct {
    void *dst;
    const void *src;
    size_t bytes;
} copy_piece;
typedef enum { COPY_OUT, COPY_IN, N_COPY_LANES } copy_lane; /* to the host, to the device */

typedef struct backend backend;

typedef struct {
    /* Begins an invocation: ops until end() work on b, which stays unchanged until then. Ops must be given n_rows rows
     * (n_out of logits), at least b's: a GPU rounds decode batches up, and rows past the end hold numbers nobody reads.
     * If an invocation of the same owner, size and kind was recorded before, begin queues it again as a whole
     * (replayed) and no ops are to be called. */
    invocation (*begin)(backend *, const batch *b, const void *owner);
    void (*end)(backend *);
    /* Drops what was recorded for an owner. */
    void (*forget)(backend *, const void *owner);

    /* y[row] = table[token of the row - first], zeros for a token that is not in this part of the vocabulary. y: F32.
     */
    void (*embed)(backend *, tensor *y, const tensor *table, int first, const batch *);
    /* y = x / sqrt(mean(x^2) + eps) * w; x: F32. */
    void (*rms_norm)(backend *, tensor *y, const tensor *x, const tensor *w, float eps);
    /* x += delta, then y = rms_norm(x); x: F32. */
    void (*add_rms_norm)(backend *, tensor *y, tensor *x, const tensor *delta, const tensor *w, float eps);
    /* y = x W^T + bias, the parts side by side: y [rows, sum of outs]. */
    void (*linear)(backend *, tensor *y, const tensor *x, const struct linear *w);
    /* SGMV shrink: for each segment's adapter at `site`, v[row] = (scale * x A^T) of all parts
     * back to back, each of its own rank. Rows without adapter, or whose adapter leaves this
     * site alone, are not touched. v [rows, at least the largest sum of ranks]. */
    void (*sgmv_shrink)(backend *, tensor *v, const tensor *x, const batch *, int site);
    /* SGMV expand: y[row, columns of part i] += v[row, its ranks] B_i; `w` tells the columns. */
    void (*sgmv_expand)(backend *, tensor *y, const tensor *v, const batch *, int site, const struct linear *w);
    /* rms_norm of each query head with q_w and of each key head with k_w, in place. */
    void (*head_norm)(backend *, tensor *qkv, heads, const tensor *q_w, const tensor *k_w, float eps);
    /* Rotates queries and keys in place (pairs (i, i + head_dim/2), angle position * inv_freq[i]), then writes keys and
     * values into the pages. inv_freq: [head_dim/2] floats in backend memory. */
    void (*rope_append)(backend *, tensor *qkv, heads, const float *inv_freq, const batch *, kv_cache *, int layer);
    /* y[row, head] = softmax(q K^T / sqrt(head_dim)) V over positions max(0, p-window+1)..p of the
     * row's sequence; window 0: all. y [rows, n_heads * head_dim]. */
    void (*attention)(backend *, tensor *y, const tensor *qkv, heads, const batch *, const kv_cache *, int layer,
                      int window);
    /* y = silu(gate) * up, where x is [rows, gate | up]. */
    void (*silu_mul)(backend *, tensor *y, const tensor *x);
    /* y[i] = x[out_row[i]]. */
    void (*gather)(backend *, tensor *y, const tensor *x, const batch *);

    /* Fused forms of the ops above, which the model uses. linear_shrink leaves v for the expand_ op of the same adapted
     * linear, which adds v B to its first operand and goes on as its name says. What that operand (delta, gate_up)
     * holds afterwards is undefined; queries in qkv are final. */
    void (*linear_shrink)(backend *, tensor *y, const tensor *x, const adapted *, const batch *);
    void (*expand_rope_append)(backend *, tensor *qkv, heads, const head_norms *, const float *inv_freq,
                               const adapted *, const batch *, kv_cache *, int layer);
    void (*expand_add_rms_norm)(backend *, tensor *delta, tensor *y, tensor *x, const tensor *w, float eps,
                                const adapted *, const batch *);
    void (*expand_silu_mul)(backend *, tensor *gate_up, tensor *y, const adapted *, const batch *);
    /* y += v B alone: where ranks have parts of y that are still to be added up (group.h). */
    void (*expand)(backend *, tensor *y, const adapted *, const batch *);

    /* Draws a token for each of the first n rows of logits. spec: [n], read before the call returns. */
    void (*sample)(backend *, const tensor *logits, const sample_spec *spec, int n);
    /* Waits for the oldest sample not collected yet; at most two may be outstanding. Returns its results, [n], valid
     * until the next collect; NULL with e set to the device's first failure. */
    const sample_result *(*collect)(backend *, err *e);

    /* Claims scratch for invocations up to this size. -1 with e set. */
    int (*reserve)(backend *, const extent *, err *e);

    /* Backend memory, 64-byte aligned. NULL with e set when there is not enough. */
    void *(*alloc)(backend *, size_t bytes, err *e);
    void (*release)(backend *, void *p);
    /* Host memory that upload reads fastest, 64-byte aligned; NULL when there is not enough. */
    void *(*alloc_host)(backend *, size_t bytes);
    void (*release_host)(backend *, void *p);
    void (*upload)(backend *, void *dst, const void *src, size_t bytes);
    void (*download)(backend *, void *dst, const void *src, size_t bytes);
    /* Copies beside the ops. copy_begin queues a batch; with behind_ops it starts when all ops queued before it are
     * done. Batches of a lane are done in order. copy_ended returns whether the oldest batch not yet reported is done,
     * or with wait blocks until it is; *seconds: how long it took by itself. copy_order makes ops that are queued from
     * now on wait for all batches. */
    void (*copy_begin)(backend *, copy_lane, const copy_piece *piece, int n, bool behind_ops);
    bool (*copy_ended)(backend *, copy_lane, bool wait, double *seconds);
    void (*copy_order)(backend *);
    /* Bytes that alloc can still give. */
    size_t (*available)(backend *);
    /* All memory the device has, used or not; 0: it has none of its own. */
    size_t (*memory)(backend *);
    /* Make weights that lie in host memory usable by ops, in place: the CPU borrows them (they must outlive the last op
     * that uses them); a GPU copies them and holds the copy until the backend is freed, matrices as its act type unless
     * F8, the parts of a linear back to back. -1 with e set. */
    int (*adopt)(backend *, tensor *t, err *e);
    int (*adopt_linear)(backend *, struct linear *w, err *e);
    /* bind_lora writes what ops need to find the parts of an adapter, which must be placed, into backend memory of
     * lora_table_bytes() (lora.table). */
    size_t (*lora_table_bytes)(backend *, int n_sites);
    void (*bind_lora)(backend *, lora *l, void *memory);
    /* Measures how many bytes per second this device reads from its memory. */
    double (*read_bandwidth)(backend *);
    /* Waits for all queued work; -1 with e set to the device's first failure. */
    int (*sync)(backend *, err *e);
    void (*free)(backend *);
} backend_ops;

struct backend {
    const backend_ops *ops;
    const char *name;      /* "cpu (avx512, 2 threads)" */
    dtype act;             /* type of activations and KvCache; of all matrices too but F8 ones, unless F32 */
    bool owns_host_memory; /* ops read host memory: nothing needs to be copied to this backend */
    bool runs_ahead;       /* ops return before they are done; a batch may use tokens not collected yet */
    struct group *group;   /* the ranks and devices it stands for (group.h); NULL: it is one rank */
};

/* The type in which a backend holds matrices stored as `stored`. */
static inline dtype backend_weight_type(const backend *be, dtype stored)
{
    return be->act == DTYPE_F32 || stored == DTYPE_F8 ? stored : be->act;
}

/* Opens the CPU. n_threads 0: as many as the cores this process may use. Never fails. */
backend *backend_cpu_new(int n_threads);

/* Opens GPU number `device`, with activations of type act (F16 or BF16). NULL with e set when there is none, or in a
 * build without CUDA. */
backend *backend_cuda_new(int device, dtype act, err *e);

#endif
