/* backend.h - the op table: everything a model needs a device to do
 *
 * The model is written once against this table; cpu/ and cuda/ implement it. Activations are
 * tensors of the backend's own `act` type in backend memory. Ops queue work in order and return
 * nothing; the first failure of the device is kept and reported by sync(). Kernels never allocate; the
 * CPU's ops keep scratch that grows to the largest batch and is reused.
 *
 * Every op treats rows independently of each other: what a row computes does not depend on which
 * rows share the batch, on how a prompt was cut into chunks, or (CPU) on the number of threads.
 *
 * Formulas below use x[row, :]; all accumulation is in float32. */
#ifndef PUNICA_BACKEND_BACKEND_H
#define PUNICA_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/batch.h"
#include "backend/tensor.h"
#include "base/err.h"

/* n (1 to 3) projections of one input; their outputs stand side by side in one row. */
typedef struct { tensor w, bias; } proj;            /* w [out, in]; bias [1, out] or absent */
typedef struct { int n; proj part[3]; } linear;

/* How a qkv row is divided: n_heads query heads, then n_kv_heads keys, then n_kv_heads values. */
typedef struct { int n_heads, n_kv_heads, head_dim; } heads;

/* What the sampler needs of one request. History lists each distinct token once. */
typedef struct {
    float temperature;          /* 0: greedy */
    int top_k;                  /* 0: off */
    float top_p, min_p;         /* 1 and 0: off */
    float repetition_penalty;   /* 1: off; over prompt and output tokens */
    float presence_penalty, frequency_penalty;      /* 0: off; over output tokens */
    uint64_t seed, position;    /* the draw is rng_uniform(seed, position) */
    int n_seen;                 /* distinct tokens of prompt and output so far */
    const int *seen;            /* [n_seen] */
    const int *seen_output;     /* [n_seen] how often each occurs in the output */
    int n_banned;
    const int *banned;          /* tokens that may not be drawn (end tokens before min_tokens) */
    int n_logprobs;             /* -1: none; else the chosen token's, and this many most likely */
} sample_spec;

#define MAX_LOGPROBS 20

typedef struct { int token; float logprob; } token_logprob;

/* logprobs are log softmax of the unmodified logits (before penalties and temperature). */
typedef struct {
    int token;                  /* -1: the logits were not finite */
    float logprob;
    token_logprob top[MAX_LOGPROBS];
} sample_result;

typedef struct backend backend;

typedef struct {
    /* y[row] = table[token[row]], converted to the activation type. */
    void (*embed)(backend *, tensor *y, const tensor *table, const int *token);
    /* y = x / sqrt(mean(x^2) + eps) * w */
    void (*rms_norm)(backend *, tensor *y, const tensor *x, const tensor *w, float eps);
    /* x += delta, then y = rms_norm(x). */
    void (*add_rms_norm)(backend *, tensor *y, tensor *x, const tensor *delta, const tensor *w, float eps);
    /* y = x W^T + bias, the parts side by side: y [rows, sum of outs]. */
    void (*linear)(backend *, tensor *y, const tensor *x, const linear *w);
    /* SGMV shrink: for each segment's adapter at `site`, v[row] = (scale * x A^T) of parts 0, 1, 2
     * back to back, each of its own rank. Rows without adapter, or whose adapter leaves this
     * site alone, are not touched. v [rows, at least the largest sum of ranks]. */
    void (*sgmv_shrink)(backend *, tensor *v, const tensor *x, const segments *, int site);
    /* SGMV expand: y[row, columns of part i] += v[row, its ranks] B_i; `w` tells the columns. */
    void (*sgmv_expand)(backend *, tensor *y, const tensor *v, const segments *, int site, const linear *w);
    /* rms_norm of each query head with q_w and of each key head with k_w, in place. */
    void (*head_norm)(backend *, tensor *qkv, heads, const tensor *q_w, const tensor *k_w, float eps);
    /* Rotate queries and keys in place (pairs (i, i + head_dim/2), angle position * inv_freq[i]),
     * then write keys and values into the pages. inv_freq: [head_dim/2] floats in backend memory. */
    void (*rope_append)(backend *, tensor *qkv, heads, const float *inv_freq, const batch *, kv_cache *, int layer);
    /* y[row, head] = softmax(q K^T / sqrt(head_dim)) V over positions max(0, p-window+1)..p of the
     * row's sequence; window 0: all. y [rows, n_heads * head_dim]. */
    void (*attention)(backend *, tensor *y, const tensor *qkv, heads, const batch *, const kv_cache *, int layer, int window);
    /* y = silu(gate) * up, where x is [rows, gate | up]. */
    void (*silu_mul)(backend *, tensor *y, const tensor *x);
    /* y[i] = x[row[i]]. */
    void (*gather)(backend *, tensor *y, const tensor *x, const int *row);
    /* Draw a token for each row of logits. spec, out: [rows], host memory; out is valid after sync. */
    void (*sample)(backend *, const tensor *logits, const sample_spec *spec, sample_result *out);

    /* Backend memory, 64-byte aligned. NULL with e set when there is not enough. */
    void *(*alloc)(backend *, size_t bytes, err *e);
    void (*release)(backend *, void *p);
    void (*upload)(backend *, void *dst, const void *src, size_t bytes);
    void (*download)(backend *, void *dst, const void *src, size_t bytes);
    /* Make a weight that lies in host memory usable by ops: the CPU borrows it (it must outlive the
     * last op that uses it), a GPU copies it. */
    int (*adopt)(backend *, tensor *t, const tensor *host, err *e);
    /* Wait for all queued work; -1 with the first failure since the last sync. */
    int (*sync)(backend *, err *e);
    void (*free)(backend *);
} backend_ops;

struct backend {
    const backend_ops *ops;
    const char *name;           /* "cpu (avx512, 2 threads)" */
    dtype act;                  /* type of activations and KvCache */
};

/* n_threads 0: as many as the cores this process may use. Never fails. */
backend *backend_cpu_new(int n_threads);

#endif
