/* cuda_prompt.cu - SGMV expand fused with the op that reads its result, in steps with prompts
 *
 * The counterpart of cuda_expand.cu for many rows: an expand by itself would read and write all of y once more, which
 * takes longer than its product. So the ops that read y anyway add v B on the way, tile by tile of rows: a warp loads
 * a strip of 16 rows by 64 columns, adds the adapter's product by tensor cores in registers (sgmv_prompt.cuh) and goes
 * on. Rows without adapter are passed on as they are. For shapes that these kernels do not support the expand is a
 * kernel of its own: each function returns whether it did the op. */
#include "backend/cuda/sgmv_prompt.cuh"

/* Where a site's adapters and v are. */
typedef struct {
    const sgmv_tile *tile;
    int site, v_cols;
    const float *v;
} prompt_expansion;

static prompt_expansion prompt_expansion_of(const cuda_backend *cu, const adapted *a)
{
    return {cu->step.tile, a->site, a->v->cols, (const float *)a->v->data};
}

template <typename T>
static __device__ __forceinline__ expand_part<T> prompt_part(const prompt_expansion &e, const sgmv_tile &tile, int part,
                                                             int row, int out)
{
    return strip_part<T>(tile, e.site, part, row, out, e.v, e.v_cols);
}

/* Returns how many of n strips or heads a block takes in turn, so that v's operands are made once for all of them: up
 * to `most`, halved until there are two waves of blocks. With one wave, and loads issued earlier, adapters cost 18.9 ms
 * instead of 9.8 in a step of 8191 rows (docs/lab/prompts.md). */
static int per_block(const cuda_backend *cu, int n, int most)
{
    int each = most, two_waves = 2 * PROMPT_BLOCKS * cu->n_sms;
    while (each > 1 && divide_up(n, each) * cu->shape.max_tiles < two_waves)
        each /= 2;
    return each;
}

enum { SILU_STRIPS = 8 }; /* of a block, at most; no measurement is kept */

/* y = silu(gate + v0 B0) * (up + v1 B1). Block (i, tile) owns `strips` adjacent strips of a tile, a warp 16 of its
 * rows. Shared memory: v of both parts, 32 KB. */
template <typename T>
static __global__ void __launch_bounds__(PROMPT_THREADS, PROMPT_BLOCKS)
    prompt_silu(T *y, const T *gate_up, int cols, int strips, prompt_expansion e)
{
    __shared__ strip_operands kept[PROMPT_WARPS][2];
    sgmv_tile tile = e.tile[blockIdx.y];
    int row = warp_id() * STRIP_ROWS, n_rows = tile.n_rows - row, col = (int)blockIdx.x * strips * STRIP_COLS;
    int end = min(cols, col + strips * STRIP_COLS);
    expand_part<T> g = prompt_part<T>(e, tile, 0, row, cols), u = prompt_part<T>(e, tile, 1, row, cols);
    wait_for_previous();
    let_next_start();
    if (n_rows <= 0)
        return;
    strip_make_operands(kept[warp_id()][0], g);
    strip_make_operands(kept[warp_id()][1], u);
    const T *from = gate_up + (size_t)(tile.row + row) * 2 * cols;
    for (; col < end; col += STRIP_COLS) {
        strip_raw<T> gate_raw = strip_load(from, 2 * (size_t)cols, n_rows, col, cols);
        strip_raw<T> up_raw = strip_load(from + cols, 2 * (size_t)cols, n_rows, col, cols);
        b_fragment b_gate = strip_load_b(g, col, 0), b_up = strip_load_b(u, col, 0);
        float gate[4][8] = {}, up[4][8] = {};
        strip_accumulate(gate, gate_raw);
        strip_add(gate, g, col, b_gate, kept[warp_id()][0]);
        strip_accumulate(up, up_raw);
        strip_add(up, u, col, b_up, kept[warp_id()][1]);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                up[i][j] *= silu(gate[i][j]);
        strip_store(y + (size_t)(tile.row + row) * cols, up, (size_t)cols, n_rows, col, cols);
    }
}

template <typename T> static void run_silu(cuda_backend *cu, tensor *gate_up, tensor *y, const adapted *a)
{
    int n = divide_up(y->cols, STRIP_COLS), strips = per_block(cu, n, SILU_STRIPS);
    launch(context_of(cu), "expand_silu_mul", prompt_silu<T>,
           dim3((unsigned)divide_up(n, strips), (unsigned)cu->shape.max_tiles), PROMPT_THREADS, 0, y->data,
           gate_up->data, y->cols, strips, prompt_expansion_of(cu, a));
}

bool cuda_prompt_silu_mul(cuda_backend *cu, tensor *gate_up, tensor *y, const adapted *a)
{
    if (y->cols % 8 != 0)
        return false;
    BY_ACT(run_silu, cu, gate_up, y, a);
    return true;
}

enum {
    PROMPT_NORM_WARPS = 8, /* of a block; no measurement is kept */
    PROMPT_NORM_ACROSS = PROMPT_NORM_WARPS / TILE_STRIPS,
};

/* x += delta + v B, then y = x / sqrt(mean(x^2) + eps) * w. A cluster owns a tile. Two warps of each of its blocks have
 * the same 16 rows; all such warps of the cluster take the strips of these rows in turn, once to add up and, when the
 * rows' sums of squares are known, once more, from L2, to normalise. Shared: v and sums, 32.5 KB. */
template <typename T>
static __global__ void __launch_bounds__(32 * PROMPT_NORM_WARPS, 2)
    prompt_norm(T *y, float *x, const T *delta, const float *w, int cols, float eps, prompt_expansion e)
{
    __shared__ strip_operands kept[PROMPT_NORM_WARPS];
    __shared__ float sums[PROMPT_NORM_ACROSS][PROMPT_TILE];
    sgmv_tile tile = e.tile[blockIdx.y];
    int across = warp_id() / TILE_STRIPS, row = warp_id() % TILE_STRIPS * STRIP_ROWS, n_rows = tile.n_rows - row,
        g = lane_id() >> 2;
    int begin = ((int)blockIdx.x * PROMPT_NORM_ACROSS + across) * STRIP_COLS,
        stride = (int)gridDim.x * PROMPT_NORM_ACROSS * STRIP_COLS;
    expand_part<T> p = prompt_part<T>(e, tile, 0, row, cols);
    size_t first = (size_t)(tile.row + row) * cols;
    float squares[2] = {}, by[2];
    let_next_start();
    wait_for_previous();
    strip_make_operands(kept[warp_id()], p);
    for (int col = begin; col < cols && n_rows > 0; col += stride) {
        strip_raw<float> old = strip_load(x + first, cols, n_rows, col, cols);
        strip_raw<T> more = strip_load(delta + first, cols, n_rows, col, cols);
        b_fragment b = strip_load_b(p, col, 0);
        float sum[4][8] = {};
        strip_accumulate(sum, old);
        strip_accumulate(sum, more);
        strip_add(sum, p, col, b, kept[warp_id()]);
        strip_store(x + first, sum, cols, n_rows, col, cols);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                squares[i >> 1] += sum[i][j] * sum[i][j];
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        squares[i] += __shfl_xor_sync(0xffffffffu, squares[i], 1);
        squares[i] += __shfl_xor_sync(0xffffffffu, squares[i], 2);
        if ((lane_id() & 3) == 0)
            sums[across][row + g + 8 * i] = squares[i];
    }
    cluster_arrive();
    cluster_wait();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sum = 0.0f;
        for (unsigned peer = 0; peer < gridDim.x; peer++)
            for (int j = 0; j < PROMPT_NORM_ACROSS; j++)
                sum += load_from_peer(&sums[j][row + g + 8 * i], peer);
        by[i] = 1.0f / sqrtf(sum / cols + eps);
    }
    cluster_arrive(); /* no block exits before its sums were read: waited for below */
    for (int col = begin; col < cols && n_rows > 0; col += stride) {
        strip_raw<float> now = strip_load(x + first, cols, n_rows, col, cols),
                         weight = strip_load(w, 0, n_rows, col, cols);
        float normed[4][8] = {}, factor[4][8] = {};
        strip_accumulate(normed, now);
        strip_accumulate(factor, weight);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                normed[i][j] *= by[i >> 1] * factor[i][j];
        strip_store(y + first, normed, cols, n_rows, col, cols);
    }
    cluster_wait();
}

template <typename T>
static void run_norm(cuda_backend *cu, tensor *delta, tensor *y, tensor *x, const tensor *w, float eps,
                     const adapted *a)
{
    unsigned cluster = cu->arch >= 90 ? PROMPT_CLUSTER : 1;
    while (cluster > 1 && divide_up(x->cols, PROMPT_NORM_ACROSS * STRIP_COLS) < (int)cluster)
        cluster /= 2;
    launch_clusters(context_of(cu), "expand_add_rms_norm", prompt_norm<T>, dim3(cluster, (unsigned)cu->shape.max_tiles),
                    32 * PROMPT_NORM_WARPS, 0, cluster, y->data, x->data, delta->data, w->data, x->cols, eps,
                    prompt_expansion_of(cu, a));
}

bool cuda_prompt_add_rms_norm(cuda_backend *cu, tensor *delta, tensor *y, tensor *x, const tensor *w, float eps,
                              const adapted *a)
{
    if (x->cols % 8 != 0)
        return false;
    BY_ACT(run_norm, cu, delta, y, x, w, eps, a);
    return true;
}

enum {
    ROPE_HEAD = 2 * STRIP_COLS, /* numbers of a head: a strip, and the one that it is rotated with */
    ROPE_MAX_HEADS = 32,        /* of a block; no measurement is kept */
    ANGLES_RUN = 20,            /* floats for the cosines and sines of 8 angles: 16, and 4 to spread the banks */
    ANGLES_ROW = 8 * ANGLES_RUN + 16,
};

typedef struct {
    heads h;
    const float *q_norm, *k_norm; /* [ROPE_HEAD], or NULL */
    float eps;
    const float *inv_freq;
    kv_cache kv;
    int layer;
    const int *position, *kv_slot;
} prompt_rope_job;

typedef struct {
    strip_operands kept[PROMPT_WARPS];
    float angles[PROMPT_WARPS][STRIP_ROWS * ANGLES_ROW];
} rope_shared;

/* Computes the cosine and sine of each angle of a strip, in runs of 8 as in strips; each warp for its own rows. */
static __device__ __forceinline__ void make_angles(float *angles, const prompt_rope_job &job, int row, int n_rows)
{
    for (int i = lane_id(); i < min(n_rows, (int)STRIP_ROWS) * STRIP_COLS; i += 32) {
        int pair = i % STRIP_COLS;
        float *to = angles + i / STRIP_COLS * ANGLES_ROW + pair / 8 * ANGLES_RUN + pair % 8 * 2;
        sincosf((float)job.position[row + i / STRIP_COLS] * job.inv_freq[pair], &to[1], &to[0]);
    }
    __syncwarp();
}

/* Normalises the rows of a head, whose columns are the strips lo and hi. */
static __device__ __forceinline__ void norm_strips(float (&lo)[4][8], float (&hi)[4][8], const float *w, float eps)
{
    int t = lane_id() & 3;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float squares = 0.0f;
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; i++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                squares += lo[i][j] * lo[i][j] + hi[i][j] * hi[i][j];
        squares += __shfl_xor_sync(0xffffffffu, squares, 1);
        squares += __shfl_xor_sync(0xffffffffu, squares, 2);
        float by = 1.0f / sqrtf(squares / ROPE_HEAD + eps);
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) {
                int at = 8 * t + 32 * (i & 1) + j;
                lo[i][j] *= by * w[at];
                hi[i][j] *= by * w[at + STRIP_COLS];
            }
    }
}

/* Rotates the pairs (lo, hi) by their angles. */
static __device__ __forceinline__ void rotate_strips(float (&lo)[4][8], float (&hi)[4][8], const float *angles)
{
    angles += (lane_id() >> 2) * ANGLES_ROW + (lane_id() & 3) * ANGLES_RUN;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            float4 two = *(const float4 *)(angles + (i >> 1) * 8 * ANGLES_ROW + (i & 1) * 4 * ANGLES_RUN + j * 2);
            float turned = lo[i][j] * two.x - hi[i][j] * two.y;
            hi[i][j] = hi[i][j] * two.x + lo[i][j] * two.y;
            lo[i][j] = turned;
            turned = lo[i][j + 1] * two.z - hi[i][j + 1] * two.w;
            hi[i][j + 1] = hi[i][j + 1] * two.z + lo[i][j + 1] * two.w;
            lo[i][j + 1] = turned;
        }
}

/* Stores the strips of a head's keys (kind 0) or values (1) to the KvCache, each row to its slot. */
template <typename T>
static __device__ __forceinline__ void append_strips(const kv_cache &kv, int layer, int kind, int head,
                                                     const int *slots, int n_rows, const float (&lo)[4][8],
                                                     const float (&hi)[4][8])
{
    int g = lane_id() >> 2, t = lane_id() & 3;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int slot = g + 8 * h < n_rows ? slots[g + 8 * h] : -1;
        if (slot < 0)
            continue;
        T *to = (T *)kv.data + (kv_block(kv, slot, layer, kind, head) * kv.page_len + slot % kv.page_len) * ROPE_HEAD +
                8 * t;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            store_n(to + 32 * i, lo[2 * h + i]);
            store_n(to + 32 * i + STRIP_COLS, hi[2 * h + i]);
        }
    }
}

/* qkv += v B; norm of query and key heads where there is one; rotate them; queries stay in place, keys and values go
 * into their row's slot of the KvCache. Block (i, tile) owns `each` heads of q, k or v (q has q_blocks blocks, k and v
 * kv_blocks each), a warp 16 of the tile's rows. Shared: sizeof(rope_shared), 60 KB. */
template <typename T>
static __global__ void __launch_bounds__(PROMPT_THREADS, PROMPT_BLOCKS)
    prompt_rope(T *qkv, int each, int q_blocks, int kv_blocks, prompt_rope_job job, prompt_expansion e)
{
    extern __shared__ __align__(1024) char shared[];
    rope_shared *sh = (rope_shared *)shared;
    const heads h = job.h;
    sgmv_tile tile = e.tile[blockIdx.y];
    int row = warp_id() * STRIP_ROWS, n_rows = tile.n_rows - row, block = (int)blockIdx.x;
    int part = block < q_blocks               ? 0
               : block < q_blocks + kv_blocks ? 1
                                              : 2,
        n_heads = part == 0 ? h.n_heads : h.n_kv_heads;
    int head = (block - (part == 0 ? 0 : q_blocks + (part - 1) * kv_blocks)) * each, end = min(n_heads, head + each);
    int before = part == 0 ? 0 : h.n_heads + (part - 1) * h.n_kv_heads, out = n_heads * ROPE_HEAD;
    size_t stride = (size_t)(h.n_heads + 2 * h.n_kv_heads) * ROPE_HEAD;
    const float *norm = part == 0 ? job.q_norm : part == 1 ? job.k_norm : NULL;
    expand_part<T> p = prompt_part<T>(e, tile, part, row, out);
    T *place = qkv + (size_t)(tile.row + row) * stride + (size_t)before * ROPE_HEAD;
    let_next_start();
    if (part < 2)
        make_angles(sh->angles[warp_id()], job, tile.row + row, n_rows);
    wait_for_previous();
    if (n_rows <= 0)
        return;
    strip_make_operands(sh->kept[warp_id()], p);
    for (; head < end; head++) {
        int col = head * ROPE_HEAD;
        strip_raw<T> raw_lo = strip_load(place, stride, n_rows, col, out);
        strip_raw<T> raw_hi = strip_load(place, stride, n_rows, col + STRIP_COLS, out);
        b_fragment b_lo = strip_load_b(p, col, 0), b_hi = strip_load_b(p, col + STRIP_COLS, 0);
        float lo[4][8] = {}, hi[4][8] = {};
        strip_accumulate(lo, raw_lo);
        strip_add(lo, p, col, b_lo, sh->kept[warp_id()]);
        strip_accumulate(hi, raw_hi);
        strip_add(hi, p, col + STRIP_COLS, b_hi, sh->kept[warp_id()]);
        if (norm)
            norm_strips(lo, hi, norm, job.eps);
        if (part < 2)
            rotate_strips(lo, hi, sh->angles[warp_id()]);
        if (part > 0) {
            append_strips<T>(job.kv, job.layer, part - 1, head, job.kv_slot + tile.row + row, n_rows, lo, hi);
            continue;
        }
        strip_store(place, lo, stride, n_rows, col, out);
        strip_store(place, hi, stride, n_rows, col + STRIP_COLS, out);
    }
}

template <typename T> static void run_rope(cuda_backend *cu, tensor *qkv, const prompt_rope_job &job, const adapted *a)
{
    int each = per_block(cu, job.h.n_heads + 2 * job.h.n_kv_heads, ROPE_MAX_HEADS);
    int q_blocks = divide_up(job.h.n_heads, each), kv_blocks = divide_up(job.h.n_kv_heads, each);
    allow_shared(context_of(cu), "expand_rope_append", prompt_rope<T>, sizeof(rope_shared));
    launch(context_of(cu), "expand_rope_append", prompt_rope<T>,
           dim3((unsigned)(q_blocks + 2 * kv_blocks), (unsigned)cu->shape.max_tiles), PROMPT_THREADS,
           sizeof(rope_shared), qkv->data, each, q_blocks, kv_blocks, job, prompt_expansion_of(cu, a));
}

bool cuda_prompt_rope_append(cuda_backend *cu, tensor *qkv, heads h, const head_norms *norms, const float *inv_freq,
                             const adapted *a, kv_cache *kv, int layer)
{
    if (h.head_dim != ROPE_HEAD || kv->type != cu->base.act)
        return false;
    prompt_rope_job job = {h,
                           (const float *)norms->q_w.data,
                           (const float *)norms->k_w.data,
                           norms->eps,
                           inv_freq,
                           *kv,
                           layer,
                           cu->step.position,
                           cu->step.kv_slot};
    BY_ACT(run_rope, cu, qkv, job, a);
    return true;
}
