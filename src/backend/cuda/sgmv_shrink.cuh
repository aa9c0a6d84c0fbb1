/* sgmv_shrink.cuh - v[row, r] = scale * sum over k of x[row, k] A[r, k], for tiles of up to 16 rows
 *
 * A site is a linear layer; its parts are the projections fused in it (q, k and v, or gate and up), each with an A
 * [rank, in] of its own. x and A are 16-bit, their rows are aligned to 16 bytes, and `in` is a multiple of 8. The
 * kernel is bound by reading A, which has few rows, so the sum over k is split (split-K) until every SM reads:
 *
 *   tile           one split-K group or more, which share the tile's ranks
 *   split-K group  1 to 8 blocks of a cluster, each with a range of k
 *   block          8 warps, each with every 8th step of 32 inputs of the range
 *
 * A block goes through its ranks in rank groups of 16, the rows of A that one mma takes, and prefetches the next
 * fragments meanwhile. Partial sums are added in a fixed order, so that results do not depend on timing: over the warps
 * of a block in shared memory, then over the blocks of a split-K group, by st.async, in one of them. */
#ifndef PUNICA_BACKEND_CUDA_SGMV_SHRINK_CUH
#define PUNICA_BACKEND_CUDA_SGMV_SHRINK_CUH

#include "backend/cuda/st_async.cuh"
#include "backend/cuda/sgmv.cuh"

enum {
    SHRINK_WARPS = 8, /* no measurement is kept */
    SHRINK_THREADS = 32 * SHRINK_WARPS,
    SHRINK_STEP = 32, /* inputs a warp multiplies at once: 8 (16 bytes) in each of the 4 lanes that share a row */
    SHRINK_STRIDE = SHRINK_WARPS * SHRINK_STEP, /* inputs from one step of a warp to its next */
    SHRINK_CLUSTER = 8,                         /* the largest portable cluster size */
};

/* The matrices A of a tile's adapter at a site. Part i has rank_groups(rank[i]) rank groups, the last of which may be
 * short. Rank groups are numbered through all parts. */
typedef struct {
    const void *a[MAX_PARTS];
    float scale[MAX_PARTS];
    int rank[MAX_PARTS];
} site_parts;

typedef struct {
    site_parts parts; /* kept here, as they would take up registers from one rank group to the next */
    uint64_t barrier;
    float partial[2][SHRINK_WARPS][SGMV_TILE * RANK_GROUP]; /* the warps' sums, double-buffered */
    float gathered[SHRINK_CLUSTER][SGMV_TILE * RANK_GROUP]; /* the blocks' sums, in the one that adds them up */
} shrink_shared;

/* One rank group: its rows of A and its columns of v. */
typedef struct {
    const void *a;
    int n_ranks, v_col;
    float scale;
} shrink_group;

/* Loads all fields of a site's entry at once, so that the cache misses overlap. */
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

/* Returns the number of rank groups of the site. */
static __device__ __forceinline__ int site_rank_groups(const site_parts &p)
{
    int n = 0;
#pragma unroll
    for (int i = 0; i < MAX_PARTS; i++)
        n += rank_groups(p.rank[i]);
    return n;
}

/* Returns rank group number `group` of the site; n_ranks is 0 where there is none of that number. */
template <typename T> static __device__ __forceinline__ shrink_group group_at(const site_parts &p, int group, int in)
{
    shrink_group g = {};
    int v_col = 0; /* where part i begins; `group` counts from there, so it is negative behind its own part */
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

/* The operands of S steps, in registers. mma's m is 16 ranks, its n 8 rows of x; N products side by side take 8 N rows.
 * Lane 4g + t has inputs 8t to 8t + 7 of each step, of ranks g and g + 8 and of rows g and, where N is 2, g + 8. */
template <int N, int S> struct shrink_fragments { uint4 a[S][2], x[S][N]; };

/* Load a span's fragments of A, or of x; zeros where there is no rank, or row, and for inputs from k1 on. a, x: the
 * first row of the rank group, or of the tile; k: this lane's first input of the span. */
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

/* d[i] += A x^T, 16 ranks by rows 8i to 8i + 7. A step is two products of k = 16: the first takes inputs 0 to 3 of a
 * lane's eight as the four places along k that mma gives the lane, the second inputs 4 to 7. Sums of absent ranks and
 * rows are not stored. */
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

/* Adds up d over the block's warps and clears it. Returns in thread 16 * row + rank the sum of that row and rank. One
 * barrier is enough, as `partial` alternates: whoever stores to it again has passed the barrier in between. The
 * stores have a 4-way bank conflict (within quads), which is accepted: d is stored only once for each rank group. */
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

/* The reduction of one rank group over a split-K group. The blocks own the reductions round-robin. */
typedef struct {
    int owner;  /* the block that adds up this rank group, by its index in the split-K group */
    int round;  /* how often the owner has been owner before, which is the phase of its mbarrier to wait for */
    int buffer; /* the half of shrink_shared.partial to use */
} shrink_reduction;

static __device__ __forceinline__ void next_reduction(shrink_reduction &reduction, int splits)
{
    reduction.buffer ^= 1;
    if (++reduction.owner == splits) {
        reduction.owner = 0;
        reduction.round++;
    }
}

/* Adds up `sum` over the blocks of the split-K group. Returns true in the owner, whose `sum` is then the result. One
 * buffer `gathered` is enough: before a peer stores into an owner's `gathered` again it has been owner itself and has
 * waited for that owner's sums, which the owner sends only after all its threads have read `gathered` (reduce_warps()
 * synchronises the block in between). gridDim.x is the size of a cluster, so blockIdx.x is the block's rank in it. */
template <int N>
static __device__ __forceinline__ bool reduce_blocks(float &sum, int splits, const shrink_reduction &reduction,
                                                     shrink_shared *sh)
{
    constexpr int NUMBERS = 8 * N * RANK_GROUP;
    int me = (int)blockIdx.x & (splits - 1);
    if (splits == 1)
        return true;
    if (reduction.owner == 0 && reduction.round == 0)
        cluster_wait(); /* now the mbarriers of all blocks are initialised */
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

/* A tile and this block's share of it. */
template <typename T> struct shrink_work {
    const T *x; /* [n_rows, in] */
    float *v;   /* [n_rows, v_cols] */
    int n_rows, in, v_cols;
    int k0, k1;                                   /* the block's inputs are [k0, k1) */
    int first_group, group_stride, n_rank_groups; /* its rank groups: first_group and every group_stride-th after it */
};

/* Computes this block's share of a tile, rank group by rank group, each along k in spans; a span is S steps of every
 * warp. Fragments are double-buffered (even, odd): while one buffer is multiplied the other is loaded, across rank
 * groups too. next, next_index and next_k tell which span is loaded next; group, index and k, which one is multiplied.
 * parts: the tile's, in registers, for the first rank group; the others are looked up in the copy sh->parts. */
template <typename T, int N, int S>
static __device__ __forceinline__ void shrink_run(const shrink_work<T> &work, const site_parts &parts, int splits,
                                                  shrink_shared *sh)
{
    constexpr int SPAN = S * SHRINK_STRIDE;
    int k_lane = SHRINK_STEP * warp_id() + 8 * (lane_id() & 3);
    int row = (int)threadIdx.x / RANK_GROUP, rank = (int)threadIdx.x % RANK_GROUP;
    int index = work.first_group, next_index = index, k = work.k0, next_k = k;
    shrink_group group = group_at<T>(parts, index, work.in), next = group;
    shrink_reduction reduction = {};
    shrink_fragments<N, S> even, odd;
    float d[N][4] = {};
    auto load_next_a = [&](shrink_fragments<N, S> &to) {
        shrink_load_a(to, (const T *)next.a, work.in, next.n_ranks, next_k + k_lane, work.k1);
    };
    auto advance_next = [&] {
        next_k += SPAN;
        if (next_k < work.k1)
            return;
        next_k = work.k0;
        next_index += work.group_stride;
        next = group_at<T>(sh->parts, next_index, work.in);
    };
    auto prefetch_a = [&](shrink_fragments<N, S> &to) {
        if (next_index >= work.n_rank_groups)
            return;
        load_next_a(to);
        advance_next();
    };
    auto prefetch = [&](shrink_fragments<N, S> &to) {
        if (next_index >= work.n_rank_groups)
            return;
        load_next_a(to);
        shrink_load_x(to, work.x, work.in, work.n_rows, next_k + k_lane, work.k1);
        advance_next();
    };
    auto multiply = [&](shrink_fragments<N, S> &fragments) {
        shrink_multiply<T>(d, fragments);
        prefetch(fragments);
        k += SPAN;
        if (k < work.k1)
            return;
        float sum = reduce_warps(d, sh->partial[reduction.buffer]);
        if (reduce_blocks<N>(sum, splits, reduction, sh) && row < work.n_rows && rank < group.n_ranks)
            work.v[(size_t)row * work.v_cols + group.v_col + rank] = group.scale * sum;
        k = work.k0;
        index += work.group_stride;
        if (index >= work.n_rank_groups)
            return;
        group = group_at<T>(sh->parts, index, work.in);
        next_reduction(reduction, splits);
    };

    if (threadIdx.x == 0)
        sh->parts = parts;
    __syncthreads();
    prefetch_a(even); /* x may still be being written */
    prefetch_a(odd);
    wait_for_previous();
    shrink_load_x(even, work.x, work.in, work.n_rows, work.k0 + k_lane, work.k1);
    /* The second span, as in prefetch_a(odd): where a block's range of k is a single span, it is the next rank group's,
     * at k0 again. */
    shrink_load_x(odd, work.x, work.in, work.n_rows, (work.k0 + SPAN < work.k1 ? work.k0 + SPAN : work.k0) + k_lane,
                  work.k1);
    while (index < work.n_rank_groups) {
        multiply(even);
        if (index < work.n_rank_groups)
            multiply(odd);
    }
}

/* Grid: (cluster size, clusters, z-slices); the cluster size is 1 or SHRINK_CLUSTER. Each z-slice has 2^log2_min_blocks
 * blocks for each of max_tiles tiles. Where there are fewer tiles, each has more blocks: first its split-K group grows,
 * up to a cluster; then the tile has several split-K groups, each with a part of its rank groups. The z-slices share
 * the rank groups likewise. A block owns a range of k, a warp every eighth step of it. Shared memory:
 * sizeof(shrink_shared), 24 KB. Three blocks to an SM, hence at most 80 registers: not tuned.
 *
 * Tiles are metadata of the batch and the entries of sites belong to the weights, so both may be read before
 * wait_for_previous() (kernel.cuh). */
template <typename T>
static __global__ void __launch_bounds__(SHRINK_THREADS, 3)
    shrink_tiles(const sgmv_tile *tiles, const int *n_tiles, int max_tiles, int log2_min_blocks, int site, const T *x,
                 int in, float *v, int v_cols)
{
    __shared__ shrink_shared sh;
    let_next_start();
    int block = (int)(blockIdx.y * gridDim.x + blockIdx.x), guess = min(block >> log2_min_blocks, max_tiles - 1);
    sgmv_tile t = tiles[guess]; /* speculative: right when *n_tiles == max_tiles; overlaps the load of *n_tiles */
    int n = *n_tiles, log2_blocks = log2_min_blocks + log2_spare(n, max_tiles); /* log2 of the blocks per tile */
    int log2_cluster = 31 - __clz(gridDim.x);
    int log2_split_groups = max(log2_blocks - log2_cluster, 0); /* log2 of the split-K groups per tile */
    int log2_splits = log2_blocks - log2_split_groups, splits = 1 << log2_splits;
    /* The blocks of a z-slice are numbered split by split, split-K group by split-K group, tile by tile. Each tile has
     * 2^log2_split_groups groups of 2^log2_splits splits, so the numbers are fields of `block`, from the lowest bits
     * on. split_group counts through all tiles. */
    int split_group = block >> log2_splits, tile = split_group >> log2_split_groups;
    site_parts parts = {};
    if (tile < n) {
        if (tile != guess)
            t = tiles[tile];
        parts = load_site_parts(t.table + site);
    }
    int n_rank_groups = site_rank_groups(parts);
    /* The split-K groups of the tile in all z-slices take its rank groups in turn. */
    int first_group = ((int)blockIdx.z << log2_split_groups) + split_group - (tile << log2_split_groups);
    /* All blocks of a split-K group exit here or none, as first_group is the same for all. The other blocks of the
     * cluster do not wait for them: cluster_wait() waits only for threads that have not exited. */
    if (first_group >= n_rank_groups) {
        leave_idle();
        return;
    }
    int split_len = ((in / 8 + splits - 1) >> log2_splits) * 8, k0 = ((int)blockIdx.x & (splits - 1)) * split_len;
    shrink_work<T> work = {x + (size_t)t.row * in,
                           v + (size_t)t.row * v_cols,
                           t.n_rows,
                           in,
                           v_cols,
                           k0,
                           min(in, k0 + split_len),
                           first_group,
                           (int)gridDim.z << log2_split_groups,
                           n_rank_groups};
    if (splits > 1) {
        if (threadIdx.x == 0)
            st_async_init(&sh.barrier);
        __syncwarp(); /* the barrier is one instruction of the whole warp (.aligned) */
        cluster_arrive_relaxed();
    }
    if (t.n_rows > 8) /* with few rows there are registers for two steps at a time */
        shrink_run<T, 2, 1>(work, parts, splits, &sh);
    else
        shrink_run<T, 1, 2>(work, parts, splits, &sh);
}

#endif
