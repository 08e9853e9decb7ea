/*
 * num/act.h: how a row of activations becomes codes and scales, and back. The scale rules are those
 * of num/group.h, shared with weights; here is which of them a format uses.
 *
 *   elements  scale[0]          scale[1]      name      scales
 *   F8_E4M3   F32, the row      -             fp8       max(amax / 448, 1 / (448 * 512)); x / scale
 *   F8_E4M3   F32 per group     -             fp8 1x128 max(amax, 1e-10) / 448; x / scale
 *   F8_E4M3   F8_E8M0 per 32    -             mxfp8     exponent rule, default ceil
 *   F8_E4M3   -                 -             static    given; x * (1 / scale)
 *   I8        F32, the row      -             int8      amax / 127; x * (127 / amax)
 *   I8        -                 -             static    given scale and offset; x / scale + offset
 *   F4        F8_E8M0 per 32    -             mxfp4     exponent rule, default even
 *   F4        F8_E8M0 per 32    F32 per 512   dual      as mxfp4_dualscale
 *   F4        F8_E4M3 per 16    F32, the row  nvfp4     1 / g, g from the sequence's amax, in every
 *                                                       row of it
 *   F4        F8_E4M3 per 16    -             nvfp4     the given scale is 1 / g
 *
 * Sources: vLLM's native kernels (per token, per 1x128, static, int8), OCP MX, vLLM's NVFP4.
 * NaN and infinity take no part in a scale and decode to NaN, alone in e4m3, else with their group
 * (num/group.h); so in a static s8, which has no scale to mark, NaN is 0 and infinity saturates.
 */
#ifndef OZ_NUM_ACT_H
#define OZ_NUM_ACT_H

#include <stdbool.h>
#include <stdint.h>

#include "num/codec.h"
#include "num/dtype.h"

/* group_cols 0: one scale for the row. Groups may be short at the end of a row. */
struct oz_act_format {
    enum oz_dtype element;
    int32_t scale_count;
    struct {
        enum oz_dtype dtype;
        int32_t group_cols;
    } scale[2];
    enum oz_exponent_rule exponent_rule;
    bool static_scale; /* the scale is given, not computed */
};

/* What is known before a row is read. */
struct oz_act_given {
    float amax;   /* nvfp4 with scale[1]: largest finite magnitude of the sequence */
    float scale;  /* static */
    float offset; /* static I8: added to the code; 0 for symmetric */
};

/* A row of a quantized activation: borrowed. Consecutive scales of the row lie scale_stride[i]
 * elements apart. F4 codes begin at a byte. */
struct oz_act_row {
    void *codes;
    void *scales[2];
    int64_t scale_stride[2];
};

/* Is it one of the formats above? */
bool oz_act_format_known(const struct oz_act_format *f);

/* Scales of a level for a row of so many columns. */
int64_t oz_act_groups(const struct oz_act_format *f, int32_t level, int64_t cols);

/* Does encoding need given->amax? */
bool oz_act_needs_amax(const struct oz_act_format *f);

/* x [cols] to codes and scales; f must be known. x must not overlap the row. */
void oz_act_encode_row(const struct oz_act_format *f, const struct oz_act_given *given,
                       const float *x, int64_t cols, const struct oz_act_row *row);

/* Elements [col, col + count) of a row to f32: (code * scale[0]) * scale[1]. */
void oz_act_decode_row(const struct oz_act_format *f, const struct oz_act_given *given,
                       const struct oz_act_row *row, int64_t col, int64_t count, float *dst);

#endif
