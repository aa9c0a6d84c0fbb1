/* half.h - 16-bit numbers to float and back
 *
 * F16 is IEEE half precision, BF16 the upper half of a float. Conversion to 16 bits rounds to nearest, ties to even;
 * what is too large becomes infinity. */
#ifndef PUNICA_BASE_HALF_H
#define PUNICA_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float bf16_to_float(uint16_t h)
{
    return float_of_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_of_float(float f)
{
    uint32_t bits = bits_of_float(f);
    if ((bits & 0x7fffffff) > 0x7f800000) /* NaN stays NaN */
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float f16_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    if (exponent == 0) {
        float tiny = (float)mantissa * 0x1p-24f;
        return sign ? -tiny : tiny;
    }
    if (exponent == 31)
        return float_of_bits(sign | 0x7f800000 | mantissa << 13);
    return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t f16_of_float(float f)
{
    uint32_t bits = bits_of_float(f), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (size >= 0x477ff000) /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x38800000) /* below the smallest normal: count units of 2^-24 */
        return (uint16_t)(sign | (uint32_t)(bits_of_float(float_of_bits(size) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
}

#endif
