#include "num/codec.h"

#include <assert.h>
#include <string.h>

#include "num/codec_list.h"

static const struct oz_codec *const codecs[] = {
#define OZ_CODEC(obj) &obj,
#include "num/codec.inc"
#undef OZ_CODEC
};

const struct oz_codec *oz_codec_find(const char *name)
{
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        if (strcmp(codecs[i]->name, name) == 0) {
            return codecs[i];
        }
    }
    return NULL;
}

const struct oz_plane_spec *oz_codec_plane(const struct oz_codec *codec, enum oz_plane plane)
{
    for (int32_t i = 0; i < codec->plane_count; i++) {
        if (codec->planes[i].plane == plane) {
            return &codec->planes[i];
        }
    }
    return NULL;
}

/* Cells that cover `extent` elements; a cell of 0 covers all. */
static int64_t cells(int64_t extent, int32_t cell)
{
    return cell == 0 ? (extent > 0) : extent / cell + (extent % cell != 0);
}

enum oz_status oz_codec_plane_bytes(const struct oz_codec *codec, enum oz_plane plane, int64_t rows,
                                    int64_t cols, int64_t *bytes, int64_t *row_bytes)
{
    const struct oz_plane_spec *spec = oz_codec_plane(codec, plane);
    if (spec == NULL || rows < 0 || cols < 0 || cols % codec->col_multiple != 0) {
        return OZ_ERR_ARG;
    }
    if (spec->cell_bits == 0) {
        int64_t extra = codec->extra_bytes(plane, rows, cols);
        *bytes = *row_bytes = extra;
        return extra < 0 ? OZ_ERR_FORMAT : OZ_OK;
    }
    int64_t bits;
    if (__builtin_mul_overflow(cells(cols, spec->cell_cols), (int64_t)spec->cell_bits, &bits) ||
        bits > INT64_MAX - 7) {
        return OZ_ERR_FORMAT;
    }
    *row_bytes = (bits + 7) / 8;
    return __builtin_mul_overflow(*row_bytes, cells(rows, spec->cell_rows), bytes) ? OZ_ERR_FORMAT
                                                                                   : OZ_OK;
}

enum oz_status oz_codec_bytes(const struct oz_codec *codec, int64_t rows, int64_t cols,
                              int64_t *bytes)
{
    *bytes = 0;
    for (int32_t i = 0; i < codec->plane_count; i++) {
        int64_t plane;
        int64_t row;
        if (codec->planes[i].optional) {
            continue;
        }
        enum oz_status status =
            oz_codec_plane_bytes(codec, codec->planes[i].plane, rows, cols, &plane, &row);
        if (status != OZ_OK) {
            return status;
        }
        if (__builtin_add_overflow(*bytes, plane, bytes)) {
            return OZ_ERR_FORMAT;
        }
    }
    return OZ_OK;
}

struct oz_weight oz_weight_plain(enum oz_dtype dtype, int64_t rows, int64_t cols, void *data)
{
    const struct oz_codec *codec = oz_codec_plain(dtype);
    assert(codec != NULL);
    int64_t row_bytes = cols * (oz_dtype_bits(dtype) / 8);
    struct oz_weight w = {.codec = codec, .rows = rows, .cols = cols};
    w.planes[OZ_PLANE_CODES] = (struct oz_plane_view){
        .data = data, .bytes = rows * row_bytes, .row_stride_bytes = row_bytes};
    return w;
}
