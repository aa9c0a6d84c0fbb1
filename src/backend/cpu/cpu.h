/* cpu.h - the CPU backend from inside: what the files of cpu/ share */
#ifndef PUNICA_BACKEND_CPU_CPU_H
#define PUNICA_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/pool.h"

/* Memory that ops work in. It grows when an op first needs more, and is kept. */
typedef struct {
    float *data;
    size_t cap;
} scratch;

/* One piece of an SGMV op: rows of one segment, and ranks or columns n of one part from n0. */
typedef struct { int seg, part, row, n_rows, n0, n; } sgmv_item;

/* Rows of one sequence that read its keys and values together. */
typedef struct { int row, n_rows, seq; } attention_item;

typedef struct {
    backend base;
    char name[64];
    const cpu_kernels *k;
    pool *pool;
    scratch *per_thread; /* [pool_size] */
    scratch shared;      /* x rearranged for gemm */
    sgmv_item *sgmv;     /* work list of the op at hand */
    attention_item *attention;
    size_t sgmv_cap, attention_cap;
    /* Cosines then sines, [2, rope_rows, rope_half], of rope_position and rope_freq. The same for
     * all layers of an invocation, so they are computed at the first. */
    scratch rope;
    int *rope_position; /* [rope_rows] */
    float *rope_freq;   /* [rope_half] */
    int rope_rows, rope_half;
    sample_result *drawn[3]; /* of up to two samples not collected yet, and of the last one collected */
    size_t drawn_cap[3];
    unsigned n_sampled, n_collected;
    double copy_seconds[N_COPY_LANES]; /* of the last batch */
} cpu_backend;

static inline cpu_backend *cpu_of(backend *be)
{
    return (cpu_backend *)be;
}

/* Makes room for at least n floats, 64-byte aligned, and returns it; contents are lost when it grows. */
float *scratch_reserve(scratch *s, size_t n);
void cpu_reserve_per_thread(cpu_backend *cpu, size_t n_floats);

/* Returns the row's sequence, numbered as in page_indptr. */
int batch_sequence_of(const batch *b, int row);

/* The ops, by file. cpu_linear.c: */
void cpu_linear_op(backend *, tensor *y, const tensor *x, const linear *w);
void cpu_sgmv_shrink(backend *, tensor *v, const tensor *x, const batch *, int site);
void cpu_sgmv_expand(backend *, tensor *y, const tensor *v, const batch *, int site, const linear *w);
/* cpu_attention.c: */
void cpu_rope_append(backend *, tensor *qkv, heads, const float *inv_freq, const batch *, kv_cache *, int layer);
void cpu_attention_op(backend *, tensor *y, const tensor *qkv, heads, const batch *, const kv_cache *, int layer,
                      int window);
/* cpu_sample.c: */
void cpu_sample(backend *, const tensor *logits, const sample_spec *spec, int n);
const sample_result *cpu_collect(backend *, err *e);

#endif
