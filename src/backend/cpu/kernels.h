/* kernels.h - what one thread computes, on plain pointers
 *
 * One table per instruction set; all are compiled from kernels.c. The backend splits an op into items and calls these
 * on each. Everything is float32 except weights, which are of their stored type. Nothing here allocates.
 *
 * A result does not depend on how many rows or columns are asked for at once: each output has one
 * order of summation, fixed by its own operands (see dot.inc.h). */
#ifndef PUNICA_BACKEND_CPU_KERNELS_H
#define PUNICA_BACKEND_CPU_KERNELS_H

#include <stddef.h>

#include "backend/tensor.h"

/* y[i, j] = scale * (x[i] . w[j]) + bias[j]. Strides count elements. */
typedef struct {
    const float *x; /* [m, k] */
    size_t x_stride;
    const void *w; /* [n, k] */
    dtype w_type;
    size_t w_stride;
    const float *w_scale; /* of F8 weights: w[j, i] is multiplied by w_scale[i / w_scaled, j] (see proj) */
    int w_scaled;
    size_t w_scale_stride;
    const void *bias; /* [n], or NULL */
    dtype bias_type;
    float scale;
    float *y; /* [m, n] */
    size_t y_stride;
    int m, n, k;
    const void *next; /* weights this thread will want next, of the same stride, or NULL */
} dot_job;

/* y[i, j] += sum over r of v[i, r] b[r, j]. */
typedef struct {
    const float *v; /* [m, rank] */
    size_t v_stride;
    const void *b; /* [rank, n] */
    dtype b_type;
    size_t b_stride;
    float *y; /* [m, n] */
    size_t y_stride;
    int m, n, rank;
    const void *next; /* as in dot_job */
} sum_job;

/* Columns of w for one gemm call; only the last call may have fewer. */
#define GEMM_COLS 32

typedef struct {
    const char *name;

    /* The product with each weight converted as it is used: best when x has few rows. */
    void (*dot)(const dot_job *);
    /* The same product, bit for bit, with a block of weights converted once and used for all rows. x is what pack()
     * made of the m rows; n is at most GEMM_COLS. scratch: gemm_scratch_floats(). */
    void (*gemm)(const dot_job *, float *scratch);
    /* Rearranges x for gemm, one tile of rows (0 to pack_tiles() - 1) per call. packed: pack_floats(). */
    void (*pack)(float *packed, const float *x, int m, int k, int tile);
    int (*pack_tiles)(int m);
    size_t (*pack_floats)(int m, int k);
    size_t (*gemm_scratch_floats)(int m, int k);
    int dot_rows; /* up to this many rows dot is faster than gemm */

    void (*weighted_sum)(const sum_job *);

    void (*to_float)(float *y, const void *x, dtype type, int n);
    void (*add)(float *y, const float *x, int n); /* y += x */
    void (*rms_norm)(float *y, const float *x, const void *w, dtype w_type, int n, float eps);
    void (*silu_mul)(float *y, const float *gate, const float *up, int n);
    /* Rotates the pairs (x[i], x[half + i]) by the angles whose cosines and sines are given. */
    void (*rotate)(float *x, const float *cosine, const float *sine, int half);
    void (*scale)(float *x, float by, int n);
    /* The largest x; NaN when any x is NaN or infinite and `finite` is set. */
    float (*max)(const float *x, int n, int finite);
    /* y = exp((x - max) * by); the sum of y. y may be x. */
    float (*exp_sum)(float *y, const float *x, float max, float by, int n);
} cpu_kernels;

extern const cpu_kernels cpu_kernels_plain, cpu_kernels_avx2, cpu_kernels_avx512;

#endif
