/* sgmv_shrink.cuh - v[row, r] = scale * sum over k of x[row, k] A[r, k] */
#ifndef PUNICA_BACKEND_CUDA_SGMV_SHRINK_CUH
#define PUNICA_BACKEND_CUDA_SGMV_SHRINK_CUH

#include "backend/cuda/st_async.cuh"
#include "backend/cuda/sgmv.cuh"

enum {
    SHRINK_WARPS = 8,
    SHRINK_THREADS = 32 * SHRINK_WARPS,
    SHRINK_STEP = 32, /* inputs a warp multiplies at once */
    SHRINK_STRIDE = SHRINK_WARPS * SHRINK_STEP,
    SHRINK_CLUSTER = 8, /* blocks */
};

/* What shrink needs of a tile's adapter. Its ranks are handled in groups of 16, numbered through all parts. */
typedef struct {
    const void *a[MAX_PARTS];
    float scale[MAX_PARTS];
    int rank[MAX_PARTS];
} site_parts;

typedef struct {
    site_parts parts;
    uint64_t barrier;
    float partial[2][SHRINK_WARPS][SGMV_TILE * SGMV_GROUP]; /* of two groups in turn */
    float gathered[SHRINK_CLUSTER][SGMV_TILE * SGMV_GROUP];
} shrink_shared;

/* One group: its rows of A, their columns of v. */
typedef struct {
    const void *a;
    int n_ranks, v_col;
    float scale;
} shrink_group;

/* All at once, as it may have to come from memory. */
static __device__ __forceinline__ site_parts shrink_open(const lora_entry *e)
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

/* Group number `group`, parts in turn. */
template <typename T> static __device__ __forceinline__ shrink_group group_at(const site_parts &p, int group, int in)
{
    shrink_group g = {};
    int v_col = 0;
#pragma unroll
    for (int i = 0; i < MAX_PARTS; i++) {
        int from = SGMV_GROUP * group;
        if (group >= 0 && from < p.rank[i])
            g = shrink_group{(const T *)p.a[i] + (size_t)from * in, min((int)SGMV_GROUP, p.rank[i] - from),
                             v_col + from, p.scale[i]};
        group -= groups_of(p.rank[i]);
        v_col += p.rank[i];
    }
    return g;
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
    return sum;
}

/* Which block of the split-K group adds up the ranks at hand, and how many it has added up before. */
typedef struct { int leader, round, parity; } shrink_turn;

static __device__ __forceinline__ void shrink_next(shrink_turn &t, int splits)
{
    t.parity ^= 1;
    if (++t.leader == splits) {
        t.leader = 0;
        t.round++;
    }
}

/* The sum over the split-K group's blocks, in the leader; true there. By the time a block leads again all others have
 * led in between, with its help: so no number comes before the one in its place has been read. */
template <int N>
static __device__ __forceinline__ bool shrink_gather(float &sum, int splits, const shrink_turn &turn, shrink_shared *sh)
{
    constexpr int NUMBERS = 8 * N * SGMV_GROUP;
    int me = (int)blockIdx.x & (splits - 1);
    if (splits == 1)
        return true;
    if (turn.leader == 0 && turn.round == 0)
        cluster_wait(); /* all mbarriers are initialised */
    if (threadIdx.x < NUMBERS)
        st_async(&sh->gathered[me][threadIdx.x], &sh->barrier, blockIdx.x - (unsigned)(me - turn.leader), sum);
    if (me != turn.leader)
        return false;
    if (threadIdx.x == 0)
        st_async_expect(&sh->barrier, splits * NUMBERS);
    st_async_wait(&sh->barrier, turn.round);
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < SHRINK_CLUSTER; i++)
        sum += i < splits ? sh->gathered[i][threadIdx.x] : 0.0f;
    return true;
}

/* The rows of a tile, and what is this block's: inputs [k0, k1), groups first, first + stride ... */
template <typename T> struct shrink_rows {
    const T *x;
    float *v; /* of the first row */
    int n_rows, in, v_cols, k0, k1, first, stride, n_groups;
};

/* This block's groups, S steps of each warp at a time while the next are on their way. */
template <typename T, int N, int S>
static __device__ __forceinline__ void shrink_run(const shrink_rows<T> &r, const site_parts &parts, int splits,
                                                  shrink_shared *sh)
{
    constexpr int SPAN = S * SHRINK_STRIDE;
    int k_lane = SHRINK_STEP * warp_id() + 8 * (lane_id() & 3);
    int row = (int)threadIdx.x / SGMV_GROUP, rank = (int)threadIdx.x % SGMV_GROUP;
    int index = r.first, next_index = index, k = r.k0, next_k = k;
    shrink_group group = group_at<T>(parts, index, r.in), next = group;
    shrink_turn turn = {};
    shrink_batch<N, S> even, odd;
    float d[N][4] = {};
    auto read = [&](shrink_batch<N, S> &to, bool with_x) {
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
    auto work = [&](shrink_batch<N, S> &batch) {
        shrink_multiply<T>(d, batch);
        read(batch, true);
        k += SPAN;
        if (k < r.k1)
            return;
        float sum = shrink_reduce(d, sh->partial[turn.parity]);
        if (shrink_gather<N>(sum, splits, turn, sh) && row < r.n_rows && rank < group.n_ranks)
            r.v[(size_t)row * r.v_cols + group.v_col + rank] = group.scale * sum;
        k = r.k0;
        index += r.stride;
        if (index >= r.n_groups)
            return;
        group = group_at<T>(sh->parts, index, r.in);
        shrink_next(turn, splits);
    };

    if (threadIdx.x == 0)
        sh->parts = parts;
    __syncthreads();
    read(even, false);
    read(odd, false);
    wait_for_previous();
    shrink_load_x(even, r.x, r.in, r.n_rows, r.k0 + k_lane, r.k1);
    shrink_load_x(odd, r.x, r.in, r.n_rows, (r.k0 + SPAN < r.k1 ? r.k0 + SPAN : r.k0) + k_lane, r.k1);
    while (index < r.n_groups) {
        work(even);
        if (index < r.n_groups)
            work(odd);
    }
}

/* A cluster is one split-K group of blocks or several. Such a group has a tile, each of its blocks a piece of the
 * inputs and each warp every eighth step of that. For max_tiles tiles a split-K group has 2^split blocks. If there are
 * fewer, split-K groups grow, up to a cluster; then several share a tile, each with some groups of its ranks, as the
 * grid's layers (z) do where it is sized for few tiles. Sums over warps go through shared memory, those over blocks
 * into one of them, all in fixed order. Shared memory: sizeof(shrink_shared), 24 KB. */
template <typename T>
static __global__ void __launch_bounds__(SHRINK_THREADS, 3)
    shrink_tiles(const sgmv_tile *tiles, const int *n_tiles, int max_tiles, int split, int site, const T *x, int in,
                 float *v, int v_cols)
{
    __shared__ shrink_shared sh;
    let_next_start();
    int block = (int)(blockIdx.y * gridDim.x + blockIdx.x), guess = min(block >> split, max_tiles - 1);
    sgmv_tile t = tiles[guess]; /* its tile if none are spare, read beside the count */
    int n = *n_tiles, power = split + spare_power(n, max_tiles);
    int most = 31 - __clz(gridDim.x), apart = max(power - most, 0);
    int splits = 1 << (power - apart), split_group = block >> (power - apart), tile = split_group >> apart;
    site_parts parts = {};
    if (tile < n) {
        if (tile != guess)
            t = tiles[tile];
        parts = shrink_open(t.table + site);
    }
    int n_groups = groups_of(parts.rank[0]) + groups_of(parts.rank[1]) + groups_of(parts.rank[2]);
    int first = ((int)blockIdx.z << apart) + split_group - (tile << apart);
    if (first >= n_groups) {
        leave_idle();
        return;
    }
    int span = ((in / 8 + splits - 1) >> (power - apart)) * 8, k0 = ((int)blockIdx.x & (splits - 1)) * span;
    shrink_rows<T> r = {x + (size_t)t.row * in,
                        v + (size_t)t.row * v_cols,
                        t.n_rows,
                        in,
                        v_cols,
                        k0,
                        min(in, k0 + span),
                        first,
                        (int)gridDim.z << apart,
                        n_groups};
    if (splits > 1) {
        if (threadIdx.x == 0)
            st_async_init(&sh.barrier);
        __syncwarp();
        cluster_arrive_relaxed();
    }
    if (t.n_rows > 8)
        shrink_run<T, 2, 1>(r, parts, splits, &sh);
    else
        shrink_run<T, 1, 2>(r, parts, splits, &sh);
}

#endif
