/* num/plane.h: what the codecs share: rows of planes, elements of any dtype, scales applied. */
#ifndef OZ_NUM_PLANE_H
#define OZ_NUM_PLANE_H

#include <assert.h>
#include <math.h>
#include <string.h>

#include "num/codec.h"

/* Address of a row of cells. */
static inline uint8_t *oz_plane_row(const struct oz_weight *w, enum oz_plane plane, int64_t slice,
                                    int64_t cell_row)
{
    const struct oz_plane_view *v = &w->planes[plane];
    return (uint8_t *)v->data + slice * v->slice_stride_bytes + cell_row * v->row_stride_bytes;
}

/* Cells [first, first + count) of a row of cells, to f32. dtype: floating, I8, U8 or F4. */
void oz_plane_read(enum oz_dtype dtype, const uint8_t *row, int64_t first, int64_t count,
                   float *dst);

static inline float oz_plane_get(enum oz_dtype dtype, const uint8_t *row, int64_t i)
{
    float x;
    oz_plane_read(dtype, row, i, 1, &x);
    return x;
}

static inline void oz_plane_put_f32(uint8_t *row, int64_t i, float x)
{
    memcpy(row + i * 4, &x, sizeof x);
}

/* decode of codecs whose value is ((code * scale) * scale2): the codes by their view's dtype, then
 * each of `planes` [count] by its cells, in that order. */
void oz_plane_decode(const struct oz_weight *w, const enum oz_plane *planes, int32_t plane_count,
                     int64_t slice, int64_t row, int64_t col, int64_t count, float *dst);

/* Refuses NaN and infinity in a band unless the state keeps them. */
OZ_MUST_USE enum oz_status oz_band_check(const struct oz_weight *w, int64_t row0, const float *src,
                                         int64_t rows, int64_t stride,
                                         struct oz_encode_state *state);

/* observe of codecs that learn the amax of the slice. */
OZ_MUST_USE enum oz_status oz_band_observe_amax(const struct oz_weight *w, int64_t row0,
                                                const float *src, int64_t rows, int64_t stride,
                                                struct oz_encode_state *state);

static inline int64_t oz_min_count(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t oz_max_count(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The whole of a codec whose cells are encoded row by row: oz_band_check, then `row` for each. */
#define OZ_ENCODE_ROWS(name, row_function)                                                         \
    static enum oz_status name(struct oz_weight *w, int64_t slice, int64_t row0, const float *src, \
                               int64_t rows, int64_t stride, struct oz_encode_state *state)        \
    {                                                                                              \
        enum oz_status status = oz_band_check(w, row0, src, rows, stride, state);                  \
        for (int64_t r = 0; status == OZ_OK && r < rows; r++) {                                    \
            row_function(w, slice, row0 + r, src + r * stride, state);                             \
        }                                                                                          \
        return status;                                                                             \
    }

/* decode over the planes of the list, by oz_plane_decode. */
#define OZ_DECODE_SCALED(name, ...)                                                           \
    static void name(const struct oz_weight *w, int64_t slice, int64_t row, int64_t col,      \
                     int64_t count, float *dst)                                               \
    {                                                                                         \
        static const enum oz_plane order[] = {__VA_ARGS__};                                   \
        oz_plane_decode(w, order, sizeof order / sizeof *order, slice, row, col, count, dst); \
    }

#endif
