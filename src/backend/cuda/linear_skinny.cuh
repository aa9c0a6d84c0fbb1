/* linear_skinny.cuh - y = x W^T + bias for few rows of x: a stream of weights at memory bandwidth (sm_90a)
 *
 *   W [n, k]                               a block: tile_rows rows of W times its share of k
 *   +--------- k ---------+                  producer   one thread: boxes of W and x into the ring
 *   | tile 0: b0 | b1     |                  consumers  a warpgroup per 64 rows: wgmma, W's rows as the
 *   | tile 1: b2 | b3     |                             64-row operand, rows of x as columns (8 .. 128)
 *   | ...                 |                  shrinkers  SHRINK_WARPS warps, where adapters ride along
 *   +---------------------+
 *
 * The ring fills most of shared memory, so that each multiprocessor has some 200 KB on their way. Weights
 * do not depend on the kernel before: the ring is filled with them before wait_for_previous(), and only x
 * follows after it.
 *
 * x is read once by every block: tall tiles are cheaper. Where a tile per multiprocessor would be low, the
 * blocks of a cluster share a taller one and each takes a part of k. They send their sums to each other's
 * shared memory, every 8 rows to one of them, which adds them up in order of rank. Where W has more tiles
 * than the chip has multiprocessors, a block takes several in turn and the ring runs on across them. */
#ifndef PUNICA_BACKEND_CUDA_LINEAR_SKINNY_CUH
#define PUNICA_BACKEND_CUDA_LINEAR_SKINNY_CUH

#include "backend/cuda/linear_hopper.cuh"
#include "backend/cuda/linear_shrink.cuh"

enum {
    SKINNY_ROWS = 128,          /* of x, at most */
    SKINNY_TILE = 256,          /* rows of W, at most */
    SKINNY_THREADS = SKINNY_TILE / 64 * 128 + 32 + SHRINK_WARPS * 32,
    BOX = 64,                   /* numbers of k in one box */
    BOX_ROW = 128,              /* bytes of a box's row */
};

typedef struct {
    void *y;                    /* [m, ldy] */
    const float *bias;          /* [n], or NULL */
    int m, n, k, ldy;
    bool f32;                   /* y is F32, not the act type */
    bool paired, wide;          /* y may be written in 2, in 8 numbers at a time */
    int tile_rows, n_tiles;     /* tile_rows: a multiple of 8 */
    int splits;                 /* blocks of a cluster, each with a part of k; more than 1: one tile per cluster */
    int boxes;                  /* of 64 along k in one stage of the ring */
    int n_stages;
    int n_shrinkers;            /* warps: 0 or SHRINK_WARPS */
} skinny_job;

/* Groups of 8 rows of a tile that one block of the cluster adds up, at most. */
static __host__ __device__ __forceinline__ int groups_each(const skinny_job &job)
{
    return (job.tile_rows / 8 + job.splits - 1) / job.splits;
}

/* What the blocks of a cluster send each: [splits, groups_each, 8, m rounded up to 8] floats. */
static __host__ __device__ __forceinline__ int landing_bytes(const skinny_job &job)
{
    return job.splits > 1 ? job.splits * groups_each(job) * 8 * ((job.m + 7) / 8 * 8) * (int)sizeof(float) : 0;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Shared memory: W boxes of all stages, x boxes of all stages, sums from the cluster, then two barriers of
 * 8 bytes per stage and one for the sums. */
typedef struct { unsigned w, x, landing, full, empty, landed, w_stage, x_stage; } ring;

template <int M> static __device__ __forceinline__ ring ring_at(const skinny_job &job, unsigned base)
{
    ring r;
    r.w_stage = job.boxes * job.tile_rows * BOX_ROW;
    r.x_stage = job.boxes * M * BOX_ROW;
    r.w = base;
    r.x = r.w + job.n_stages * r.w_stage;
    r.landing = r.x + job.n_stages * r.x_stage;
    r.full = r.landing + landing_bytes(job);
    r.empty = r.full + 8 * job.n_stages;
    r.landed = r.empty + 8 * job.n_stages;
    return r;
}

/* A walk over this block's stages: tiles in turn, its boxes of k within each. */
typedef struct { int tile, box, slot, parity; } cursor;

typedef struct { int first_tile, tile_step, from, to; } share;

static __device__ __forceinline__ share share_of(const skinny_job &job)
{
    int n_boxes = (job.k + BOX - 1) / BOX, rank = blockIdx.x % job.splits;
    share s;
    s.first_tile = blockIdx.x / job.splits;
    s.tile_step = gridDim.x / job.splits;
    s.from = rank * n_boxes / job.splits;
    s.to = (rank + 1) * n_boxes / job.splits;
    return s;
}

static __device__ __forceinline__ void advance_slot(const skinny_job &job, cursor &c)
{
    if (++c.slot == job.n_stages) {
        c.slot = 0;
        c.parity ^= 1;
    }
}

static __device__ __forceinline__ void advance(const skinny_job &job, const share &s, cursor &c)
{
    c.box += job.boxes;
    if (c.box >= s.to) {
        c.box = s.from;
        c.tile += s.tile_step;
    }
    advance_slot(job, c);
}

static __device__ __forceinline__ int boxes_at(const skinny_job &job, const share &s, int box)
{
    return s.to - box < job.boxes ? s.to - box : job.boxes;
}

/* Announce the whole stage, W and x, and send for W. */
template <int M>
static __device__ __forceinline__ void load_w(const skinny_job &job, const share &s, const ring &r, const cursor &c,
                                              const CUtensorMap *map, uint64_t policy)
{
    int n = boxes_at(job, s, c.box);
    unsigned barrier = r.full + 8 * c.slot;
    barrier_expect(barrier, n * (job.tile_rows + M) * BOX_ROW);
#pragma unroll 1
    for (int i = 0; i < n; i++)
        copy_box(r.w + c.slot * r.w_stage + i * job.tile_rows * BOX_ROW, map, c.tile * job.tile_rows, (c.box + i) * BOX,
                 barrier, policy);
}

template <int M>
static __device__ __forceinline__ void load_x(const skinny_job &job, const share &s, const ring &r, const cursor &c,
                                              const CUtensorMap *map, uint64_t policy)
{
    int n = boxes_at(job, s, c.box);
#pragma unroll 1
    for (int i = 0; i < n; i++)
        copy_box(r.x + c.slot * r.x_stage + i * M * BOX_ROW, map, 0, (c.box + i) * BOX, r.full + 8 * c.slot, policy);
}

/* The producer: one thread. */
template <int M>
static __device__ void produce(const skinny_job &job, const share &s, const ring &r, const CUtensorMap *w_map,
                               const CUtensorMap *x_map)
{
    uint64_t once = policy_read_once(), keep = policy_keep();
    cursor w = {s.first_tile, s.from, 0, 0}, x = w;
    int filled = 0;
    for (; filled < job.n_stages && w.tile < job.n_tiles; filled++, advance(job, s, w))
        load_w<M>(job, s, r, w, w_map, once);
    let_next_start();
    wait_for_previous();
    for (; filled > 0; filled--, advance(job, s, x))
        load_x<M>(job, s, r, x, x_map, keep);
    for (; w.tile < job.n_tiles; advance(job, s, w)) {
        barrier_wait(r.empty + 8 * w.slot, w.parity ^ 1);
        load_w<M>(job, s, r, w, w_map, once);
        load_x<M>(job, s, r, w, x_map, keep);
    }
}

/* acc [64, M] += 64 rows of W times x, over one stage. */
template <typename T, int M>
static __device__ __forceinline__ void multiply(float (&acc)[M / 2], uint64_t w, uint64_t x, int n_boxes, int tile_rows)
{
    constexpr int N = M < 32 ? 8 : M < 64 ? 32 : 64;
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
}

/* All stages of one tile. */
template <typename T, int M>
static __device__ __forceinline__ void multiply_tile(const skinny_job &job, const share &s, const ring &r, cursor &c,
                                                     float (&acc)[M / 2], int block_row)
{
    int lane = threadIdx.x & 31;
    for (int box = s.from; box < s.to; box += job.boxes) {
        barrier_wait(r.full + 8 * c.slot, c.parity);
        multiply<T, M>(acc, operand(r.w + c.slot * r.w_stage + block_row * BOX_ROW), operand(r.x + c.slot * r.x_stage),
                       boxes_at(job, s, box), job.tile_rows);
        wgmma_commit();
        wgmma_wait<0>();
        if (lane == 0)
            barrier_arrive(r.empty + 8 * c.slot);
        advance_slot(job, c);
    }
}

/* y of 16 rows of W (from n0, up to n1) straight from a warp's accumulators, for F32. */
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

/* The same for the act type: 8 x 8 transposes bring neighbours in y together. */
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

/* Send a warp's sums, two groups of 8 rows from `group` on, to the blocks that own them. */
template <int M>
static __device__ __forceinline__ void send_sums(const skinny_job &job, const ring &r, const float (&acc)[M / 2], int group)
{
    int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3, m = (job.m + 7) / 8 * 8, rank = blockIdx.x % job.splits;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int mine = group + h, owner = mine % job.splits, place = rank * groups_each(job) + mine / job.splits;
        if (mine * 8 >= job.tile_rows)
            break;
        unsigned to = address_at(r.landing + ((place * 8 + g) * m + 2 * t) * 4, owner), barrier = address_at(r.landed, owner);
#pragma unroll
        for (int j = 0; j < M / 8; j++)
            if (8 * j < m)
                send_2(to + 32 * j, acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1], barrier);
    }
}

/* Groups of 8 rows that this block owns. */
static __device__ __forceinline__ int groups_owned(const skinny_job &job)
{
    return (job.tile_rows / 8 - (int)(blockIdx.x % job.splits) + job.splits - 1) / job.splits;
}

template <typename O> static __device__ __forceinline__ void store_8(const skinny_job &job, int row, int n, float (&v)[8])
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

/* Add up what the blocks of the cluster sent, in order of rank; a thread owns 8 outputs of a row at a time. */
template <typename T> static __device__ void store_sums(const skinny_job &job, const ring &r, const char *base, int n0, int n_threads)
{
    int m = (job.m + 7) / 8 * 8, each = groups_each(job), n_items = groups_owned(job) * m, rank = blockIdx.x % job.splits;
    const float *landing = (const float *)(base + (r.landing - r.w));
    barrier_wait(r.landed, 0);
    for (int i = threadIdx.x; i < n_items; i += n_threads) {
        int group = i / m, row = i % m, n = n0 + (group * job.splits + rank) * 8;
        float sum[8] = {};
        for (int peer = 0; peer < job.splits; peer++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                sum[j] += landing[((peer * each + group) * 8 + j) * m + row];
        if (row >= job.m)
            continue;
        if (job.f32)
            store_8<float>(job, row, n, sum);
        else
            store_8<T>(job, row, n, sum);
    }
}

/* A consumer warpgroup: rows 64 * group .. of each of the block's tiles. */
template <typename T, int M>
static __device__ void consume(const skinny_job &job, const share &s, const ring &r, int group, int n_threads, const char *base)
{
    cursor c = {0, 0, 0, 0};
    int row = 64 * group + (threadIdx.x >> 5 & 3) * 16;
    for (int tile = s.first_tile; tile < job.n_tiles; tile += s.tile_step) {
        int n0 = tile * job.tile_rows, end = n0 + job.tile_rows, n1 = end < job.n ? end : job.n;
        float acc[M / 2] = {};
        multiply_tile<T, M>(job, s, r, c, acc, 64 * group);
        if (job.splits > 1) {
            cluster_wait();
            send_sums<M>(job, r, acc, row / 8);
            store_sums<T>(job, r, base, n0, n_threads);
        } else if (job.f32)
            store_f32<M>(job, acc, n0 + row, n1);
        else
            store_act<T, M>(job, acc, n0 + row, n1);
    }
}

#endif

/* y = x W^T + bias for up to M rows of x, and the shrink of a site's adapters. Grid: see plan_skinny.
 * Block: 128 threads for each 64 rows of a tile, 32, 32 for each shrinker. Shared: the ring, at most
 * SKINNY_SHARED. */
template <typename T, int M>
static __global__ void __launch_bounds__(SKINNY_THREADS, 1)
skinny(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map, skinny_job job, shrink_job shrink)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) char memory[];
    int n_groups = (job.tile_rows + 63) / 64, n_consumers = 128 * n_groups, warp = warp_index();
    share s = share_of(job);
    ring r = ring_at<M>(job, shared_address(memory));
    if (threadIdx.x == n_consumers) {
#pragma unroll 1
        for (int i = 0; i < job.n_stages; i++) {
            barrier_init(r.full + 8 * i, 1);
            barrier_init(r.empty + 8 * i, n_consumers / 32);
        }
        barrier_init(r.landed, 1);
        barrier_init_done();
        barrier_expect(r.landed, job.splits * groups_owned(job) * 8 * ((job.m + 7) / 8 * 8) * (int)sizeof(float));
    }
    __syncthreads();
    if (job.splits > 1)
        cluster_arrive();       /* consumers wait for it before they send */
    if (warp < 4 * n_groups) {
        consume<T, M>(job, s, r, warp / 4, n_consumers, memory);
        return;
    }
    if (threadIdx.x == n_consumers)
        produce<M>(job, s, r, &w_map, &x_map);
    else if (warp > 4 * n_groups) {
        prefetch_units(shrink, blockIdx.x, gridDim.x, threadIdx.x - n_consumers - 32, 32 * job.n_shrinkers);
        wait_for_previous();
        shrink_units<T, true>(shrink, blockIdx.x, gridDim.x, warp - 4 * n_groups - 1, job.n_shrinkers);
    }
    if (job.splits > 1)
        cluster_wait();
#endif
}

#endif
