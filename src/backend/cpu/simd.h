/* simd.h - the vector of floats the kernels are written in
 *
 * One vector type `vf` of VLEN floats with the few operations the kernels need, in three forms:
 * AVX-512, AVX2 with FMA and F16C, and portable GCC/clang vectors. Included by kernels.c only,
 * which is compiled once per form.
 *
 * v_fma rounds once on AVX2 and AVX-512 and twice in the portable form; within one form every
 * kernel gives the same bits for the same operands, whatever the lane. `_n` forms touch only the
 * first n < VLEN elements in memory; lanes past them load as zero. Pointers need no alignment. */
#ifndef PUNICA_BACKEND_CPU_SIMD_H
#define PUNICA_BACKEND_CPU_SIMD_H

#include <stdint.h>
#include <string.h>

#include "backend/tensor.h"

#define INLINE static inline __attribute__((always_inline))

/* Keeps a loaded vector in a register: compilers would fold the load into each of its uses, and the inner loops are
 * limited by loads. */
#if defined(__x86_64__)
#define V_KEEP(v) __asm__("" : "+v"(v))
#else
#define V_KEEP(v) ((void)0)
#endif

#if defined(__AVX512F__)

#include <immintrin.h>

#define VLEN 16
#define ISA_NAME "avx512"
typedef __m512 vf;

INLINE vf v_zero(void)
{
    return _mm512_setzero_ps();
}
INLINE vf v_set1(float x)
{
    return _mm512_set1_ps(x);
}
INLINE vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
INLINE void v_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}
INLINE vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
INLINE vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
INLINE vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
INLINE vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
INLINE vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
INLINE vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* x, or 0 where a < b. */
INLINE vf v_unless_lt(vf a, vf b, vf x)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ), x);
}

INLINE __mmask16 first_lanes(int n)
{
    return (__mmask16)((1u << n) - 1);
}
INLINE vf v_load_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
INLINE void v_store_n(float *p, vf v, int n)
{
    _mm512_mask_storeu_ps(p, first_lanes(n), v);
}

INLINE vf halves_f16(__m256i h)
{
    return _mm512_cvtph_ps(h);
}

INLINE vf halves_bf16(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

INLINE vf v_load_f16(const void *p)
{
    return halves_f16(_mm256_loadu_si256(p));
}
INLINE vf v_load_bf16(const void *p)
{
    return halves_bf16(_mm256_loadu_si256(p));
}
INLINE vf v_load_f16_n(const void *p, int n)
{
    return halves_f16(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
INLINE vf v_load_bf16_n(const void *p, int n)
{
    return halves_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}

/* Shifted into an F16's place, the 4-bit exponent is 8 too small: exactly 1/256 of the number. */
INLINE vf shrunk_f8(__m128i b)
{
    __m256i h = _mm256_slli_epi16(_mm256_cvtepi8_epi16(b), 7);
    return halves_f16(_mm256_and_si256(h, _mm256_set1_epi16((short)0xbf80)));
}

INLINE vf v_load_shrunk_f8(const void *p)
{
    return shrunk_f8(_mm_loadu_si128(p));
}
INLINE vf v_load_shrunk_f8_n(const void *p, int n)
{
    return shrunk_f8(_mm_maskz_loadu_epi8(first_lanes(n), p));
}

/* 2^n, where the low bits of t hold the integer n (see v_exp). */
INLINE vf v_pow2(vf t)
{
    __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(0x3f800000)));
}

/* Halving steps of the reduction: sums of lanes 8, 4, 2, 1 apart, of two vectors at once, each by one
 * blend and one shuffle (shuffles have one port, blends two). */
INLINE vf fold8(vf a, vf b)
{
    return v_add(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0x4e));
}

INLINE vf fold4(vf a, vf b)
{
    const __m512i other = _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
    return v_add(_mm512_mask_blend_ps(0xf0f0, a, b), _mm512_permutex2var_ps(a, other, b));
}

INLINE vf fold2(vf a, vf b)
{
    return v_add(_mm512_mask_blend_ps(0xcccc, a, b), _mm512_shuffle_ps(a, b, 0x4e));
}

INLINE vf fold1(vf a, vf b)
{
    const __m512i other = _mm512_setr_epi32(1, 16, 3, 18, 5, 20, 7, 22, 9, 24, 11, 26, 13, 28, 15, 30);
    return v_add(_mm512_mask_blend_ps(0xaaaa, a, b), _mm512_permutex2var_ps(a, other, b));
}

/* Lane j of the result is the sum of the lanes of a[j]: a tree over lanes 8, 4, 2, 1 apart. */
INLINE vf v_sum_each(const vf a[VLEN])
{
    vf s[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        s[i] = fold4(fold8(a[i], a[i + 8]), fold8(a[i + 4], a[i + 12]));
    return fold1(fold2(s[0], s[2]), fold2(s[1], s[3]));
}

#elif defined(__AVX2__)

#include <immintrin.h>

#define VLEN 8
#define ISA_NAME "avx2"
typedef __m256 vf;

INLINE vf v_zero(void)
{
    return _mm256_setzero_ps();
}
INLINE vf v_set1(float x)
{
    return _mm256_set1_ps(x);
}
INLINE vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
INLINE void v_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}
INLINE vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
INLINE vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
INLINE vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
INLINE vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
INLINE vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
INLINE vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
INLINE vf v_unless_lt(vf a, vf b, vf x)
{
    return _mm256_and_ps(_mm256_cmp_ps(a, b, _CMP_NLT_UQ), x);
}

INLINE vf halves_f16(__m128i h)
{
    return _mm256_cvtph_ps(h);
}

INLINE vf halves_bf16(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

INLINE vf v_load_f16(const void *p)
{
    return halves_f16(_mm_loadu_si128(p));
}
INLINE vf v_load_bf16(const void *p)
{
    return halves_bf16(_mm_loadu_si128(p));
}

INLINE vf v_load_shrunk_f8(const void *p)
{
    __m128i h = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64(p)), 7);
    return halves_f16(_mm_and_si128(h, _mm_set1_epi16((short)0xbf80)));
}

INLINE vf v_pow2(vf t)
{
    __m256i n = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(n, _mm256_set1_epi32(0x3f800000)));
}

INLINE vf fold4(vf a, vf b)
{
    return v_add(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

INLINE vf fold2(vf a, vf b)
{
    return v_add(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
}
INLINE vf fold1(vf a, vf b)
{
    return v_add(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}

INLINE vf v_sum_each(const vf a[VLEN])
{
    vf s[4];
    for (int i = 0; i < 4; i++)
        s[i] = fold4(a[i], a[i + 4]);
    return fold1(fold2(s[0], s[1]), fold2(s[2], s[3]));
}

#else

#define VLEN 4
#define ISA_NAME "plain"
typedef float vf __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));

INLINE vf v_zero(void)
{
    return (vf){0};
}
INLINE vf v_set1(float x)
{
    return (vf){x, x, x, x};
}
INLINE vf v_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void v_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}
INLINE vf v_add(vf a, vf b)
{
    return a + b;
}
INLINE vf v_sub(vf a, vf b)
{
    return a - b;
}
INLINE vf v_mul(vf a, vf b)
{
    return a * b;
}
INLINE vf v_div(vf a, vf b)
{
    return a / b;
}
INLINE vf v_fma(vf a, vf b, vf c)
{
    return a * b + c;
}
INLINE vf v_select(vu mask, vf a, vf b)
{
    return (vf)(((vu)a & mask) | ((vu)b & ~mask));
}
INLINE vf v_max(vf a, vf b)
{
    return v_select((vu)(a > b), a, b);
}
INLINE vf v_min(vf a, vf b)
{
    return v_select((vu)(a < b), a, b);
}
INLINE vf v_unless_lt(vf a, vf b, vf x)
{
    return (vf)((vu)x & ~(vu)(a < b));
}

INLINE vu load_halves(const void *p)
{
    uint16_t h[VLEN];
    memcpy(h, p, sizeof h);
    return (vu){h[0], h[1], h[2], h[3]};
}

/* Shifted into a float's place, the 5-bit exponent is 112 too small; one multiplication mends
 * that for normal and subnormal numbers alike. Infinity and NaN get the full exponent back. */
INLINE vf v_load_f16(const void *p)
{
    vu h = load_halves(p);
    vu magnitude = (h & 0x7fff) << 13;
    vu special = (vu)(magnitude >= 0x7c00u << 13) & 0x7f800000u;
    vf scaled = (vf)magnitude * v_set1(0x1p112f);
    return (vf)((vu)scaled | special | ((h & 0x8000) << 16));
}

INLINE vf v_load_bf16(const void *p)
{
    return (vf)(load_halves(p) << 16);
}

INLINE vf v_load_shrunk_f8(const void *p)
{
    uint8_t b[VLEN];
    memcpy(b, p, sizeof b);
    vu x = {b[0], b[1], b[2], b[3]};
    vf magnitude = (vf)((x & 0x7f) << 20) * v_set1(0x1p112f);
    return (vf)((vu)magnitude | (x & 0x80) << 24);
}
INLINE vf v_pow2(vf t)
{
    return (vf)(((vu)t << 23) + 0x3f800000u);
}

INLINE vf fold2(vf a, vf b)
{
    return __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
}

INLINE vf fold1(vf a, vf b)
{
    return __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
}

INLINE vf v_sum_each(const vf a[VLEN])
{
    return fold1(fold2(a[0], a[1]), fold2(a[2], a[3]));
}

#endif

#if VLEN < 16

INLINE vf v_load_n(const float *p, int n)
{
    float t[VLEN] = {0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return v_load(t);
}

INLINE void v_store_n(float *p, vf v, int n)
{
    float t[VLEN];
    v_store(t, v);
    memcpy(p, t, (size_t)n * sizeof *t);
}

INLINE vf v_load_f16_n(const void *p, int n)
{
    uint16_t t[VLEN] = {0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return v_load_f16(t);
}

INLINE vf v_load_bf16_n(const void *p, int n)
{
    uint16_t t[VLEN] = {0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return v_load_bf16(t);
}

INLINE vf v_load_shrunk_f8_n(const void *p, int n)
{
    uint8_t t[VLEN] = {0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return v_load_shrunk_f8(t);
}

#endif

/* The vector at p, elements of type t but not F8, as floats. */
INLINE vf v_load_as(dtype t, const void *p)
{
    return t == DTYPE_F32 ? v_load(p) : t == DTYPE_F16 ? v_load_f16(p) : v_load_bf16(p);
}

INLINE vf v_load_as_n(dtype t, const void *p, int n)
{
    return t == DTYPE_F32 ? v_load_n(p, n) : t == DTYPE_F16 ? v_load_f16_n(p, n) : v_load_bf16_n(p, n);
}

/* The same for weights. F8 weights are multiplied by scale, which must be 256 times their own. */
INLINE vf v_load_weight(dtype t, const void *p, vf scale)
{
    return t == DTYPE_F8 ? v_mul(v_load_shrunk_f8(p), scale) : v_load_as(t, p);
}

INLINE vf v_load_weight_n(dtype t, const void *p, vf scale, int n)
{
    return t == DTYPE_F8 ? v_mul(v_load_shrunk_f8_n(p, n), scale) : v_load_as_n(t, p, n);
}

/* Sum and maximum over the lanes. */
INLINE float v_sum(vf v)
{
    float t[VLEN];
    v_store(t, v);
    for (int half = VLEN / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            t[i] += t[i + half];
    return t[0];
}

INLINE float v_largest(vf v)
{
    float t[VLEN];
    v_store(t, v);
    for (int i = 1; i < VLEN; i++)
        t[0] = t[i] > t[0] ? t[i] : t[0];
    return t[0];
}

/* e^x with a relative error below 2e-7 for x up to 88 (and e^88 past it); 0 below -87, NaN for NaN
 * (v_min and v_max return their second operand when one is NaN).
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial fitted for the least relative error.
 * Adding 1.5 * 2^23 rounds x / ln 2 to an integer and leaves n in the low bits of the sum. */
INLINE vf v_exp(vf x)
{
    const vf low = v_set1(-87.0f), shift = v_set1(0x1.8p23f);
    vf c = v_min(v_set1(88.0f), v_max(low, x));
    vf t = v_add(v_mul(c, v_set1(0x1.715476p0f)), shift);
    vf n = v_sub(t, shift);
    vf r = v_fma(n, v_set1(-0x1.63p-1f), c); /* ln 2 in two parts: n times the first is exact */
    r = v_fma(n, v_set1(0x1.bd0106p-13f), r);
    vf p = v_set1(0x1.6a23dp-10f);
    p = v_fma(p, r, v_set1(0x1.123a2p-7f));
    p = v_fma(p, r, v_set1(0x1.5558f2p-5f));
    p = v_fma(p, r, v_set1(0x1.555492p-3f));
    p = v_fma(p, r, v_set1(0x1.fffffcp-2f));
    p = v_fma(p, v_mul(r, r), r);
    return v_unless_lt(x, low, v_mul(v_add(p, v_set1(1.0f)), v_pow2(t)));
}

#endif
