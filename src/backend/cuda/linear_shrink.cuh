/* linear_shrink.cuh - SGMV shrink with split-K, beside a dense product or alone; the reader of v adds up the splits
 *
 *   v_partials[s][row, offset of part i + r] = scale_i * sum over k in split s of x[row, k] A_i[r, k]
 *
 * Ranks are numbered through all parts, as they stand in v. */
#ifndef PUNICA_BACKEND_CUDA_LINEAR_SHRINK_CUH
#define PUNICA_BACKEND_CUDA_LINEAR_SHRINK_CUH

#include "backend/cuda/hopper.cuh"

typedef struct {
    const sgmv_tile *tile;
    const int *n_tiles;
    const void *x; /* [rows, in] */
    float *v_partials;
    int *arrivals; /* how many blocks have stored all their sums */
    int site, in;
    int n_splits, split_len; /* of k: sgmv_splits(in), sgmv_split_len(in) */
    int v_stride;            /* floats from row to row of v_partials */
} shrink_job;

/* A tile: its rows, and its adapter's A matrices at the site. */
typedef struct {
    const void *a[MAX_PARTS];
    float scale[MAX_PARTS];
    int end[MAX_PARTS]; /* ranks of parts 0 to i */
    int row, n_rows;
    int work_end; /* work items of this tile and of those before it, set by describe_tiles() */
} shrink_tile;

static __device__ __forceinline__ shrink_tile tile_at(const shrink_job &job, int index)
{
    const sgmv_tile from = job.tile[index];
    const lora_entry *entry = from.table + job.site;
    shrink_tile t;
    for (int i = 0, end = 0; i < MAX_PARTS; i++) {
        t.a[i] = entry->a[i];
        t.scale[i] = entry->scale[i];
        t.end[i] = end += entry->rank[i];
    }
    t.row = from.row;
    t.n_rows = from.n_rows;
    return t;
}

/* Returns the sum of the ranks of all parts. */
static __device__ __forceinline__ int rank_sum(const shrink_tile &t)
{
    return t.end[MAX_PARTS - 1];
}

static __device__ __forceinline__ int part_of(const shrink_tile &t, int rank)
{
    return rank < t.end[0] ? 0 : rank < t.end[1] ? 1 : 2;
}

/* Returns row `rank` of A, counted through all parts. */
template <typename T> static __device__ __forceinline__ const T *a_row(const shrink_tile &t, int rank, int in)
{
    int part = part_of(t, rank);
    return (const T *)t.a[part] + (size_t)(rank - (part > 0 ? t.end[part - 1] : 0)) * in;
}

/* Stores the scaled sums of a 16 x 8 product: the tile's rows by 8 ranks from `rank` on. */
static __device__ __forceinline__ void store_v(const shrink_job &job, const shrink_tile &t, int split, int rank,
                                               const float d[4])
{
    int lane = threadIdx.x & 31;
    float *v = job.v_partials + ((size_t)split * FUSED_ROWS + t.row) * job.v_stride;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + 4 * (i & 2), r = rank + lane % 4 * 2 + (i & 1);
        if (row < t.n_rows && r < rank_sum(t))
            v[(size_t)row * job.v_stride + r] = d[i] * t.scale[part_of(t, r)];
    }
}

/* Loads 8 numbers of a row from k on, zeros from `until` on. WIDE: rows are whole 16-byte vectors. */
template <typename T, bool WIDE> static __device__ __forceinline__ uint4 load_8(const T *row, int k, int until)
{
    if constexpr (WIDE) {
        return k < until ? *(const uint4 *)(row + k) : make_uint4(0, 0, 0, 0);
    } else {
        vec<T, 8> v;
        for (int i = 0; i < 8; i++)
            v.at[i] = k + i < until ? row[k + i] : from_float<T>(0.0f);
        return *(const uint4 *)&v;
    }
}

/* The shrink alone: a warp multiplies 8 ranks of a tile over one split, straight from global memory. A product may sum
 * over k in any order that A and x share, so of every 32 inputs lane 4 g + t has the 8 adjacent ones from 8 t on, which
 * it loads at once. All lanes loop equally often, as mma needs the whole warp. */
template <typename T, bool WIDE>
static __device__ void shrink_ranks(const shrink_job &job, const shrink_tile &tile, int split, int rank)
{
    int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3, n_rows = tile.n_rows;
    int from = split * job.split_len, until = min(job.in, from + job.split_len);
    bool there = rank + g < rank_sum(tile);
    const T *x = (const T *)job.x + (size_t)(tile.row + g) * job.in,
            *a = a_row<T>(tile, there ? rank + g : rank, job.in);
    float d[4] = {};
#pragma unroll 4
    for (int k = from + 8 * t; k < until + 8 * t; k += 32) {
        uint4 w = load_8<T, WIDE>(a, k, there ? until : 0), x_lo = load_8<T, WIDE>(x, k, g < n_rows ? until : 0);
        uint4 x_hi = load_8<T, WIDE>(x + (size_t)8 * job.in, k, g + 8 < n_rows ? until : 0);
        unsigned x0[4] = {x_lo.x, x_hi.x, x_lo.y, x_hi.y}, w0[2] = {w.x, w.y};
        unsigned x1[4] = {x_lo.z, x_hi.z, x_lo.w, x_hi.w}, w1[2] = {w.z, w.w};
        mma<T>(d, x0, w0);
        mma<T>(d, x1, w1);
    }
    store_v(job, tile, split, rank, d);
}

/* The shrink beside a dense product. An SM's loads queue for microseconds behind all that the product has requested, so
 * everything is prefetched by bulk copies. A producer warp puts the tiles' descriptions into shared memory and then
 * copies A and x into a ring; a consumer warp multiplies. A work item is (tile, up to 16 or 24 ranks, split), numbered
 * in this order with splits innermost; a block has every gridDim.x-th. A stage is up to RING_CHUNK inputs of RING_ROWS
 * rows: 16 of A, then 16 of x; or, where the tile has 8 rows at most, 24 and 8. `in` is a multiple of 64
 * (fits_skinny()), and so are the inputs of each stage. */
enum {
    RING_ROWS = 32,
    RING_CHUNK = 512,
    RING_ROW_BYTES = 2 * RING_CHUNK + 16, /* 16 more, so that a column of 8 rows is in different banks */
    RING_STAGES = 2,                      /* measured, as RING_CHUNK: docs/lab/decode-grid.md */
    RING_MAX_RANKS = 24,
};

typedef struct alignas(16) {
    char rows[RING_ROWS][RING_ROW_BYTES];
    int tile, rank, split; /* tile -1: there are no more work items */
    int k, n_k;            /* inputs */
    bool last;             /* of the work item */
} shrink_stage;

typedef struct {
    shrink_stage stage[RING_STAGES];
    shrink_tile tile[FUSED_ROWS];
    uint64_t full[RING_STAGES], empty[RING_STAGES];
} shrink_ring;

enum { RING_BYTES = sizeof(shrink_ring) };

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

static __device__ __forceinline__ void shrink_ring_init(shrink_ring *ring)
{
    for (int i = 0; i < RING_STAGES; i++) {
        mbarrier_init(&ring->full[i], 32); /* all lanes arrive, once their accesses are done */
        mbarrier_init(&ring->empty[i], 32);
    }
}

static __device__ __forceinline__ int ranks_at_once(const shrink_tile &t)
{
    return t.n_rows > 8 ? 16 : RING_MAX_RANKS;
}

/* Describes the tiles in shared memory, a lane each; work_end is a prefix sum. Returns the number of all work items. */
static __device__ __forceinline__ int describe_tiles(const shrink_job &job, shrink_ring *ring)
{
    int n_tiles = min(*job.n_tiles, (int)FUSED_ROWS), lane = threadIdx.x & 31, n_before = 0;
    for (int first = 0; first < n_tiles; first += 32) {
        shrink_tile t = tile_at(job, min(first + lane, n_tiles - 1));
        int each = ranks_at_once(t), n = first + lane < n_tiles ? (rank_sum(t) + each - 1) / each * job.n_splits : 0;
        for (int i = 1; i < 32; i *= 2) {
            int below = __shfl_up_sync(0xffffffffu, n, i);
            n += lane >= i ? below : 0;
        }
        t.work_end = n_before + n;
        if (first + lane < n_tiles)
            ring->tile[first + lane] = t;
        n_before = __shfl_sync(0xffffffffu, n_before + n, 31);
    }
    __syncwarp();
    return n_before;
}

/* Returns the tile that a work item belongs to: the first whose work_end is past it. */
static __device__ __forceinline__ int tile_of(const shrink_ring *ring, int work)
{
    int lane = threadIdx.x & 31, tile = 0;
    for (;; tile += 32) {
        unsigned past = __ballot_sync(0xffffffffu, tile + lane < FUSED_ROWS && ring->tile[tile + lane].work_end > work);
        if (past)
            return tile + __ffs((int)past) - 1;
    }
}

/* Describes in a stage what it will hold, the nth RING_CHUNK inputs of a work item, and arms its full barrier. */
static __device__ __forceinline__ void describe_stage(const shrink_job &job, shrink_ring *ring, int stage, int work,
                                                      int nth)
{
    shrink_stage *s = &ring->stage[stage];
    int index = tile_of(ring, work);
    const shrink_tile &t = ring->tile[index];
    int before = index > 0 ? ring->tile[index - 1].work_end : 0, split = work % job.n_splits;
    int from = split * job.split_len, until = min(job.in, from + job.split_len), k = from + nth * RING_CHUNK;
    __syncwarp();
    if ((threadIdx.x & 31) == 0) {
        s->tile = index;
        s->rank = (work - before) / job.n_splits * ranks_at_once(t);
        s->split = split;
        s->k = k;
        s->n_k = max(0, min((int)RING_CHUNK, until - k));
        s->last = k + RING_CHUNK >= until;
        mbarrier_arrive_expect_tx(&ring->full[stage],
                                  (min(ranks_at_once(t), rank_sum(t) - s->rank) + t.n_rows) * 2 * s->n_k);
    } else {
        mbarrier_arrive(&ring->full[stage]);
    }
    __syncwarp();
}

/* Start the copies of a stage's rows of A, or of x: one row per lane. f16 stands for both types: they are of one
 * size. */
static __device__ __forceinline__ void copy_a(const shrink_job &job, shrink_ring *ring, int stage)
{
    shrink_stage *s = &ring->stage[stage];
    const shrink_tile &t = ring->tile[s->tile];
    int lane = threadIdx.x & 31;
    if (lane < min(ranks_at_once(t), rank_sum(t) - s->rank) && s->n_k > 0)
        bulk_copy(s->rows[lane], a_row<f16>(t, s->rank + lane, job.in) + s->k, 2 * s->n_k, &ring->full[stage]);
}

static __device__ __forceinline__ void copy_x(const shrink_job &job, shrink_ring *ring, int stage)
{
    shrink_stage *s = &ring->stage[stage];
    const shrink_tile &t = ring->tile[s->tile];
    int lane = threadIdx.x & 31;
    if (lane < t.n_rows && s->n_k > 0)
        bulk_copy(s->rows[ranks_at_once(t) + lane], (const f16 *)job.x + (size_t)(t.row + lane) * job.in + s->k,
                  2 * s->n_k, &ring->full[stage]);
}

/* Starts the copies of x for the n_filled stages that were filled with A before the kernel that writes x had ended. */
static __device__ __forceinline__ void copy_late_x(const shrink_job &job, shrink_ring *ring, int n_filled)
{
    wait_for_previous();
    for (int i = 0; i < n_filled; i++)
        copy_x(job, ring, i);
}

/* The producer warp. It fills the first RING_STAGES stages with A before the kernel that writes x has ended, and with x
 * after that; all others with both at once. A last stage has tile -1. */
static __device__ void shrink_producer(const shrink_job &job, shrink_ring *ring)
{
    int n_work = describe_tiles(job, ring), n_chunks = max(1, (job.split_len + RING_CHUNK - 1) / RING_CHUNK),
        filled = 0;
    pipeline_state at = {0, 0};
    for (int work = blockIdx.x; work < n_work; work += gridDim.x)
        for (int nth = 0, last = 0; !last && nth < n_chunks; nth++, filled++, pipeline_advance(at, RING_STAGES)) {
            if (filled == RING_STAGES)
                copy_late_x(job, ring, filled);
            if (filled >= RING_STAGES)
                mbarrier_wait(&ring->empty[at.stage], at.parity ^ 1);
            describe_stage(job, ring, at.stage, work, nth);
            last = ring->stage[at.stage].last;
            copy_a(job, ring, at.stage);
            if (filled >= RING_STAGES)
                copy_x(job, ring, at.stage);
        }
    if (filled <= RING_STAGES)
        copy_late_x(job, ring, filled);
    if (filled >= RING_STAGES)
        mbarrier_wait(&ring->empty[at.stage], at.parity ^ 1);
    if ((threadIdx.x & 31) == 0)
        ring->stage[at.stage].tile = -1;
    mbarrier_arrive(&ring->full[at.stage]);
}

/* The sums of a work item. [h]: over even and odd 16s of inputs, so that consecutive products are independent; [half]:
 * of ranks 0 to 15 and 16 to 23, or of rows 0 to 7 and 8 to 15 where the tile has more than 8. */
typedef struct { float at[2][2][4]; } shrink_sums;

/* Adds the products of one stage. mma's m (16) counts ranks, its n (8) rows of x. Of the stage's 32 rows, the first 16
 * are ranks, the third 8 are ranks or, with MANY_ROWS, rows of x, and the fourth 8 are the last rows of x. MANY_ROWS:
 * the tile has more than 8. */
template <typename T, bool MANY_ROWS>
static __device__ __forceinline__ void multiply_shrink_stage(shrink_sums &d, const shrink_stage *stage)
{
    int n_k = stage->n_k, i = (threadIdx.x & 31) >> 3, j = threadIdx.x & 7;
    const char *a = stage->rows[(i & 1) * 8 + j] + (i >> 1) * 16;
    const char *third = stage->rows[16 + j] + i * 16, *fourth = stage->rows[24 + j] + i * 16;
#pragma unroll 2
    for (int k = 0; k < n_k; k += 32, a += 64, third += 64, fourth += 64) {
        unsigned first_16[2][4], third_8[4], fourth_8[4];
        load_matrices(first_16[0], a);
        load_matrices(fourth_8, fourth);
        load_matrices(first_16[1], a + 32);
        load_matrices(third_8, third);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const unsigned last_ranks[4] = {third_8[2 * h], 0, third_8[2 * h + 1], 0};
            mma<T>(d.at[h][0], first_16[h], (MANY_ROWS ? third_8 : fourth_8) + 2 * h);
            mma<T>(d.at[h][1], MANY_ROWS ? first_16[h] : last_ranks, fourth_8 + 2 * h);
        }
    }
}

/* Stores the sums of a work item and clears them. */
static __device__ __forceinline__ void store_work(const shrink_job &job, const shrink_tile &t,
                                                  const shrink_stage *stage, shrink_sums &d)
{
    int g = (threadIdx.x & 31) >> 2, pair = 2 * (threadIdx.x & 3);
    bool many_rows = t.n_rows > 8;
    float *v = job.v_partials + ((size_t)stage->split * FUSED_ROWS + t.row) * job.v_stride;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float sum = d.at[0][half][i] + d.at[1][half][i];
            int rank = g + 4 * (i & 2) + (many_rows ? 0 : 16 * half), r = stage->rank + rank;
            int row = pair + (i & 1) + (many_rows ? 8 * half : 0);
            if (row < t.n_rows && rank < RING_MAX_RANKS && r < rank_sum(t))
                v[(size_t)row * job.v_stride + r] = sum * t.scale[part_of(t, r)];
            d.at[0][half][i] = d.at[1][half][i] = 0.0f;
        }
}

/* The consumer warp. Counts this block in *arrivals once all its sums are stored. */
template <typename T> static __device__ void shrink_consumer(const shrink_job &job, shrink_ring *ring)
{
    shrink_sums d = {};
    wait_for_previous();
    for (pipeline_state at = {0, 0};; pipeline_advance(at, RING_STAGES)) {
        const shrink_stage *stage = &ring->stage[at.stage];
        mbarrier_wait(&ring->full[at.stage], at.parity);
        __syncwarp();
        if (stage->tile < 0)
            break;
        const shrink_tile &t = ring->tile[stage->tile];
        if (t.n_rows > 8)
            multiply_shrink_stage<T, true>(d, stage);
        else
            multiply_shrink_stage<T, false>(d, stage);
        if (stage->last)
            store_work(job, t, stage, d);
        mbarrier_arrive(&ring->empty[at.stage]);
    }
    __syncwarp();
    if ((threadIdx.x & 31) == 0)
        asm volatile("red.release.gpu.global.add.s32 [%0], 1;" : : "l"(job.arrivals) : "memory");
}

#endif
#endif
