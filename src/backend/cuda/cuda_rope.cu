/* cuda_rope.cu - head norms, rotary embedding, and appending keys and values to the KvCache
 *
 * No measurement is kept of the block sizes, and of the rows from which a thread has four heads. */
#include "backend/cuda/fp8.cuh"

/* x = x / sqrt(mean(x^2) + eps) * w for each query and key head of each row. A warp owns one head of one row, a lane
 * vectors of V numbers of it. No shared memory. */
template <typename T, int V>
static __global__ void __launch_bounds__(128)
    head_norm_kernel(T *qkv, int n_rows, int cols, heads h, const float *q_w, const float *k_w, float eps)
{
    int n = h.n_heads + h.n_kv_heads, warp = (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int row = warp / n, head = warp % n, lane = threadIdx.x % 32;
    wait_for_previous();
    let_next_start();
    if (row >= n_rows)
        return;
    T *x = qkv + (size_t)row * cols + (size_t)head * h.head_dim;
    const float *w = head < h.n_heads ? q_w : k_w;
    float sum = 0.0f;
    for (int i = lane * V; i < h.head_dim; i += 32 * V) {
        float v[V];
        load_n(v, x + i);
        for (int j = 0; j < V; j++)
            sum += v[j] * v[j];
    }
    float by = rsqrtf(warp_sum(sum) / (float)h.head_dim + eps);
    for (int i = lane * V; i < h.head_dim; i += 32 * V) {
        float v[V];
        load_n(v, x + i);
        for (int j = 0; j < V; j++)
            v[j] *= by * w[i + j];
        store_n(x + i, v);
    }
}

template <typename T, int V>
static void norm_heads(cuda_backend *cu, tensor *qkv, heads h, const float *q_w, const float *k_w, float eps)
{
    int warps = qkv->rows * (h.n_heads + h.n_kv_heads);
    launch(context_of(cu), "head_norm", head_norm_kernel<T, V>, (warps + 3) / 4, 128, 0, (T *)qkv->data, qkv->rows,
           qkv->cols, h, q_w, k_w, eps);
}

template <typename T>
static void norm_heads_by_size(cuda_backend *cu, tensor *qkv, heads h, const float *q_w, const float *k_w, float eps)
{
    if (h.head_dim % 128 == 0)
        norm_heads<T, 4>(cu, qkv, h, q_w, k_w, eps);
    else if (h.head_dim % 2 == 0)
        norm_heads<T, 2>(cu, qkv, h, q_w, k_w, eps);
    else
        norm_heads<T, 1>(cu, qkv, h, q_w, k_w, eps);
}

void cuda_head_norm(backend *be, tensor *qkv, heads h, const tensor *q_w, const tensor *k_w, float eps)
{
    CHECK(q_w->type == DTYPE_F32 && k_w->type == DTYPE_F32);
    BY_ACT(norm_heads_by_size, cuda_of(be), qkv, h, (const float *)q_w->data, (const float *)k_w->data, eps);
}

/* Where keys and values are stored: one layer of the KvCache. */
template <typename T> struct page_target {
    T *keys;                           /* this layer's keys in page 0; NULL: keys and values are not stored */
    size_t page_stride, values_offset; /* in numbers: from a page to the next; from keys to values */
    int page_len;
};

/* Rotates the pairs (x[i], x[i + head_dim / 2]) of query and key heads by position * inv_freq[i], in place; stores keys
 * and values in the row's slot of its page, unless it has none. Grid: rows x slices of the heads. Thread (x, y) owns V
 * pairs, from pair x * V on, of every (gridDim.y * blockDim.y)-th head. No shared memory. */
template <typename T, int V>
static __global__ void __launch_bounds__(256)
    rope_append_kernel(T *qkv, int cols, heads h, const float *inv_freq, step s, page_target<T> to)
{
    int row = blockIdx.x, half = h.head_dim / 2, pair = threadIdx.x * V, slot = s.kv_slot[row];
    float sine[V], cosine[V], position = (float)s.position[row];
    let_next_start();
    for (int i = 0; i < V; i++)
        sincosf(position * inv_freq[pair + i], &sine[i], &cosine[i]);
    int page = max(slot, 0) / to.page_len, place = max(slot, 0) % to.page_len;
    T *keys = to.keys ? to.keys + page * to.page_stride + (size_t)place * h.head_dim : NULL;
    wait_for_previous();
    for (int head = blockIdx.y * blockDim.y + threadIdx.y; head < h.n_heads + 2 * h.n_kv_heads;
         head += gridDim.y * blockDim.y) {
        T *x = qkv + (size_t)row * cols + (size_t)head * h.head_dim + pair;
        float lo[V], hi[V];
        load_n(lo, x);
        load_n(hi, x + half);
        if (head < h.n_heads + h.n_kv_heads) {
            for (int i = 0; i < V; i++) {
                float turned = lo[i] * cosine[i] - hi[i] * sine[i];
                hi[i] = hi[i] * cosine[i] + lo[i] * sine[i];
                lo[i] = turned;
            }
            store_n(x, lo);
            store_n(x + half, hi);
        }
        if (head >= h.n_heads && slot >= 0 && to.keys) {
            int kv_head = (head - h.n_heads) % h.n_kv_heads;
            size_t offset = head < h.n_heads + h.n_kv_heads ? 0 : to.values_offset;
            T *y = keys + offset + (size_t)kv_head * to.page_len * h.head_dim + pair;
            store_n(y, lo);
            store_n(y + half, hi);
        }
    }
}

/* Stores keys, rotated already, and values in an F8 KvCache. A warp owns one key or value head of a row. No shared
 * memory. */
template <typename T>
static __global__ void __launch_bounds__(128)
    append_fp8_kernel(const T *qkv, int n_rows, int cols, heads h, step s, kv_cache kv, int layer)
{
    int warp = (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    int row = warp / (2 * h.n_kv_heads), head = warp % (2 * h.n_kv_heads);
    wait_for_previous();
    let_next_start();
    int slot = row < n_rows ? s.kv_slot[row] : -1;
    if (slot < 0)
        return;
    const T *x = qkv + (size_t)row * cols + (size_t)(h.n_heads + head) * h.head_dim;
    fp8_slot to = fp8_slot_at(kv, slot, layer, head / h.n_kv_heads, head % h.n_kv_heads);
    float most = 0.0f;
    for (int i = lane; i < h.head_dim; i += 32)
        most = fmaxf(most, fabsf(to_float(x[i])));
    float scale = fp8_scale(warp_max(most));
    for (int i = lane; i < h.head_dim; i += 32)
        to.numbers[i] = __nv_cvt_float_to_fp8(to_float(x[i]) / scale, __NV_SATFINITE, __NV_E4M3);
    if (lane == 0)
        *to.scale = scale;
}

template <typename T>
static void append_fp8(cuda_backend *cu, const tensor *qkv, heads h, const kv_cache *kv, int layer)
{
    int warps = qkv->rows * 2 * h.n_kv_heads;
    launch(context_of(cu), "rope_append", append_fp8_kernel<T>, (warps + 3) / 4, 128, 0, (const T *)qkv->data,
           qkv->rows, qkv->cols, h, cu->step, *kv, layer);
}

template <typename T, int V>
static void rope_append(cuda_backend *cu, tensor *qkv, heads h, const float *inv_freq, kv_cache *kv, int layer)
{
    size_t kind = (size_t)kv->n_kv_heads * (size_t)kv->page_len * (size_t)kv->head_dim;
    T *keys = kv->type == DTYPE_F8 ? NULL : (T *)kv->data + (size_t)layer * 2 * kind;
    page_target<T> to = {keys, (size_t)kv->n_layers * 2 * kind, kind, kv->page_len};
    /* few rows: a head per thread, for latency; many: four, which share the angles */
    int across = h.head_dim / 2 / V, down = across < 128 ? 128 / across : 1;
    int per_block = down * (qkv->rows > 4 * cu->n_sms ? 4 : 1);
    int slices = (h.n_heads + 2 * h.n_kv_heads + per_block - 1) / per_block;
    launch(context_of(cu), "rope_append", rope_append_kernel<T, V>, dim3(qkv->rows, slices), dim3(across, down), 0,
           (T *)qkv->data, qkv->cols, h, inv_freq, cu->step, to);
}

template <typename T>
static void rope_append_by_size(cuda_backend *cu, tensor *qkv, heads h, const float *inv_freq, kv_cache *kv, int layer)
{
    if (h.head_dim % 16 == 0)
        rope_append<T, 8>(cu, qkv, h, inv_freq, kv, layer);
    else
        rope_append<T, 1>(cu, qkv, h, inv_freq, kv, layer);
    if (kv->type == DTYPE_F8)
        append_fp8<T>(cu, qkv, h, kv, layer);
}

void cuda_rope_append(backend *be, tensor *qkv, heads h, const float *inv_freq, const batch *b, kv_cache *kv, int layer)
{
    (void)b;
    CHECK(qkv->cols == (h.n_heads + 2 * h.n_kv_heads) * h.head_dim && h.head_dim % 2 == 0 && h.head_dim <= 256);
    CHECK(kv->n_kv_heads == h.n_kv_heads && kv->head_dim == h.head_dim);
    CHECK(kv->type == be->act || kv->type == DTYPE_F8);
    BY_ACT(rope_append_by_size, cuda_of(be), qkv, h, inv_freq, kv, layer);
}
