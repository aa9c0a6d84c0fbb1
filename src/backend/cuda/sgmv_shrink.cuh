/* sgmv_shrink.cuh - v[row, r] = scale * sum over k of x[row, k] A[r, k] */
#ifndef PUNICA_BACKEND_CUDA_SGMV_SHRINK_CUH
#define PUNICA_BACKEND_CUDA_SGMV_SHRINK_CUH

#include "backend/cuda/mailbox.cuh"
#include "backend/cuda/sgmv.cuh"

enum {
    SHRINK_WARPS = 8,
    SHRINK_THREADS = 32 * SHRINK_WARPS,
    SHRINK_STEP = 32,           /* inputs a warp multiplies at once */
    SHRINK_STRIDE = SHRINK_WARPS * SHRINK_STEP,
    SHRINK_SPLITS = 8,          /* blocks of a cluster at most */
};

/* A tile and its adapter, whose ranks are handled in groups of 16, numbered through all parts. */
typedef struct {
    const void *a[3];
    float scale[3];
    int rank[3], groups[3], n_groups;
    int row, n_rows;
} shrink_tile;

typedef struct {
    shrink_tile tile;
    uint64_t box;
    float partial[SHRINK_WARPS][SGMV_TILE * SGMV_GROUP];
    float gathered[SHRINK_SPLITS][SGMV_TILE * SGMV_GROUP];
} shrink_shared;

/* One group: which ranks of which part, and their columns of v. */
typedef struct { int part, from, n_ranks, v_col; } shrink_group;

/* Everything of the entry is read before anything is looked at: it may have to come from memory. */
static __device__ __forceinline__ shrink_tile shrink_open(const sgmv_tile &tile, int site, bool there)
{
    shrink_tile t = {{NULL}, {}, {}, {}, 0, tile.row, tile.n_rows};
    if (!there)
        return t;
    const lora_entry *e = tile.table + site;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        t.a[i] = e->a[i];
        t.rank[i] = e->rank[i];
        t.scale[i] = e->scale[i];
    }
#pragma unroll
    for (int i = 0; i < 3; i++)
        t.n_groups += t.groups[i] = groups_of(t.rank[i]);
    return t;
}

static __device__ __forceinline__ shrink_group group_at(const shrink_tile &t, int group)
{
    int part = group < t.groups[0] ? 0 : group < t.groups[0] + t.groups[1] ? 1 : 2;
    int from = SGMV_GROUP * (group - (part > 0 ? t.groups[0] : 0) - (part > 1 ? t.groups[1] : 0));
    int before = (part > 0 ? t.rank[0] : 0) + (part > 1 ? t.rank[1] : 0);
    return shrink_group{part, from, min((int)SGMV_GROUP, t.rank[part] - from), before + from};
}

/* S steps as lane 4g + t has them: inputs 8t to 8t + 7 of each, of ranks g and g + 8 of A and rows g and, where
 * N is 2, g + 8 of x. */
template <int N, int S> struct shrink_batch { uint4 a[S][2], x[S][N]; };

template <typename T, int N, int S>
static __device__ __forceinline__ void shrink_load_a(shrink_batch<N, S> &to, const T *a, int in, int n_ranks, int k,
                                                     int k1)
{
    int g = lane_id() >> 2;
    a += (size_t)g * in + k;
#pragma unroll
    for (int i = 0; i < S; i++)
#pragma unroll
        for (int j = 0; j < 2; j++)
            to.a[i][j] = load_weights(a + i * SHRINK_STRIDE + (size_t)(8 * j) * in,
                                      g + 8 * j < n_ranks && k + i * SHRINK_STRIDE < k1);
}

template <typename T, int N, int S>
static __device__ __forceinline__ void shrink_load_x(shrink_batch<N, S> &to, const T *x, int in, int n_rows, int k,
                                                     int k1)
{
    int g = lane_id() >> 2;
    x += (size_t)g * in + k;
#pragma unroll
    for (int i = 0; i < S; i++)
#pragma unroll
        for (int j = 0; j < N; j++) {
            to.x[i][j] = uint4{};
            if (g + 8 * j < n_rows && k + i * SHRINK_STRIDE < k1)
                to.x[i][j] = *(const uint4 *)(x + i * SHRINK_STRIDE + (size_t)(8 * j) * in);
        }
}

/* d[i] += A x^T, ranks by rows 8i to 8i + 7. Of a lane's eight inputs, 0 to 3 are its four indices of one product
 * and 4 to 7 of a second; ranks and rows that are not there make sums nobody reads. */
template <typename T, int N, int S>
static __device__ __forceinline__ void shrink_multiply(float (&d)[N][4], const shrink_batch<N, S> &from)
{
#pragma unroll
    for (int i = 0; i < S; i++) {
        const uint4 &lo = from.a[i][0], &hi = from.a[i][1];
        unsigned a0[4] = {lo.x, hi.x, lo.y, hi.y}, a1[4] = {lo.z, hi.z, lo.w, hi.w};
#pragma unroll
        for (int j = 0; j < N; j++) {
            unsigned b0[2] = {from.x[i][j].x, from.x[i][j].y}, b1[2] = {from.x[i][j].z, from.x[i][j].w};
            mma<T>(d[j], a0, b0);
            mma<T>(d[j], a1, b1);
        }
    }
}

/* The sum over the block's warps; thread 16 * row + rank gets its own. Clears d. */
template <int N>
static __device__ __forceinline__ float shrink_reduce(float (&d)[N][4], float (*partial)[SGMV_TILE * SGMV_GROUP])
{
    int g = lane_id() >> 2, t = lane_id() & 3;
    float *mine = partial[warp_id()], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            mine[(8 * i + 2 * t + (j & 1)) * SGMV_GROUP + g + 8 * (j >> 1)] = d[i][j];
            d[i][j] = 0.0f;
        }
    __syncthreads();
    if (N == 2 || threadIdx.x < SHRINK_THREADS / 2)
#pragma unroll
        for (int i = 0; i < SHRINK_WARPS; i++)
            sum += partial[i][threadIdx.x];
    __syncthreads();
    return sum;
}

/* The sum over the cluster's blocks, in the one whose turn it is; true there. A block leads one group in every
 * gridDim.x, and by the time it leads again all others have led in between, with its help: so no number comes
 * before the one in its place has been read. */
template <int N> static __device__ __forceinline__ bool shrink_gather(float &sum, int turn, shrink_shared *sh)
{
    int splits = (int)gridDim.x, leader = turn % splits, n = 8 * N * SGMV_GROUP;
    if (splits == 1)
        return true;
    if (turn == 0)
        cluster_wait();         /* all boxes are open */
    if ((int)threadIdx.x < n)
        mailbox_send(&sh->gathered[blockIdx.x][threadIdx.x], &sh->box, (unsigned)leader, sum);
    if ((int)blockIdx.x != leader)
        return false;
    if (threadIdx.x == 0)
        mailbox_expect(&sh->box, splits * n);
    mailbox_wait(&sh->box, turn / splits);
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < SHRINK_SPLITS; i++)
        sum += i < splits ? sh->gathered[i][threadIdx.x] : 0.0f;
    return true;
}

static __device__ __forceinline__ void shrink_store(float *v, int v_cols, const shrink_tile &t, int group,
                                                    float sum)
{
    int row = (int)threadIdx.x / SGMV_GROUP, r = (int)threadIdx.x % SGMV_GROUP;
    shrink_group g = group_at(t, group);
    if (row < t.n_rows && r < g.n_ranks)
        v[(size_t)(t.row + row) * v_cols + g.v_col + r] = t.scale[g.part] * sum;
}

/* Inputs [k0, k1) of this block's groups, S steps of each warp at a time, while the next are on their way. */
template <typename T, int N, int S>
static __device__ __forceinline__ void shrink_run(shrink_shared *sh, int n_groups, int n_rows, const T *x, int in,
                                                  int k0, int k1, float *v, int v_cols)
{
    constexpr int SPAN = S * SHRINK_STRIDE;
    int k_lane = SHRINK_STEP * warp_id() + 8 * (lane_id() & 3);
    int next = (int)blockIdx.z, next_k = k0, group = next, k = k0, turn = 0;
    auto read = [&](shrink_batch<N, S> &to, bool with_x) {
        if (next >= n_groups)
            return;
        shrink_group at = group_at(sh->tile, next);
        const T *a = (const T *)sh->tile.a[at.part] + (size_t)at.from * in;
        shrink_load_a(to, a, in, at.n_ranks, next_k + k_lane, k1);
        if (with_x)
            shrink_load_x(to, x, in, n_rows, next_k + k_lane, k1);
        next_k += SPAN;
        if (next_k >= k1) {
            next_k = k0;
            next += (int)gridDim.z;
        }
    };
    float d[N][4] = {};
    auto work = [&](shrink_batch<N, S> &batch) {
        shrink_multiply<T>(d, batch);
        read(batch, true);
        k += SPAN;
        if (k < k1)
            return;
        float sum = shrink_reduce(d, sh->partial);
        if (shrink_gather<N>(sum, turn++, sh))
            shrink_store(v, v_cols, sh->tile, group, sum);
        k = k0;
        group += (int)gridDim.z;
    };
    shrink_batch<N, S> even, odd;
    read(even, false);
    read(odd, false);
    wait_for_previous();
    shrink_load_x(even, x, in, n_rows, k0 + k_lane, k1);
    shrink_load_x(odd, x, in, n_rows, (k0 + SPAN < k1 ? k0 + SPAN : k0) + k_lane, k1);
    while (group < n_groups) {
        work(even);
        if (group < n_groups)
            work(odd);
    }
}

/* Block (i, tile, j): piece i of the inputs, groups j, j + gridDim.z ... of the tile's ranks; the blocks of all
 * pieces are a cluster. A warp owns every eighth step of the piece. Sums over warps go through shared memory,
 * those over blocks into one of them, all in fixed order. Shared memory: sizeof(shrink_shared), 16 KB. */
template <typename T>
static __global__ void __launch_bounds__(SHRINK_THREADS, 3)
shrink_tiles(step s, int site, const T *x, int in, float *v, int v_cols)
{
    __shared__ shrink_shared sh;
    let_next_start();
    sgmv_tile tile = s.tile[blockIdx.y];
    shrink_tile t = shrink_open(tile, site, (int)blockIdx.y < s.n[COUNT_TILES]);
    if ((int)blockIdx.z >= t.n_groups) {
        wait_for_previous();
        return;
    }
    if (threadIdx.x == 0) {
        sh.tile = t;
        mailbox_open(&sh.box);
    }
    __syncthreads();
    int splits = (int)gridDim.x, span = (in / 8 + splits - 1) / splits * 8;
    int k0 = (int)blockIdx.x * span, k1 = min(in, k0 + span);
    if (splits > 1)
        cluster_announce();
    x += (size_t)t.row * in;
    if (t.n_rows > 8)
        shrink_run<T, 2, 1>(&sh, t.n_groups, t.n_rows, x, in, k0, k1, v, v_cols);
    else
        shrink_run<T, 1, 2>(&sh, t.n_groups, t.n_rows, x, in, k0, k1, v, v_cols);
}

#endif
