/*
 * num/int_group.h: fields and values of integers in groups (codec_int_group.c). Inline so that kernels of
 * every device use this one definition.
 */
#ifndef OZ_NUM_INT_GROUP_H
#define OZ_NUM_INT_GROUP_H

#include <stdint.h>

#include "num/inline.h"

/* The i-th of fields of so many bits, at most 8, that lie one behind the other from the lowest bits on. */
OZ_INLINE int32_t oz_int_group_field(const uint8_t *row, int64_t i, int bits)
{
    uint64_t at = (uint64_t)i * (uint64_t)bits;
    int shift = (int)(at % 8);
    int32_t x = row[at / 8] >> shift;
    if (shift + bits > 8) {
        x |= row[at / 8 + 1] << (8 - shift);
    }
    return x & ((1 << bits) - 1);
}

/* Exact with a scale that was a half. A minimum is added behind it. */
OZ_INLINE float oz_int_group_value(int32_t code, int32_t zero, float scale)
{
    return scale * (float)(code - zero);
}

#endif
