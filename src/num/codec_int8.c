/*
 * INT8: symmetric s8 codes under an f32 scale for each row. Value = code * scale. int8_channel is
 * vLLM-Omni's int8; int8_channel_bf16 has the same planes from scales and codes computed in bf16,
 * as vLLM's int8_per_channel_weight_only makes them for experts.
 */
#include "num/codec_list.h"
#include "num/group.h"
#include "num/plane.h"

OZ_DECODE_SCALED(decode_int8, OZ_PLANE_SCALES)

static void channel_row(struct oz_weight *w, int64_t slice, int64_t row, const float *x,
                        const struct oz_encode_state *state)
{
    (void)state;
    int8_t *codes = (int8_t *)oz_plane_row(w, OZ_PLANE_CODES, slice, row);
    oz_plane_put_f32(oz_plane_row(w, OZ_PLANE_SCALES, slice, row), 0,
                     oz_int8_encode(x, w->cols, codes));
}

static void channel_row_bf16(struct oz_weight *w, int64_t slice, int64_t row, const float *x,
                             const struct oz_encode_state *state)
{
    (void)state;
    int8_t *codes = (int8_t *)oz_plane_row(w, OZ_PLANE_CODES, slice, row);
    oz_plane_put_f32(oz_plane_row(w, OZ_PLANE_SCALES, slice, row), 0,
                     oz_int8_bf16_encode(x, w->cols, codes));
}

OZ_ENCODE_ROWS(encode_channel, channel_row)
OZ_ENCODE_ROWS(encode_channel_bf16, channel_row_bf16)

static const struct oz_plane_spec planes[] = {
    {.plane = OZ_PLANE_CODES, .dtype = OZ_DTYPE_I8, .cell_rows = 1, .cell_cols = 1, .cell_bits = 8},
    {.plane = OZ_PLANE_SCALES,
     .dtype = OZ_DTYPE_F32,
     .cell_rows = 1,
     .cell_cols = OZ_CELL_ALL,
     .cell_bits = 32},
};

const struct oz_codec oz_codec_int8_channel = {.name = "int8_channel",
                                               .scope_rows = 1,
                                               .col_multiple = 1,
                                               .plane_count = 2,
                                               .planes = planes,
                                               .decode = decode_int8,
                                               .encode = encode_channel};
const struct oz_codec oz_codec_int8_channel_bf16 = {.name = "int8_channel_bf16",
                                                    .scope_rows = 1,
                                                    .col_multiple = 1,
                                                    .plane_count = 2,
                                                    .planes = planes,
                                                    .decode = decode_int8,
                                                    .encode = encode_channel_bf16};
