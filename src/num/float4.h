/*
 * num/float4.h: f32 against e2m1, the 4-bit float of MXFP4 and NVFP4, and access to packed 4-bit
 * codes. Inline so that kernels of every tier use this one definition.
 */
#ifndef OZ_NUM_FLOAT4_H
#define OZ_NUM_FLOAT4_H

#include "num/float.h"

#define OZ_E2M1_MAX 6.0F

/* e2m1: 1-2-1 bits, bias 1, no infinity, no NaN: 0, 0.5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign (8
 * is -0). Only the low four bits of code are read. Exact. */
OZ_INLINE float oz_e2m1_to_f32(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 8U) << 28;
    uint32_t rest = code & 7U;
    if (rest < 2) {
        return oz_f32_from_bits(oz_f32_bits((float)rest * 0.5F) | sign);
    }
    return oz_f32_from_bits(sign | ((rest << 22) + (126U << 23)));
}

/* Round to nearest, ties to even, saturating at 6; the sign of zero is kept; NaN becomes +6, as in
 * the hardware's satfinite conversion (encoders mark NaN in the scale). */
OZ_INLINE uint8_t oz_f32_to_e2m1(float x)
{
    uint32_t u = oz_f32_bits(x);
    uint8_t sign = (uint8_t)((u >> 28) & 8U);
    u &= 0x7FFFFFFFU;
    if (u > 0x7F800000U) {
        return 7;
    }
    if (u >= 0x40C00000U) { /* 6 */
        return (uint8_t)(sign | 7U);
    }
    if (u < 0x3F800000U) { /* below 1: a multiple of 0.5, where the f32 unit rounds next to 2^22 */
        return (uint8_t)(sign | (oz_f32_bits(oz_f32_from_bits(u) + 0x1p22F) - 0x4A800000U));
    }
    u += 0x1FFFFFU + ((u >> 22) & 1U);
    return (uint8_t)(sign | ((u - (126U << 23)) >> 22));
}

/* Code i of a packed row: even ones in the low nibble. */
OZ_INLINE uint8_t oz_nibble_get(const uint8_t *row, int64_t i)
{
    return (uint8_t)((row[i >> 1] >> ((i & 1) * 4)) & 15U);
}

/* Writes code i; in ascending order: an even one clears the nibble above it. */
OZ_INLINE void oz_nibble_put(uint8_t *row, int64_t i, uint8_t code)
{
    row[i >> 1] = (uint8_t)((i & 1) != 0 ? row[i >> 1] | (code << 4) : code);
}

#endif
