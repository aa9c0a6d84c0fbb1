/* sgmv_shrink.cuh - v[row, r] = scale * sum over k of x[row, k] A[r, k] */
#ifndef PUNICA_BACKEND_CUDA_SGMV_SHRINK_CUH
#define PUNICA_BACKEND_CUDA_SGMV_SHRINK_CUH

#include "backend/cuda/cluster.cuh"
#include "backend/cuda/sgmv.cuh"

enum {
    SHRINK_WARPS = 8,
    SHRINK_THREADS = 32 * SHRINK_WARPS,
    SHRINK_STEP = 32,           /* inputs a warp multiplies at once */
    SHRINK_STRIDE = SHRINK_WARPS * SHRINK_STEP,
    SHRINK_AHEAD = 8,           /* steps a warp has in flight: 1 KB of A each */
    SHRINK_SPLITS = 8,          /* blocks of a cluster at most */
};

typedef struct {
    float partial[SHRINK_WARPS][SGMV_TILE * SGMV_GROUP];
    float gathered[SHRINK_SPLITS][SGMV_TILE * SGMV_GROUP];
} shrink_shared;

/* A tile's part in this block: groups of 16 ranks, from all parts, numbered through. */
typedef struct {
    const lora_entry *e;
    int row, n_rows;
    int groups[3], n_groups;
} shrink_tile;

/* One group: which ranks of which part. */
typedef struct { int part, from, n_ranks; } shrink_group;

static __device__ __forceinline__ shrink_group group_at(const shrink_tile &t, int group)
{
    int part = group < t.groups[0] ? 0 : group < t.groups[0] + t.groups[1] ? 1 : 2;
    int from = SGMV_GROUP * (group - (part > 0 ? t.groups[0] : 0) - (part > 1 ? t.groups[1] : 0));
    return shrink_group{part, from, min((int)SGMV_GROUP, t.e->rank[part] - from)};
}

/* A lane's way through the A of its block's groups, step by step. Lane 4g + t has ranks g and g + 8, inputs 8t to
 * 8t + 7 of a step. */
template <typename T> struct shrink_reader {
    const T *a;                 /* NULL: past the end */
    int group, n_ranks, i;
};

template <typename T>
static __device__ __forceinline__ void shrink_enter(shrink_reader<T> &r, const shrink_tile &t, int in)
{
    r.i = 0;
    r.n_ranks = 0;
    if (r.group < t.n_groups) {
        shrink_group g = group_at(t, r.group);
        r.a = (const T *)t.e->a[g.part] + (size_t)(g.from + (lane_id() >> 2)) * in;
        r.n_ranks = g.n_ranks;
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

/* The sum over the cluster's blocks, in the one whose turn it is; true there. */
static __device__ __forceinline__ bool shrink_gather(float &sum, int turn, bool first, shrink_shared *sh)
{
    int splits = (int)gridDim.x, leader = turn % splits;
    if (splits == 1)
        return true;
    if (first)
        cluster_wait();         /* all blocks of the cluster run */
    store_to_peer(&sh->gathered[blockIdx.x][threadIdx.x], (unsigned)leader, sum);
    cluster_arrive();
    cluster_wait();
    sum = 0.0f;
    if ((int)blockIdx.x == leader)
        for (int i = 0; i < splits; i++)
            sum += sh->gathered[i][threadIdx.x];
    return (int)blockIdx.x == leader;
}

static __device__ __forceinline__ void shrink_store(float *v, int v_cols, const shrink_tile &t, int group, float sum)
{
    int row = (int)threadIdx.x / SGMV_GROUP, r = (int)threadIdx.x % SGMV_GROUP;
    shrink_group g = group_at(t, group);
    if (row < t.n_rows && r < g.n_ranks)
        v[(size_t)(t.row + row) * v_cols + rank_offset(t.e, g.part) + g.from + r] = t.e->scale[g.part] * sum;
}

/* Inputs [k0, k1) of all groups of this block. N: 8 rows each. Of a lane's eight inputs, 0 to 3 are its four
 * indices of one product and 4 to 7 of a second; ranks and rows that are not there make sums nobody reads. */
template <typename T, int N>
static __device__ __forceinline__ void shrink_run(const shrink_tile &t, const T *x, int in, int k0, int k1, float *v, int v_cols,
                                                  shrink_shared *sh)
{
    constexpr int BATCH = 4 / N;
    int n_steps = max(1, (k1 - k0 + SHRINK_STRIDE - 1) / SHRINK_STRIDE), stride = (int)gridDim.z;
    int g = lane_id() >> 2, k_first = k0 + SHRINK_STEP * warp_id() + 8 * (lane_id() & 3);
    shrink_reader<T> r = {NULL, (int)blockIdx.z};
    uint4 lo[SHRINK_AHEAD], hi[SHRINK_AHEAD];
    auto read = [&](int slot) {
        int k = k_first + r.i * SHRINK_STRIDE;
        lo[slot] = load_weights(r.a + k, g < r.n_ranks && k < k1);
        hi[slot] = load_weights(r.a + (size_t)8 * in + k, g + 8 < r.n_ranks && k < k1);
        if (++r.i == n_steps) {
            r.group += stride;
            shrink_enter(r, t, in);
        }
    };
    shrink_enter(r, t, in);
#pragma unroll
    for (int i = 0; i < SHRINK_AHEAD; i++)
        read(i);
    wait_for_previous();

    float d[N][4] = {};
    const T *rows = x + (size_t)(t.row + g) * in;
    int i = 0, i_x = 0, turn = 0;
    for (int group = (int)blockIdx.z; group < t.n_groups;) {
#pragma unroll
        for (int from = 0; from < SHRINK_AHEAD; from += BATCH) {
            uint4 b[BATCH][N];
#pragma unroll
            for (int j = 0; j < BATCH; j++) {
                int k = k_first + i_x * SHRINK_STRIDE;
                i_x = i_x + 1 == n_steps ? 0 : i_x + 1;
#pragma unroll
                for (int n = 0; n < N; n++) {
                    b[j][n] = uint4{};
                    if (g + 8 * n < t.n_rows && k < k1)
                        b[j][n] = *(const uint4 *)(rows + (size_t)(8 * n) * in + k);
                }
            }
#pragma unroll
            for (int j = 0; j < BATCH; j++) {
                const uint4 &l = lo[from + j], &h = hi[from + j];
                unsigned a0[4] = {l.x, h.x, l.y, h.y}, a1[4] = {l.z, h.z, l.w, h.w};
#pragma unroll
                for (int n = 0; n < N; n++) {
                    unsigned b0[2] = {b[j][n].x, b[j][n].y}, b1[2] = {b[j][n].z, b[j][n].w};
                    mma<T>(d[n], a0, b0);
                    mma<T>(d[n], a1, b1);
                }
                read(from + j);
                if (++i == n_steps && group < t.n_groups) {
                    i = 0;
                    float sum = shrink_reduce(d, sh->partial);
                    if (shrink_gather(sum, turn, turn == 0, sh))
                        shrink_store(v, v_cols, t, group, sum);
                    turn++;
                    group += stride;
                }
            }
        }
    }
}

/* Block (i, tile, j): piece i of the inputs, groups j, j + gridDim.z ... of the tile's ranks; the blocks of all
 * pieces are a cluster. A warp owns every eighth step of the piece. Sums over warps go through shared memory,
 * those over blocks into one of them, all in fixed order. Shared memory: sizeof(shrink_shared), 16 KB. */
template <typename T>
static __global__ void __launch_bounds__(SHRINK_THREADS, 2)
shrink_tiles(step s, int site, const T *x, int in, float *v, int v_cols)
{
    __shared__ shrink_shared sh;
    let_next_start();
    sgmv_tile at = s.tile[blockIdx.y];
    shrink_tile t = {NULL, at.row, at.n_rows};
    if ((int)blockIdx.y < s.n[COUNT_TILES]) {
        t.e = at.table + site;
        for (int i = 0; i < 3; i++) {
            t.groups[i] = groups_of(t.e->rank[i]);
            t.n_groups += t.groups[i];
        }
    }
    if ((int)blockIdx.z >= t.n_groups) {
        wait_for_previous();
        return;
    }
    int splits = (int)gridDim.x, span = (in / 8 + splits - 1) / splits * 8, k0 = (int)blockIdx.x * span, k1 = min(in, k0 + span);
    if (splits > 1)
        cluster_arrive();
    if (t.n_rows > 8)
        shrink_run<T, 2>(t, x, in, k0, k1, v, v_cols, &sh);
    else
        shrink_run<T, 1>(t, x, in, k0, k1, v, v_cols, &sh);
}

#endif
