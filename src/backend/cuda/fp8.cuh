/* fp8.cuh - how FP8 (E4M3) weights lie on the device, and how they become 16-bit numbers
 *
 * A matrix [n, k] whose n is a multiple of 8 and k of 64 is stored in slabs of 8 rows, so that matrices one behind the
 * other are one matrix:
 *
 *   [n / 8] slabs, [k / 64] boxes, 32 lanes, 16 bytes
 *
 * Lane 4 g + t holds row g of the slab; its word s (of 4) holds columns 16 s + 2t, 2t+1, 2t+8 and 2t+9 of the box. So
 * one access of a lane reads all that it has of the box as the A operand (mma.cuh). The order within a word is the
 * fastest to widen: for F16 as given, for BF16 2t+8, 2t, 2t+9, 2t+1. Scales are stored likewise: [n / 8, pieces of a
 * row, 8]. Any other matrix is stored row by row, with its scales as on the host. */
#ifndef PUNICA_BACKEND_CUDA_FP8_CUH
#define PUNICA_BACKEND_CUDA_FP8_CUH

#include <cuda_fp8.h>

#include "backend/cuda/kernel.cuh"

enum { SLAB = 8, SLAB_BOX = 512 }; /* rows of a slab; bytes of its boxes */

#define FP8_MAX 448.0f /* the largest number of E4M3 */

/* Widens the upper bytes of a word's two halves to BF16. Shifted into place, their exponents are 120 too small, which
 * one multiplication corrects for normal and subnormal numbers alike. */
static __device__ __forceinline__ unsigned widen_upper(unsigned word)
{
    unsigned small = (word & 0x80008000u) | (word >> 4 & 0x07f007f0u), large = 0x7b807b80u; /* 2^120, twice */
    __nv_bfloat162 product = __hmul2(*(__nv_bfloat162 *)&small, *(__nv_bfloat162 *)&large);
    return *(unsigned *)&product;
}

/* Widens two adjacent bytes to F16. */
static __device__ __forceinline__ unsigned widen_pair(unsigned short pair)
{
    __half2_raw two = __nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3);
    return *(unsigned *)&two;
}

/* Widens a word of a slab to T, exactly: columns 2t and 2t + 1 to `first`, 2t + 8 and 2t + 9 to `second`. */
template <typename T> static __device__ __forceinline__ void widen_fp8(unsigned word, unsigned &first, unsigned &second)
{
    if constexpr (__is_same(T, f16)) {
        first = widen_pair((unsigned short)word);
        second = widen_pair((unsigned short)(word >> 16));
    } else {
        first = widen_upper(word);
        second = widen_upper(word << 8);
    }
}

static __device__ __forceinline__ float fp8_to_float(uint8_t x)
{
    __half_raw h = __nv_cvt_fp8_to_halfraw(x, __NV_E4M3);
    return __half2float(*(__half *)&h);
}

/* Returns eight numbers times `by`, 1 / their scale, as FP8. */
static __device__ __forceinline__ uint2 fp8_of_floats(const float (&x)[8], float by)
{
    uint2 out;
    unsigned short pair[4];
    for (int i = 0; i < 4; i++)
        pair[i] = __nv_cvt_float2_to_fp8x2(make_float2(x[2 * i] * by, x[2 * i + 1] * by), __NV_SATFINITE, __NV_E4M3);
    out.x = pair[0] | (unsigned)pair[1] << 16;
    out.y = pair[2] | (unsigned)pair[3] << 16;
    return out;
}

/* Returns the scale of a vector whose largest magnitude is `most`, which then becomes FP8_MAX; 1 for (nearly) zeros. */
static __device__ __forceinline__ float fp8_scale(float most)
{
    return most > 0x1p-100f ? most / FP8_MAX : 1.0f;
}

/* Returns the bytes of the numbers of an F8 KvCache's block, behind which its scales lie (kv_numbers_bytes()). */
static __device__ __forceinline__ int fp8_numbers_bytes(int page_len, int head_dim)
{
    return (page_len * head_dim + 3) / 4 * 4;
}

/* A head's key (kind 0) or value (1) in an F8 KvCache: its numbers and its scale in a row's slot. */
typedef struct {
    uint8_t *numbers;
    float *scale;
} fp8_slot;

static __device__ __forceinline__ fp8_slot fp8_slot_at(const kv_cache &kv, int slot, int layer, int kind, int head)
{
    size_t block = kv_block(kv, slot, layer, kind, head);
    int numbers = fp8_numbers_bytes(kv.page_len, kv.head_dim), place = slot % kv.page_len;
    uint8_t *at = (uint8_t *)kv.data + block * (size_t)(numbers + 4 * kv.page_len);
    return {at + place * kv.head_dim, (float *)(at + numbers) + place};
}

/* Returns which byte of a slab's box holds a column of a row. */
template <typename T> static __device__ __forceinline__ int byte_in_box(int row, int col)
{
    int t = (col & 7) >> 1, s = col >> 4, odd = col & 1, far = col >> 3 & 1;
    return (4 * row + t) * 16 + 4 * s + (__is_same(T, f16) ? odd + 2 * far : 2 * odd + !far);
}

#endif
