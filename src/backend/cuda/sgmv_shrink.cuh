/* sgmv_shrink.cuh - v[row, r] = scale * sum over k of x[row, k] A[r, k] */
#ifndef PUNICA_BACKEND_CUDA_SGMV_SHRINK_CUH
#define PUNICA_BACKEND_CUDA_SGMV_SHRINK_CUH

#include "backend/cuda/cluster.cuh"
#include "backend/cuda/sgmv.cuh"

enum {
    SHRINK_CHUNK = 512,         /* inputs in a stage at most; each warp has an eighth */
    SHRINK_CLUSTER = 8,         /* blocks at most that share one unit */
};

/* Bytes from row to row of a stage, such that two rows meet no bank twice. */
static __device__ __forceinline__ int shrink_stride(int chunk)
{
    return 2 * chunk + 64;
}

/* What a stage holds of a unit, 16 ranks of one part for one tile: n_k inputs from k. */
typedef struct {
    int n_ranks;                /* 0: the end */
    int row, n_rows, v_col;
    float scale;
    int k, n_k;
    bool last;                  /* of the unit */
} shrink_stage;

typedef struct {
    sgmv_barriers barrier;
    shrink_stage stage[SGMV_STAGES];
    int n_stages, stage_bytes;  /* these are known once the first stage is full */
    int chunk;                  /* inputs in a stage */
    int split;                  /* blocks that share a unit */
    float partial[SGMV_WARPS][SGMV_TILE * SGMV_GROUP];
    float gathered[SHRINK_CLUSTER][SGMV_TILE * SGMV_GROUP];
} shrink_shared;

static __device__ __forceinline__ int shrink_units(const lora_entry *e)
{
    return groups_of(e->rank[0]) + groups_of(e->rank[1]) + groups_of(e->rank[2]);
}

/* The copying warp's state. */
typedef struct {
    ring_place at;
    int n_filled;               /* stages, up to n_stages */
    bool waited;                /* for the kernel before */
} shrink_copier;

template <typename T>
static __device__ __forceinline__ void shrink_copy_x(shrink_shared *sh, char *ring, int stage, const T *x, int in)
{
    const shrink_stage &g = sh->stage[stage];
    int stride = shrink_stride(sh->chunk);
    copy_rows(ring + stage * sh->stage_bytes + SGMV_GROUP * stride, stride, x + (size_t)g.row * in + g.k,
              in * sizeof(T), g.n_rows, g.n_k * (int)sizeof(T), &sh->barrier.full[stage]);
    queued_rows(&sh->barrier.full[stage]);
}

/* x of all stages filled so far: from here on it is there. */
template <typename T>
static __device__ __forceinline__ void shrink_wait(shrink_copier &c, shrink_shared *sh, char *ring, const T *x, int in)
{
    wait_for_previous();
    c.waited = true;
    for (int i = 0; i < c.n_filled; i++)
        shrink_copy_x(sh, ring, i, x, in);
}

template <typename T>
static __device__ __forceinline__ void shrink_fill(shrink_copier &c, shrink_shared *sh, char *ring, const shrink_stage &g, const T *a,
                                   const T *x, int in)
{
    if (c.n_filled == c.at.n_stages) {
        if (!c.waited)
            shrink_wait(c, sh, ring, x, in);
        barrier_wait(&sh->barrier.empty[c.at.stage], c.at.phase ^ 1);
    } else {
        c.n_filled++;
    }
    uint64_t *full = &sh->barrier.full[c.at.stage];
    if (lane_id() == 0)
        sh->stage[c.at.stage] = g;
    announce(full, (g.n_ranks + g.n_rows) * g.n_k * (int)sizeof(T));
    copy_rows(ring + c.at.stage * sh->stage_bytes, shrink_stride(sh->chunk), a + g.k, in * sizeof(T), g.n_ranks,
              g.n_k * (int)sizeof(T), full);
    if (c.waited)
        shrink_copy_x(sh, ring, c.at.stage, x, in);
    ring_next(c.at);
}

/* All units of the share [begin, end), inputs [k0, k1) of each. */
template <typename T>
static __device__ __forceinline__ void shrink_copy(shrink_copier &c, shrink_shared *sh, char *ring, const step &s, int n_tiles, int site,
                                   int begin, int end, const T *x, int in, int k0, int k1)
{
    work_place p = find_work(s, n_tiles, site, shrink_units, begin);
    for (int at = p.before; p.tile < n_tiles && at < end; p.tile++) {
        sgmv_tile t = s.tile[p.tile];
        const lora_entry *e = t.table + site;
        for (int part = 0; part < 3; part++)
            for (int from = 0; from < e->rank[part]; from += SGMV_GROUP, at++) {
                if (at < begin || at >= end)
                    continue;
                shrink_stage g = {min(SGMV_GROUP, e->rank[part] - from), t.row, t.n_rows, rank_offset(e, part) + from,
                                  e->scale[part]};
                const T *a = (const T *)e->a[part] + (size_t)from * in;
                for (g.k = k0; g.k < k1; g.k += sh->chunk) {
                    g.n_k = min(sh->chunk, k1 - g.k);
                    g.last = g.k + sh->chunk >= k1;
                    shrink_fill(c, sh, ring, g, a, x, in);
                }
            }
    }
    if (!c.waited)
        shrink_wait(c, sh, ring, x, in);
}

/* After the last stage: one that says so. */
static __device__ __forceinline__ void shrink_copy_end(shrink_copier &c, shrink_shared *sh)
{
    if (c.n_filled == c.at.n_stages)
        barrier_wait(&sh->barrier.empty[c.at.stage], c.at.phase ^ 1);
    if (lane_id() == 0)
        sh->stage[c.at.stage].n_ranks = 0;
    announce(&sh->barrier.full[c.at.stage], 0);
    queued_rows(&sh->barrier.full[c.at.stage]);
}

/* d[i] += A x^T of a warp's eighth of the inputs: ranks by rows 8i to 8i + 7. Which inputs stand for which index of
 * a product is free as long as A and x agree: of lane 4g + t's eight, 0 to 3 are its four indices of one product
 * and 4 to 7 of a second. Ranks and rows that are not there make sums that nobody reads. */
template <typename T, int N>
static __device__ __forceinline__ void shrink_multiply(float (&d)[2][4], const char *stage, int chunk, const shrink_stage &at)
{
    int g = lane_id() >> 2, k = chunk / SGMV_WARPS * warp_id() + 8 * (lane_id() & 3), end = k + chunk / SGMV_WARPS;
    int stride = shrink_stride(chunk);
    const char *from = stage + g * stride + 2 * k;
    for (; k < end; k += 32, from += 64) {
        bool there = k < at.n_k;
        uint4 none = {}, lo = there ? *(const uint4 *)from : none, hi = there ? *(const uint4 *)(from + 8 * stride) : none;
        unsigned a0[4] = {lo.x, hi.x, lo.y, hi.y}, a1[4] = {lo.z, hi.z, lo.w, hi.w};
#pragma unroll
        for (int i = 0; i < N; i++) {
            uint4 x = there && g + 8 * i < at.n_rows ? *(const uint4 *)(from + (SGMV_GROUP + 8 * i) * stride) : none;
            unsigned b0[2] = {x.x, x.y}, b1[2] = {x.z, x.w};
            mma<T>(d[i], a0, b0);
            mma<T>(d[i], a1, b1);
        }
    }
}

/* The sum over the working warps; thread 16 * row + rank gets its own. Clears d. */
static __device__ __forceinline__ float shrink_reduce(float (&d)[2][4], float (*partial)[SGMV_TILE * SGMV_GROUP])
{
    int g = lane_id() >> 2, t = lane_id() & 3;
    float *mine = partial[warp_id()], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            mine[(8 * i + 2 * t + (j & 1)) * SGMV_GROUP + g + 8 * (j >> 1)] = d[i][j];
            d[i][j] = 0.0f;
        }
    workers_sync();
#pragma unroll
    for (int i = 0; i < SGMV_WARPS; i++)
        sum += partial[i][threadIdx.x];
    workers_sync();
    return sum;
}

static __device__ __forceinline__ void shrink_store(float *v, int v_cols, const shrink_stage &g, float sum)
{
    int row = (int)threadIdx.x / SGMV_GROUP, r = (int)threadIdx.x % SGMV_GROUP;
    if (row < g.n_rows && r < g.n_ranks)
        v[(size_t)(g.row + row) * v_cols + g.v_col + r] = g.scale * sum;
}

/* A working warp. The sum of the block's last unit is left to the caller when blocks share it. */
template <typename T>
static __device__ __forceinline__ float shrink_work(shrink_shared *sh, const char *ring, float *v, int v_cols, shrink_stage *last)
{
    ring_place at = {};
    float d[2][4] = {}, sum = 0.0f;
    last->n_ranks = 0;
    for (;; ring_next(at)) {
        barrier_wait(&sh->barrier.full[at.stage], at.phase);
        at.n_stages = sh->n_stages;
        shrink_stage g = sh->stage[at.stage];
        if (g.n_ranks == 0)
            return sum;
        const char *stage = ring + at.stage * sh->stage_bytes;
        if (g.n_rows > 8)
            shrink_multiply<T, 2>(d, stage, sh->chunk, g);
        else
            shrink_multiply<T, 1>(d, stage, sh->chunk, g);
        __syncwarp();
        if (lane_id() == 0)
            barrier_arrive(&sh->barrier.empty[at.stage]);
        if (!g.last)
            continue;
        sum = shrink_reduce(d, sh->partial);
        *last = g;
        if (sh->split == 1)
            shrink_store(v, v_cols, g, sum);
    }
}

/* Inputs of one block of a team; the last ones may have fewer, or none. */
static __device__ __forceinline__ int shrink_span(int in, int split)
{
    return (in / 8 + split - 1) / split * 8;
}

/* A team of `split` blocks of a cluster owns a share of the units and divides the inputs among its blocks; it is
 * as large as it can be with at most one unit for each team. Sums over warps go through shared memory, those
 * over blocks into the team's first one, all in fixed order. Shared memory: SGMV_RING, and
 * sizeof(shrink_shared) (17 KB). */
template <typename T>
static __global__ void __launch_bounds__(SGMV_THREADS, 2)
shrink_tiles(step s, int site, int cluster, const T *x, int in, float *v, int v_cols)
{
    extern __shared__ __align__(128) char ring[];
    __shared__ shrink_shared sh;
    let_next_start();
    cluster_arrive();
    set_barriers(&sh.barrier, ROWS_ARRIVALS);
    shrink_stage last = {};
    float sum = 0.0f;
    if (warp_id() == SGMV_WARPS) {
        int n_tiles = s.n[COUNT_TILES];
        work_sum work = sum_work(s, n_tiles, site, shrink_units);
        int split = cluster;
        while (split > 1 && work.units * split > (int)gridDim.x)
            split /= 2;
        int teams = (int)gridDim.x / split, team = (int)blockIdx.x / split, member = (int)blockIdx.x % split;
        int k0 = member * shrink_span(in, split), k1 = min(in, k0 + shrink_span(in, split));
        int chunk = work.rows > 4 ? SHRINK_CHUNK / 2 : SHRINK_CHUNK;
        int stage_bytes = (SGMV_GROUP + work.rows) * shrink_stride(chunk);
        int n_stages = min((int)SGMV_STAGES, SGMV_RING / stage_bytes);
        if (lane_id() == 0) {
            sh.split = split;
            sh.chunk = chunk;
            sh.stage_bytes = stage_bytes;
            sh.n_stages = n_stages;
        }
        __syncwarp();
        shrink_copier c = {{0, n_stages, 0}};
        shrink_copy(c, &sh, ring, s, n_tiles, site, share_begin(work.units, team, teams),
                    share_begin(work.units, team + 1, teams), x, in, k0, k1);
        shrink_copy_end(c, &sh);
    } else {
        wait_for_previous();
        sum = shrink_work<T>(&sh, ring, v, v_cols, &last);
    }
    cluster_wait();             /* all blocks of the cluster run */
    int split = sh.split, member = (int)blockIdx.x % split;
    if (split == 1)
        return;
    if (last.n_ranks > 0)
        store_to_peer(&sh.gathered[member][threadIdx.x], blockIdx.x % cluster - member, sum);
    cluster_arrive();
    cluster_wait();
    if (member == 0 && last.n_ranks > 0) {
        sum = 0.0f;
        for (int i = 0; i * shrink_span(in, split) < in; i++)
            sum += sh.gathered[i][threadIdx.x];
        shrink_store(v, v_cols, last, sum);
    }
}

#endif
