/* attention.cuh - what the attention kernels share: the call, and tiles of the KvCache in shared memory */
#ifndef PUNICA_BACKEND_CUDA_ATTENTION_CUH
#define PUNICA_BACKEND_CUDA_ATTENTION_CUH

#include "backend/cuda/fp8.cuh"
#include "backend/cuda/mma.cuh"

enum { TILE = 16 }; /* positions that one mma takes; a page is whole TILEs */

/* One attention call, passed to kernels by value. Strides and offsets in the KvCache count bytes. Each kernel has two
 * instances, for a KvCache of F8 and of T. */
template <typename T> struct attention_call {
    step s;
    heads h;
    int group;  /* query heads that share a key/value head */
    int window; /* 0: none */
    int page_len, n_rows, qkv_cols;
    int page_tiles; /* TILEs in a page; page_magic: for quotient_by_magic() by it */
    unsigned page_magic;
    float scale;          /* log2(e) / sqrt(head_dim): softmax is computed with powers of 2 */
    size_t page_stride;   /* from a page to the next */
    size_t head_stride;   /* from a head's block to the next */
    size_t values_offset; /* from a head's keys to its values */
    const char *kv;       /* this layer's keys in page 0 */
    size_t kv_bytes;      /* from there to the end of the KvCache */
    const T *qkv;         /* [n_rows, qkv_cols] */
    T *y;                 /* [rows, n_heads * head_dim] */
};

static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Returns the first position that the query at `position` attends to, 0 without a window. */
static __device__ __forceinline__ int first_seen(int position, int window)
{
    return window > 0 ? max(position + 1 - window, 0) : 0;
}

template <bool F8, typename T> __device__ constexpr int kv_size()
{
    return F8 ? 1 : (int)sizeof(T);
}

/* Returns the scales of an F8 block of keys or values, which lie behind its numbers. `at`: the block's first byte. */
template <typename T> __device__ __forceinline__ const float *kv_scales(const attention_call<T> &a, const char *at)
{
    return (const float *)(at + fp8_numbers_bytes(a.page_len, a.h.head_dim));
}

/* Returns the block of keys that holds `position` of a sequence with these pages. */
template <typename T>
__device__ __forceinline__ const char *keys_at(const attention_call<T> &a, const int *pages, int kv_head, int position)
{
    return a.kv + pages[position / a.page_len] * a.page_stride + kv_head * a.head_stride;
}

/* Returns n / d by multiplication with a magic number, 2^32 / d rounded up (0 for d = 1): exact while n < 2^32 / d. */
static __device__ __forceinline__ int quotient_by_magic(int n, unsigned magic)
{
    return magic ? (int)__umulhi((unsigned)n, magic) : n;
}

/* Returns the index of a TILE within its page. */
template <typename T> __device__ __forceinline__ int tile_in_page(const attention_call<T> &a, int tile)
{
    return tile - quotient_by_magic(tile, a.page_magic) * a.page_tiles;
}

/* Returns the keys of a TILE, which lies in this page. */
template <int D, bool F8, typename T>
__device__ __forceinline__ const char *tile_keys(const attention_call<T> &a, int page, int kv_head, int tile)
{
    return a.kv + page * a.page_stride + kv_head * a.head_stride + tile_in_page(a, tile) * TILE * D * kv_size<F8, T>();
}

#endif
