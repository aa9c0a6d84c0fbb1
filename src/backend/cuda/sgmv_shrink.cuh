/* sgmv_shrink.cuh - v[row, r] = scale * sum over k of x[row, k] A[r, k], for decodes: tiles of up to 16 rows
 *
 * Bound by reading A, a few rows of k (= in) inputs each, so k is split (split-K) far enough to keep every SM reading:
 *
 *   tile ── split-K group: 1 to 8 blocks of a cluster, adjacent pieces of k ── 8 warps, every 8th step of 32 inputs
 *
 * A block goes through the tile's ranks in rank groups of 16, the rows of A that one mma takes, while the next
 * fragments of A are on their way. Partial sums are added in a fixed order, so that results do not depend on timing:
 * over the warps of a block in shared memory, then over the blocks of a split-K group, by st.async, in one of them. */
#ifndef PUNICA_BACKEND_CUDA_SGMV_SHRINK_CUH
#define PUNICA_BACKEND_CUDA_SGMV_SHRINK_CUH

#include "backend/cuda/st_async.cuh"
#include "backend/cuda/sgmv.cuh"

enum {
    SHRINK_WARPS = 8,
    SHRINK_THREADS = 32 * SHRINK_WARPS,
    SHRINK_STEP = 32, /* inputs a warp multiplies at once: 8 of each of the 4 lanes that share a row, 16 bytes */
    SHRINK_STRIDE = SHRINK_WARPS * SHRINK_STEP, /* inputs from one step of a warp to its next */
    SHRINK_CLUSTER = 8,                         /* blocks; no more are portable */
};

/* What the shrink needs of a tile's adapter at a site. Rank groups are numbered through all parts. */
typedef struct {
    const void *a[MAX_PARTS];
    float scale[MAX_PARTS];
    int rank[MAX_PARTS];
} site_parts;

typedef struct {
    site_parts parts;
    uint64_t barrier;
    float partial[2][SHRINK_WARPS][SGMV_TILE * RANK_GROUP]; /* the warps' sums; two rank groups in turn */
    float gathered[SHRINK_CLUSTER][SGMV_TILE * RANK_GROUP]; /* the blocks' sums, sent to the one that adds them up */
} shrink_shared;

/* One rank group: its rows of A, their columns of v. */
typedef struct {
    const void *a;
    int n_ranks, v_col;
    float scale;
} shrink_group;

/* Loads the entry of a site, all fields at once, so that cache misses overlap. */
static __device__ __forceinline__ site_parts load_site_parts(const lora_entry *e)
{
    site_parts p;
#pragma unroll
    for (int i = 0; i < MAX_PARTS; i++) {
        p.a[i] = e->a[i];
        p.rank[i] = e->rank[i];
        p.scale[i] = e->scale[i];
    }
    return p;
}

/* Rank group number `group` of the site; no ranks where there is none. */
template <typename T> static __device__ __forceinline__ shrink_group group_at(const site_parts &p, int group, int in)
{
    shrink_group g = {};
    int v_col = 0;
#pragma unroll
    for (int i = 0; i < MAX_PARTS; i++) {
        int from = RANK_GROUP * group;
        if (group >= 0 && from < p.rank[i])
            g = shrink_group{(const T *)p.a[i] + (size_t)from * in, min((int)RANK_GROUP, p.rank[i] - from),
                             v_col + from, p.scale[i]};
        group -= rank_groups(p.rank[i]);
        v_col += p.rank[i];
    }
    return g;
}

/* The operands of S steps, in registers: A's ranks are the 16 rows of a product, x's rows its columns, 8 N of them.
 * Lane 4g + t has inputs 8t to 8t + 7 of each step, of ranks g and g + 8 and of rows g and, where N is 2, g + 8. */
template <int N, int S> struct shrink_fragments { uint4 a[S][2], x[S][N]; };

template <typename T, int N, int S>
static __device__ __forceinline__ void shrink_load_a(shrink_fragments<N, S> &to, const T *a, int in, int n_ranks, int k,
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
static __device__ __forceinline__ void shrink_load_x(shrink_fragments<N, S> &to, const T *x, int in, int n_rows, int k,
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

/* d[i] += A x^T, ranks by rows 8i to 8i + 7. A step is two products of k = 16: of a lane's eight inputs, 0 to 3 are its
 * four indices along k of the first and 4 to 7 of the second. Ranks and rows that are not there make sums nobody reads.
 */
template <typename T, int N, int S>
static __device__ __forceinline__ void shrink_multiply(float (&d)[N][4], const shrink_fragments<N, S> &from)
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

/* Adds up d over the block's warps; thread 16 * row + rank gets that sum. Clears d. */
template <int N>
static __device__ __forceinline__ float reduce_warps(float (&d)[N][4], float (*partial)[SGMV_TILE * RANK_GROUP])
{
    int g = lane_id() >> 2, t = lane_id() & 3;
    float *mine = partial[warp_id()], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            mine[(8 * i + 2 * t + (j & 1)) * RANK_GROUP + g + 8 * (j >> 1)] = d[i][j];
            d[i][j] = 0.0f;
        }
    __syncthreads();
    if (N == 2 || threadIdx.x < SHRINK_THREADS / 2)
#pragma unroll
        for (int i = 0; i < SHRINK_WARPS; i++)
            sum += partial[i][threadIdx.x];
    return sum;
}

/* Who adds up the rank group at hand: the blocks of a split-K group in turn. */
typedef struct {
    int owner;  /* the block that does */
    int round;  /* how many it has added up before: the phase of its mbarrier */
    int buffer; /* of shrink_shared.partial */
} shrink_reduction;

static __device__ __forceinline__ void next_reduction(shrink_reduction &t, int splits)
{
    t.buffer ^= 1;
    if (++t.owner == splits) {
        t.owner = 0;
        t.round++;
    }
}

/* Adds up `sum` over the blocks of the split-K group; true in the owner, which has the result. One buffer (`gathered`)
 * is enough: before a block is the owner again each of the others has been, and had to wait for this block's sums,
 * which it sent after it had read its buffer. So no peer's next store comes before that. */
template <int N>
static __device__ __forceinline__ bool reduce_blocks(float &sum, int splits, const shrink_reduction &reduction,
                                                     shrink_shared *sh)
{
    constexpr int NUMBERS = 8 * N * RANK_GROUP;
    int me = (int)blockIdx.x & (splits - 1);
    if (splits == 1)
        return true;
    if (reduction.owner == 0 && reduction.round == 0)
        cluster_wait(); /* all mbarriers are initialised */
    if (threadIdx.x < NUMBERS)
        st_async(&sh->gathered[me][threadIdx.x], &sh->barrier, blockIdx.x - (unsigned)(me - reduction.owner), sum);
    if (me != reduction.owner)
        return false;
    if (threadIdx.x == 0)
        st_async_expect(&sh->barrier, splits * NUMBERS);
    st_async_wait(&sh->barrier, reduction.round);
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < SHRINK_CLUSTER; i++)
        sum += i < splits ? sh->gathered[i][threadIdx.x] : 0.0f;
    return true;
}

/* A tile, and what of it is this block's: inputs [k0, k1), rank groups first, first + stride ... of n_groups. */
template <typename T> struct shrink_work {
    const T *x;
    float *v; /* of the first row */
    int n_rows, in, v_cols, k0, k1, first, stride, n_groups;
};

/* This block's part of a tile: for each of its rank groups, along k, S steps of each warp at a time. Two sets of
 * fragments (even, odd) in turn: while one is multiplied the other is on its way, across rank groups too. `next...` is
 * how far fragments have been asked for, the same names without it how far they have been multiplied. */
template <typename T, int N, int S>
static __device__ __forceinline__ void shrink_run(const shrink_work<T> &r, const site_parts &parts, int splits,
                                                  shrink_shared *sh)
{
    constexpr int SPAN = S * SHRINK_STRIDE;
    int k_lane = SHRINK_STEP * warp_id() + 8 * (lane_id() & 3);
    int row = (int)threadIdx.x / RANK_GROUP, rank = (int)threadIdx.x % RANK_GROUP;
    int index = r.first, next_index = index, k = r.k0, next_k = k;
    shrink_group group = group_at<T>(parts, index, r.in), next = group;
    shrink_reduction reduction = {};
    shrink_fragments<N, S> even, odd;
    float d[N][4] = {};
    auto prefetch = [&](shrink_fragments<N, S> &to, bool with_x) {
        if (next_index >= r.n_groups)
            return;
        shrink_load_a(to, (const T *)next.a, r.in, next.n_ranks, next_k + k_lane, r.k1);
        if (with_x)
            shrink_load_x(to, r.x, r.in, r.n_rows, next_k + k_lane, r.k1);
        next_k += SPAN;
        if (next_k < r.k1)
            return;
        next_k = r.k0;
        next_index += r.stride;
        next = group_at<T>(sh->parts, next_index, r.in);
    };
    auto multiply = [&](shrink_fragments<N, S> &fragments) {
        shrink_multiply<T>(d, fragments);
        prefetch(fragments, true);
        k += SPAN;
        if (k < r.k1)
            return;
        float sum = reduce_warps(d, sh->partial[reduction.buffer]);
        if (reduce_blocks<N>(sum, splits, reduction, sh) && row < r.n_rows && rank < group.n_ranks)
            r.v[(size_t)row * r.v_cols + group.v_col + rank] = group.scale * sum;
        k = r.k0;
        index += r.stride;
        if (index >= r.n_groups)
            return;
        group = group_at<T>(sh->parts, index, r.in);
        next_reduction(reduction, splits);
    };

    if (threadIdx.x == 0)
        sh->parts = parts;
    __syncthreads();
    prefetch(even, false);
    prefetch(odd, false);
    wait_for_previous();
    shrink_load_x(even, r.x, r.in, r.n_rows, r.k0 + k_lane, r.k1);
    shrink_load_x(odd, r.x, r.in, r.n_rows, (r.k0 + SPAN < r.k1 ? r.k0 + SPAN : r.k0) + k_lane, r.k1);
    while (index < r.n_groups) {
        multiply(even);
        if (index < r.n_groups)
            multiply(odd);
    }
}

/* A layer of the grid (one blockIdx.z) has 2^log2_split blocks for each of max_tiles tiles, in clusters along x. A
 * cluster is one split-K group or several side by side. Where there are fewer tiles than max_tiles each has more
 * blocks: first its split-K group grows, up to a cluster; then it has several of them, which share its rank groups. The
 * layers share them likewise. A block owns a piece of k, a warp every eighth step of it. Shared memory:
 * sizeof(shrink_shared), 24 KB. */
template <typename T>
static __global__ void __launch_bounds__(SHRINK_THREADS, 3)
    shrink_tiles(const sgmv_tile *tiles, const int *n_tiles, int max_tiles, int log2_split, int site, const T *x,
                 int in, float *v, int v_cols)
{
    __shared__ shrink_shared sh;
    let_next_start();
    int block = (int)(blockIdx.y * gridDim.x + blockIdx.x), guess = min(block >> log2_split, max_tiles - 1);
    sgmv_tile t = tiles[guess]; /* this block's tile if there are max_tiles: loaded while their number is */
    int n = *n_tiles, log2_blocks = log2_split + log2_spare(n, max_tiles);                      /* of a tile */
    int log2_cluster = 31 - __clz(gridDim.x), log2_groups = max(log2_blocks - log2_cluster, 0); /* of a tile */
    int log2_splits = log2_blocks - log2_groups, splits = 1 << log2_splits;
    int split_group = block >> log2_splits, tile = split_group >> log2_groups;
    site_parts parts = {};
    if (tile < n) {
        if (tile != guess)
            t = tiles[tile];
        parts = load_site_parts(t.table + site);
    }
    int n_groups = rank_groups(parts.rank[0]) + rank_groups(parts.rank[1]) + rank_groups(parts.rank[2]);
    int first = ((int)blockIdx.z << log2_groups) + split_group - (tile << log2_groups);
    if (first >= n_groups) {
        leave_idle();
        return;
    }
    int span = ((in / 8 + splits - 1) >> log2_splits) * 8, k0 = ((int)blockIdx.x & (splits - 1)) * span;
    shrink_work<T> r = {x + (size_t)t.row * in,
                        v + (size_t)t.row * v_cols,
                        t.n_rows,
                        in,
                        v_cols,
                        k0,
                        min(in, k0 + span),
                        first,
                        (int)gridDim.z << log2_groups,
                        n_groups};
    if (splits > 1) {
        if (threadIdx.x == 0)
            st_async_init(&sh.barrier);
        __syncwarp();
        cluster_arrive_relaxed();
    }
    if (t.n_rows > 8) /* few rows leave registers for two steps at a time */
        shrink_run<T, 2, 1>(r, parts, splits, &sh);
    else
        shrink_run<T, 1, 2>(r, parts, splits, &sh);
}

#endif
