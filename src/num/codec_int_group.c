/*
 * Integers of 2 to 8 bits in groups, as GPTQ, AWQ, AutoRound, compressed-tensors, ModelOpt, TorchAO, Quark,
 * msModelSlim and nunchaku store them. Value = (code - zero) x scale; code and zero are unsigned, the product of a half and
 * a small integer is exact. Codes lie one behind the other, the first in the lowest bits. Without zero
 * points all are the middle, 2^(bits - 1) (two's complement is that with the top bit turned); MINS, where
 * it is there, is added. One scale for each group_cols of a row, or, where PERM is there (GPTQ's g_idx),
 * for the columns that it gives to a group. Read only.
 */
#include "num/codec_list.h"
#include "num/int_group.h"
#include "num/plane.h"

static int64_t group_at(const struct oz_weight *w, int64_t slice, int64_t col)
{
    if (!w->planes[OZ_PLANE_PERM].present) {
        return col / w->group_cols;
    }
    int32_t group;
    memcpy(&group, oz_plane_row(w, OZ_PLANE_PERM, slice, 0) + col * 4, sizeof group);
    return group;
}

/* What a group's columns have in common. */
struct group {
    int32_t zero;
    float scale;
};

/* Codes [first, first + count) of a row, all of one group. */
OZ_INLINE void decode_run(const uint8_t *codes, int64_t first, int64_t count, int bits,
                          const struct group *g, float *dst)
{
    int64_t i = 0;
    if (bits == 4 && first % 2 == 0) { /* two of a byte */
        for (; i + 2 <= count; i += 2) {
            uint8_t pair = codes[(first + i) / 2];
            dst[i] = oz_int_group_value(pair & 15, g->zero, g->scale);
            dst[i + 1] = oz_int_group_value(pair >> 4, g->zero, g->scale);
        }
    }
    for (; i < count; i++) {
        dst[i] = oz_int_group_value(oz_int_group_field(codes, first + i, bits), g->zero, g->scale);
    }
}

OZ_INLINE void decode_bits(const struct oz_weight *w, int64_t slice, int64_t row, int64_t col,
                           int64_t count, float *dst, int bits)
{
    const uint8_t *codes = oz_plane_row(w, OZ_PLANE_CODES, slice, row);
    const uint8_t *scales = oz_plane_row(w, OZ_PLANE_SCALES, slice, row);
    bool has_zeros = w->planes[OZ_PLANE_ZEROS].present;
    bool has_mins = w->planes[OZ_PLANE_MINS].present;
    bool has_perm = w->planes[OZ_PLANE_PERM].present;
    const uint8_t *zeros = has_zeros ? oz_plane_row(w, OZ_PLANE_ZEROS, slice, row) : NULL;
    const uint8_t *mins = has_mins ? oz_plane_row(w, OZ_PLANE_MINS, slice, row) : NULL;
    struct group group = {.zero = 1 << (bits - 1)};
    assert(row >= 0 && row < w->rows && col >= 0 && count <= w->cols - col);
    for (int64_t i = 0; i < count;) {
        int64_t g = group_at(w, slice, col + i);
        int64_t end = has_perm ? i + 1 : oz_min_count(count, (g + 1) * w->group_cols - col);
        while (end < count && has_perm && group_at(w, slice, col + end) == g) {
            end++;
        }
        group.scale = oz_plane_get(w->planes[OZ_PLANE_SCALES].dtype, scales, g);
        group.zero = has_zeros ? oz_int_group_field(zeros, g, bits) : group.zero;
        decode_run(codes, col + i, end - i, bits, &group, dst + i);
        float least = has_mins ? oz_plane_get(w->planes[OZ_PLANE_MINS].dtype, mins, g) : 0;
        for (int64_t k = i; has_mins && k < end; k++) {
            dst[k] += least;
        }
        i = end;
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
         .cell_bits = (bits_),                                                                     \
         .optional = true},                                                                        \
        {.plane = OZ_PLANE_MINS,                                                                   \
         .dtype = OZ_DTYPE_F32,                                                                    \
         .cell_rows = 1,                                                                           \
         .cell_cols = OZ_CELL_GROUP,                                                               \
         .cell_bits = 32,                                                                          \
         .optional = true},                                                                        \
        {.plane = OZ_PLANE_PERM,                                                                   \
         .dtype = OZ_DTYPE_I32,                                                                    \
         .cell_rows = OZ_CELL_ALL,                                                                 \
         .cell_cols = 1,                                                                           \
         .cell_bits = 32,                                                                          \
         .optional = true},                                                                        \
    };                                                                                             \
    const struct oz_codec oz_codec_##name_ = {.name = #name_,                                      \
                                              .scope_rows = 1,                                     \
                                              .col_multiple = 1,                                   \
                                              .group_cols = 128,                                   \
                                              .plane_count = 5,                                    \
                                              .planes = planes_##name_,                            \
                                              .decode = decode_##name_};

CODEC(u2_group, 2)
CODEC(u3_group, 3)
CODEC(u4_group, 4)
CODEC(u5_group, 5)
CODEC(u6_group, 6)
CODEC(u7_group, 7)
CODEC(u8_group, 8)
