/* linear_skinny.cuh - y = x W^T + bias for few rows of x: a stream of weights at memory bandwidth (sm_90a)
 *
 *   W [n, k]                               a block: tile_rows rows of W times its range of k
 *   +--------- k ---------+                  producer   one thread: TMA copies of boxes of W and x into the ring
 *   | tile 0: b0 | b1     |                  consumers  a warpgroup per 64 rows: wgmma, W's rows as the
 *   | tile 1: b2 | b3     |                             64-row operand, rows of x as columns (8 .. 64)
 *   | ...                 |                  two warps  for the fused LoRA shrink, in launches that have one
 *   +---------------------+                             (linear_shrink.cuh)
 *
 * A persistent, warp-specialised kernel, as CUTLASS calls it. The ring, a pipeline of stages with full and empty
 * mbarriers, fills most of shared memory. By Little's law each of 132 SMs must have 80 KB in flight (4.4 TB/s * 2.4 us
 * from a load to its stored sums / 132); rings of 96 KB still made a layer 2 % slower (docs/lab/decode-step.md).
 * Weights do not depend on earlier kernels: most of the ring (n_early stages) is filled with them before
 * wait_for_previous(); x and the rest of the weights follow after it.
 *
 * Where a tile per SM would have few rows, the blocks of a cluster share a taller one and each takes a range of k
 * (split-K). They send their partial sums to each other's shared memory by st.async: each group of 8 rows goes to one
 * block, which adds it up in order of rank. Where W has more tiles than the chip has SMs, a block takes several in
 * turn, and its ring runs on across them.
 *
 * FP8 weights (fp8.cuh) come as bytes; a consumer warp loads its 16 rows of a box into registers and widens them there
 * as wgmma's A operand, while the tensor cores work for other warpgroups. Scales are applied to sums: the one scale of
 * a row at the end, a scale of SCALE_BLOCK columns to the sums over these columns. */
#ifndef PUNICA_BACKEND_CUDA_LINEAR_SKINNY_CUH
#define PUNICA_BACKEND_CUDA_LINEAR_SKINNY_CUH

#include "backend/cuda/fp8.cuh"
#include "backend/cuda/linear_shrink.cuh"

/* The type of the weights: the act type (the activations' dtype), FP8 with one scale per row, or FP8 with one scale per
 * SCALE_BLOCK columns of a row. */
enum weights_kind { AS_ACT, FP8_ROW_SCALES, FP8_BLOCK_SCALES };

enum {
    SKINNY_ROWS = FUSED_ROWS,                         /* of x, at most */
    SKINNY_TILE = 256,                                /* rows of W, at most */
    SKINNY_THREADS = SKINNY_TILE / 64 * 128 + 3 * 32, /* consumers; the producer's warp and the shrink's two */
    /* A pretended block size for __launch_bounds__: it caps registers at 72 (65536 / 896, rounded down to a multiple of
     * 8), so that blocks of other kernels fit beside a block. */
    SKINNY_BOUND = 896,
    BOX = 64,                      /* columns of a box */
    BOX_ROW = 128,                 /* bytes of a box's row, of the act type */
    FP8_BOXES = SCALE_BLOCK / BOX, /* boxes in a stage of FP8 weights: SCALE_BLOCK columns, which have one scale */
};
static_assert(FP8_BOXES == 2, "the FP8 consumers multiply a stage as two boxes");

/* Bytes of a row of a box of W. */
static __host__ __device__ __forceinline__ constexpr int w_row_bytes(weights_kind kind)
{
    return kind == AS_ACT ? BOX_ROW : BOX;
}

/* One product of m rows of x and the n rows of W. */
typedef struct {
    void *y;            /* [m, ldy] */
    const float *bias;  /* [n], or NULL */
    const float *scale; /* of FP8_ROW_SCALES: [n] */
    int m, n, ldy;
    bool f32;               /* y is F32, not the act type */
    bool paired, wide;      /* y is aligned for vectors of 2, of 8 */
    int tile_rows, n_tiles; /* tile_rows: a multiple of 8 */
    int n_boxes;            /* of W along k: k / BOX */
    int splits;             /* split-K: blocks of a cluster, each with a range of k; above 1: one tile per cluster */
    int boxes;              /* boxes of a stage, adjacent along k; for FP8 always FP8_BOXES */
    int n_stages;           /* of the ring */
    int n_early;            /* stages whose W is loaded before wait_for_previous(): at most n_stages */
    bool shrinks;           /* the launch has the shrink's two warps */
} skinny_job;

/* The most groups of 8 rows of a tile that one block of the cluster adds up. */
static __host__ __device__ __forceinline__ int groups_each(const skinny_job &job)
{
    return (job.tile_rows / 8 + job.splits - 1) / job.splits;
}

/* job.m rounded up to a multiple of 8: the rows of x for which partial sums are sent. M, the rows of x in a stage, is
 * padded_rows(job.m) in cuda_linear.cu, which may be more. */
static __host__ __device__ __forceinline__ int m_padded(const skinny_job &job)
{
    return (job.m + 7) / 8 * 8;
}

/* Bytes of the partial sums that a block receives: [splits, groups_each, 8, m_padded] floats. */
static __host__ __device__ __forceinline__ int partials_bytes(const skinny_job &job)
{
    return job.splits > 1 ? job.splits * groups_each(job) * 8 * m_padded(job) * (int)sizeof(float) : 0;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Shared memory: x's boxes of all stages, then W's, then their scales (FP8_BLOCK_SCALES), then the partial sums of the
 * cluster, then the mbarriers (16 bytes per stage, and 16), then the shrink's ring.
 *
 * A warpgroup multiplies 64 rows even where tile_rows leaves it fewer. The surplus rows are read from whatever follows
 * their box, and their sums are not used; choose_ring() in cuda_linear.cu makes shared memory long enough for that. */
typedef struct {
    char *w, *x, *scale;
    float *partials;
    uint64_t *full, *empty, *partials_full;
    shrink_ring *shrink;
    int w_stage_bytes, x_stage_bytes, scale_stage_bytes; /* from a stage's boxes, or scales, to the next stage's */
    int scale_bytes;                                     /* of a stage's scales, without padding */
} skinny_layout;

template <int M, weights_kind KIND>
static __device__ __forceinline__ skinny_layout layout_in(const skinny_job &job, char *memory)
{
    skinny_layout shared;
    shared.w_stage_bytes = job.boxes * job.tile_rows * w_row_bytes(KIND);
    shared.x_stage_bytes = job.boxes * M * BOX_ROW;
    shared.scale_bytes = KIND == FP8_BLOCK_SCALES ? job.tile_rows * (int)sizeof(float) : 0;
    shared.scale_stage_bytes = (shared.scale_bytes + 127) / 128 * 128; /* TMA writes to multiples of 128 bytes */
    shared.x = memory;
    shared.w = shared.x + job.n_stages * shared.x_stage_bytes;
    shared.scale = shared.w + job.n_stages * shared.w_stage_bytes;
    shared.partials = (float *)(shared.scale + job.n_stages * shared.scale_stage_bytes);
    shared.full = (uint64_t *)((char *)shared.partials + partials_bytes(job));
    shared.empty = shared.full + job.n_stages;
    shared.partials_full = shared.empty + job.n_stages;
    shared.shrink = (shrink_ring *)(shared.partials_full + 2); /* one mbarrier, and padding to 16 bytes */
    return shared;
}

/* This block's share: every tile_step-th tile from first_tile on, and of each boxes [from, to) along k. The range is
 * never empty: choose_tiles() in cuda_linear.cu splits k only where each split has 4 boxes or more. */
typedef struct { int first_tile, tile_step, from, to; } block_range;

template <weights_kind KIND> static __device__ __forceinline__ block_range block_range_of(const skinny_job &job)
{
    constexpr int GRANULE = KIND == AS_ACT ? 1 : FP8_BOXES; /* boxes: the unit in which k is split */
    int rank = blockIdx.x % job.splits, n_granules = (job.n_boxes + GRANULE - 1) / GRANULE;
    block_range range;
    range.first_tile = blockIdx.x / job.splits;
    range.tile_step = gridDim.x / job.splits;
    range.from = rank * n_granules / job.splits * GRANULE;
    range.to = min((rank + 1) * n_granules / job.splits * GRANULE, job.n_boxes);
    return range;
}

/* A place in the sequence of this block's stages (its tiles in turn, each one's boxes of k), and in the ring. */
typedef struct {
    int tile, box;
    pipeline_state at;
} cursor;

static __device__ __forceinline__ void advance(const skinny_job &job, const block_range &range, cursor &c)
{
    c.box += job.boxes;
    if (c.box >= range.to) {
        c.box = range.from;
        c.tile += range.tile_step;
    }
    pipeline_advance(c.at, job.n_stages);
}

/* The tensor maps of x, W and the scales (FP8_BLOCK_SCALES). */
typedef struct { const CUtensorMap *w, *x, *scale; } box_maps;

/* Arms the full barrier for the whole stage (W, its scales and x) and starts the copies of W and the scales. */
template <weights_kind KIND>
static __device__ __forceinline__ void load_w(const skinny_job &job, const skinny_layout &shared, const cursor &c,
                                              const box_maps &maps, uint64_t policy)
{
    uint64_t *full = &shared.full[c.at.stage];
    /* an FP8 map counts slabs, not rows */
    int row = c.tile * job.tile_rows / (KIND == AS_ACT ? 1 : SLAB);
    mbarrier_arrive_expect_tx(full, shared.w_stage_bytes + shared.x_stage_bytes + shared.scale_bytes);
    tensor_copy(shared.w + c.at.stage * shared.w_stage_bytes, maps.w, row, c.box, full, policy);
    if constexpr (KIND == FP8_BLOCK_SCALES)
        tensor_copy(shared.scale + c.at.stage * shared.scale_stage_bytes, maps.scale, row, c.box / FP8_BOXES, full,
                    policy);
}

static __device__ __forceinline__ void load_x(const skinny_layout &shared, const cursor &c, const CUtensorMap *map,
                                              uint64_t policy)
{
    tensor_copy(shared.x + c.at.stage * shared.x_stage_bytes, map, 0, c.box, &shared.full[c.at.stage], policy);
}

/* The producer, one thread, fills the ring's stages in turn: the first n_early with W before wait_for_previous() and,
 * by the cursor `early`, with x after it; all others with both. */
template <weights_kind KIND>
static __device__ void produce(const skinny_job &job, const block_range &range, const skinny_layout &shared,
                               const box_maps &maps)
{
    uint64_t once = policy_read_once(), keep = policy_keep();
    cursor next = {range.first_tile, range.from, {0, 0}}, early = next;
    int filled = 0;
    for (; filled < job.n_early && next.tile < job.n_tiles; filled++, advance(job, range, next))
        load_w<KIND>(job, shared, next, maps, once);
    let_next_start();
    wait_for_previous();
    for (int i = 0; i < filled; i++, advance(job, range, early))
        load_x(shared, early, maps.x, keep);
    for (; next.tile < job.n_tiles; filled++, advance(job, range, next)) {
        if (filled >= job.n_stages)
            mbarrier_wait(&shared.empty[next.at.stage], next.at.parity ^ 1);
        load_w<KIND>(job, shared, next, maps, once);
        load_x(shared, next, maps.x, keep);
    }
}

/* Columns of one wgmma for up to M rows of x. M is 8, 16, 32, 48 or 64 (padded_rows() in cuda_linear.cu). hopper.cuh
 * has wgmma of 8, 32, 48 and 64 columns; 16 rows are two products of 8, a plain choice that saves a shape. */
template <int M> static __device__ constexpr int wgmma_columns()
{
    return M < 32 ? 8 : M;
}

/* acc [64, M] += 64 rows of W times x, over one stage. w, x: descriptors of the stage's first boxes; addresses in them
 * are in units of 16 bytes, so the next 16 columns are 2 on. */
template <typename T, int M>
static __device__ __forceinline__ void multiply_stage(float (&acc)[M / 2], uint64_t w, uint64_t x, int n_boxes,
                                                      int tile_rows)
{
    constexpr int N = wgmma_columns<M>();
#pragma unroll 1
    for (int box = 0; box < n_boxes; box++) {
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < BOX / 16; k++)
#pragma unroll
            for (int j = 0; j < M / N; j++)
                wgmma<T, N>(acc + j * N / 2, w + 2 * k, x + 2 * k + j * N * BOX_ROW / 16);
        w += tile_rows * BOX_ROW / 16;
        x += M * BOX_ROW / 16;
    }
    wgmma_commit();
    wgmma_wait<0>();
}

/* acc [64, M] += the product over all stages of one tile. A stage may reach past this block's range of k: those boxes
 * are left out. wg_row: the warpgroup's first row of the tile. */
template <typename T, int M>
static __device__ __forceinline__ void multiply_tile(const skinny_job &job, const block_range &range,
                                                     const skinny_layout &shared, pipeline_state &at,
                                                     float (&acc)[M / 2], int wg_row)
{
    for (int box = range.from; box < range.to; box += job.boxes) {
        mbarrier_wait(&shared.full[at.stage], at.parity);
        multiply_stage<T, M>(acc, box_descriptor(shared.w + at.stage * shared.w_stage_bytes + wg_row * BOX_ROW),
                             box_descriptor(shared.x + at.stage * shared.x_stage_bytes), min(job.boxes, range.to - box),
                             job.tile_rows);
        if ((threadIdx.x & 31) == 0)
            mbarrier_arrive(&shared.empty[at.stage]);
        pipeline_advance(at, job.n_stages);
    }
}

/* A lane's share of a warp's 16 rows of an FP8 box: 16 columns of rows g and g + 8. */
typedef struct { uint4 at[2]; } fp8_words;

static __device__ __forceinline__ fp8_words read_words(const char *box)
{
    return {*(const uint4 *)box, *(const uint4 *)(box + SLAB_BOX)};
}

/* fp8_words widened: the A operands of four wgmmas along k. */
typedef struct { unsigned at[BOX / 16][4]; } fragments;

template <typename T> static __device__ __forceinline__ void widen(fragments &a, const fp8_words &words)
{
    const unsigned upper[4] = {words.at[0].x, words.at[0].y, words.at[0].z, words.at[0].w};
    const unsigned lower[4] = {words.at[1].x, words.at[1].y, words.at[1].z, words.at[1].w};
#pragma unroll
    for (int k = 0; k < BOX / 16; k++) {
        widen_fp8<T>(upper[k], a.at[k][0], a.at[k][2]);
        widen_fp8<T>(lower[k], a.at[k][1], a.at[k][3]);
    }
}

/* Starts acc [64, M] += A, 64 rows of W in registers, times a box of x. */
template <typename T, int M>
static __device__ __forceinline__ void begin_product(float (&acc)[M / 2], const fragments &a, uint64_t x)
{
    constexpr int N = wgmma_columns<M>();
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < BOX / 16; k++)
#pragma unroll
        for (int j = 0; j < M / N; j++)
            wgmma_a<T, N>(acc + j * N / 2, a.at[k], x + 2 * k + j * N * BOX_ROW / 16);
    wgmma_commit();
}

/* acc [64, M] += the product over all stages of one tile of FP8 weights. The next product's weights are read while a
 * product is under way. The first wait of a stage ends the last product of the stage before, which could be released
 * there; it is released one product later (not tuned) and is `unreleased` until then. Boxes past the end of k are
 * zeros. warp_row: the warp's first row of the tile. */
template <typename T, int M>
static __device__ __forceinline__ void multiply_tile_fp8(const skinny_job &job, const block_range &range,
                                                         const skinny_layout &shared, pipeline_state &at,
                                                         float (&acc)[M / 2], int warp_row)
{
    int box_bytes = job.tile_rows * BOX, lane = threadIdx.x & 31, unreleased = -1; /* -1: none */
    fragments a;
    for (int box = range.from; box < range.to; box += FP8_BOXES) {
        const char *w = shared.w + at.stage * shared.w_stage_bytes + warp_row * BOX + lane * 16;
        uint64_t x = box_descriptor(shared.x + at.stage * shared.x_stage_bytes);
        mbarrier_wait(&shared.full[at.stage], at.parity);
        fp8_words words = read_words(w);
        wgmma_wait<0>();
        widen<T>(a, words);
        begin_product<T, M>(acc, a, x);
        words = read_words(w + box_bytes);
        wgmma_wait<0>();
        if (lane == 0 && unreleased >= 0)
            mbarrier_arrive(&shared.empty[unreleased]);
        widen<T>(a, words);
        begin_product<T, M>(acc, a, x + M * BOX_ROW / 16);
        unreleased = at.stage;
        pipeline_advance(at, job.n_stages);
    }
    wgmma_wait<0>();
    if (lane == 0 && unreleased >= 0)
        mbarrier_arrive(&shared.empty[unreleased]);
}

/* The scales of this lane's rows: g and g + 8 of its warp's 16. */
typedef struct { float at[2]; } row_scales;

/* Loads the scales of this lane's rows, of a warp's 16 from n0 on; 0 for rows from n1 on. Called before the weights
 * arrive. */
static __device__ __forceinline__ row_scales read_scales(const skinny_job &job, int n0, int n1)
{
    int n = n0 + ((threadIdx.x & 31) >> 2);
    return {n < n1 ? job.scale[n] : 0.0f, n + 8 < n1 ? job.scale[n + 8] : 0.0f};
}

template <int M> static __device__ __forceinline__ void scale_rows(float (&acc)[M / 2], row_scales scales)
{
#pragma unroll
    for (int i = 0; i < M / 2; i++)
        acc[i] *= scales.at[i >> 1 & 1];
}

/* sum [64, M] += the product over all stages of one tile of FP8_BLOCK_SCALES weights. Each stage has a scale per row,
 * by which its sums are multiplied before they are added. */
template <typename T, int M>
static __device__ __forceinline__ void multiply_tile_block_scales(const skinny_job &job, const block_range &range,
                                                                  const skinny_layout &shared, pipeline_state &at,
                                                                  float (&sum)[M / 2], int warp_row)
{
    int box_bytes = job.tile_rows * BOX, lane = threadIdx.x & 31;
    for (int box = range.from; box < range.to; box += FP8_BOXES) {
        const char *w = shared.w + at.stage * shared.w_stage_bytes + warp_row * BOX + lane * 16;
        const float *scale = (const float *)(shared.scale + at.stage * shared.scale_stage_bytes) + warp_row + lane / 4;
        uint64_t x = box_descriptor(shared.x + at.stage * shared.x_stage_bytes);
        float acc[M / 2] = {};
        fragments a;
        mbarrier_wait(&shared.full[at.stage], at.parity);
        /* Read before the words: a warp's loads from shared memory complete in order, so the scales are there once the
         * words are, which the products wait for. Read later, they could still be under way when the stage is released
         * and overwritten (docs/lab/fp8.md). */
        row_scales scales = {scale[0], scale[8]};
        fp8_words words = read_words(w);
        widen<T>(a, words);
        begin_product<T, M>(acc, a, x);
        words = read_words(w + box_bytes);
        wgmma_wait<0>();
        widen<T>(a, words);
        begin_product<T, M>(acc, a, x + M * BOX_ROW / 16);
        wgmma_wait<0>();
        if (lane == 0)
            mbarrier_arrive(&shared.empty[at.stage]);
#pragma unroll
        for (int i = 0; i < M / 2; i++)
            sum[i] += acc[i] * scales.at[i >> 1 & 1];
        pipeline_advance(at, job.n_stages);
    }
}

/* Stores a warp's accumulators to y, F32: columns n0 to n0 + 15, those below n1. Rows of W are columns of y: of the two
 * that a lane has (wgmma() in hopper.cuh), h is 0 for g and 1 for g + 8. */
template <int M>
static __device__ __forceinline__ void store_f32(const skinny_job &job, const float (&acc)[M / 2], int n0, int n1)
{
    int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int n = n0 + 8 * h + g;
        float bias = job.bias && n < n1 ? job.bias[n] : 0.0f;
#pragma unroll
        for (int i = 0; i < M / 4; i++) {
            int row = i / 2 * 8 + 2 * t + (i & 1);
            if (n < n1 && row < job.m)
                ((float *)job.y)[(size_t)row * job.ldy + n] = acc[i / 2 * 4 + 2 * h + (i & 1)] + bias;
        }
    }
}

/* store_f32() for the act type: accumulators are transposed 8 x 8 (movmatrix), so that a lane has adjacent columns of
 * y. */
template <typename T, int M>
static __device__ __forceinline__ void store_act(const skinny_job &job, const float (&acc)[M / 2], int n0, int n1)
{
    int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int n = n0 + 8 * h + 2 * t;
        float bias = job.bias && n0 + 8 * h + g < n1 ? job.bias[n0 + 8 * h + g] : 0.0f;
#pragma unroll
        for (int j = 0; j < M / 8; j++) {
            unsigned pair = transpose_matrix(pack<T>(acc[4 * j + 2 * h] + bias, acc[4 * j + 2 * h + 1] + bias));
            T *y = (T *)job.y + (size_t)(8 * j + g) * job.ldy + n;
            vec<T, 2> v = *(vec<T, 2> *)&pair;
            if (8 * j + g >= job.m || n >= n1)
                continue;
            if (job.paired && n + 1 < n1)
                *(vec<T, 2> *)y = v;
            else {
                y[0] = v.at[0];
                if (n + 1 < n1)
                    y[1] = v.at[1];
            }
        }
    }
}

/* Groups of 8 rows of a tile that this block adds up: every splits-th one. */
static __device__ __forceinline__ int groups_owned(const skinny_job &job)
{
    return (job.tile_rows / 8 - (int)(blockIdx.x % job.splits) + job.splits - 1) / job.splits;
}

/* Arms the barrier for the partial sums that the cluster will send this block. Without split-K it is armed too, but
 * never waited for. */
static __device__ __forceinline__ void expect_sums(const skinny_job &job, const skinny_layout &shared)
{
    mbarrier_arrive_expect_tx(shared.partials_full,
                              job.splits * groups_owned(job) * 8 * m_padded(job) * (int)sizeof(float));
}

/* Sends a warp's sums, two groups of 8 rows of the tile from first_group on, to the blocks that add these up. */
template <int M>
static __device__ __forceinline__ void send_sums(const skinny_job &job, const skinny_layout &shared,
                                                 const float (&acc)[M / 2], int first_group)
{
    int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3, ld = m_padded(job), rank = blockIdx.x % job.splits;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int group = first_group + h, owner = group % job.splits, place = rank * groups_each(job) + group / job.splits;
        if (group * 8 >= job.tile_rows)
            break;
        unsigned to = at_peer(shared.partials + (place * 8 + g) * ld + 2 * t, owner),
                 barrier = at_peer(shared.partials_full, owner);
#pragma unroll
        for (int j = 0; j < M / 8; j++)
            if (8 * j < ld)
                st_async_2(to + 32 * j, acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1], barrier);
    }
}

/* Adds the bias to 8 outputs of a row of y, from column n on, and stores them. */
template <typename O>
static __device__ __forceinline__ void store_8(const skinny_job &job, int row, int n, float (&v)[8])
{
    O *y = (O *)job.y + (size_t)row * job.ldy + n;
    for (int i = 0; job.bias && i < 8 && n + i < job.n; i++)
        v[i] += job.bias[n + i];
    if (job.wide && n + 8 <= job.n)
        store_n(y, v);
    else
        for (int i = 0; i < 8 && n + i < job.n; i++)
            y[i] = from_float<O>(v[i]);
}

/* Adds up the partial sums that the cluster sent, in order of rank, and stores the results; a thread owns 8 outputs of
 * a row at a time. */
template <typename T>
static __device__ void store_sums(const skinny_job &job, const skinny_layout &shared, int n0, int n_threads)
{
    int ld = m_padded(job), each = groups_each(job), n_items = groups_owned(job) * ld, rank = blockIdx.x % job.splits;
    st_async_wait(shared.partials_full, 0);
    for (int i = threadIdx.x; i < n_items; i += n_threads) {
        int group = i / ld, row = i % ld, n = n0 + (group * job.splits + rank) * 8;
        float sum[8] = {};
        for (int peer = 0; peer < job.splits; peer++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                sum[j] += shared.partials[((peer * each + group) * 8 + j) * ld + row];
        if (row >= job.m)
            continue;
        if (job.f32)
            store_8<float>(job, row, n, sum);
        else
            store_8<T>(job, row, n, sum);
    }
}

/* A consumer warpgroup: rows 64 * warpgroup to 64 * warpgroup + 63 of each of the block's tiles. n_threads: all
 * consumers'. */
template <typename T, int M, weights_kind KIND>
static __device__ void consume(const skinny_job &job, const block_range &range, const skinny_layout &shared,
                               int warpgroup, int n_threads)
{
    pipeline_state at = {0, 0};
    int wg_row = 64 * warpgroup, warp_row = wg_row + (threadIdx.x >> 5 & 3) * 16;
    for (int tile = range.first_tile; tile < job.n_tiles; tile += range.tile_step) {
        int n0 = tile * job.tile_rows, n1 = min(job.n, n0 + job.tile_rows);
        float acc[M / 2] = {};
        if constexpr (KIND == AS_ACT) {
            multiply_tile<T, M>(job, range, shared, at, acc, wg_row);
        } else if constexpr (KIND == FP8_ROW_SCALES) {
            row_scales scales = read_scales(job, n0 + warp_row, n1);
            multiply_tile_fp8<T, M>(job, range, shared, at, acc, warp_row);
            scale_rows<M>(acc, scales);
        } else {
            multiply_tile_block_scales<T, M>(job, range, shared, at, acc, warp_row);
        }
        if (job.splits > 1) {
            cluster_wait();
            send_sums<M>(job, shared, acc, warp_row / 8);
            store_sums<T>(job, shared, n0, n_threads);
        } else if (job.f32)
            store_f32<M>(job, acc, n0 + warp_row, n1);
        else
            store_act<T, M>(job, acc, n0 + warp_row, n1);
    }
}

static __device__ __forceinline__ void init_barriers(const skinny_job &job, const skinny_layout &shared,
                                                     int n_consumers)
{
#pragma unroll 1
    for (int i = 0; i < job.n_stages; i++) {
        mbarrier_init(&shared.full[i], 1);
        mbarrier_init(&shared.empty[i], n_consumers / 32);
    }
    mbarrier_init(shared.partials_full, 1);
    if (job.shrinks)
        shrink_ring_init(shared.shrink);
    mbarrier_init_fence();
    expect_sums(job, shared);
}

#endif

/* y = x W^T + bias for up to M rows of x, and the shrink of a site's adapters. Grid: a cluster per tile, but no more
 * than run at once. Block: 128 threads for each 64 rows of a tile, the producer's warp (one thread works), and two
 * warps more for the fused LoRA shrink. Shared memory: see skinny_layout, at most SKINNY_SHARED (cuda_linear.cu). FP8
 * instances that need more than 72 registers have the true SKINNY_THREADS as their launch bound. */
template <typename T, int M, weights_kind KIND>
static __global__ void __launch_bounds__(KIND == AS_ACT || (KIND == FP8_ROW_SCALES && M < 64) ? SKINNY_BOUND
                                                                                              : SKINNY_THREADS,
                                         1)
    skinny(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map,
           const __grid_constant__ CUtensorMap scale_map, skinny_job job, shrink_job shrink)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) char memory[];
    int n_warpgroups = (job.tile_rows + 63) / 64, n_consumers = 128 * n_warpgroups;
    /* below 0: consumer; 0: producer; 1, 2: the shrink's producer, consumer */
    int role = warp_index() - 4 * n_warpgroups;
    block_range range = block_range_of<KIND>(job);
    skinny_layout shared = layout_in<M, KIND>(job, memory);
    if (threadIdx.x == n_consumers)
        init_barriers(job, shared, n_consumers);
    __syncthreads();
    /* Each thread of the cluster arrives here once and waits once, as a cluster has one tile: consumers before they
     * send sums to other blocks, whose mbarriers must be initialised by then; the other warps at their end. */
    if (job.splits > 1)
        cluster_arrive_relaxed();
    if (role < 0) {
        consume<T, M, KIND>(job, range, shared, warp_index() / 4, n_consumers);
        return;
    }
    if (role == 0 && threadIdx.x == n_consumers)
        produce<KIND>(job, range, shared, {&w_map, &x_map, &scale_map});
    else if (role == 1)
        shrink_producer(shrink, shared.shrink);
    else if (role == 2)
        shrink_consumer<T>(shrink, shared.shrink);
    __syncwarp();
    if (job.splits > 1)
        cluster_wait();
#endif
}

#endif
