/* fp8.h - E4M3 numbers of 8 bits to float and back
 *
 * One sign bit, four of exponent (bias 7), three of mantissa: up to 448, subnormals of 2^-9, no infinity; NaN has all
 * bits but the sign set. Conversion to 8 bits rounds to nearest, ties to even, and saturates at 448. */
#ifndef PUNICA_BASE_FP8_H
#define PUNICA_BASE_FP8_H

#include "base/half.h"

#define E4M3_MAX 448.0f

/* Exact. NaN is not recognised (it becomes 480): callers that read files check for it first. */
static inline float e4m3_to_float(uint8_t x)
{
    uint32_t magnitude = x & 0x7f;
    float f = magnitude < 8 ? (float)magnitude * 0x1p-9f : float_of_bits((magnitude << 20) + (120u << 23));
    return x & 0x80 ? -f : f;
}

/* f must be finite. Without branches, so that loops over it vectorise. */
static inline uint8_t e4m3_of_float(float f)
{
    uint32_t sign = bits_of_float(f) >> 24 & 0x80;
    float size = float_of_bits(bits_of_float(f) & 0x7fffffff);
    size = size > E4M3_MAX ? E4M3_MAX : size;
    uint32_t bits = bits_of_float(size), tiny = bits_of_float(size * 0x1p9f + 0x1p23f) & 0xff; /* units of 2^-9 */
    uint32_t normal = (bits - (120u << 23) + 0x7ffff + (bits >> 20 & 1)) >> 20;
    return (uint8_t)(sign | (size < 0x1p-6f ? tiny : normal));
}

/* Quantises n numbers with one scale, such that the largest becomes 448: x[i] is about out[i] * *scale. */
static inline void e4m3_quantise(uint8_t *out, float *scale, const float *x, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++) {
        float size = float_of_bits(bits_of_float(x[i]) & 0x7fffffff);
        most = size > most ? size : most;
    }
    *scale = most > 0x1p-100f ? most / E4M3_MAX : 1; /* anything smaller rounds to zero */
    for (int i = 0; i < n; i++)
        out[i] = e4m3_of_float(x[i] / *scale);
}

#endif
