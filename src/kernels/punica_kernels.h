/* punica_kernels.h - libpunica_kernels.so: many LoRA adapters in one batch, for programs of your own
 *
 * Computes y += scale * (x A^T) B, where every row of x and y may have an adapter of its own (SGMV):
 *
 *   x [rows, in]    rows of one adapter stand together:   | adapter 0 ... | adapter 1 | 2 | 3 | none ... |
 *   A [rank, in]    as PEFT stores lora_A
 *   B [rank, out]   lora_B transposed
 *   v [rows, v_cols] float: scale * (x A^T), between the two halves
 *   y [rows, out]
 *
 * Up to PUNICA_MAX_PARTS projections of the same x (q, k, v; gate, up) are done in one call: their columns of y, and
 * their ranks in v, stand side by side. Ranks may differ between adapters.
 *
 * A plan holds which rows use which adapter, in device memory. It is made once for the largest batch and set for each
 * batch; CUDA graphs captured with it follow later settings (set it outside of the capture). A plan belongs to the
 * device that was current when it was made, and to one thread at a time. Only these wait for the device: plan_new,
 * plan_free, and plan_set, which waits for the copy of the setting before it, in that one's stream.
 *
 * Functions return 0, or -1 with a message in punica_kernels_error(); bad arguments queue nothing. Needs an NVIDIA GPU
 * of compute capability 8.0 or more. */
#ifndef PUNICA_KERNELS_H
#define PUNICA_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

/* The type of x, y, A and B. */
typedef enum { PUNICA_F16 = 1, PUNICA_BF16 = 2 } punica_dtype;

/* The same as cudaStream_t. */
typedef struct CUstream_st *punica_stream;

typedef struct punica_sgmv_plan punica_sgmv_plan;

#define PUNICA_MAX_PARTS 3 /* projections of one x */

typedef struct {
    punica_dtype type;
    int in;
    int n_parts; /* projections, 1 to PUNICA_MAX_PARTS */
    int out[PUNICA_MAX_PARTS];
    int max_rows, max_segments;
    int max_rank; /* of one part */
} punica_sgmv_shape;

/* An adapter's addition to one projection. rank 0: it has none, and the other fields are ignored. */
typedef struct {
    const void *a; /* [rank, in] in device memory, aligned to 16 bytes; borrowed: until the plan is set again and all
                    * that was queued before that has run */
    const void *b; /* [rank, out], likewise */
    int rank;
    float scale; /* lora_alpha / rank, as a rule */
} punica_lora;

/* Makes a plan; *plan is NULL on failure. Free with punica_sgmv_plan_free(). */
int punica_sgmv_plan_new(punica_sgmv_plan **plan, const punica_sgmv_shape *shape);
/* Frees a plan, once the device no longer uses it. plan may be NULL. */
void punica_sgmv_plan_free(punica_sgmv_plan *plan);

/* Sets a plan: rows [indptr[i], indptr[i+1]) use adapter[i * n_parts] to adapter[i * n_parts + n_parts - 1]. Rows past
 * indptr[n_segments] and rows of rank 0 are left alone. indptr and adapter are copied. Takes effect in the stream's
 * order. */
int punica_sgmv_plan_set(punica_sgmv_plan *plan, int n_segments, const int *indptr, const punica_lora *adapter,
                         punica_stream stream);

/* Returns how many floats a row of v has: n_parts * max_rank. */
int punica_sgmv_v_cols(const punica_sgmv_plan *plan);

/* v = scale * x A^T. Only the first numbers of a row of v are written: as many as the sum of its ranks. */
int punica_sgmv_shrink(punica_sgmv_plan *plan, float *v, const void *x, punica_stream stream);
/* y += v B */
int punica_sgmv_expand(punica_sgmv_plan *plan, void *y, const float *v, punica_stream stream);
/* Both, with v in the plan's own memory; faster than one after the other, as B is fetched during the shrink. */
int punica_lora_add(punica_sgmv_plan *plan, void *y, const void *x, punica_stream stream);

/* Returns why the last failed call of this thread failed; borrowed: until the next failure. */
const char *punica_kernels_error(void);

#ifdef __cplusplus
}
#endif

#endif
