/*
 * Integers of 4 bits under a scale for each group_cols of a row, as several toolchains store them; read
 * only. Codes are unsigned; their zero is 8 (two's complement is that with the top bit turned) unless the
 * weight has zero points, one for each group. Value = (code - zero) * scale, plus the group's minimum
 * where the weight has that plane.
 */
#include "num/codec_list.h"
#include "num/plane.h"

#define ZERO 8

static void decode(const struct oz_weight *w, int64_t slice, int64_t row, int64_t col,
                   int64_t count, float *dst)
{
    const uint8_t *codes = oz_plane_row(w, OZ_PLANE_CODES, slice, row);
    const uint8_t *scales = oz_plane_row(w, OZ_PLANE_SCALES, slice, row);
    bool mins = w->planes[OZ_PLANE_MINS].present;
    bool zeros = w->planes[OZ_PLANE_ZEROS].present;
    assert(row >= 0 && row < w->rows && col >= 0 && count <= w->cols - col);
    for (int64_t i = 0; i < count; i++) {
        int64_t c = col + i;
        int code = codes[c / 2] >> (c % 2 * 4) & 15;
        int64_t group = c / w->group_cols;
        int zero = ZERO;
        if (zeros) {
            zero = oz_plane_row(w, OZ_PLANE_ZEROS, slice, row)[group / 2] >> (group % 2 * 4) & 15;
        }
        dst[i] =
            (float)(code - zero) * oz_plane_get(w->planes[OZ_PLANE_SCALES].dtype, scales, group);
        if (mins) {
            dst[i] += oz_plane_get(w->planes[OZ_PLANE_MINS].dtype,
                                   oz_plane_row(w, OZ_PLANE_MINS, slice, row), group);
        }
    }
}

static const struct oz_plane_spec planes[] = {
    {.plane = OZ_PLANE_CODES, .dtype = OZ_DTYPE_U8, .cell_rows = 1, .cell_cols = 1, .cell_bits = 4},
    {.plane = OZ_PLANE_SCALES,
     .dtype = OZ_DTYPE_F32,
     .cell_rows = 1,
     .cell_cols = OZ_CELL_GROUP,
     .cell_bits = 32},
    {.plane = OZ_PLANE_ZEROS,
     .dtype = OZ_DTYPE_U8,
     .cell_rows = 1,
     .cell_cols = OZ_CELL_GROUP,
     .cell_bits = 4,
     .optional = true},
    {.plane = OZ_PLANE_MINS,
     .dtype = OZ_DTYPE_F32,
     .cell_rows = 1,
     .cell_cols = OZ_CELL_GROUP,
     .cell_bits = 32,
     .optional = true},
};

const struct oz_codec oz_codec_int4_group = {.name = "int4_group",
                                             .scope_rows = 1,
                                             .col_multiple = 1,
                                             .group_cols = 128,
                                             .plane_count = 4,
                                             .planes = planes,
                                             .decode = decode};
