/*
 * Integers in groups with zero points: what GPTQ, AWQ and AutoRound store. Value = scale x (code - zero);
 * code and zero are unsigned, the product of a half and a small integer is exact. One scale and zero for
 * each group_cols of a row, or, where PERM is there (GPTQ's g_idx), for the columns that it gives to a
 * group. Read only.
 */
#include "num/codec_list.h"
#include "num/group.h"
#include "num/plane.h"

static int32_t code_at(const uint8_t *row, int64_t i, int bits)
{
    int64_t at = i * bits;
    return row[at / 8] >> at % 8 & ((1 << bits) - 1);
}

static int64_t group_at(const struct oz_weight *w, int64_t slice, int64_t col)
{
    if (!w->planes[OZ_PLANE_PERM].present) {
        return col / w->group_cols;
    }
    int32_t group;
    memcpy(&group, oz_plane_row(w, OZ_PLANE_PERM, slice, 0) + col * 4, sizeof group);
    return group;
}

static void decode_bits(const struct oz_weight *w, int64_t slice, int64_t row, int64_t col,
                        int64_t count, float *dst, int bits)
{
    const uint8_t *codes = oz_plane_row(w, OZ_PLANE_CODES, slice, row);
    const uint8_t *scales = oz_plane_row(w, OZ_PLANE_SCALES, slice, row);
    const uint8_t *zeros = oz_plane_row(w, OZ_PLANE_ZEROS, slice, row);
    enum oz_dtype dtype = w->planes[OZ_PLANE_SCALES].dtype;
    int64_t last = -1;
    float scale = 0;
    assert(row >= 0 && row < w->rows && col >= 0 && count <= w->cols - col);
    for (int64_t i = 0; i < count; i++) {
        int64_t g = group_at(w, slice, col + i);
        if (g != last) {
            scale = oz_plane_get(dtype, scales, g);
            last = g;
        }
        dst[i] = scale * (float)(code_at(codes, col + i, bits) - zeros[g]);
    }
}

#define CODEC(name_, bits_)                                                                        \
    static void decode_##name_(const struct oz_weight *w, int64_t slice, int64_t row, int64_t col, \
                               int64_t count, float *dst)                                          \
    {                                                                                              \
        decode_bits(w, slice, row, col, count, dst, (bits_));                                      \
    }                                                                                              \
    static const struct oz_plane_spec planes_##name_[] = {                                         \
        {.plane = OZ_PLANE_CODES,                                                                  \
         .dtype = OZ_DTYPE_U8,                                                                     \
         .cell_rows = 1,                                                                           \
         .cell_cols = 1,                                                                           \
         .cell_bits = (bits_)},                                                                    \
        {.plane = OZ_PLANE_SCALES,                                                                 \
         .dtype = OZ_DTYPE_F32,                                                                    \
         .cell_rows = 1,                                                                           \
         .cell_cols = OZ_CELL_GROUP,                                                               \
         .cell_bits = 32},                                                                         \
        {.plane = OZ_PLANE_ZEROS,                                                                  \
         .dtype = OZ_DTYPE_U8,                                                                     \
         .cell_rows = 1,                                                                           \
         .cell_cols = OZ_CELL_GROUP,                                                               \
         .cell_bits = 8},                                                                          \
        {.plane = OZ_PLANE_PERM,                                                                   \
         .dtype = OZ_DTYPE_I32,                                                                    \
         .cell_rows = OZ_CELL_ALL,                                                                 \
         .cell_cols = 1,                                                                           \
         .cell_bits = 32,                                                                          \
         .optional = true},                                                                        \
    };                                                                                             \
    const struct oz_codec oz_codec_##name_ = {.name = #name_,                                      \
                                              .scope_rows = 1,                                     \
                                              .col_multiple = 8,                                   \
                                              .group_cols = 128,                                   \
                                              .plane_count = 4,                                    \
                                              .planes = planes_##name_,                            \
                                              .decode = decode_##name_};

CODEC(u2_group, 2)
CODEC(u4_group, 4)
CODEC(u8_group, 8)
