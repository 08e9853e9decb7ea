/*
 * cpu/int8.h: products of s8 codes with s8 codes. Their sums are exact integers, and only then come
 * the scales: y = x_scale[row] (w_scale[feature] f32(sum)). So they may be made in any order, also in
 * f32 while no partial sum is over 2^24.
 */
#ifndef OZ_CPU_INT8_H
#define OZ_CPU_INT8_H

#include <stdbool.h>

#include "dev/ops.h"

/* So many products of two s8 have sums that f32 holds exactly: 128 * 128 * 1024 = 2^24. */
#define OZ_INT8_EXACT_DEPTH 1024

/* Sums of so many may leave s32: 128 * 128 * 131072 = 2^31. */
#define OZ_INT8_MOST_DEPTH 131072

/* Are both s8, with one scale for a row of each and nothing else? */
bool oz_int8_product(const struct oz_act_spec *x, const struct oz_weight *w);

/* The weight with its codes as values: to be decoded like any other. */
struct oz_weight oz_int8_codes(const struct oz_weight *w);

/* Scales of rows [row0, row0 + rows) of a slice. */
void oz_int8_scales(const struct oz_weight *w, int64_t slice, int64_t row0, int64_t rows,
                    float *dst);

/* Codes [col, col + count) of a row of an s8 activation. */
void oz_int8_load(const struct oz_act *a, int64_t row, int64_t col, int64_t count, float *dst);

#endif
