/* cuda.h - what the files of this folder share; C, for .c and .cu alike
 *
 * cuda_backend.c holds the op table, memory and the streams; cuda_step.c puts a batch into device
 * memory and records and replays invocations; each .cu file is one family of ops: kernels, then
 * their launchers, which are the ops themselves.
 *
 * Everything a kernel needs to know of a batch lies in device memory at addresses that never change
 * (`step`), so that a recorded invocation stays valid for any later batch of its size. Grids are sized
 * by the padded number of rows; blocks past the counts in step.n return; at least block 0 has then waited
 * for the kernel before (kernel.cuh says why). */
#ifndef PUNICA_BACKEND_CUDA_CUDA_H
#define PUNICA_BACKEND_CUDA_CUDA_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/sgmv.h"

/* A KV split: a part of what a row attends to (split-KV), run by clusters of blocks, one group of heads at a time:
 * positions [from, to) of the len that the row sees; it is split `index` of `count`. Long rows come first; the splits
 * of one stand side by side, in order, all of one length but for the last. Positions from `fresh` on are written by
 * this very invocation. pages: the page_indptr of its sequence. */
typedef struct { int row, len, fresh, pages, from, to, index, count; } decode_split;

/* A query tile: up to cuda_prefill_rows() adjacent rows of one prefill; those that see most come first. */
#define PREFILL_TILE 64
typedef struct { int seq, row, n_rows; } prefill_tile;

/* Counts in device memory, for kernels whose grid was sized for more. */
enum { COUNT_ROWS, COUNT_OUT, COUNT_TILES, COUNT_DECODE_SPLITS, COUNT_PREFILL_TILES, N_COUNTS };

/* The batch in device memory. Passed to kernels by value: pointers stay the same from batch to batch. */
typedef struct {
    const int *n;                      /* [N_COUNTS] */
    const int *token;                  /* [rows]; TOKEN_DRAWN(i): drawn[i] */
    const int *position;               /* [rows] */
    const int *kv_slot;                /* [rows] page * page_len + place in the page; -1: padding, nothing is stored */
    const int *out_row;                /* [out] */
    const lora_entry *const *row_lora; /* [rows] the row's adapter's table, NULL: none */
    const sgmv_tile *tile;             /* [COUNT_TILES] */
    const int *page_indptr;            /* [sequences + 1] */
    const int *page;                   /* pages of each sequence in order */
    const decode_split *decode;        /* [COUNT_DECODE_SPLITS] */
    const int *first_work;             /* [clusters] of attention: what each begins with, see lpt.h */
    const int *next_work;              /* [items * n_head_groups]: what its cluster does next */
    const prefill_tile *prefill;       /* [COUNT_PREFILL_TILES] */
    int *drawn;                        /* [out] tokens of the last sample */
    int *v_arrivals; /* [n_sites] blocks of each site's shrink that are done; zeros when an invocation begins */
} step;

/* The same on the host, for launchers: what of the batch decides grids and paths. In a padded decode
 * batch these are the padded sizes, equal for all batches that replay one recording. */
typedef struct {
    int n_rows, n_out; /* padded */
    bool decode_only;  /* every row is a decode, or taken as one; padded to a size that is recorded */
    bool fused;        /* decode_only of at most FUSED_ROWS rows: shrink rides in the dense kernel and
                        * leaves partial sums in v_partials; expand rides in the kernel that reads it */
    bool any_lora;     /* false only when not fused and no row has an adapter */
    bool prompt_tiles; /* not decode_only, many rows, and some have adapters: see sgmv_tile */
    bool heavy;        /* neither fused nor prompt_tiles, and an adapter has over HEAVY_RANKS ranks at a site */
    int max_tiles, max_decode_splits, n_prefill_tiles; /* upper bounds to size grids with */
    long prefill_positions;                            /* of all prefills, cached ones too */
    int page_len;
} step_shape;

typedef struct step_store step_store;     /* cuda_step.c */
typedef struct sampler sampler;           /* cuda_sample.cu */
typedef struct copier copier;             /* cuda_copy.c */
typedef struct linear_plans linear_plans; /* cuda_linear.cu */

typedef struct {
    backend base;
    char name[128];
    int device, n_sms, arch; /* arch: 80, 90, ... */
    cudaStream_t stream;     /* all ops, in order */
    cudaStream_t uploads;    /* weights and adapters, beside the steps */
    cudaMemPool_t memory;
    pthread_mutex_t upload_lock; /* guards staging: uploads come from two threads */
    void *staging[2];            /* pinned */
    cudaEvent_t staged[2];
    void **held; /* [n_held] weights, released with the backend */
    int n_held;
    size_t held_cap;
    device_failure failure;

    extent limit; /* as reserved */
    step step;
    step_shape shape;
    const batch *begun;
    int max_recorded;  /* rows: invocations of more are not recorded, as they contain what cannot be */
    step_store *store; /* memory behind step, and recordings */

    void *unpacked;    /* [FP8_SCRATCH] once there are F8 weights: what passes on their way to the device, and
                        * 16-bit copies of parts of them for cuBLASLt */
    struct blas *blas; /* cuda_blas.c */
    linear_plans *plans;
    void *encode_map; /* the driver's cuTensorMapEncodeTiled; NULL but on Hopper */

    int v_expected;            /* arrivals that the shrink queued last will make; 0: none are counted */
    float *v_partials;         /* [SGMV_SPLITS, FUSED_ROWS, max_rank_sum], see sgmv_splits */
    float *attention_partials; /* partial results of KV splits, see decode_partials, and a work_counter; zeroed when
                                  claimed */
    size_t attention_partials_bytes;
    sampler *sampler;
    copier *copier;
} cuda_backend;

#define FUSED_ROWS 64  /* what linear_skinny.cuh multiplies at once */
#define HEAVY_RANKS 96 /* see HEAVY_GRID_Z in cuda_sgmv.cu */
#define FP8_SCRATCH ((size_t)128 << 20)

/* Whether an F8 matrix lies in slabs (fp8.cuh). */
static inline bool cuda_fp8_in_slabs(int rows, int cols)
{
    return rows % 8 == 0 && cols % 64 == 0;
}

/* A fused shrink splits the input dimension (split-K), and the expand adds the partial sums up, in order:
 * v[row, r] = sum over s of v_partials[s][row][r], s < sgmv_splits(in). The scale is in them already. A split has 256
 * inputs at least. */
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

/* Keep the first failure; what: "rms_norm". True when status is one. */
static inline bool cuda_keep(cuda_backend *cu, cudaError_t status, const char *what)
{
    return device_failure_keep(&cu->failure, cu->device, status, what);
}

/* The failure kept, if any. */
static inline int cuda_report(cuda_backend *cu, err *e)
{
    return device_failure_report(&cu->failure, e);
}

/* For launches among the ops, which overlap where the device can. */
static inline launch_context context_of(cuda_backend *cu)
{
    launch_context on = {cu->stream, cu->device, cu->n_sms, cu->arch, cu->arch >= 90, &cu->failure};
    return on;
}

/* Before what the runtime does on the thread's current device: one thread may drive several. */
static inline void cuda_use(const cuda_backend *cu)
{
    cudaSetDevice(cu->device);
}

/* Device memory, zeroed. */
void *cuda_alloc(backend *be, size_t bytes, err *e);
void cuda_release(backend *be, void *p);
void cuda_upload(backend *be, void *dst, const void *src, size_t bytes);

/* cuda_step.c: */
invocation cuda_begin(backend *, const batch *b, const void *owner);
void cuda_end(backend *);
void cuda_forget(backend *, const void *owner);
int cuda_step_reserve(cuda_backend *, const extent *, err *e);
void cuda_step_free(cuda_backend *);

/* The most rows of a prefill_tile. */
int cuda_prefill_rows(const cuda_backend *cu, const extent *);

/* cuda_copy.c: */
int cuda_copy_open(cuda_backend *, err *e);
void cuda_copy_close(cuda_backend *);
void cuda_copy_begin(backend *, copy_lane, const copy_piece *piece, int n, bool behind_ops);
bool cuda_copy_ended(backend *, copy_lane, bool wait, double *seconds);
void cuda_copy_order(backend *);

/* How many positions one KV split covers: depends on the sequence's length and the heads only. */
int cuda_decode_split_len(const cuda_backend *cu, int seq_len);
/* The most KV splits of a sequence of any length. */
int cuda_decode_max_splits(void);
/* The most KV splits of an invocation up to this extent. */
int cuda_decode_splits(const extent *);
/* Head groups, hence work items, per split; and how many clusters run the work items of an invocation of cu->shape: no
 * more than so many to an SM. */
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
/* cuda_blas.c: one product, y [m, n] (rows ldy apart) = x [m, k] W [n, k]^T + bias; with a bias, y must hold it
 * already. False when cuBLASLt has nothing for this shape. */
typedef struct {
    void *y;
    dtype y_type;
    const void *x, *w;
    dtype w_type;       /* the act type, or F8, which cuBLASLt is never given */
    bool in_slabs;      /* an F8 w: see fp8.cuh */
    const float *scale; /* of an F8 w, n_scales for each row */
    int n_scales;
    const float *bias; /* or NULL */
    int m, n, k, ldy;
} dense_product;
bool cuda_blas_multiply(cuda_backend *, const dense_product *);
int cuda_blas_open(cuda_backend *, err *e);
void cuda_blas_close(cuda_backend *);
/* cuda_fp8.cu: F8 matrices, fp8.cuh says how they lie. Pack rows of bytes on the device into slabs, in order with
 * uploads; make rows [row, row + n_rows) of a product's w a matrix of the act type, in order with the ops. */
void cuda_fp8_pack(cuda_backend *, void *to, const void *from, int rows, int cols);
void cuda_fp8_unpack(cuda_backend *, void *to, const dense_product *, int row, int n_rows);
/* cuda_sgmv.cu: */
void cuda_sgmv_shrink(backend *, tensor *v, const tensor *x, const batch *, int site);
void cuda_sgmv_expand(backend *, tensor *y, const tensor *v, const batch *, int site, const linear *w);
/* cuda_expand.cu: expand fused with what reads its result */
void cuda_expand_rope_append(backend *, tensor *qkv, heads, const head_norms *, const float *inv_freq, const adapted *,
                             const batch *, kv_cache *, int layer);
void cuda_expand_add_rms_norm(backend *, tensor *delta, tensor *y, tensor *x, const tensor *w, float eps,
                              const adapted *, const batch *);
void cuda_expand_silu_mul(backend *, tensor *gate_up, tensor *y, const adapted *, const batch *);
void cuda_expand(backend *, tensor *y, const adapted *, const batch *);
/* cuda_prompt.cu: the same where there are prompt_tiles; false, with nothing done, for shapes they do not take */
bool cuda_prompt_rope_append(cuda_backend *, tensor *qkv, heads, const head_norms *, const float *inv_freq,
                             const adapted *, kv_cache *, int layer);
bool cuda_prompt_add_rms_norm(cuda_backend *, tensor *delta, tensor *y, tensor *x, const tensor *w, float eps,
                              const adapted *);
bool cuda_prompt_silu_mul(cuda_backend *, tensor *gate_up, tensor *y, const adapted *);
/* cuda_attention.cu: */
void cuda_attention(backend *, tensor *y, const tensor *qkv, heads, const batch *, const kv_cache *, int layer,
                    int window);
/* Bytes of attention_partials that invocations up to this extent need. */
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
