/*
 * num/float8.h: f32 against the 8-bit floating formats, bit for bit. Conversions from f32 round to
 * nearest, ties to even, and saturate: what is too large, infinity included, becomes the largest
 * finite value of its sign; NaN stays NaN. That is a clamp before the cast of the field's tools
 * (PyTorch's own cast of e4m3 gives NaN above 464, of e5m2 infinity), and `satfinite` of hardware.
 * Inline so that kernels of every tier use this one definition.
 */
#ifndef OZ_NUM_FLOAT8_H
#define OZ_NUM_FLOAT8_H

#include "num/float.h"

#define OZ_E4M3_MAX 448.0F
#define OZ_E4M3_NAN 0x7FU
#define OZ_E5M2_MAX 57344.0F
#define OZ_E8M0_NAN 0xFFU

/* e4m3fn: 1-4-3 bits, bias 7, no infinity, 0x7F and 0xFF are NaN. Exact. */
OZ_INLINE float oz_e4m3_to_f32(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80U) << 24;
    uint32_t rest = code & 0x7FU;
    if (rest == OZ_E4M3_NAN) {
        return oz_f32_from_bits(sign | 0x7FC00000U);
    }
    if (rest < 8) { /* zero, denormal: mantissa 2^-9 */
        return oz_f32_from_bits(oz_f32_bits((float)rest * 0x1p-9F) | sign);
    }
    return oz_f32_from_bits(sign | ((rest << 20) + (120U << 23)));
}

OZ_INLINE uint8_t oz_f32_to_e4m3(float x)
{
    uint32_t u = oz_f32_bits(x);
    uint8_t sign = (uint8_t)((u >> 24) & 0x80U);
    u &= 0x7FFFFFFFU;
    if (u > 0x7F800000U) {
        return (uint8_t)(sign | OZ_E4M3_NAN);
    }
    if (u >= 0x43E00000U) { /* 448 */
        return (uint8_t)(sign | 0x7EU);
    }
    if (u < 0x3C800000U) { /* below 2^-6: a multiple of 2^-9, where the f32 unit rounds next to
                              2^14 */
        return (uint8_t)(sign | (oz_f32_bits(oz_f32_from_bits(u) + 0x1p14F) - 0x46800000U));
    }
    u += 0x7FFFFU + ((u >> 20) & 1U);
    return (uint8_t)(sign | ((u - (120U << 23)) >> 20));
}

/* e5m2: 1-5-2 bits, bias 15: the upper half of an IEEE half. Exact. */
OZ_INLINE float oz_e5m2_to_f32(uint8_t code)
{
    return oz_f16_to_f32((uint16_t)(code << 8));
}

OZ_INLINE uint8_t oz_f32_to_e5m2(float x)
{
    uint32_t u = oz_f32_bits(x);
    uint8_t sign = (uint8_t)((u >> 24) & 0x80U);
    u &= 0x7FFFFFFFU;
    if (u > 0x7F800000U) {
        return (uint8_t)(sign | 0x7FU);
    }
    if (u >= 0x47600000U) { /* 57344 */
        return (uint8_t)(sign | 0x7BU);
    }
    if (u < 0x38800000U) { /* below 2^-14: a multiple of 2^-16 */
        return (uint8_t)(sign | (oz_f32_bits(oz_f32_from_bits(u) + 0x1p7F) - 0x43000000U));
    }
    u += 0xFFFFFU + ((u >> 21) & 1U);
    return (uint8_t)(sign | ((u - (112U << 23)) >> 21));
}

/* e8m0: 2^(code - 127); 0 is 2^-127 (an f32 denormal), 255 is NaN. Exact. */
OZ_INLINE float oz_e8m0_to_f32(uint8_t code)
{
    if (code == OZ_E8M0_NAN) {
        return oz_f32_from_bits(0x7FC00000U);
    }
    return oz_f32_from_bits(code == 0 ? 0x00400000U : (uint32_t)code << 23);
}

/* 1 / oz_e8m0_to_f32(code) for a code below 255: exact too. */
OZ_INLINE float oz_e8m0_inverse(uint8_t code)
{
    return oz_e8m0_to_f32((uint8_t)(254U - code));
}

#endif
