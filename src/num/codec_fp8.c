/*
 * FP8: e4m3 codes under f32 scales, one for the slice (fp8_tensor), each row (fp8_channel) or each
 * 128x128 block (fp8_block). Value = code * scale. Scales as vLLM's online quantization.
 */
#include "num/codec_list.h"
#include "num/group.h"
#include "num/plane.h"

#define BLOCK 128

OZ_DECODE_SCALED(decode_fp8, OZ_PLANE_SCALES)

static void begin_tensor(struct oz_weight *w, int64_t slice, const struct oz_encode_state *state)
{
    oz_plane_put_f32(oz_plane_row(w, OZ_PLANE_SCALES, slice, 0), 0,
                     oz_fp8_tensor_scale(state->amax));
}

static void tensor_row(struct oz_weight *w, int64_t slice, int64_t row, const float *x,
                       const struct oz_encode_state *state)
{
    (void)state;
    float scale = oz_plane_get(OZ_DTYPE_F32, oz_plane_row(w, OZ_PLANE_SCALES, slice, 0), 0);
    oz_fp8_multiply(x, w->cols, scale, oz_plane_row(w, OZ_PLANE_CODES, slice, row));
}

static void channel_row(struct oz_weight *w, int64_t slice, int64_t row, const float *x,
                        const struct oz_encode_state *state)
{
    (void)state;
    bool bad = false;
    float scale = oz_fp8_channel_scale(oz_group_amax(x, w->cols, &bad));
    oz_plane_put_f32(oz_plane_row(w, OZ_PLANE_SCALES, slice, row), 0, scale);
    oz_fp8_divide(x, w->cols, scale, oz_plane_row(w, OZ_PLANE_CODES, slice, row));
}

/* One band of at most 128 rows. */
static void encode_blocks(struct oz_weight *w, int64_t slice, int64_t row0, const float *src,
                          int64_t rows, int64_t stride)
{
    uint8_t *scales = oz_plane_row(w, OZ_PLANE_SCALES, slice, row0 / BLOCK);
    for (int64_t col = 0; col < w->cols; col += BLOCK) {
        int64_t count = oz_min_count(BLOCK, w->cols - col);
        float amax = 0;
        bool bad = false;
        for (int64_t r = 0; r < rows; r++) {
            float row = oz_group_amax(src + r * stride + col, count, &bad);
            amax = row > amax ? row : amax;
        }
        float scale = oz_fp8_block_scale(amax);
        oz_plane_put_f32(scales, col / BLOCK, scale);
        for (int64_t r = 0; r < rows; r++) {
            oz_fp8_multiply(src + r * stride + col, count, scale,
                            oz_plane_row(w, OZ_PLANE_CODES, slice, row0 + r) + col);
        }
    }
}

OZ_ENCODE_ROWS(encode_tensor, tensor_row)
OZ_ENCODE_ROWS(encode_channel, channel_row)

static enum oz_status encode_block(struct oz_weight *w, int64_t slice, int64_t row0,
                                   const float *src, int64_t rows, int64_t stride,
                                   struct oz_encode_state *state)
{
    enum oz_status status = oz_band_check(w, row0, src, rows, stride, state);
    assert(row0 % BLOCK == 0);
    for (int64_t r = 0; status == OZ_OK && r < rows; r += BLOCK) {
        encode_blocks(w, slice, row0 + r, src + r * stride, oz_min_count(BLOCK, rows - r), stride);
    }
    return status;
}

#define PLANES(rows_, cols_)                                                       \
    .plane_count = 2, .planes = (const struct oz_plane_spec[])                     \
    {                                                                              \
        {.plane = OZ_PLANE_CODES,                                                  \
         .dtype = OZ_DTYPE_F8_E4M3,                                                \
         .cell_rows = 1,                                                           \
         .cell_cols = 1,                                                           \
         .cell_bits = 8},                                                          \
        {                                                                          \
            .plane = OZ_PLANE_SCALES, .dtype = OZ_DTYPE_F32, .cell_rows = (rows_), \
            .cell_cols = (cols_), .cell_bits = 32                                  \
        }                                                                          \
    }

const struct oz_codec oz_codec_fp8_tensor = {.name = "fp8_tensor",
                                             .scope_rows = OZ_CELL_ALL,
                                             .col_multiple = 1,
                                             .observe_passes = 1,
                                             PLANES(OZ_CELL_ALL, OZ_CELL_ALL),
                                             .decode = decode_fp8,
                                             .observe = oz_band_observe_amax,
                                             .begin = begin_tensor,
                                             .encode = encode_tensor};
const struct oz_codec oz_codec_fp8_channel = {.name = "fp8_channel",
                                              .scope_rows = 1,
                                              .col_multiple = 1,
                                              PLANES(1, OZ_CELL_ALL),
                                              .decode = decode_fp8,
                                              .encode = encode_channel};
const struct oz_codec oz_codec_fp8_block = {.name = "fp8_block",
                                            .scope_rows = BLOCK,
                                            .col_multiple = 1,
                                            PLANES(BLOCK, BLOCK),
                                            .decode = decode_fp8,
                                            .encode = encode_block};
