#include "num/plane.h"

#include "num/group.h"

#define READ(type, convert)                                          \
    for (int64_t i = 0; i < count; i++) {                            \
        type x;                                                      \
        memcpy(&x, row + (first + i) * (int64_t)sizeof x, sizeof x); \
        dst[i] = convert(x);                                         \
    }                                                                \
    break

void oz_plane_read(enum oz_dtype dtype, const uint8_t *row, int64_t first, int64_t count,
                   float *dst)
{
    switch (dtype) {
    case OZ_DTYPE_F32: memcpy(dst, row + first * 4, (size_t)count * 4); break;
    case OZ_DTYPE_F64: READ(double, (float));
    case OZ_DTYPE_F16: READ(uint16_t, oz_f16_to_f32);
    case OZ_DTYPE_BF16: READ(uint16_t, oz_bf16_to_f32);
    case OZ_DTYPE_F8_E4M3: READ(uint8_t, oz_e4m3_to_f32);
    case OZ_DTYPE_F8_E5M2: READ(uint8_t, oz_e5m2_to_f32);
    case OZ_DTYPE_F8_E8M0: READ(uint8_t, oz_e8m0_to_f32);
    case OZ_DTYPE_I8: READ(int8_t, (float));
    case OZ_DTYPE_F4:
        for (int64_t i = 0; i < count; i++) {
            dst[i] = oz_e2m1_to_f32(oz_nibble_get(row, first + i));
        }
        break;
    default: READ(uint8_t, (float)); /* U8 */
    }
}

/* dst [count], columns from col of a row, times the plane's cells over them. */
static void apply_scales(const struct oz_weight *w, enum oz_plane plane, int64_t slice, int64_t row,
                         int64_t col, int64_t count, float *dst)
{
    const struct oz_plane_spec *spec = oz_codec_plane(w->codec, plane);
    int64_t cell_cols = spec->cell_cols == OZ_CELL_GROUP ? w->group_cols : spec->cell_cols;
    int64_t cell_row = spec->cell_rows > 0 ? row / spec->cell_rows : 0;
    const uint8_t *cells = oz_plane_row(w, plane, slice, cell_row);
    int64_t done = 0;
    while (done < count) {
        int64_t cell = cell_cols > 0 ? (col + done) / cell_cols : 0;
        int64_t end = cell_cols > 0 ? oz_min_count(count, (cell + 1) * cell_cols - col) : count;
        float scale = oz_plane_get(w->planes[plane].dtype, cells, cell);
        for (; done < end; done++) {
            dst[done] *= scale;
        }
    }
}

void oz_plane_decode(const struct oz_weight *w, const enum oz_plane *planes, int32_t plane_count,
                     int64_t slice, int64_t row, int64_t col, int64_t count, float *dst)
{
    assert(row >= 0 && row < w->rows && col >= 0 && count <= w->cols - col);
    oz_plane_read(w->planes[OZ_PLANE_CODES].dtype, oz_plane_row(w, OZ_PLANE_CODES, slice, row), col,
                  count, dst);
    for (int32_t i = 0; i < plane_count; i++) {
        apply_scales(w, planes[i], slice, row, col, count, dst);
    }
}

enum oz_status oz_band_check(const struct oz_weight *w, int64_t row0, const float *src,
                             int64_t rows, int64_t stride, struct oz_encode_state *state)
{
    assert(row0 >= 0 && rows <= w->rows - row0);
    for (int64_t r = 0; r < rows && !state->keep_nonfinite; r++) {
        int64_t bad = oz_group_bad(src + r * stride, w->cols);
        if (bad >= 0) {
            state->bad_row = row0 + r;
            state->bad_col = bad;
            return OZ_ERR_FORMAT;
        }
    }
    return OZ_OK;
}

enum oz_status oz_band_observe_amax(const struct oz_weight *w, int64_t row0, const float *src,
                                    int64_t rows, int64_t stride, struct oz_encode_state *state)
{
    enum oz_status status = oz_band_check(w, row0, src, rows, stride, state);
    if (status != OZ_OK) {
        return status;
    }
    for (int64_t r = 0; r < rows; r++) {
        bool bad = false;
        float amax = oz_group_amax(src + r * stride, w->cols, &bad);
        state->amax = amax > state->amax ? amax : state->amax;
    }
    return OZ_OK;
}
