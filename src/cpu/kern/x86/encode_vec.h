/*
 * cpu/kern/x86/encode_vec.h: encoders of weights in bf16 (f32 with OZ_ENCODE_F32), over vec_avx2.h or
 * vec_avx512.h: FP8, INT8, MX, NVFP4, and bitsandbytes' formats (encode_bnb_vec.h).
 */
#ifndef OZ_CPU_KERN_X86_ENCODE_VEC_H
#define OZ_CPU_KERN_X86_ENCODE_VEC_H

#include "cpu/encode.h"
#include "cpu/kern/x86/codes_vec.h"
#include "cpu/kern/x86/encode_bnb_vec.h"
#include "num/codec_list.h"

#define BLOCK 128

/* ---- FP8 and INT8 ---- */

static bool observe_amax(const struct oz_weight *w, int64_t row0, const void *src, int64_t rows,
                         int64_t stride, struct oz_encode_state *state)
{
    const stored *x = src;
    magnitude most = 0;
    (void)row0;
    for (int64_t r = 0; r < rows; r++) {
        magnitude row = largest(x + r * stride, w->cols);
        most = row > most ? row : most;
    }
    if (most >= INFINITE) {
        return false;
    }
    float amax = value_of(most);
    state->amax = amax > state->amax ? amax : state->amax;
    return true;
}

/* A band row by row. */
#define ROWS(name, row_function)                                                        \
    static bool name(struct oz_weight *w, int64_t slice, int64_t row0, const void *src, \
                     int64_t rows, int64_t stride, struct oz_encode_state *state)       \
    {                                                                                   \
        const stored *x = src;                                                          \
        for (int64_t r = 0; r < rows; r++) {                                            \
            if (!row_function(w, slice, row0 + r, x + r * stride, state)) {             \
                return false;                                                           \
            }                                                                           \
        }                                                                               \
        return true;                                                                    \
    }

static bool tensor_row(struct oz_weight *w, int64_t slice, int64_t row, const stored *x,
                       const struct oz_encode_state *state)
{
    uint8_t *codes = oz_plane_row(w, OZ_PLANE_CODES, slice, row);
    float scale;
    (void)state;
    memcpy(&scale, oz_plane_row(w, OZ_PLANE_SCALES, slice, 0), sizeof scale);
    if (scale == 0) {
        memset(codes, 0, (size_t)w->cols);
        return largest(x, w->cols) < INFINITE;
    }
    float inverse = 1.0F / scale;
    if (!isfinite(inverse) || largest(x, w->cols) >= INFINITE) {
        return false;
    }
    fp8_multiply(x, w->cols, inverse, codes);
    return true;
}

static bool channel_row(struct oz_weight *w, int64_t slice, int64_t row, const stored *x,
                        const struct oz_encode_state *state)
{
    magnitude most = largest(x, w->cols);
    (void)state;
    if (most >= INFINITE) {
        return false;
    }
    float scale = oz_fp8_channel_scale(value_of(most));
    oz_plane_put_f32(oz_plane_row(w, OZ_PLANE_SCALES, slice, row), 0, scale);
    fp8_divide(x, w->cols, scale, oz_plane_row(w, OZ_PLANE_CODES, slice, row));
    return true;
}

static bool int8_row(struct oz_weight *w, int64_t slice, int64_t row, const stored *x,
                     const struct oz_encode_state *state)
{
    magnitude most = largest(x, w->cols);
    float amax = value_of(most);
    float inverse = amax == 0 ? 0.0F : 127.0F / amax;
    (void)state;
    if (most >= INFINITE || !isfinite(inverse)) {
        return false;
    }
    oz_plane_put_f32(oz_plane_row(w, OZ_PLANE_SCALES, slice, row), 0, amax / 127.0F);
    int8_multiply(x, w->cols, inverse, oz_plane_row(w, OZ_PLANE_CODES, slice, row));
    return true;
}

/* In bf16 arithmetic, as num/group.h says it. */
static bool int8_bf16_row(struct oz_weight *w, int64_t slice, int64_t row, const stored *x,
                          const struct oz_encode_state *state)
{
    magnitude most = largest(x, w->cols);
    float amax = oz_bf16_to_f32(oz_f32_to_bf16(value_of(most)));
    float scale = oz_bf16_to_f32(oz_f32_to_bf16(amax / 127.0F));
    uint8_t *codes = oz_plane_row(w, OZ_PLANE_CODES, slice, row);
    (void)state;
    if (most >= INFINITE || !isfinite(amax)) {
        return false;
    }
    oz_plane_put_f32(oz_plane_row(w, OZ_PLANE_SCALES, slice, row), 0, scale);
    if (scale == 0) {
        memset(codes, 0, (size_t)w->cols);
    } else {
        int8_divide_bf16(x, w->cols, scale, codes);
    }
    return true;
}

/* Up to 128 rows under one row of scales. */
static bool encode_blocks(struct oz_weight *w, int64_t slice, int64_t row0, const stored *x,
                          int64_t rows, int64_t stride)
{
    uint8_t *scales = oz_plane_row(w, OZ_PLANE_SCALES, slice, row0 / BLOCK);
    for (int64_t col = 0; col < w->cols; col += BLOCK) {
        int64_t count = oz_min_count(BLOCK, w->cols - col);
        magnitude most = 0;
        for (int64_t r = 0; r < rows; r++) {
            magnitude row = largest(x + r * stride + col, count);
            most = row > most ? row : most;
        }
        float scale = oz_fp8_block_scale(value_of(most));
        if (most >= INFINITE || !isfinite(1.0F / scale)) {
            return false;
        }
        oz_plane_put_f32(scales, col / BLOCK, scale);
        for (int64_t r = 0; r < rows; r++) {
            fp8_multiply(x + r * stride + col, count, 1.0F / scale,
                         oz_plane_row(w, OZ_PLANE_CODES, slice, row0 + r) + col);
        }
    }
    return true;
}

static bool encode_fp8_block(struct oz_weight *w, int64_t slice, int64_t row0, const void *src,
                             int64_t rows, int64_t stride, struct oz_encode_state *state)
{
    const stored *x = src;
    (void)state;
    for (int64_t r = 0; r < rows; r += BLOCK) {
        if (!encode_blocks(w, slice, row0 + r, x + r * stride, oz_min_count(BLOCK, rows - r),
                           stride)) {
            return false;
        }
    }
    return true;
}

/* ---- MX and NVFP4 ---- */

OZ_ALWAYS struct places row_places(const struct oz_weight *w, int64_t slice, int64_t row)
{
    struct places to = {.codes = oz_plane_row(w, OZ_PLANE_CODES, slice, row),
                        .scales = {oz_plane_row(w, OZ_PLANE_SCALES, slice, row)},
                        .apart = {1, 1}};
    if (w->planes[OZ_PLANE_SCALES2].present) {
        to.scales[1] = oz_plane_row(w, OZ_PLANE_SCALES2, slice, row);
    }
    return to;
}

static bool mxfp8_row(struct oz_weight *w, int64_t slice, int64_t row, const stored *x,
                      const struct oz_encode_state *state)
{
    const struct places to = row_places(w, slice, row);
    return group_row(
        x, w->cols,
        &(struct grouping){.codes = OZ_DTYPE_F8_E4M3, .width = MX, .rule = state->exponent_rule},
        &to);
}

static bool mxfp4_row(struct oz_weight *w, int64_t slice, int64_t row, const stored *x,
                      const struct oz_encode_state *state)
{
    const struct places to = row_places(w, slice, row);
    return group_row(
        x, w->cols,
        &(struct grouping){.codes = OZ_DTYPE_F4, .width = MX, .rule = state->exponent_rule}, &to);
}

static bool nvfp4_row(struct oz_weight *w, int64_t slice, int64_t row, const stored *x,
                      const struct oz_encode_state *state)
{
    const struct places to = row_places(w, slice, row);
    float global = oz_nvfp4_global(state->amax);
    return group_row(
        x, w->cols,
        &(struct grouping){
            .codes = OZ_DTYPE_F4, .width = NV, .global = global, .inverse = 1.0F / global},
        &to);
}

static bool dualscale_row(struct oz_weight *w, int64_t slice, int64_t row, const stored *x,
                          const struct oz_encode_state *state)
{
    const struct places to = row_places(w, slice, row);
    (void)state;
    return dual_row(x, w->cols, &to);
}

ROWS(encode_fp8_tensor, tensor_row)
ROWS(encode_fp8_channel, channel_row)
ROWS(encode_int8_channel, int8_row)
ROWS(encode_int8_channel_bf16, int8_bf16_row)
ROWS(encode_mxfp8, mxfp8_row)
ROWS(encode_mxfp4, mxfp4_row)
ROWS(encode_mxfp4_dualscale, dualscale_row)
ROWS(encode_nvfp4, nvfp4_row)

#define ENCODER(stored_, name_, tier_, enum_, observe_) \
    ENCODER_OF(stored_, name_, tier_, enum_, observe_)
#define ENCODER_OF(stored_, name_, tier_, enum_, observe_)                    \
    const struct oz_cpu_encoder oz_encoder_##stored_##_##name_##__##tier_ = { \
        .encoder = {.name = "oz_encode_" #stored_ "_" #name_ "__" #tier_,     \
                    .observe = (observe_),                                    \
                    .encode = encode_##name_},                                \
        .codec = &oz_codec_##name_,                                           \
        .stored = STORED_DTYPE,                                               \
        .tier = (enum_),                                                      \
        .proven = OZ_CODES_PROVEN};

#define ENCODERS(tier_, enum_)                                \
    ENCODER(STORED, fp8_tensor, tier_, enum_, observe_amax)   \
    ENCODER(STORED, fp8_channel, tier_, enum_, NULL)          \
    ENCODER(STORED, fp8_block, tier_, enum_, NULL)            \
    ENCODER(STORED, int8_channel, tier_, enum_, NULL)         \
    ENCODER(STORED, int8_channel_bf16, tier_, enum_, NULL)    \
    ENCODER(STORED, mxfp8, tier_, enum_, NULL)                \
    ENCODER(STORED, mxfp4, tier_, enum_, NULL)                \
    ENCODER(STORED, mxfp4_dualscale, tier_, enum_, NULL)      \
    ENCODER(STORED, nvfp4, tier_, enum_, observe_amax)        \
    ENCODER(STORED, nf4, tier_, enum_, NULL)                  \
    ENCODER(STORED, nf4_nested, tier_, enum_, observe_nested) \
    ENCODER(STORED, fp4_bnb, tier_, enum_, NULL)              \
    ENCODER(STORED, fp4_bnb_nested, tier_, enum_, observe_nested)

#endif
