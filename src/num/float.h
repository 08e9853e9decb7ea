/*
 * num/float.h: f32 against the 16-bit floating formats, bit for bit. Inline so that kernels of
 * every tier use this one definition.
 */
#ifndef OZ_NUM_FLOAT_H
#define OZ_NUM_FLOAT_H

#include <stdint.h>
#include <string.h>

#include "num/inline.h"

OZ_INLINE uint32_t oz_f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

OZ_INLINE float oz_f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* bfloat16 is the upper half of an f32: exact. */
OZ_INLINE float oz_bf16_to_f32(uint16_t h)
{
    return oz_f32_from_bits((uint32_t)h << 16);
}

/* Round to nearest, ties to even; NaN stays NaN (quiet, payload's upper part kept). */
OZ_INLINE uint16_t oz_f32_to_bf16(float x)
{
    uint32_t u = oz_f32_bits(x);
    if ((u & 0x7FFFFFFFU) > 0x7F800000U) {
        return (uint16_t)((u >> 16) | 0x40U);
    }
    return (uint16_t)((u + 0x7FFFU + ((u >> 16) & 1U)) >> 16);
}

/* IEEE half: exact, denormals included. */
OZ_INLINE float oz_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000U) << 16;
    uint32_t exponent = (h >> 10) & 0x1FU;
    uint32_t mantissa = h & 0x3FFU;
    if (exponent == 0x1F) { /* infinity, NaN */
        return oz_f32_from_bits(sign | 0x7F800000U | (mantissa << 13));
    }
    if (exponent == 0) { /* zero, denormal: mantissa 2^-24 */
        float x = (float)mantissa * 0x1p-24F;
        return oz_f32_from_bits(oz_f32_bits(x) | sign);
    }
    return oz_f32_from_bits(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

/* Round to nearest, ties to even; overflow to infinity; NaN stays NaN. */
OZ_INLINE uint16_t oz_f32_to_f16(float x)
{
    uint32_t u = oz_f32_bits(x);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000U);
    u &= 0x7FFFFFFFU;
    if (u > 0x7F800000U) {
        return (uint16_t)(sign | 0x7E00U | ((u >> 13) & 0x3FFU));
    }
    if (u >= 0x477FF000U) { /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7C00U);
    }
    if (u < 0x38800000U) { /* below 2^-14: a multiple of 2^-24. Adding 0.5 lets the f32 unit round
                              at exactly that place. */
        float y = oz_f32_from_bits(u) + 0.5F;
        return (uint16_t)(sign | (oz_f32_bits(y) - 0x3F000000U));
    }
    u += 0xFFFU + ((u >> 13) & 1U);
    return (uint16_t)(sign | ((u - 0x38000000U) >> 13));
}

#endif
