/*
 * num/integer.h: f32 against 8- and 4-bit integers. Inline so that kernels of every tier use this
 * one definition.
 */
#ifndef OZ_NUM_INTEGER_H
#define OZ_NUM_INTEGER_H

#include <stdint.h>

#include "num/float.h"

/* To the nearest integer, ties to even, clamped to [low, high], both within +-2^21; NaN gives 0
 * (encoders mark it in the scale). Clamping first leaves the result as it is, and lets the f32 unit
 * round next to 1.5 2^23. */
OZ_INLINE int32_t oz_f32_to_int(float x, int32_t low, int32_t high)
{
    float y = x > (float)low ? x : (float)low;
    y = y < (float)high ? y : (float)high;
    return x != x ? 0 : (int32_t)(oz_f32_bits(y + 0x1.8p23F) - 0x4B400000U);
}

/* Symmetric: -128 is not used. */
OZ_INLINE int8_t oz_f32_to_s8(float x)
{
    return (int8_t)oz_f32_to_int(x, -127, 127);
}

/* A 4-bit code as two's complement (-8 .. 7); as unsigned it is itself. */
OZ_INLINE int32_t oz_s4_to_int(uint8_t code)
{
    return (int32_t)((code & 15U) ^ 8U) - 8;
}

/* Symmetric, two's complement in the low four bits: -8 is not used. */
OZ_INLINE uint8_t oz_f32_to_s4(float x)
{
    return (uint8_t)((uint32_t)oz_f32_to_int(x, -7, 7) & 15U);
}

/* Unsigned. */
OZ_INLINE uint8_t oz_f32_to_u4(float x)
{
    return (uint8_t)oz_f32_to_int(x, 0, 15);
}

#endif
