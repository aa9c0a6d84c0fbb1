/* cuda_expand.cu - SGMV expand, fused with the op that reads its result
 *
 * In a decode batch of few rows the shrink leaves v as partial sums. The kernels here add those up,
 * multiply by the row's own B, add the product to the dense result in registers, and go on from there:
 * neither v nor the completed row is ever written out.
 *
 *   linear     |== dense product ===============================|
 *              |= shrink ==| arrives
 *   expand        |- loads B -|= v B =|- - - - - - - - - - - - -|= add, go on =|
 *
 * Blocks start beside the dense product, in the registers and shared memory that its kernel leaves free (so
 * they must have few registers), and prefetch B, which depends on no kernel. They multiply when the shrink's
 * blocks have arrived; when the dense product has ended, little is left to do. Blocks that find no room do
 * all of it afterwards.
 *
 * A warp owns 256 adjacent columns of one row of one projection, a lane 8 of them, so that a lane loads a row
 * of B in 16 bytes. Rows of one adapter are adjacent, and the warps of a block own the same columns of
 * adjacent rows where possible: they find B in L1.
 *
 * A warp has only a few rows of B in flight, so that many ranks cost it many latencies while the rest of the GPU
 * is idle. Where an adapter is large and the rows alone do not keep the GPU busy (step_shape.heavy), the ranks
 * are therefore divided among a group of SLICES warps of a block: each multiplies its slice, and the first adds
 * up their sums and goes on alone. */
#include "backend/cuda/fp8.cuh"
#include "backend/cuda/st_async.cuh"

enum {
    LANE_COLS = 8, /* 16 bytes */
    WARP_COLS = 32 * LANE_COLS,
    BLOCK_WARPS = 4, /* no measurement is kept of this, NORM_WARPS, SLICED_NORM_WARPS and RANKS */
    MAX_SLICES = 4,  /* a row's warps are in one block */
    /* Blocks of a kernel that an SM runs at once, for __launch_bounds__. They cap registers: 7 blocks of 4 warps at 72,
     * as in the dense product beside them; 4 at 128; 3 of 8 warps at 80; 2 of 16 at 64. SILU_BLOCKS: with 120 registers
     * a layer was the same within 0.3 %, with 96 it was 1.7 % slower on Distinct (docs/lab/decode-step.md). Of the
     * others no measurement is kept. */
    ROPE_BLOCKS = 7,
    ROWS_BLOCKS = 7,
    SILU_BLOCKS = 4,
    SILU_BLOCKS_4_AHEAD = 7,
    NORM_BLOCKS = 3,
    SLICED_NORM_BLOCKS = 2,
    NORM_WARPS = 8, /* of a block, at most */
    SLICED_NORM_WARPS = 16,
    RANKS = 64, /* ranks of v in shared memory at once, for each slice */
};

/* Returns the warps for a row of `cols` columns. */
static int warps_across(int cols)
{
    return divide_up(cols, WARP_COLS);
}

/* Where the adapters of a site and v are. */
typedef struct {
    const lora_entry *const *row_lora; /* [rows] */
    const float *v_partials;           /* [n_splits, FUSED_ROWS, v_stride] */
    int site, n_splits, v_stride;
    const int *arrivals; /* of the shrink's blocks */
    int n_arrivals;      /* how many there will be; 0: they are not counted, v is complete when the shrink has ended */
} expansion;

static expansion expansion_of(const cuda_backend *cu, const adapted *a)
{
    return {cu->step.row_lora,
            cu->v_partials,
            a->site,
            sgmv_splits(a->w->part[0].w.cols),
            cu->limit.max_rank_sum,
            cu->step.v_arrivals + a->site,
            cu->v_expected};
}

static __device__ __forceinline__ const lora_entry *entry_of(const expansion &e, int row)
{
    const lora_entry *table = e.row_lora[row];
    return table ? &table[e.site] : NULL;
}

/* Returns where a part's ranks begin in v. With rank_offset() of sgmv.cuh in its place the compiler generates other
 * code for these kernels. */
static __device__ __forceinline__ int first_rank(const lora_entry *l, int part)
{
    return part == 0 ? 0 : part == 1 ? l->rank[0] : l->rank[0] + l->rank[1];
}

static __device__ __forceinline__ int load_acquire(const int *p)
{
    int x;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}

/* Waits for v if any thread of the block needs it. The shrink's blocks arrive long before the dense product that they
 * are fused with has ended, which hides v B. All threads of the block must call it. */
static __device__ __forceinline__ void wait_for_v(const expansion &e, bool needed)
{
    needed = __syncthreads_or(needed);
    if (e.n_arrivals == 0)
        wait_for_previous();
    else if (needed && threadIdx.x == 0)
        while (load_acquire(e.arrivals) < e.n_arrivals)
            __nanosleep(32);
    __syncthreads();
}

/* v[r] = the sum of a row's partial sums of rank first + r, for r < n. Called by n_threads threads, numbered by
 * `thread`. */
static __device__ __forceinline__ void sum_splits(float *v, const expansion &e, int row, int first, int n, int thread,
                                                  int n_threads)
{
    const float *part = e.v_partials + (size_t)row * e.v_stride + first;
    for (int r = thread; r < n; r += n_threads) {
        float sum = 0.0f;
#pragma unroll
        for (int s = 0; s < SGMV_SPLITS; s++)
            sum += s < e.n_splits ? __ldcg(&part[s * FUSED_ROWS * e.v_stride + r]) : 0.0f;
        v[r] = sum;
    }
}

/* sum += the LANE_COLS numbers at `from`. */
template <typename T> static __device__ __forceinline__ void add_n(float (&sum)[LANE_COLS], const T *from)
{
    float v[LANE_COLS];
    load_n(v, from);
    for (int j = 0; j < LANE_COLS; j++)
        sum[j] += v[j];
}

/* Loads what an earlier kernel of the invocation wrote: past L1, which may hold older values. */
static __device__ __forceinline__ void load_latest(float (&x)[LANE_COLS], const float *from)
{
    *(float4 *)&x[0] = __ldcg((const float4 *)from);
    *(float4 *)&x[4] = __ldcg((const float4 *)from + 1);
}

/* A lane's columns of v B for one row and projection, over one slice of the ranks: of every SLICES * AHEAD ranks the
 * slice-th AHEAD. AHEAD rows of B are prefetched. */
template <typename T, int AHEAD, int SLICES> struct lane_product {
    int rank, out;
    const T *b;         /* [rank, out], at the lane's columns of the next row to load */
    uint4 ahead[AHEAD]; /* 8 numbers each */
};

/* Finds B and prefetches its first rows; called before wait_for_v(). l: the row's adapter, NULL: none. Lanes past the
 * last column load the first columns instead. */
template <typename T, int AHEAD, int SLICES>
static __device__ __forceinline__ void start_product(lane_product<T, AHEAD, SLICES> &p, const lora_entry *l, int part,
                                                     int col, int out, int slice)
{
    p.rank = l ? l->rank[part] : 0;
    p.out = out;
    p.b = l ? (const T *)l->b[part] + (size_t)slice * AHEAD * out + (col < out ? col : 0) : NULL;
#pragma unroll
    for (int r = 0; r < AHEAD; r++, p.b += out)
        if (slice * AHEAD + r < p.rank)
            p.ahead[r] = *(const uint4 *)p.b;
    p.b += (size_t)(SLICES - 1) * AHEAD * out;
}

/* sum += v B at the lane's columns over the AHEAD ranks from `from` on; v: of these ranks. Each row of B, once used, is
 * replaced by the one that the slice needs AHEAD rows later. (__syncwarp() keeps the compiler from doing all loads
 * first, which would take twice the registers.) */
template <typename T, int AHEAD, int SLICES>
static __device__ __forceinline__ void add_ranks(float (&sum)[LANE_COLS], lane_product<T, AHEAD, SLICES> &p,
                                                 const float *v, int from)
{
#pragma unroll
    for (int r = 0; r < AHEAD; r++, p.b += p.out) {
        if (from + r >= p.rank)
            break;
        const vec<T, LANE_COLS> b = (const vec<T, LANE_COLS> &)p.ahead[r];
        float by = v[r];
#pragma unroll
        for (int j = 0; j < LANE_COLS; j++)
            sum[j] += by * to_float(b.at[j]);
        __syncwarp();
        if (from + r + SLICES * AHEAD < p.rank)
            p.ahead[r] = *(const uint4 *)p.b;
    }
    p.b += (size_t)(SLICES - 1) * AHEAD * p.out;
}

/* sum += v B over the slice's ranks among the SLICES * RANKS from `from` on; v: of these ranks. */
template <typename T, int AHEAD, int SLICES>
static __device__ __forceinline__ void add_product(float (&sum)[LANE_COLS], lane_product<T, AHEAD, SLICES> &p,
                                                   const float *v, int from, int slice)
{
#pragma unroll 1
    for (int i = slice * AHEAD; i < SLICES * RANKS && from + i < p.rank; i += SLICES * AHEAD)
        add_ranks(sum, p, v + i, from + i);
}

/* A barrier of the SLICES warps of a group; group: its number within the block, below GROUPS. Ids of barriers are
 * immediates: for an id in a register ptxas reserves all 16 that a block may have, and a Hopper SM has only 64 (two for
 * each block that it can hold, by CUDA's cuda_occupancy.h). */
template <int SLICES, int GROUPS, int G = 0> static __device__ __forceinline__ void group_barrier(int group)
{
    if constexpr (SLICES == 1)
        __syncwarp();
    else if (G == GROUPS - 1 || group == G)
        asm volatile("bar.sync %0, %1;" : : "n"(G + 1), "n"(32 * SLICES) : "memory");
    else if constexpr (G < GROUPS - 1)
        group_barrier<SLICES, GROUPS, G + 1>(group);
}

/* A warp's sums in shared memory: columns 0 to 3 of all lanes, then 4 to 7. */
typedef struct { float4 cols[2][32]; } lane_sums;

/* Returns how many lane_sums a block of n_warps warps has room for: one for each warp that is not the first of its
 * group; without slices one, unused, as an array cannot be empty. */
template <int SLICES> static __host__ __device__ __forceinline__ constexpr int sums_of(int n_warps)
{
    return SLICES > 1 ? n_warps / SLICES * (SLICES - 1) : 1;
}

/* x = the sum over the group's slices, in the warp of slice 0; all the group's warps must call it. sums: [sums_of()] */
template <int SLICES, int GROUPS>
static __device__ __forceinline__ void add_slices(float (&x)[LANE_COLS], lane_sums *sums, int group, int slice)
{
    if constexpr (SLICES > 1) {
        int lane = threadIdx.x % 32;
        lane_sums *at = sums + group * (SLICES - 1);
        if (slice > 0) {
            at[slice - 1].cols[0][lane] = make_float4(x[0], x[1], x[2], x[3]);
            at[slice - 1].cols[1][lane] = make_float4(x[4], x[5], x[6], x[7]);
        }
        group_barrier<SLICES, GROUPS>(group);
        for (int i = 0; slice == 0 && i < SLICES - 1; i++)
            for (int half = 0; half < 2; half++) {
                float4 v = at[i].cols[half][lane];
                x[4 * half] += v.x, x[4 * half + 1] += v.y, x[4 * half + 2] += v.z, x[4 * half + 3] += v.w;
            }
    }
}

/* Returns the slices of a fused kernel of which an SM runs sm_warps warps at once: in heavy batches as many as keep the
 * grid within two waves (no measurement is kept). tiles: of WARP_COLS columns, across a row. */
static int slices_for(const cuda_backend *cu, int tiles, int rows, int sm_warps)
{
    int slices = cu->shape.heavy ? MAX_SLICES : 1;
    while (slices > 1 && tiles * rows * slices > 2 * cu->n_sms * sm_warps)
        slices /= 2;
    return slices;
}

/* y[row, col] += v B, element by element: for shapes the kernels below do not take. */
template <typename T> static __global__ void expand_partials_plain(T *y, int cols, int out0, int out1, expansion e)
{
    int row = blockIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    wait_for_previous();
    let_next_start();
    const lora_entry *l = entry_of(e, row);
    if (col >= cols || !l)
        return;
    int part = col < out0 ? 0 : col < out0 + out1 ? 1 : 2;
    int from = part == 0 ? 0 : part == 1 ? out0 : out0 + out1;
    int out = part == 0 ? out0 : part == 1 ? out1 : cols - from;
    const float *v = e.v_partials + (size_t)row * e.v_stride + first_rank(l, part);
    const T *b = (const T *)l->b[part] + col - from;
    float sum = to_float(y[(size_t)row * cols + col]);
    for (int r = 0; r < l->rank[part]; r++) {
        float by = 0.0f;
        for (int s = 0; s < e.n_splits; s++)
            by += v[(size_t)s * FUSED_ROWS * e.v_stride + r];
        sum += by * to_float(b[(size_t)r * out]);
    }
    y[(size_t)row * cols + col] = from_float<T>(sum);
}

template <typename T> static void run_plain(cuda_backend *cu, tensor *y, const adapted *a)
{
    const linear *w = a->w;
    dim3 grid((unsigned)divide_up(y->cols, 256), (unsigned)y->rows);
    launch(context_of(cu), "expand", expand_partials_plain<T>, grid, 256, 0, y->data, y->cols, w->part[0].w.rows,
           w->n > 1 ? w->part[1].w.rows : 0, expansion_of(cu, a));
}

/* y += v B by a kernel of its own, in whichever form this invocation's shrink left v. */
static void expand_alone(backend *be, tensor *y, const adapted *a, const batch *b)
{
    if (cuda_of(be)->shape.fused)
        BY_ACT(run_plain, cuda_of(be), y, a);
    else
        cuda_sgmv_expand(be, y, a->v, b, a->site, a->w);
}

typedef struct {
    heads h;
    const float *q_norm, *k_norm; /* [head_dim], or NULL */
    float eps;
    const float *inv_freq;
    kv_cache kv;
    int layer;
} rope_job;

/* x = x / sqrt(mean(x^2) + eps) * w over each head, which is in head_dim / 8 adjacent lanes. at: the lane's first
 * column within its head. */
static __device__ __forceinline__ void norm_head(float (&x)[LANE_COLS], const float *w, float eps, int head_dim, int at)
{
    float squares = 0.0f, by[LANE_COLS];
    for (int j = 0; j < LANE_COLS; j++)
        squares += x[j] * x[j];
    for (int i = head_dim / LANE_COLS / 2; i > 0; i >>= 1)
        squares += __shfl_xor_sync(0xffffffffu, squares, i);
    float scale = 1.0f / sqrtf(squares / head_dim + eps);
    load_n(by, w + at);
    for (int j = 0; j < LANE_COLS; j++)
        x[j] *= scale * by[j];
}

/* Rotates the pairs (i, i + half); the other number of a pair is half / 8 lanes away. at: the lane's first column
 * within its head. */
static __device__ __forceinline__ void rotate(float (&x)[LANE_COLS], const float *cosine, const float *sine, int half,
                                              int at)
{
    float c[LANE_COLS], s[LANE_COLS], sign = at < half ? -1.0f : 1.0f;
    load_n(c, cosine + at % half);
    load_n(s, sine + at % half);
    for (int j = 0; j < LANE_COLS; j++) {
        float other = __shfl_xor_sync(0xffffffffu, x[j], half / LANE_COLS);
        x[j] = x[j] * c[j] + sign * other * s[j];
    }
}

/* Returns the address of a key (kind 0) or value (1) of a head in the KvCache. */
template <typename T> static __device__ T *kv_at(const kv_cache &kv, int slot, int layer, int kind, int head)
{
    size_t block = kv_block(kv, slot, layer, kind, head);
    return (T *)kv.data + (block * kv.page_len + slot % kv.page_len) * kv.head_dim;
}

/* Stores the lane's 8 numbers of a head, from its column `at` on, to an F8 KvCache, if `stores`; all lanes of the head
 * take part. */
static __device__ __forceinline__ void store_fp8(const kv_cache &kv, int slot, int layer, int kind, int head, int at,
                                                 const float (&x)[LANE_COLS], bool stores)
{
    float most = 0.0f;
    for (int j = 0; j < LANE_COLS; j++)
        most = fmaxf(most, fabsf(x[j]));
    for (int i = kv.head_dim / LANE_COLS / 2; i > 0; i >>= 1)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, i));
    if (!stores)
        return;
    float scale = fp8_scale(most);
    fp8_slot to = fp8_slot_at(kv, slot, layer, kind, head);
    *(uint2 *)(to.numbers + at) = fp8_of_floats(x, 1.0f / scale);
    if (at == 0)
        *to.scale = scale;
}

/* qkv += v B; norm of query and key heads where there is one; rotate them; queries stay in place, keys and values go
 * into their row's slot of the KvCache. A block owns ROWS rows of 256 columns of q, k or v, SLICES warps one row;
 * head_dim divides 256 and is at least 16. Dynamic shared memory: head_dim floats of cosines and sines for each row. */
template <typename T, int SLICES>
static __global__ void __launch_bounds__(32 * BLOCK_WARPS, ROPE_BLOCKS)
    expand_rope(T *qkv, int n_rows, rope_job job, expansion e, step s)
{
    constexpr int ROWS = BLOCK_WARPS / SLICES;
    __shared__ float shared_v[ROWS][SLICES * RANKS];
    __shared__ lane_sums sums[sums_of<SLICES>(BLOCK_WARPS)];
    extern __shared__ __align__(16) float shared_angles[];
    const heads h = job.h;
    int group = threadIdx.x / 32 / SLICES, slice = threadIdx.x / 32 % SLICES, lane = threadIdx.x % 32;
    int row = blockIdx.y * ROWS + group, half = h.head_dim / 2;
    int q_cols = h.n_heads * h.head_dim, kv_cols = h.n_kv_heads * h.head_dim;
    int q_tiles = (q_cols + WARP_COLS - 1) / WARP_COLS, kv_tiles = (kv_cols + WARP_COLS - 1) / WARP_COLS;
    int tile = blockIdx.x, part = tile < q_tiles ? 0 : tile < q_tiles + kv_tiles ? 1 : 2;
    tile -= part == 0 ? 0 : q_tiles + (part - 1) * kv_tiles;
    int col = tile * WARP_COLS + lane * LANE_COLS, out = part == 0 ? q_cols : kv_cols, at = col % h.head_dim;
    bool live = row < n_rows, inside = live && col < out;
    float *cosine = shared_angles + group * h.head_dim, *sine = cosine + half, *v = shared_v[group];

    let_next_start();
    const lora_entry *l = live ? entry_of(e, row) : NULL;
    lane_product<T, 8, SLICES> p;
    start_product(p, l, part, col, out, slice);
    int first = l ? first_rank(l, part) : 0;
    int position = live ? s.position[row] : 0, slot = live ? s.kv_slot[row] : -1;
    for (int i = lane; slice == 0 && part < 2 && i < half; i += 32)
        sincosf((float)position * job.inv_freq[i], &sine[i], &cosine[i]);
    wait_for_v(e, p.rank > 0);
    float x[LANE_COLS] = {};
    for (int from = 0; from < p.rank; from += SLICES * RANKS) {
        group_barrier<SLICES, ROWS>(group);
        sum_splits(v, e, row, first + from, min(p.rank - from, SLICES * RANKS), slice * 32 + lane, SLICES * 32);
        group_barrier<SLICES, ROWS>(group);
        add_product(x, p, v, from, slice);
    }
    add_slices<SLICES, ROWS>(x, sums, group, slice);

    wait_for_previous();
    if (slice > 0)
        return;
    int part_col = part == 0 ? 0 : q_cols + (part - 1) * kv_cols;
    T *place = qkv + (size_t)row * (q_cols + 2 * kv_cols) + part_col + col;
    if (inside)
        add_n(x, place);
    const float *norm = part == 0 ? job.q_norm : part == 1 ? job.k_norm : NULL;
    if (norm)
        norm_head(x, norm, job.eps, h.head_dim, at);
    if (part < 2)
        rotate(x, cosine, sine, half, at);
    if (part > 0 && job.kv.type == DTYPE_F8)
        store_fp8(job.kv, slot, job.layer, part - 1, col / h.head_dim, at, x, inside && slot >= 0);
    else if (inside && part == 0)
        store_n(place, x);
    else if (inside && slot >= 0)
        store_n(kv_at<T>(job.kv, slot, job.layer, part - 1, col / h.head_dim) + at, x);
}

template <typename T> static void run_rope(cuda_backend *cu, tensor *qkv, rope_job job, const adapted *a)
{
    int tiles = warps_across(job.h.n_heads * job.h.head_dim) + 2 * warps_across(job.h.n_kv_heads * job.h.head_dim);
    int slices = slices_for(cu, tiles, qkv->rows, ROPE_BLOCKS * BLOCK_WARPS), rows = BLOCK_WARPS / slices;
    auto kernel = slices == 4 ? expand_rope<T, 4> : slices == 2 ? expand_rope<T, 2> : expand_rope<T, 1>;
    dim3 grid((unsigned)tiles, (unsigned)divide_up(qkv->rows, rows));
    size_t shared = (size_t)rows * (size_t)job.h.head_dim * sizeof(float);
    launch(context_of(cu), "expand_rope_append", kernel, grid, 32 * BLOCK_WARPS, shared, qkv->data, qkv->rows, job,
           expansion_of(cu, a), cu->step);
}

void cuda_expand_rope_append(backend *be, tensor *qkv, heads h, const head_norms *norms, const float *inv_freq,
                             const adapted *a, const batch *b, kv_cache *kv, int layer)
{
    cuda_backend *cu = cuda_of(be);
    const tensor *q_w = &norms->q_w, *k_w = &norms->k_w;
    CHECK(qkv->cols == (h.n_heads + 2 * h.n_kv_heads) * h.head_dim && qkv->type == be->act);
    CHECK(kv->n_kv_heads == h.n_kv_heads && kv->head_dim == h.head_dim);
    CHECK(kv->type == be->act || kv->type == DTYPE_F8);
    if (cu->shape.fused && h.head_dim >= 16 && WARP_COLS % h.head_dim == 0) {
        rope_job job = {h, (const float *)q_w->data, (const float *)k_w->data, norms->eps, inv_freq, *kv, layer};
        BY_ACT(run_rope, cu, qkv, job, a);
        return;
    }
    if (cu->shape.prompt_tiles && cuda_prompt_rope_append(cu, qkv, h, norms, inv_freq, a, kv, layer))
        return;
    expand_alone(be, qkv, a, b);
    if (q_w->data)
        cuda_head_norm(be, qkv, h, q_w, k_w, norms->eps);
    cuda_rope_append(be, qkv, h, inv_freq, b, kv, layer);
}

enum { MAX_CLUSTER = 8 }; /* the largest portable cluster size */

/* Returns the smallest cluster whose blocks have at most NORM_WARPS warps for a row of `cols` columns, or
 * SLICED_NORM_WARPS if there are several slices; 0 where it would exceed MAX_CLUSTER. Where the device has clusters it
 * is at least 2, see st_async.cuh. */
static int norm_cluster(const cuda_backend *cu, int cols, int slices)
{
    int most = cu->arch >= 90 ? MAX_CLUSTER : 1, cluster = most > 1 ? 2 : 1;
    int tiles = slices > 1 ? SLICED_NORM_WARPS / slices : NORM_WARPS;
    while (cluster <= most && warps_across(cols) > cluster * tiles)
        cluster *= 2;
    return cluster <= most ? cluster : 0;
}

/* x += delta + v B, then y = x / sqrt(mean(x^2) + eps) * w. A cluster owns a row, SLICES warps 256 columns of it; the
 * sum of squares of each 256 is sent to all blocks. When the shrink's blocks have arrived, all kernels before theirs
 * have ended: x is read then, and when the dense product has ended only delta is still to be read. */
template <typename T, int SLICES>
static __global__ void __launch_bounds__(32 * (SLICES > 1 ? SLICED_NORM_WARPS : NORM_WARPS),
                                         SLICES > 1 ? SLICED_NORM_BLOCKS : NORM_BLOCKS)
    expand_add_norm(T *y, float *x, const T *delta, const float *w, int cols, float eps, expansion e)
{
    __shared__ float squares_of[MAX_CLUSTER * NORM_WARPS], shared_v[SLICES * RANKS];
    __shared__ lane_sums sums[sums_of<SLICES>(SLICED_NORM_WARPS)];
    __shared__ uint64_t barrier;
    int n_groups = blockDim.x / 32 / SLICES, group = threadIdx.x / 32 / SLICES, slice = threadIdx.x / 32 % SLICES;
    int lane = threadIdx.x % 32, row = blockIdx.y;
    int col = (blockIdx.x * n_groups + group) * WARP_COLS + lane * LANE_COLS;
    bool inside = col < cols, leads = inside && slice == 0;
    size_t place = (size_t)row * cols + col;

    let_next_start();
    if (threadIdx.x == 0) {
        st_async_init(&barrier);
        st_async_expect(&barrier, (int)gridDim.x * n_groups);
    }
    __syncwarp();
    cluster_arrive_relaxed();
    lane_product<T, 8, SLICES> p;
    start_product(p, entry_of(e, row), 0, col, cols, slice);
    float by[LANE_COLS] = {}, v[LANE_COLS] = {}, squares = 0.0f;
    if (leads)
        load_n(by, w + col);
    wait_for_v(e, true);
    if (leads)
        load_latest(v, x + place);
    for (int from = 0; from < p.rank; from += SLICES * RANKS) {
        __syncthreads();
        sum_splits(shared_v, e, row, from, min(p.rank - from, SLICES * RANKS), threadIdx.x, blockDim.x);
        __syncthreads();
        add_product(v, p, shared_v, from, slice);
    }
    add_slices<SLICES, SLICED_NORM_WARPS / SLICES>(v, sums, group, slice);
    cluster_wait(); /* all mbarriers are initialised */

    wait_for_previous();
    if (slice > 0)
        return;
    if (inside)
        add_n(v, delta + place);
    for (int j = 0; j < LANE_COLS; j++)
        squares += inside ? v[j] * v[j] : 0.0f;
    squares = warp_sum(squares);
    if (lane < gridDim.x)
        st_async(&squares_of[blockIdx.x * n_groups + group], &barrier, lane, squares);
    if (inside)
        store_n(x + place, v);
    st_async_wait(&barrier, 0);
    float all = 0.0f;
    for (int i = lane; i < gridDim.x * n_groups; i += 32)
        all += squares_of[i];
    float scale = 1.0f / sqrtf(warp_sum(all) / cols + eps);
    for (int j = 0; j < LANE_COLS; j++)
        v[j] *= scale * by[j];
    if (inside)
        store_n(y + place, v);
}

template <typename T>
static void run_add_norm(cuda_backend *cu, tensor *delta, tensor *y, tensor *x, const tensor *w, float eps,
                         const adapted *a)
{
    int slices = slices_for(cu, warps_across(x->cols), x->rows, SLICED_NORM_BLOCKS * SLICED_NORM_WARPS);
    while (slices > 1 && norm_cluster(cu, x->cols, slices) == 0)
        slices /= 2;
    auto kernel = slices == 4 ? expand_add_norm<T, 4> : slices == 2 ? expand_add_norm<T, 2> : expand_add_norm<T, 1>;
    int cluster = norm_cluster(cu, x->cols, slices), warps = divide_up(warps_across(x->cols), cluster) * slices;
    launch_clusters(context_of(cu), "expand_add_rms_norm", kernel, dim3((unsigned)cluster, (unsigned)x->rows),
                    32 * (unsigned)warps, 0, (unsigned)cluster, y->data, x->data, delta->data, w->data, x->cols, eps,
                    expansion_of(cu, a));
}

void cuda_expand_add_rms_norm(backend *be, tensor *delta, tensor *y, tensor *x, const tensor *w, float eps,
                              const adapted *a, const batch *b)
{
    cuda_backend *cu = cuda_of(be);
    CHECK(y->cols == x->cols && delta->cols == x->cols && w->cols == x->cols && a->w->n == 1);
    CHECK(x->type == DTYPE_F32 && w->type == DTYPE_F32 && y->type == be->act && delta->type == be->act);
    if (cu->shape.fused && x->cols % LANE_COLS == 0 && norm_cluster(cu, x->cols, 1) > 0) {
        BY_ACT(run_add_norm, cu, delta, y, x, w, eps, a);
        return;
    }
    if (cu->shape.prompt_tiles && cuda_prompt_add_rms_norm(cu, delta, y, x, w, eps, a))
        return;
    expand_alone(be, delta, a, b);
    cuda_add_rms_norm(be, y, x, delta, w, eps);
}

/* y += v B. A block owns BLOCK_WARPS rows of 256 columns of the one projection, a warp one row. */
template <typename T>
static __global__ void __launch_bounds__(32 * BLOCK_WARPS, ROWS_BLOCKS)
    expand_rows(T *y, int n_rows, int cols, expansion e)
{
    __shared__ float shared_v[BLOCK_WARPS][RANKS];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.y * BLOCK_WARPS + warp;
    int col = blockIdx.x * WARP_COLS + lane * LANE_COLS;
    bool live = row < n_rows;

    let_next_start();
    lane_product<T, 8, 1> p;
    start_product(p, live ? entry_of(e, row) : NULL, 0, col, cols, 0);
    wait_for_v(e, p.rank > 0);
    float x[LANE_COLS] = {};
    for (int from = 0; from < p.rank; from += RANKS) {
        __syncwarp();
        sum_splits(shared_v[warp], e, row, from, min(p.rank - from, (int)RANKS), lane, 32);
        __syncwarp();
        add_product(x, p, shared_v[warp], from, 0);
    }

    wait_for_previous();
    if (p.rank == 0 || col >= cols)
        return;
    T *place = y + (size_t)row * cols + col;
    add_n(x, place);
    store_n(place, x);
}

template <typename T> static void run_rows(cuda_backend *cu, tensor *y, const adapted *a)
{
    dim3 grid((unsigned)warps_across(y->cols), (unsigned)divide_up(y->rows, BLOCK_WARPS));
    launch(context_of(cu), "expand", expand_rows<T>, grid, 32 * BLOCK_WARPS, 0, y->data, y->rows, y->cols,
           expansion_of(cu, a));
}

void cuda_expand(backend *be, tensor *y, const adapted *a, const batch *b)
{
    CHECK(y->type == be->act && a->w->n == 1 && y->cols == a->w->part[0].w.rows);
    if (cuda_of(be)->shape.fused && y->cols % LANE_COLS == 0)
        BY_ACT(run_rows, cuda_of(be), y, a);
    else
        expand_alone(be, y, a, b);
}

/* y = silu(gate + v0 B0) * (up + v1 B1). A block owns ROWS rows of 256 columns, SLICES warps one row. */
template <typename T, int AHEAD, int SLICES>
static __global__ void __launch_bounds__(32 * BLOCK_WARPS, AHEAD > 4 ? SILU_BLOCKS : SILU_BLOCKS_4_AHEAD)
    expand_silu(T *y, const T *gate_up, int n_rows, int cols, expansion e)
{
    constexpr int ROWS = BLOCK_WARPS / SLICES;
    __shared__ float shared_v[ROWS][2][SLICES * RANKS];
    __shared__ lane_sums gate_sums[sums_of<SLICES>(BLOCK_WARPS)], up_sums[sums_of<SLICES>(BLOCK_WARPS)];
    int group = threadIdx.x / 32 / SLICES, slice = threadIdx.x / 32 % SLICES, lane = threadIdx.x % 32;
    int row = blockIdx.y * ROWS + group, col = blockIdx.x * WARP_COLS + lane * LANE_COLS;
    bool live = row < n_rows, inside = live && col < cols;
    float *v_gate = shared_v[group][0], *v_up = shared_v[group][1];

    let_next_start();
    const lora_entry *l = live ? entry_of(e, row) : NULL;
    lane_product<T, AHEAD, SLICES> g, u;
    start_product(g, l, 0, col, cols, slice);
    start_product(u, l, 1, col, cols, slice);
    wait_for_v(e, g.rank + u.rank > 0);
    float gate[LANE_COLS] = {}, up[LANE_COLS] = {};
    for (int from = 0; from < max(g.rank, u.rank); from += SLICES * RANKS) {
        group_barrier<SLICES, ROWS>(group);
        sum_splits(v_gate, e, row, from, min(g.rank - from, SLICES * RANKS), slice * 32 + lane, SLICES * 32);
        sum_splits(v_up, e, row, g.rank + from, min(u.rank - from, SLICES * RANKS), slice * 32 + lane, SLICES * 32);
        group_barrier<SLICES, ROWS>(group);
#pragma unroll 1
        for (int i = slice * AHEAD; i < SLICES * RANKS && from + i < max(g.rank, u.rank); i += SLICES * AHEAD) {
            add_ranks(gate, g, v_gate + i, from + i);
            add_ranks(up, u, v_up + i, from + i);
        }
    }
    add_slices<SLICES, ROWS>(gate, gate_sums, group, slice);
    add_slices<SLICES, ROWS>(up, up_sums, group, slice);

    wait_for_previous();
    if (slice > 0)
        return;
    if (inside) {
        add_n(gate, gate_up + 2 * (size_t)row * cols + col);
        add_n(up, gate_up + (2 * (size_t)row + 1) * cols + col);
    }
    for (int j = 0; j < LANE_COLS; j++)
        up[j] *= silu(gate[j]);
    if (inside)
        store_n(y + (size_t)row * cols + col, up);
}

template <typename T> static void run_silu(cuda_backend *cu, tensor *gate_up, tensor *y, const adapted *a)
{
    int tiles = warps_across(y->cols);
    int slices = slices_for(cu, tiles, y->rows, SILU_BLOCKS * BLOCK_WARPS), rows = BLOCK_WARPS / slices;
    dim3 grid((unsigned)tiles, (unsigned)divide_up(y->rows, rows));
    /* With more rows, blocks fit beside the dense product only if they have fewer registers (no measurement of 32 is
     * kept). With several slices, 4 rows of B ahead were not tried. */
    auto unsliced = y->rows <= 32 ? expand_silu<T, 8, 1> : expand_silu<T, 4, 1>;
    auto kernel = slices == 4 ? expand_silu<T, 8, 4> : slices == 2 ? expand_silu<T, 8, 2> : unsliced;
    launch(context_of(cu), "expand_silu_mul", kernel, grid, 32 * BLOCK_WARPS, 0, y->data, gate_up->data, y->rows,
           y->cols, expansion_of(cu, a));
}

void cuda_expand_silu_mul(backend *be, tensor *gate_up, tensor *y, const adapted *a, const batch *b)
{
    cuda_backend *cu = cuda_of(be);
    CHECK(gate_up->cols == 2 * y->cols && gate_up->rows == y->rows && a->w->n == 2);
    CHECK(gate_up->type == be->act && y->type == be->act);
    if (cu->shape.fused && y->cols % LANE_COLS == 0) {
        BY_ACT(run_silu, cu, gate_up, y, a);
        return;
    }
    if (cu->shape.prompt_tiles && cuda_prompt_silu_mul(cu, gate_up, y, a))
        return;
    expand_alone(be, gate_up, a, b);
    cuda_silu_mul(be, y, gate_up);
}
