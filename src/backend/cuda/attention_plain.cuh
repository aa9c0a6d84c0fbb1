/* attention_plain.cuh - attention for heads and pages of any size, one warp per row and head
 *
 * Only for small and odd models: written to be correct and simple, not fast. */
#ifndef PUNICA_BACKEND_CUDA_ATTENTION_PLAIN_CUH
#define PUNICA_BACKEND_CUDA_ATTENTION_PLAIN_CUH

#include "backend/cuda/attention.cuh"

enum {
    ATTENTION_PLAIN_WARPS = 4, /* of a block; no measurement is kept */
    ATTENTION_PLAIN_MAX_HEAD_DIM = 256,
};

/* Returns number i of the key or value at `row`. */
template <bool F8, typename T> __device__ __forceinline__ float kv_number(const char *row, float scale, int i)
{
    if constexpr (F8)
        return fp8_to_float((uint8_t)row[i]) * scale;
    else
        return to_float(((const T *)row)[i]);
}

/* Computes y[row, head] by one warp; a lane owns every 32nd number of the head. pages: of the row's sequence. */
template <bool F8, typename T>
__device__ void attend_row(const attention_call<T> &a, const int *pages, int row, int position, int head)
{
    constexpr int MOST = ATTENTION_PLAIN_MAX_HEAD_DIM / 32;
    int lane = threadIdx.x % 32, n = a.h.head_dim;
    const T *query = a.qkv + (size_t)row * a.qkv_cols + (size_t)head * n;
    T *y = a.y + ((size_t)row * a.h.n_heads + head) * n;
    float q[MOST], out[MOST], top = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < MOST; i++) {
        q[i] = lane + 32 * i < n ? to_float(query[lane + 32 * i]) * a.scale : 0.0f;
        out[i] = 0.0f;
    }
    for (int p = first_seen(position, a.window); p <= position; p++) {
        const char *block = keys_at(a, pages, head / a.group, p);
        int in_page = p % a.page_len;
        float by_key = F8 ? kv_scales(a, block)[in_page] : 1.0f,
              by_value = F8 ? kv_scales(a, block + a.values_offset)[in_page] : 1.0f;
        const char *keys = block + (size_t)in_page * n * kv_size<F8, T>(), *values = keys + a.values_offset;
        float score = 0.0f;
#pragma unroll
        for (int i = 0; i < MOST; i++)
            score += lane + 32 * i < n ? q[i] * kv_number<F8, T>(keys, by_key, lane + 32 * i) : 0.0f;
        score = warp_sum(score);
        float new_top = fmaxf(top, score), by = exp2_fast(top - new_top), weight = exp2_fast(score - new_top);
        top = new_top;
        sum = sum * by + weight;
#pragma unroll
        for (int i = 0; i < MOST; i++)
            out[i] =
                out[i] * by + (lane + 32 * i < n ? weight * kv_number<F8, T>(values, by_value, lane + 32 * i) : 0.0f);
    }
#pragma unroll
    for (int i = 0; i < MOST; i++)
        if (lane + 32 * i < n)
            y[lane + 32 * i] = from_float<T>(out[i] / sum);
}

/* Decodes. A warp has one split and head: for a row's first split it computes the whole row, for others nothing. No
 * shared memory. */
template <typename T, bool F8>
static __global__ void __launch_bounds__(ATTENTION_PLAIN_WARPS * 32) plain_decode_kernel(attention_call<T> a)
{
    wait_for_previous();
    let_next_start();
    int work = (int)blockIdx.x * ATTENTION_PLAIN_WARPS + (int)threadIdx.x / 32;
    int item = work / a.h.n_heads, head = work % a.h.n_heads;
    if (item >= a.s.n[COUNT_DECODE_SPLITS] || a.s.decode[item].index > 0)
        return;
    decode_split it = a.s.decode[item];
    attend_row<F8>(a, a.s.page + it.pages, it.row, it.len - 1, head);
}

/* Prefills. A block owns one prefill_tile and head, a warp every ATTENTION_PLAIN_WARPS-th row of it. No shared
 * memory. */
template <typename T, bool F8>
static __global__ void __launch_bounds__(ATTENTION_PLAIN_WARPS * 32) plain_prefill_kernel(attention_call<T> a)
{
    wait_for_previous();
    let_next_start();
    int item = blockIdx.y;
    if (item >= a.s.n[COUNT_PREFILL_TILES])
        return;
    prefill_tile it = a.s.prefill[item];
    for (int i = (int)threadIdx.x / 32; i < it.n_rows; i += ATTENTION_PLAIN_WARPS)
        attend_row<F8>(a, a.s.page + a.s.page_indptr[it.seq], it.row + i, a.s.position[it.row + i], blockIdx.x);
}

#endif
