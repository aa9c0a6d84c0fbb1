/* linear_shrink.cuh - SGMV shrink in pieces, to be summed by who reads v
 *
 *   v_parts[s][row, offset of part i + r] = scale_i * sum over k in piece s of x[row, k] A_i[r, k]
 *
 * A unit is (tile, piece): the rows of one adapter, all its ranks, one piece of the input dimension. A
 * block takes every so-manyth unit. Ranks are numbered through the three parts, as they stand in v. */
#ifndef PUNICA_BACKEND_CUDA_LINEAR_SHRINK_CUH
#define PUNICA_BACKEND_CUDA_LINEAR_SHRINK_CUH

#include "backend/cuda/linear_hopper.cuh"

typedef struct {
    const sgmv_tile *tile;
    const int *n_tiles;
    const void *x;              /* [rows, in] */
    float *v_parts;
    int site, in;
    int n_pieces, piece;
    int v_stride;               /* floats from row to row of v_parts */
} shrink_job;

typedef struct {
    const void *a[3];
    float scale[3];
    int end[3];                 /* ranks of parts up to this one */
    int row, n_rows;
    int from, to;               /* inputs */
    int piece;
} shrink_unit;

static __device__ __forceinline__ int unit_count(const shrink_job &job)
{
    return *job.n_tiles * job.n_pieces;
}

static __device__ __forceinline__ shrink_unit unit_at(const shrink_job &job, int index)
{
    const sgmv_tile tile = job.tile[index / job.n_pieces];
    const lora_entry *entry = tile.table + job.site;
    shrink_unit u;
    for (int i = 0, end = 0; i < 3; i++) {
        u.a[i] = entry->a[i];
        u.scale[i] = entry->scale[i];
        u.end[i] = end += entry->rank[i];
    }
    u.row = tile.row;
    u.n_rows = tile.n_rows;
    u.piece = index % job.n_pieces;
    u.from = min(job.in, u.piece * job.piece);
    u.to = min(job.in, u.from + job.piece);
    return u;
}

static __device__ __forceinline__ int part_of(const shrink_unit &u, int rank)
{
    return rank < u.end[0] ? 0 : rank < u.end[1] ? 1 : 2;
}

/* Row `rank` of A. */
template <typename T> static __device__ __forceinline__ const T *a_row(const shrink_unit &u, int rank, int in)
{
    int part = part_of(u, rank), before = part == 0 ? 0 : part == 1 ? u.end[0] : u.end[1];
    const void *a = part == 0 ? u.a[0] : part == 1 ? u.a[1] : u.a[2];
    return (const T *)a + (size_t)(rank - before) * in;
}

static __device__ __forceinline__ float scale_of(const shrink_unit &u, int rank)
{
    int part = part_of(u, rank);
    return part == 0 ? u.scale[0] : part == 1 ? u.scale[1] : u.scale[2];
}

/* The sums of a 16 x 8 product, rows by ranks from `rank` on. */
static __device__ __forceinline__ void store_v(const shrink_job &job, const shrink_unit &u, int rank, const float d[4])
{
    int lane = threadIdx.x & 31;
    float *v = job.v_parts + ((size_t)u.piece * FUSED_ROWS + u.row) * job.v_stride;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + 4 * (i & 2), r = rank + lane % 4 * 2 + (i & 1);
        if (row < u.n_rows && r < u.end[2])
            v[(size_t)row * job.v_stride + r] = d[i] * scale_of(u, r);
    }
}

/* 8 numbers of a row from k on, zeros from `to` on. WIDE: rows are whole 16-byte vectors. */
template <typename T, bool WIDE> static __device__ __forceinline__ uint4 load_8(const T *row, int k, int to)
{
    if constexpr (WIDE) {
        return k < to ? *(const uint4 *)(row + k) : make_uint4(0, 0, 0, 0);
    } else {
        vec<T, 8> v;
        for (int i = 0; i < 8; i++)
            v.at[i] = k + i < to ? row[k + i] : from_float<T>(0.0f);
        return *(const uint4 *)&v;
    }
}

/* One warp: 8 ranks of a unit straight from global memory. The order of inputs within 32 does not matter to
 * the sum, so lane 4 g + t feeds the 8 neighbours from 8 t on that it loads at once, of A and x alike. */
template <typename T, bool WIDE> static __device__ void shrink_ranks(const shrink_job &job, const shrink_unit &u, int rank)
{
    int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
    const T *x = (const T *)job.x + (size_t)(u.row + g) * job.in, *a = a_row<T>(u, rank + g, job.in);
    bool there = rank + g < u.end[2], lo = g < u.n_rows, hi = g + 8 < u.n_rows;
    float d[4] = {};
#pragma unroll 4
    for (int k = u.from + 8 * t; k < u.to + 8 * t; k += 32) {
        uint4 w = load_8<T, WIDE>(a, k, there ? u.to : 0), x_lo = load_8<T, WIDE>(x, k, lo ? u.to : 0);
        uint4 x_hi = load_8<T, WIDE>(x + (size_t)8 * job.in, k, hi ? u.to : 0);
        unsigned x0[4] = {x_lo.x, x_hi.x, x_lo.y, x_hi.y}, w0[2] = {w.x, w.y};
        unsigned x1[4] = {x_lo.z, x_hi.z, x_lo.w, x_hi.w}, w1[2] = {w.z, w.w};
        mma<T>(d, x0, w0);
        mma<T>(d, x1, w1);
    }
    store_v(job, u, rank, d);
}

/* The same beside a dense product that keeps memory busy: latencies are long there, so one warp copies ahead
 * into a ring of shared memory and one multiplies. A stage is SHRINK_CHUNK inputs of 32 rows: of x 8 or 16,
 * the rest ranks of A. */
enum {
    SHRINK_CHUNK = 256,
    SHRINK_ROW = 2 * SHRINK_CHUNK + 16,         /* bytes; 16 more, so that 8 rows meet no bank twice */
    SHRINK_STAGE = 32 * SHRINK_ROW,
    SHRINK_STAGES = 3,
};

typedef struct {
    char stage[SHRINK_STAGES][SHRINK_STAGE];
    uint64_t full[SHRINK_STAGES], empty[SHRINK_STAGES];
} shrink_ring;

enum { SHRINK_SHARED = sizeof(shrink_ring) };

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

typedef struct { int slot, parity; } shrink_place;

static __device__ __forceinline__ void shrink_ring_set(shrink_ring *ring)
{
    for (int i = 0; i < SHRINK_STAGES; i++) {
        barrier_set(&ring->full[i], 1);
        barrier_set(&ring->empty[i], 1);
    }
}

static __device__ __forceinline__ void next_place(shrink_place &at)
{
    if (++at.slot == SHRINK_STAGES) {
        at.slot = 0;
        at.parity ^= 1;
    }
}

static __device__ __forceinline__ int ranks_at_once(const shrink_unit &u)
{
    return u.n_rows > 8 ? 16 : 24;
}

/* What another lane holds. */
static __device__ __forceinline__ shrink_unit unit_of_lane(const shrink_unit &u, int lane)
{
    shrink_unit v;
    for (int i = 0; i < 3; i++) {
        v.a[i] = (const void *)__shfl_sync(0xffffffffu, (unsigned long long)u.a[i], lane);
        v.scale[i] = __shfl_sync(0xffffffffu, u.scale[i], lane);
        v.end[i] = __shfl_sync(0xffffffffu, u.end[i], lane);
    }
    v.row = __shfl_sync(0xffffffffu, u.row, lane);
    v.n_rows = __shfl_sync(0xffffffffu, u.n_rows, lane);
    v.from = __shfl_sync(0xffffffffu, u.from, lane);
    v.to = __shfl_sync(0xffffffffu, u.to, lane);
    v.piece = __shfl_sync(0xffffffffu, u.piece, lane);
    return v;
}

/* Ask for a unit's A in L2, a row per lane. */
static __device__ __forceinline__ void prefetch_unit(const shrink_job &job, const shrink_unit &u)
{
    for (int r = threadIdx.x & 31; r < u.end[2] && u.from < u.to; r += 32)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
                     :: "l"(a_row<f16>(u, r, job.in) + u.from), "r"(2 * (u.to - u.from)) : "memory");
}

static __device__ __forceinline__ void copy_unit(const shrink_job &job, shrink_ring *ring, const shrink_unit &u, shrink_place &at)
{
    int lane = threadIdx.x & 31, step = ranks_at_once(u);
    for (int rank = 0; rank < u.end[2]; rank += step)
        for (int k = u.from; k < u.to; k += SHRINK_CHUNK, next_place(at)) {
            int n = min(step, u.end[2] - rank), bytes = 2 * min((int)SHRINK_CHUNK, u.to - k), row = lane - step;
            barrier_wait(&ring->empty[at.slot], at.parity ^ 1);
            if (lane == 0)
                expect_bytes(&ring->full[at.slot], (n + u.n_rows) * bytes);
            __syncwarp();
            const f16 *from = row < 0 ? a_row<f16>(u, rank + lane, job.in) : (const f16 *)job.x + (size_t)(u.row + row) * job.in;
            if (row < 0 ? lane < n : row < u.n_rows)
                copy_row(ring->stage[at.slot] + lane * SHRINK_ROW, from + k, bytes, &ring->full[at.slot]);
        }
}

/* d[j] += rows of x by ranks 8 j ..; over one stage. */
template <typename T>
static __device__ __forceinline__ void multiply_stage(float (&d)[3][4], const char *stage, int n_k, int step)
{
    int i = (threadIdx.x & 31) >> 3, j = threadIdx.x & 7;
    const char *x = stage + (step + (step == 16 ? (i & 1) * 8 : 0) + j) * SHRINK_ROW + (i >> 1) * 16;
    const char *a = stage + ((i >> 1) * 8 + j) * SHRINK_ROW + (i & 1) * 16, *a_last = stage + (16 + j) * SHRINK_ROW + i * 16;
    for (int k = 0; k < n_k; k += 32, x += 64, a += 64, a_last += 64) {
        unsigned xs[2][4], as[2][4], last[4];
        load_matrices(xs[0], x);
        load_matrices(xs[1], x + 32);
        load_matrices(as[0], a);
        load_matrices(as[1], a + 32);
        load_matrices(last, a_last);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            mma<T>(d[0], xs[h], as[h]);
            mma<T>(d[1], xs[h], as[h] + 2);
            mma<T>(d[2], xs[h], last + 2 * h);
        }
    }
}

template <typename T>
static __device__ __forceinline__ void multiply_unit(const shrink_job &job, shrink_ring *ring, const shrink_unit &u, shrink_place &at)
{
    int step = ranks_at_once(u);
    for (int rank = 0; rank < u.end[2]; rank += step) {
        float d[3][4] = {};
        for (int k = u.from; k < u.to; k += SHRINK_CHUNK, next_place(at)) {
            barrier_wait(&ring->full[at.slot], at.parity);
            multiply_stage<T>(d, ring->stage[at.slot], min((int)SHRINK_CHUNK, u.to - k), step);
            __syncwarp();
            if ((threadIdx.x & 31) == 0)
                barrier_arrive(&ring->empty[at.slot]);
        }
#pragma unroll
        for (int j = 0; j < 3; j++)
            if (8 * j < step)
                store_v(job, u, rank + 8 * j, d[j]);
    }
}

/* The copying warp, and the multiplying one. A lane looks up one unit, for all at once. */
static __device__ void shrink_copier(const shrink_job &job, shrink_ring *ring)
{
    int n_units = unit_count(job), lane = threadIdx.x & 31;
    shrink_place at = {0, 0};
    bool waited = false;
    for (int first = blockIdx.x; first < n_units; first += 32 * gridDim.x) {
        int mine = first + lane * gridDim.x, n = min(32, (n_units - first + (int)gridDim.x - 1) / (int)gridDim.x);
        shrink_unit u = unit_at(job, min(mine, n_units - 1));
        for (int i = 0; i < n && !waited; i++)
            prefetch_unit(job, unit_of_lane(u, i));
        if (!waited)
            wait_for_previous();
        waited = true;
        for (int i = 0; i < n; i++)
            copy_unit(job, ring, unit_of_lane(u, i), at);
    }
}

template <typename T> static __device__ void shrink_multiplier(const shrink_job &job, shrink_ring *ring)
{
    int n_units = unit_count(job), lane = threadIdx.x & 31;
    shrink_place at = {0, 0};
    for (int first = blockIdx.x; first < n_units; first += 32 * gridDim.x) {
        int mine = first + lane * gridDim.x, n = min(32, (n_units - first + (int)gridDim.x - 1) / (int)gridDim.x);
        shrink_unit u = unit_at(job, min(mine, n_units - 1));
        wait_for_previous();
        for (int i = 0; i < n; i++)
            multiply_unit<T>(job, ring, unit_of_lane(u, i), at);
    }
}

#endif
#endif
