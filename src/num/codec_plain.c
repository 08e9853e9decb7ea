/* Unscaled elements: f32, f16, bf16, f64. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "num/codec_list.h"
#include "num/float.h"

const struct oz_codec *oz_codec_plain(enum oz_dtype dtype)
{
    switch (dtype) {
    case OZ_DTYPE_F32: return &oz_codec_f32;
    case OZ_DTYPE_F16: return &oz_codec_f16;
    case OZ_DTYPE_BF16: return &oz_codec_bf16;
    case OZ_DTYPE_F64: return &oz_codec_f64;
    default: return NULL;
    }
}

bool oz_codec_is_plain(const struct oz_codec *codec)
{
    return codec == &oz_codec_f32 || codec == &oz_codec_f16 || codec == &oz_codec_bf16 ||
           codec == &oz_codec_f64;
}

/* Address of element (slice, row, col) of the codes, `size` bytes each; any alignment. */
static uint8_t *element(const struct oz_weight *w, int64_t slice, int64_t row, int64_t col,
                        int64_t size)
{
    const struct oz_plane_view *codes = &w->planes[OZ_PLANE_CODES];
    return (uint8_t *)codes->data + slice * codes->slice_stride_bytes +
           row * codes->row_stride_bytes + col * size;
}

static void decode_f32(const struct oz_weight *w, int64_t slice, int64_t row, int64_t col,
                       int64_t count, float *dst)
{
    assert(row >= 0 && row < w->rows && col >= 0 && count <= w->cols - col);
    memcpy(dst, element(w, slice, row, col, 4), (size_t)count * 4);
}

static void decode_bf16(const struct oz_weight *w, int64_t slice, int64_t row, int64_t col,
                        int64_t count, float *dst)
{
    assert(row >= 0 && row < w->rows && col >= 0 && count <= w->cols - col);
    const uint8_t *src = element(w, slice, row, col, 2);
    for (int64_t i = 0; i < count; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, 2);
        dst[i] = oz_bf16_to_f32(h);
    }
}

static void decode_f16(const struct oz_weight *w, int64_t slice, int64_t row, int64_t col,
                       int64_t count, float *dst)
{
    assert(row >= 0 && row < w->rows && col >= 0 && count <= w->cols - col);
    const uint8_t *src = element(w, slice, row, col, 2);
    for (int64_t i = 0; i < count; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, 2);
        dst[i] = oz_f16_to_f32(h);
    }
}

static void decode_f64(const struct oz_weight *w, int64_t slice, int64_t row, int64_t col,
                       int64_t count, float *dst)
{
    assert(row >= 0 && row < w->rows && col >= 0 && count <= w->cols - col);
    const uint8_t *src = element(w, slice, row, col, 8);
    for (int64_t i = 0; i < count; i++) {
        double x;
        memcpy(&x, src + 8 * i, 8);
        dst[i] = (float)x;
    }
}

/* NaN and infinity are refused where the state says so, and their place remembered. */
#define ENCODE(name, size, type, convert)                                                          \
    static enum oz_status name(struct oz_weight *w, int64_t slice, int64_t row0, const float *src, \
                               int64_t rows, int64_t stride, struct oz_encode_state *state)        \
    {                                                                                              \
        assert(row0 >= 0 && rows <= w->rows - row0);                                               \
        for (int64_t r = 0; r < rows; r++) {                                                       \
            uint8_t *dst = element(w, slice, row0 + r, 0, size);                                   \
            for (int64_t c = 0; c < w->cols; c++) {                                                \
                float x = src[r * stride + c];                                                     \
                if (!isfinite(x) && !state->keep_nonfinite) {                                      \
                    state->bad_row = row0 + r;                                                     \
                    state->bad_col = c;                                                            \
                    return OZ_ERR_FORMAT;                                                          \
                }                                                                                  \
                type y = convert(x);                                                               \
                memcpy(dst + (size)*c, &y, size);                                                  \
            }                                                                                      \
        }                                                                                          \
        return OZ_OK;                                                                              \
    }

ENCODE(encode_f32, 4, float, )
ENCODE(encode_f16, 2, uint16_t, oz_f32_to_f16)
ENCODE(encode_bf16, 2, uint16_t, oz_f32_to_bf16)
ENCODE(encode_f64, 8, double, )

#define PLAIN(type, bits)                                                                         \
    .scope_rows = 1, .col_multiple = 1, .plane_count = 1, .planes = &(const struct oz_plane_spec) \
    {                                                                                             \
        .plane = OZ_PLANE_CODES, .dtype = (type), .cell_rows = 1, .cell_cols = 1,                 \
        .cell_bits = (bits)                                                                       \
    }

const struct oz_codec oz_codec_f32 = {
    .name = "f32", PLAIN(OZ_DTYPE_F32, 32), .decode = decode_f32, .encode = encode_f32};
const struct oz_codec oz_codec_f16 = {
    .name = "f16", PLAIN(OZ_DTYPE_F16, 16), .decode = decode_f16, .encode = encode_f16};
const struct oz_codec oz_codec_bf16 = {
    .name = "bf16", PLAIN(OZ_DTYPE_BF16, 16), .decode = decode_bf16, .encode = encode_bf16};
const struct oz_codec oz_codec_f64 = {
    .name = "f64", PLAIN(OZ_DTYPE_F64, 64), .decode = decode_f64, .encode = encode_f64};
