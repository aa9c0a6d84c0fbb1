/* linear_shrink.cuh - SGMV shrink in pieces, to be summed by who reads v
 *
 *   v_partials[s][row, offset of part i + r] = scale_i * sum over k in piece s of x[row, k] A_i[r, k]
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
    int *arrivals; /* counts blocks whose part of v is stored */
    int site, in;
    int n_pieces, piece;
    int v_stride; /* floats from row to row of v_partials */
} shrink_job;

/* An adapter's rows, and what it has for the site. */
typedef struct {
    const void *a[MAX_PARTS];
    float scale[MAX_PARTS];
    int end[MAX_PARTS]; /* ranks of parts up to this one */
    int row, n_rows;
    int tasks_upto; /* of this tile and those before */
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

/* Ranks of all parts. */
static __device__ __forceinline__ int rank_sum(const shrink_tile &t)
{
    return t.end[MAX_PARTS - 1];
}

static __device__ __forceinline__ int part_of(const shrink_tile &t, int rank)
{
    return rank < t.end[0] ? 0 : rank < t.end[1] ? 1 : 2;
}

/* Row `rank` of A. */
template <typename T> static __device__ __forceinline__ const T *a_row(const shrink_tile &t, int rank, int in)
{
    int part = part_of(t, rank);
    return (const T *)t.a[part] + (size_t)(rank - (part > 0 ? t.end[part - 1] : 0)) * in;
}

/* The sums of a 16 x 8 product, rows by ranks from `rank` on. */
static __device__ __forceinline__ void store_v(const shrink_job &job, const shrink_tile &t, int piece, int rank,
                                               const float d[4])
{
    int lane = threadIdx.x & 31;
    float *v = job.v_partials + ((size_t)piece * FUSED_ROWS + t.row) * job.v_stride;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + 4 * (i & 2), r = rank + lane % 4 * 2 + (i & 1);
        if (row < t.n_rows && r < rank_sum(t))
            v[(size_t)row * job.v_stride + r] = d[i] * t.scale[part_of(t, r)];
    }
}

/* 8 numbers of a row from k on, zeros from `until` on. WIDE: rows are whole 16-byte vectors. */
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

/* One warp: 8 ranks of a tile over one piece, straight from global memory. The order of inputs within 32 does
 * not matter to the sum, so lane 4 g + t feeds the 8 neighbours from 8 t on that it loads at once, of A and
 * x alike. */
template <typename T, bool WIDE>
static __device__ void shrink_ranks(const shrink_job &job, const shrink_tile &tile, int piece, int rank)
{
    int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3, n_rows = tile.n_rows;
    int from = piece * job.piece, until = min(job.in, from + job.piece);
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
    store_v(job, tile, piece, rank, d);
}

/* The same beside a dense product. What a multiprocessor asks for then waits behind all that the product has
 * asked for, several us: nothing is read in the course of it but by copies ahead. One warp puts the tiles'
 * descriptions into shared memory and then copies into a ring, one multiplies. A task is (tile, up to 16 or 24
 * ranks, piece), numbered in this order with pieces innermost; a block takes every gridDim.x-th. A stage is up
 * to SHRINK_CHUNK inputs of 32 rows: x's 16 or 8, after those of A. */
enum {
    SHRINK_CHUNK = 512,
    SHRINK_ROW = 2 * SHRINK_CHUNK + 16, /* bytes; 16 more, so that 8 rows meet no bank twice */
    SHRINK_STAGES = 2,
};

typedef struct alignas(16) {
    char rows[32][SHRINK_ROW];
    int tile, rank, piece; /* tile -1: the end */
    int k, n_k;            /* inputs */
    bool last;             /* of the task */
} shrink_stage;

typedef struct {
    shrink_stage stage[SHRINK_STAGES];
    shrink_tile tile[FUSED_ROWS];
    uint64_t full[SHRINK_STAGES], empty[SHRINK_STAGES];
} shrink_ring;

enum { SHRINK_SHARED = sizeof(shrink_ring) };

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

static __device__ __forceinline__ void shrink_ring_init(shrink_ring *ring)
{
    for (int i = 0; i < SHRINK_STAGES; i++) {
        mbarrier_init(&ring->full[i], 32); /* all lanes arrive: what each wrote or read is then done */
        mbarrier_init(&ring->empty[i], 32);
    }
}

static __device__ __forceinline__ int ranks_at_once(const shrink_tile &t)
{
    return t.n_rows > 8 ? 16 : 24;
}

/* Put the tiles into shared memory, one per lane; the number of all tasks. */
static __device__ __forceinline__ int describe_tiles(const shrink_job &job, shrink_ring *ring)
{
    int n_tiles = min(*job.n_tiles, (int)FUSED_ROWS), lane = threadIdx.x & 31, upto = 0;
    for (int first = 0; first < n_tiles; first += 32) {
        shrink_tile t = tile_at(job, min(first + lane, n_tiles - 1));
        int step = ranks_at_once(t), n = first + lane < n_tiles ? (rank_sum(t) + step - 1) / step * job.n_pieces : 0;
        for (int i = 1; i < 32; i *= 2) {
            int below = __shfl_up_sync(0xffffffffu, n, i);
            n += lane >= i ? below : 0;
        }
        t.tasks_upto = upto + n;
        if (first + lane < n_tiles)
            ring->tile[first + lane] = t;
        upto = __shfl_sync(0xffffffffu, upto + n, 31);
    }
    __syncwarp();
    return upto;
}

/* The tile a task belongs to: the first with more tasks up to it. */
static __device__ __forceinline__ int tile_of(const shrink_ring *ring, int task)
{
    int lane = threadIdx.x & 31, tile = 0;
    for (;; tile += 32) {
        unsigned past =
            __ballot_sync(0xffffffffu, tile + lane < FUSED_ROWS && ring->tile[tile + lane].tasks_upto > task);
        if (past)
            return tile + __ffs((int)past) - 1;
    }
}

/* What a stage is to hold; its first row and inputs are those of a task. */
static __device__ __forceinline__ void describe_stage(const shrink_job &job, shrink_ring *ring, int slot, int task,
                                                      int nth)
{
    shrink_stage *s = &ring->stage[slot];
    int index = tile_of(ring, task);
    const shrink_tile &t = ring->tile[index];
    int before = index > 0 ? ring->tile[index - 1].tasks_upto : 0, piece = task % job.n_pieces;
    int from = piece * job.piece, until = min(job.in, from + job.piece), k = from + nth * SHRINK_CHUNK;
    __syncwarp();
    if ((threadIdx.x & 31) == 0) {
        s->tile = index;
        s->rank = (task - before) / job.n_pieces * ranks_at_once(t);
        s->piece = piece;
        s->k = k;
        s->n_k = max(0, min((int)SHRINK_CHUNK, until - k));
        s->last = k + SHRINK_CHUNK >= until;
        mbarrier_arrive_expect_tx(&ring->full[slot],
                                  (min(ranks_at_once(t), rank_sum(t) - s->rank) + t.n_rows) * 2 * s->n_k);
    } else {
        mbarrier_arrive(&ring->full[slot]);
    }
    __syncwarp();
}

/* Rows of A, and rows of x, of a stage: one per lane. */
static __device__ __forceinline__ void copy_a(const shrink_job &job, shrink_ring *ring, int slot)
{
    shrink_stage *s = &ring->stage[slot];
    const shrink_tile &t = ring->tile[s->tile];
    int lane = threadIdx.x & 31;
    if (lane < min(ranks_at_once(t), rank_sum(t) - s->rank) && s->n_k > 0)
        bulk_copy(s->rows[lane], a_row<f16>(t, s->rank + lane, job.in) + s->k, 2 * s->n_k, &ring->full[slot]);
}

static __device__ __forceinline__ void copy_x(const shrink_job &job, shrink_ring *ring, int slot)
{
    shrink_stage *s = &ring->stage[slot];
    const shrink_tile &t = ring->tile[s->tile];
    int lane = threadIdx.x & 31;
    if (lane < t.n_rows && s->n_k > 0)
        bulk_copy(s->rows[ranks_at_once(t) + lane], (const f16 *)job.x + (size_t)(t.row + lane) * job.in + s->k,
                  2 * s->n_k, &ring->full[slot]);
}

/* x was not there when the first stages were filled: it is now. */
static __device__ __forceinline__ void copy_late_x(const shrink_job &job, shrink_ring *ring, int n_filled)
{
    wait_for_previous();
    for (int i = 0; i < n_filled; i++)
        copy_x(job, ring, i);
}

/* The copying warp. */
static __device__ void shrink_producer(const shrink_job &job, shrink_ring *ring)
{
    int n_tasks = describe_tiles(job, ring), n_chunks = max(1, (job.piece + SHRINK_CHUNK - 1) / SHRINK_CHUNK),
        filled = 0;
    pipeline_state at = {0, 0};
    for (int task = blockIdx.x; task < n_tasks; task += gridDim.x)
        for (int nth = 0, last = 0; !last && nth < n_chunks; nth++, filled++, pipeline_advance(at, SHRINK_STAGES)) {
            if (filled == SHRINK_STAGES)
                copy_late_x(job, ring, filled);
            if (filled >= SHRINK_STAGES)
                mbarrier_wait(&ring->empty[at.slot], at.parity ^ 1);
            describe_stage(job, ring, at.slot, task, nth);
            last = ring->stage[at.slot].last;
            copy_a(job, ring, at.slot);
            if (filled >= SHRINK_STAGES)
                copy_x(job, ring, at.slot);
        }
    if (filled <= SHRINK_STAGES)
        copy_late_x(job, ring, filled);
    if (filled >= SHRINK_STAGES)
        mbarrier_wait(&ring->empty[at.slot], at.parity ^ 1);
    if ((threadIdx.x & 31) == 0)
        ring->stage[at.slot].tile = -1;
    mbarrier_arrive(&ring->full[at.slot]);
}

/* d[h][j] += rows of x by ranks 8 j ..; every other 16 inputs of a stage each. */
template <typename T>
static __device__ __forceinline__ void multiply_shrink_stage(float (&d)[2][3][4], const shrink_stage *stage, int step)
{
    int n_k = stage->n_k, i = (threadIdx.x & 31) >> 3, j = threadIdx.x & 7;
    const char *x = stage->rows[step + (step == 16 ? (i & 1) * 8 : 0) + j] + (i >> 1) * 16;
    const char *a = stage->rows[(i >> 1) * 8 + j] + (i & 1) * 16, *a_last = stage->rows[16 + j] + i * 16;
#pragma unroll 1
    for (int k = 0; k < n_k; k += 32, x += 64, a += 64, a_last += 64) {
        unsigned xs[2][4], as[2][4], last[4];
        load_matrices(xs[0], x);
        load_matrices(as[0], a);
        load_matrices(last, a_last);
        load_matrices(xs[1], x + 32);
        load_matrices(as[1], a + 32);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            mma<T>(d[h][0], xs[h], as[h]);
            mma<T>(d[h][1], xs[h], as[h] + 2);
            mma<T>(d[h][2], xs[h], last + 2 * h);
        }
    }
}

/* Store a task's sums and begin anew. */
static __device__ __forceinline__ void store_task(const shrink_job &job, const shrink_tile &t,
                                                  const shrink_stage *stage, float (&d)[2][3][4])
{
    int step = ranks_at_once(t);
#pragma unroll
    for (int j = 0; j < 3; j++) {
        for (int i = 0; i < 4; i++)
            d[0][j][i] += d[1][j][i];
        if (8 * j < step)
            store_v(job, t, stage->piece, stage->rank + 8 * j, d[0][j]);
        for (int i = 0; i < 4; i++)
            d[0][j][i] = d[1][j][i] = 0.0f;
    }
}

/* The multiplying warp. When all v of this block is stored, it arrives. */
template <typename T> static __device__ void shrink_consumer(const shrink_job &job, shrink_ring *ring)
{
    float d[2][3][4] = {};
    wait_for_previous();
    for (pipeline_state at = {0, 0};; pipeline_advance(at, SHRINK_STAGES)) {
        const shrink_stage *stage = &ring->stage[at.slot];
        mbarrier_wait(&ring->full[at.slot], at.parity);
        __syncwarp();
        if (stage->tile < 0)
            break;
        const shrink_tile &t = ring->tile[stage->tile];
        multiply_shrink_stage<T>(d, stage, ranks_at_once(t));
        if (stage->last)
            store_task(job, t, stage, d);
        mbarrier_arrive(&ring->empty[at.slot]);
    }
    __syncwarp();
    if ((threadIdx.x & 31) == 0)
        asm volatile("red.release.gpu.global.add.s32 [%0], 1;" : : "l"(job.arrivals) : "memory");
}

#endif
#endif
