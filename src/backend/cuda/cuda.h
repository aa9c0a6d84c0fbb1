/* cuda.h - what the files of this folder share; C, for .c and .cu alike
 *
 * cuda_backend.c has the op table, memory and the streams; cuda_step.c puts a batch into device
 * memory and records and replays invocations; each .cu file is one family of ops: kernels, then
 * their launchers, which are the ops themselves.
 *
 * Everything a kernel needs to know of a batch is in device memory at addresses that never change
 * (`step`), so that a recorded invocation stays valid for any later batch of its size. Grids are sized
 * by the padded number of rows; blocks past the counts in step.n exit, block 0 only after it has waited
 * for the preceding kernel (kernel.cuh says why). */
#ifndef PUNICA_BACKEND_CUDA_CUDA_H
#define PUNICA_BACKEND_CUDA_CUDA_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/sgmv.h"

/* A KV split: a part of the positions that a row attends to (split-KV), one work item for each group of heads.
 * Positions [from, to) of the `len` that the row sees; it is split `index` of `count`. Longest rows come first; the
 * splits of a row are adjacent, in order, and of one length but for the last. Positions from `fresh` on are written by
 * this very invocation. pages: the page_indptr of its sequence. */
typedef struct { int row, len, fresh, pages, from, to, index, count; } decode_split;

/* A query tile: up to cuda_prefill_rows() adjacent rows of one prefill. Tiles that see the most positions come
 * first. PREFILL_TILE: the rows in attention_prefill.cuh, of which no measurement is kept. */
#define PREFILL_TILE 64
typedef struct { int seq, row, n_rows; } prefill_tile;

/* Indices of step.n: counts in device memory, for kernels whose grid may be larger. */
enum { COUNT_ROWS, COUNT_OUT, COUNT_TILES, COUNT_DECODE_SPLITS, COUNT_PREFILL_TILES, N_COUNTS };

/* The batch in device memory. Passed to kernels by value: pointers stay the same from batch to batch. */
typedef struct {
    const int *n;                      /* [N_COUNTS] */
    const int *token;                  /* [rows]; TOKEN_DRAWN(i): drawn[i] */
    const int *position;               /* [rows] */
    const int *kv_slot;                /* [rows] page * page_len + place in the page; -1: padding, nothing is stored */
    const int *out_row;                /* [out] */
    const lora_entry *const *row_lora; /* [rows] table of the row's adapter, NULL: none */
    const sgmv_tile *tile;             /* [COUNT_TILES] */
    const int *page_indptr;            /* [sequences + 1] */
    const int *page;                   /* pages of each sequence in order */
    const decode_split *decode;        /* [COUNT_DECODE_SPLITS] */
    const int *first_work;             /* [clusters] of decode attention: the first work item of each, see lpt.h */
    const int *next_work;              /* [splits * n_head_groups] the next work item of the same cluster */
    const prefill_tile *prefill;       /* [COUNT_PREFILL_TILES] */
    int *drawn;                        /* [out] tokens of the last sample */
    int *v_arrivals; /* [n_sites] blocks of each site's shrink that are done; zeros when an invocation begins */
} step;

/* The part of the batch that decides grids and kernels, on the host for launchers. In a padded decode batch these are
 * the padded sizes, equal for all batches that replay one recording. */
typedef struct {
    int n_rows, n_out; /* padded */
    bool decode_only;  /* every row runs as a decode; padded to a size that is recorded */
    bool fused;        /* decode_only of at most FUSED_ROWS rows: shrink is fused with the dense kernel and leaves
                        * partial sums in v_partials; expand is fused with the op that reads it */
    bool any_lora;     /* false only when not fused and no row has an adapter */
    bool prompt_tiles; /* not decode_only, over PROMPT_TILES_FROM rows (cuda_step.c), some with adapters: see
                        * sgmv_tile */
    bool heavy;        /* not prompt_tiles, and an adapter has over HEAVY_RANKS ranks at a site; where fused, also not
                        * too many rows: see SLICED_ROWS (cuda_step.c) */
    int max_tiles, max_decode_splits, n_prefill_tiles; /* upper bounds to size grids with */
    long prefill_positions;                            /* positions that all prefills see, cached ones included */
    int page_len;
} step_shape;

typedef struct step_store step_store;       /* cuda_step.c */
typedef struct sampler sampler;             /* cuda_sample.cu */
typedef struct copier copier;               /* cuda_copy.c */
typedef struct skinny_limits skinny_limits; /* cuda_linear.cu */

typedef struct {
    backend base;
    char name[128];
    int device, n_sms, arch; /* arch: 80, 90, ... */
    cudaStream_t stream;     /* all ops, in order */
    cudaStream_t uploads;    /* weights and adapters, beside the steps */
    cudaMemPool_t memory;
    pthread_mutex_t upload_lock; /* guards staging: two threads upload */
    void *staging[2];            /* pinned */
    cudaEvent_t staged[2];
    void **held; /* [n_held] memory of weights, released with the backend */
    int n_held;
    size_t held_cap;
    device_failure failure;

    extent limit; /* as reserved */
    step step;
    step_shape shape;
    int max_recorded;  /* in rows: larger invocations are not recorded, as NCCL takes part in them (cuda_group.c) */
    step_store *store; /* memory behind step, and recordings */

    void *unpacked;    /* [FP8_SCRATCH] or NULL while there are no F8 weights: staging for their upload, and 16-bit
                        * copies of parts of them for cuBLASLt */
    struct blas *blas; /* cuda_blas.c */
    skinny_limits *skinny_limits;
    void *encode_map; /* the driver's cuTensorMapEncodeTiled; NULL except on Hopper */

    int v_expected;            /* arrivals that the latest fused shrink will make; 0: they are not counted */
    float *v_partials;         /* [SGMV_SPLITS, FUSED_ROWS, max_rank_sum], see sgmv_splits */
    float *attention_partials; /* partial results of KV splits (decode_partials) and a work_counter; zeroed when
                                * allocated */
    size_t attention_partials_bytes;
    sampler *sampler;
    copier *copier;
} cuda_backend;

/* Rows that linear_skinny.cuh multiplies at once. For 65 and 96 rows cuBLASLt was the same within 1 %, for 128 faster
 * (docs/lab/decode-grid.md). */
#define FUSED_ROWS 64
/* Of all parts of a site: see HEAVY_GRID_Z (cuda_sgmv.cu) and SLICED_ROWS (cuda_step.c). No measurement is kept. */
#define HEAVY_RANKS 96
/* With 16, 32 and 64 MB a step with a prompt of 256 tokens took 9 to 57 % longer (docs/lab/fp8.md). */
#define FP8_SCRATCH ((size_t)128 << 20)

/* Returns whether an F8 matrix of this shape is stored in slabs (fp8.cuh). */
static inline bool cuda_fp8_in_slabs(int rows, int cols)
{
    return rows % 8 == 0 && cols % 64 == 0;
}

/* A fused shrink splits the input dimension (split-K), and the expand adds up the partial sums, which are scaled
 * already, in order: v[row, r] = sum over s < sgmv_splits(in) of v_partials[s][row][r]. A split has at least 256
 * inputs, unless there are fewer. No measurement of the two numbers is kept. */
#define SGMV_SPLITS 8

static inline int sgmv_splits(int in)
{
    return in >= SGMV_SPLITS * 256 ? SGMV_SPLITS : in <= 256 ? 1 : in / 256;
}

/* Inputs of one split, a multiple of 64; the last one may be shorter or empty. */
static inline int sgmv_split_len(int in)
{
    int n = sgmv_splits(in);
    return ((in + n - 1) / n + 63) / 64 * 64;
}

static inline cuda_backend *cuda_of(backend *be)
{
    return (cuda_backend *)be;
}

/* Keeps the first failure; what: "rms_norm". Returns whether status is a failure. */
static inline bool cuda_keep(cuda_backend *cu, cudaError_t status, const char *what)
{
    return device_failure_keep(&cu->failure, cu->device, status, what);
}

/* Returns 0, or -1 with the kept failure in e. */
static inline int cuda_report(cuda_backend *cu, err *e)
{
    return device_failure_report(&cu->failure, e);
}

/* Returns the context of the ops' launches, which overlap where the device can. */
static inline launch_context context_of(cuda_backend *cu)
{
    launch_context on = {cu->stream, cu->device, cu->n_sms, cu->arch, cu->arch >= 90, &cu->failure};
    return on;
}

/* Makes cu's device the thread's current one, for runtime calls that use it: one thread may drive several devices. */
static inline void cuda_use(const cuda_backend *cu)
{
    cudaSetDevice(cu->device);
}

/* Returns zeroed device memory, or NULL with e set; free with cuda_release(). */
void *cuda_alloc(backend *be, size_t bytes, err *e);
void cuda_release(backend *be, void *p);
void cuda_upload(backend *be, void *dst, const void *src, size_t bytes);

/* cuda_step.c: */
invocation cuda_begin(backend *, const batch *b, const void *owner);
void cuda_end(backend *);
void cuda_forget(backend *, const void *owner);
int cuda_step_reserve(cuda_backend *, const extent *, err *e);
void cuda_step_free(cuda_backend *);

/* Returns the most rows of a prefill_tile. */
int cuda_prefill_rows(const cuda_backend *cu, const extent *);

/* cuda_copy.c: */
int cuda_copy_open(cuda_backend *, err *e);
void cuda_copy_close(cuda_backend *);
void cuda_copy_begin(backend *, copy_lane, const copy_piece *piece, int n, bool behind_ops);
bool cuda_copy_ended(backend *, copy_lane, bool wait, double *seconds);
void cuda_copy_order(backend *);

/* Returns how many positions a KV split covers; it depends only on the sequence's length and the heads. */
int cuda_decode_split_len(const cuda_backend *cu, int seq_len);
/* Returns the most KV splits of a sequence of any length. */
int cuda_decode_max_splits(void);
/* Returns the most KV splits of an invocation up to this extent. */
int cuda_decode_splits(const extent *);
/* Return the number of head groups, hence work items, per split; and the number of clusters that run the work items of
 * an invocation of cu->shape, at most DECODE_CLUSTERS_PER_SM per SM: as many blocks as fit an SM of Hopper where they
 * need least shared memory, for F8 heads of 64 that do not share keys. */
enum { DECODE_CLUSTERS_PER_SM = 4 };
int cuda_decode_head_groups(heads);
int cuda_decode_clusters(const cuda_backend *cu);

#ifdef __cplusplus
extern "C" {
#endif
/* Ops, by file. cuda_rows.cu: */
void cuda_embed(backend *, tensor *y, const tensor *table, int first, const batch *);
void cuda_rms_norm(backend *, tensor *y, const tensor *x, const tensor *w, float eps);
void cuda_add_rms_norm(backend *, tensor *y, tensor *x, const tensor *delta, const tensor *w, float eps);
void cuda_silu_mul(backend *, tensor *y, const tensor *x);
void cuda_gather(backend *, tensor *y, const tensor *x, const batch *);
/* cuda_probe.cu: */
double cuda_read_bandwidth(backend *);
/* cuda_rope.cu: */
void cuda_head_norm(backend *, tensor *qkv, heads, const tensor *q_w, const tensor *k_w, float eps);
void cuda_rope_append(backend *, tensor *qkv, heads, const float *inv_freq, const batch *, kv_cache *, int layer);
/* cuda_linear.cu: */
void cuda_linear(backend *, tensor *y, const tensor *x, const linear *w);
void cuda_linear_shrink(backend *, tensor *y, const tensor *x, const adapted *, const batch *);
int cuda_linear_init(cuda_backend *, err *e);
void cuda_linear_deinit(cuda_backend *);
/* cuda_blas.c: y [m, n] (rows ldy apart) = x [m, k] W [n, k]^T + bias. With a bias, y holds it already when
 * cuda_blas_multiply() is called. Returns false when cuBLASLt has nothing for this shape. */
typedef struct {
    void *y;
    dtype y_type;
    const void *x, *w;
    dtype w_type;       /* the act type; or F8, but not for cuBLASLt */
    bool in_slabs;      /* an F8 w: see fp8.cuh */
    const float *scale; /* of an F8 w: n_scales for each row */
    int n_scales;
    const float *bias; /* or NULL */
    int m, n, k, ldy;
} dense_product;
bool cuda_blas_multiply(cuda_backend *, const dense_product *);
int cuda_blas_open(cuda_backend *, err *e);
void cuda_blas_close(cuda_backend *);
/* cuda_fp8.cu: F8 matrices, whose layout is in fp8.cuh. pack: rows of bytes on the device into slabs, in order with
 * uploads. unpack: rows [row, row + n_rows) of a product's w into a matrix of the act type, in order with the ops. */
void cuda_fp8_pack(cuda_backend *, void *to, const void *from, int rows, int cols);
void cuda_fp8_unpack(cuda_backend *, void *to, const dense_product *, int row, int n_rows);
/* cuda_sgmv.cu: */
void cuda_sgmv_shrink(backend *, tensor *v, const tensor *x, const batch *, int site);
void cuda_sgmv_expand(backend *, tensor *y, const tensor *v, const batch *, int site, const linear *w);
/* cuda_expand.cu: expand fused with the op that reads its result */
void cuda_expand_rope_append(backend *, tensor *qkv, heads, const head_norms *, const float *inv_freq, const adapted *,
                             const batch *, kv_cache *, int layer);
void cuda_expand_add_rms_norm(backend *, tensor *delta, tensor *y, tensor *x, const tensor *w, float eps,
                              const adapted *, const batch *);
void cuda_expand_silu_mul(backend *, tensor *gate_up, tensor *y, const adapted *, const batch *);
void cuda_expand(backend *, tensor *y, const adapted *, const batch *);
/* cuda_prompt.cu: the same for prompt_tiles; false, with nothing done, for shapes they do not support */
bool cuda_prompt_rope_append(cuda_backend *, tensor *qkv, heads, const head_norms *, const float *inv_freq,
                             const adapted *, kv_cache *, int layer);
bool cuda_prompt_add_rms_norm(cuda_backend *, tensor *delta, tensor *y, tensor *x, const tensor *w, float eps,
                              const adapted *);
bool cuda_prompt_silu_mul(cuda_backend *, tensor *gate_up, tensor *y, const adapted *);
/* cuda_attention.cu: */
void cuda_attention(backend *, tensor *y, const tensor *qkv, heads, const batch *, const kv_cache *, int layer,
                    int window);
/* Returns the bytes of attention_partials that invocations up to this extent need. */
size_t cuda_attention_scratch(const extent *);
/* cuda_sample.cu: */
void cuda_sample(backend *, const tensor *logits, const sample_spec *spec, int n);
const sample_result *cuda_collect(backend *, err *e);
int cuda_sampler_reserve(cuda_backend *, const extent *, err *e);
void cuda_sampler_free(cuda_backend *);
#ifdef __cplusplus
}
#endif

#endif
