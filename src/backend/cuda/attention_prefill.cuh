/* attention_prefill.cuh - causal attention of prefills, over cached positions and the prefill's own
 *
 * FlashAttention-2's scheme. Keys and values pass through shared memory in tiles of N positions, double-buffered;
 * each warp keeps the online-softmax state (maximum, sum, output) of 16 query rows in registers. S = Q K^T, then
 * O += P V. */
#ifndef PUNICA_BACKEND_CUDA_ATTENTION_PREFILL_CUH
#define PUNICA_BACKEND_CUDA_ATTENTION_PREFILL_CUH

#include "backend/cuda/attention.cuh"

enum { PREFILL_WARPS = PREFILL_TILE / 16, PREFILL_THREADS = PREFILL_WARPS * 32 };

/* Positions in a tile of keys. No measurement is kept. */
static __host__ __device__ constexpr int prefill_kv_tile(int head_dim)
{
    return head_dim <= 128 ? 64 : 32;
}

/* Shared memory of a block in bytes: queries, then two stages of keys and values. */
static __host__ __device__ constexpr size_t prefill_shared_bytes(int head_dim)
{
    return (size_t)(PREFILL_TILE + 4 * prefill_kv_tile(head_dim)) * head_dim * 2;
}

typedef struct {
    int row, n_rows;
    int head, kv_head;
    int first, end; /* positions of the rows: [first, end) */
    const int *pages;
} prefill_work;

template <typename T> __device__ prefill_work prefill_work_at(const attention_call<T> &a, int item, int head)
{
    prefill_tile it = a.s.prefill[item];
    prefill_work w;
    w.row = it.row;
    w.n_rows = it.n_rows;
    w.head = head;
    w.kv_head = head / a.group;
    w.first = a.s.position[it.row];
    w.end = w.first + it.n_rows;
    w.pages = a.s.page + a.s.page_indptr[it.seq];
    return w;
}

/* Starts copying the queries of a work item; rows past its end become zeros. */
template <int D, typename T>
__device__ __forceinline__ void copy_queries(unsigned to, const attention_call<T> &a, const prefill_work &w)
{
    const T *q = a.qkv + (size_t)w.row * a.qkv_cols + (size_t)w.head * D;
#pragma unroll
    for (int i = threadIdx.x; i < PREFILL_TILE * D / 8; i += PREFILL_THREADS) {
        int row = i / (D / 8), column = i % (D / 8);
        bool valid = row < w.n_rows;
        copy_16(to + chunk_offset<D>(row, column), valid ? q + (size_t)row * a.qkv_cols + column * 8 : q, valid);
    }
}

/* Stores eight F8 numbers, widened to T and scaled, at `at` in shared memory. */
template <typename T> __device__ __forceinline__ void store_widened(unsigned at, uint2 bits, float scale)
{
    const uint8_t *from = (const uint8_t *)&bits;
    unsigned out[4];
    for (int i = 0; i < 4; i++)
        out[i] = pack<T>(fp8_to_float(from[2 * i]) * scale, fp8_to_float(from[2 * i + 1]) * scale);
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(at), "r"(out[0]), "r"(out[1]), "r"(out[2]), "r"(out[3])
                 : "memory");
}

/* Loads keys, then values, of N positions of an F8 KvCache, widened to T and scaled; zeros past the last row's
 * position. */
template <int D, int N, typename T>
__device__ __forceinline__ void widen_keys(unsigned to, const attention_call<T> &a, const prefill_work &w, int position)
{
    constexpr int COLUMNS = D / 8, ROWS = PREFILL_THREADS / COLUMNS;
    int column = threadIdx.x % COLUMNS, last = (w.end - 1) / TILE;
#pragma unroll
    for (int i = 0; i < N / TILE; i++) {
        int tile = min(position / TILE + i, last), page = w.pages[quotient_by_magic(tile, a.page_magic)];
        const char *keys = tile_keys<D, true>(a, page, w.kv_head, tile) + column * 8;
        const float *scales =
            kv_scales(a, a.kv + page * a.page_stride + w.kv_head * a.head_stride) + tile_in_page(a, tile) * TILE;
        const float *value_scales = (const float *)((const char *)scales + a.values_offset);
#pragma unroll
        for (int row = threadIdx.x / COLUMNS; row < TILE; row += ROWS) {
            bool valid = position + i * TILE + row < w.end;
            unsigned at = to + i * TILE * D * 2 + chunk_offset<D>(row, column);
            uint2 zeros = make_uint2(0, 0);
            store_widened<T>(at, valid ? *(const uint2 *)(keys + row * D) : zeros, valid ? scales[row] : 0.0f);
            store_widened<T>(at + N * D * 2, valid ? *(const uint2 *)(keys + a.values_offset + row * D) : zeros,
                             valid ? value_scales[row] : 0.0f);
        }
    }
}

/* Starts copying keys, then values, of N positions; zeros past the last row's position. */
template <int D, int N, typename T>
__device__ __forceinline__ void copy_keys(unsigned to, const attention_call<T> &a, const prefill_work &w, int position)
{
    constexpr int COLUMNS = D / 8, ROWS = PREFILL_THREADS / COLUMNS;
    int column = threadIdx.x % COLUMNS, last = (w.end - 1) / TILE;
#pragma unroll
    for (int i = 0; i < N / TILE; i++) {
        int tile = min(position / TILE + i, last), page = w.pages[quotient_by_magic(tile, a.page_magic)];
        const char *keys = tile_keys<D, false>(a, page, w.kv_head, tile) + column * 16;
#pragma unroll
        for (int row = threadIdx.x / COLUMNS; row < TILE; row += ROWS) {
            bool valid = position + i * TILE + row < w.end;
            unsigned at = to + i * TILE * D * 2 + chunk_offset<D>(row, column);
            copy_16(at, keys + row * D * 2, valid);
            copy_16(at + N * D * 2, keys + a.values_offset + row * D * 2, valid);
        }
    }
}

template <int D, int N, bool F8, typename T>
__device__ __forceinline__ void load_kv(unsigned to, const attention_call<T> &a, const prefill_work &w, int position)
{
    if constexpr (F8)
        widen_keys<D, N>(to, a, w, position);
    else
        copy_keys<D, N>(to, a, w, position);
}

/* The online-softmax state of a warp's 16 rows; lane 4 * g + t has rows g and g + 8. l is only this lane's part of the
 * sum. */
template <int D> struct prefill_state {
    float o[D / 8][4]; /* (rows g and g + 8, numbers 8 i + 2t..+1) */
    float m[2], l[2];
};

/* s = Q K^T for the warp's rows: (rows g and g + 8, positions 8 i + 2t..+1 of the tile). */
template <int D, int N, typename T> __device__ __forceinline__ void score(float s[N / 8][4], unsigned q, unsigned keys)
{
    q += threadIdx.x / 32 * 16 * D * 2 + by_rows<D>();
    keys += by_columns<D>();
#pragma unroll
    for (int i = 0; i < N / 8; i++)
        s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        unsigned rows[4], tile[N / 16][4];
        load_matrices(rows, q ^ k * 32);
#pragma unroll
        for (int i = 0; i < N / 16; i++)
            load_matrices(tile[i], (keys ^ k * 32) + i * 16 * D * 2);
#pragma unroll
        for (int i = 0; i < N / 16; i++) {
            mma<T>(s[2 * i], rows, tile[i]);
            mma<T>(s[2 * i + 1], rows, tile[i] + 2);
        }
    }
}

/* Masks the positions that a row does not attend to: later ones, and those before its window. */
template <int N>
__device__ __forceinline__ void mask_scores(float s[N / 8][4], int position, int row_position, int window)
{
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < N / 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int key = position + 8 * i + 2 * t + (j & 1), query = row_position + (j < 2 ? 0 : 8);
            if (key > query || key < first_seen(query, window))
                s[i][j] = -INFINITY;
        }
}

/* The online-softmax update: scores become weights; l and o are rescaled to the new maximum. While a row has seen only
 * masked positions its maximum is -inf; 0 is subtracted in its place. */
template <int D, int N>
__device__ __forceinline__ void online_softmax(prefill_state<D> *st, float s[N / 8][4], float scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = st->m[r];
#pragma unroll
        for (int i = 0; i < N / 8; i++)
            top = fmaxf(top, fmaxf(s[i][2 * r], s[i][2 * r + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        float base = top == -INFINITY ? 0.0f : top * scale, by = exp2_fast(st->m[r] * scale - base), sum = 0.0f;
        st->m[r] = top;
#pragma unroll
        for (int i = 0; i < N / 8; i++)
#pragma unroll
            for (int j = 2 * r; j < 2 * r + 2; j++) {
                s[i][j] = exp2_fast(s[i][j] * scale - base);
                sum += s[i][j];
            }
        st->l[r] = st->l[r] * by + sum;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            st->o[i][2 * r] *= by;
            st->o[i][2 * r + 1] *= by;
        }
    }
}

/* o += P V; the weights in s already have the layout of the A operand. */
template <int D, int N, typename T>
__device__ __forceinline__ void add_values(prefill_state<D> *st, const float s[N / 8][4], unsigned values)
{
    values += by_rows<D>();
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        unsigned p[4] = {pack<T>(s[2 * k][0], s[2 * k][1]), pack<T>(s[2 * k][2], s[2 * k][3]),
                         pack<T>(s[2 * k + 1][0], s[2 * k + 1][1]), pack<T>(s[2 * k + 1][2], s[2 * k + 1][3])};
#pragma unroll
        for (int i = 0; i < D / 16; i += 4) {
            unsigned tile[4][4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                load_matrices_t(tile[j], (values ^ (i + j) * 32) + k * 16 * D * 2);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                mma<T>(st->o[2 * (i + j)], p, tile[j]);
                mma<T>(st->o[2 * (i + j) + 1], p, tile[j] + 2);
            }
        }
    }
}

/* Writes y of a warp's rows, o / l. */
template <int D, typename T>
__device__ void write_rows(const prefill_state<D> *st, const attention_call<T> &a, const prefill_work &w)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = (int)threadIdx.x / 32 * 16 + g + 8 * r;
        float sum = st->l[r];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (row >= w.n_rows)
            continue;
        T *y = a.y + ((size_t)(w.row + row) * a.h.n_heads + w.head) * D + 2 * t;
#pragma unroll
        for (int i = 0; i < D / 8; i++)
            *(unsigned *)(y + 8 * i) = pack<T>(st->o[i][2 * r] / sum, st->o[i][2 * r + 1] / sum);
    }
}

/* y[row, head] = softmax(scale q K^T) V for the rows of prefills. A block owns one prefill_tile and head, a warp 16
 * rows. Shared memory: prefill_shared_bytes(D). */
template <typename T, int D, bool F8>
static __global__ void __launch_bounds__(PREFILL_THREADS) prefill_kernel(attention_call<T> a)
{
    constexpr int N = prefill_kv_tile(D), STAGE_BYTES = 2 * N * D * sizeof(T);
    extern __shared__ __align__(1024) char shared[];
    unsigned q = shared_address(shared), keys = q + PREFILL_TILE * D * 2, next = keys + STAGE_BYTES;
    wait_for_previous();
    let_next_start();
    int item = blockIdx.y;
    if (item >= a.s.n[COUNT_PREFILL_TILES])
        return;
    prefill_work w = prefill_work_at(a, item, blockIdx.x);
    int row_position = w.first + (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4;
    prefill_state<D> st = {};
    st.m[0] = st.m[1] = -INFINITY;

    int position = first_seen(w.first, a.window) / N * N;
    copy_queries<D>(q, a, w);
    load_kv<D, N, F8>(keys, a, w, position);
    copy_commit();
    for (; position < w.end; position += N) {
        if (position + N < w.end)
            load_kv<D, N, F8>(next, a, w, position + N);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        float s[N / 8][4];
        score<D, N, T>(s, q, keys);
        if (position + N > w.first + 1 || position < first_seen(w.end - 1, a.window))
            mask_scores<N>(s, position, row_position, a.window);
        online_softmax<D, N>(&st, s, a.scale);
        add_values<D, N, T>(&st, s, keys + N * D * 2);
        __syncthreads();
        unsigned done = keys;
        keys = next;
        next = done;
    }
    write_rows(&st, a, w);
}

#endif
