/*
 * num/int_group.h: fields and values of integers in groups (codec_int_group.c). Inline so that kernels of
 * every device use this one definition.
 */
#ifndef OZ_NUM_INT_GROUP_H
#define OZ_NUM_INT_GROUP_H

#include <stddef.h>
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

/* A row of such a weight, as kernels of devices read it. */
struct oz_int_group_row {
    const uint8_t *codes, *zeros; /* zeros NULL: the middle of the codes */
    const float *scales, *mins;   /* of each group; mins NULL: none */
    const int32_t *groups;        /* of each column; NULL: group_cols that follow each other */
    int64_t group_cols;
    int bits;
};

/* What a group's columns have in common. */
struct oz_int_group {
    int32_t zero;
    float scale, min;
};

OZ_INLINE struct oz_int_group oz_int_group_of(const struct oz_int_group_row *r, int64_t col)
{
    int64_t g = r->groups != NULL ? r->groups[col] : col / r->group_cols;
    struct oz_int_group out;
    out.zero = r->zeros != NULL ? oz_int_group_field(r->zeros, g, r->bits) : 1 << (r->bits - 1);
    out.scale = r->scales[g];
    out.min = r->mins != NULL ? r->mins[g] : 0;
    return out;
}

/* An element, of whose group that is. */
OZ_INLINE float oz_int_group_get(const struct oz_int_group_row *r, const struct oz_int_group *g,
                                 int64_t col)
{
    float x = oz_int_group_value(oz_int_group_field(r->codes, col, r->bits), g->zero, g->scale);
    return r->mins != NULL ? x + g->min : x;
}

/* Elements [col, col + 8) of a row, whose group is looked up once where they must have one in common. */
OZ_INLINE void oz_int_group_eight(const struct oz_int_group_row *r, int64_t col, float *y)
{
    struct oz_int_group g = oz_int_group_of(r, col);
    int alone = r->groups != NULL || r->group_cols % 8 != 0 || col % 8 != 0;
    for (int i = 0; i < 8; i++) {
        if (alone) {
            g = oz_int_group_of(r, col + i);
        }
        y[i] = oz_int_group_get(r, &g, col + i);
    }
}

#endif
