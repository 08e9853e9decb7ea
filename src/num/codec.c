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

/* The planes of a scheme that no codec's decode applies; one geometry for all codecs. */
static const struct oz_plane_spec side_planes[] = {
    {.plane = OZ_PLANE_SMOOTH,
     .dtype = OZ_DTYPE_F32,
     .cell_rows = OZ_CELL_ALL,
     .cell_cols = 1,
     .cell_bits = 32,
     .optional = true},
    {.plane = OZ_PLANE_INPUT_SCALE, .dtype = OZ_DTYPE_F32, .cell_bits = 32, .optional = true},
    {.plane = OZ_PLANE_INPUT_OFFSET, .dtype = OZ_DTYPE_F32, .cell_bits = 32, .optional = true},
};

const struct oz_plane_spec *oz_codec_plane(const struct oz_codec *codec, enum oz_plane plane)
{
    for (int32_t i = 0; i < codec->plane_count; i++) {
        if (codec->planes[i].plane == plane) {
            return &codec->planes[i];
        }
    }
    for (size_t i = 0; i < sizeof side_planes / sizeof *side_planes; i++) {
        if (side_planes[i].plane == plane) {
            return &side_planes[i];
        }
    }
    return NULL;
}

/* Cells that cover `extent` elements. */
static int64_t count_cells(int64_t extent, int64_t cell)
{
    return cell <= 0 ? (extent > 0) : extent / cell + (extent % cell != 0);
}

static int64_t resolve_cell(const struct oz_weight *w, int32_t cell)
{
    return cell == OZ_CELL_GROUP ? w->group_cols : cell;
}

static int64_t flat_cell(const struct oz_weight *w, const struct oz_plane_spec *spec)
{
    return resolve_cell(w, spec->flat_cells) * (spec->flat_times != 0 ? spec->flat_times : 1);
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int64_t oz_weight_scope_rows(const struct oz_weight *w)
{
    int64_t rows = w->codec->scope_rows;
    if (rows > 0) {
        return rows;
    }
    rows = 1; /* as many rows as fill whole blocks, of the largest kind */
    for (int32_t i = 0; i < w->codec->plane_count; i++) {
        const struct oz_plane_spec *spec = &w->codec->planes[i];
        if (spec->flat_cells != 0 && w->cols > 0) {
            int64_t cell = flat_cell(w, spec);
            int64_t need = cell / common_divisor(cell, w->cols);
            rows = need > rows ? need : rows;
        }
    }
    return rows;
}

/* Low-rank factors are plain matrices beside the tiling. */
static bool low_rank_shape(const struct oz_weight *w, enum oz_plane plane, int64_t *rows,
                           int64_t *cols)
{
    *rows = plane == OZ_PLANE_LOW_RANK_A ? w->rank : w->rows;
    *cols = plane == OZ_PLANE_LOW_RANK_A ? w->cols : w->rank;
    return plane == OZ_PLANE_LOW_RANK_A || plane == OZ_PLANE_LOW_RANK_B;
}

static enum oz_status plane_size(int64_t cell_rows, int64_t cells, int64_t bits, int64_t slices,
                                 int64_t *bytes, int64_t *row_bytes)
{
    if (__builtin_mul_overflow(cells, bits, &bits) || bits > INT64_MAX - 7) {
        return OZ_ERR_FORMAT;
    }
    *row_bytes = (bits + 7) / 8;
    return __builtin_mul_overflow(*row_bytes, cell_rows, bytes) ||
                   __builtin_mul_overflow(*bytes, slices, bytes)
               ? OZ_ERR_FORMAT
               : OZ_OK;
}

enum oz_status oz_weight_plane_bytes(const struct oz_weight *w, enum oz_plane plane, int64_t *bytes,
                                     int64_t *row_bytes)
{
    int64_t rows;
    int64_t cols;
    if (w->rows < 0 || w->cols < 0 || w->slices < 0) {
        return OZ_ERR_ARG;
    }
    if (low_rank_shape(w, plane, &rows, &cols)) {
        return plane_size(rows, cols, oz_dtype_bits(w->planes[plane].dtype), w->slices, bytes,
                          row_bytes);
    }
    const struct oz_plane_spec *spec = oz_codec_plane(w->codec, plane);
    if (spec == NULL || w->cols % w->codec->col_multiple != 0) {
        return OZ_ERR_ARG;
    }
    bool grouped = spec->cell_rows == OZ_CELL_GROUP || spec->cell_cols == OZ_CELL_GROUP ||
                   spec->flat_cells == OZ_CELL_GROUP;
    if (grouped && w->group_cols <= 0) {
        return OZ_ERR_ARG;
    }
    int64_t bits = spec->cell_bits;
    if (w->planes[plane].present && w->planes[plane].dtype != spec->dtype) {
        bits = oz_dtype_bits(w->planes[plane].dtype);
    }
    if (spec->fixed_elements > 0) {
        return plane_size(1, spec->fixed_elements, bits, w->slices, bytes, row_bytes);
    }
    if (spec->flat_cells != 0) {
        int64_t elements;
        if (__builtin_mul_overflow(w->rows, w->cols, &elements)) {
            return OZ_ERR_FORMAT;
        }
        return plane_size(1, count_cells(elements, flat_cell(w, spec)), bits, w->slices, bytes,
                          row_bytes);
    }
    return plane_size(count_cells(w->rows, resolve_cell(w, spec->cell_rows)),
                      count_cells(w->cols, resolve_cell(w, spec->cell_cols)), bits, w->slices,
                      bytes, row_bytes);
}

enum oz_status oz_weight_bytes(const struct oz_weight *w, int64_t *bytes)
{
    *bytes = 0;
    for (int plane = 0; plane < OZ_PLANE_COUNT; plane++) {
        int64_t size;
        int64_t row;
        if (!w->planes[plane].present) {
            continue;
        }
        enum oz_status status = oz_weight_plane_bytes(w, (enum oz_plane)plane, &size, &row);
        if (status != OZ_OK) {
            return status;
        }
        if (__builtin_add_overflow(*bytes, size, bytes)) {
            return OZ_ERR_FORMAT;
        }
    }
    return OZ_OK;
}

struct oz_weight oz_weight_shape(const struct oz_codec *codec, int64_t slices, int64_t rows,
                                 int64_t cols)
{
    struct oz_weight w = {.codec = codec,
                          .slices = slices,
                          .rows = rows,
                          .cols = cols,
                          .group_cols = codec->group_cols};
    for (int32_t i = 0; i < codec->plane_count; i++) {
        const struct oz_plane_spec *spec = &codec->planes[i];
        if (!spec->optional) {
            w.planes[spec->plane].present = true;
            w.planes[spec->plane].dtype = spec->dtype;
        }
    }
    return w;
}

struct oz_weight oz_weight_plain(enum oz_dtype dtype, int64_t slices, int64_t rows, int64_t cols,
                                 void *data)
{
    const struct oz_codec *codec = oz_codec_plain(dtype);
    assert(codec != NULL);
    int64_t row_bytes = cols * (oz_dtype_bits(dtype) / 8);
    struct oz_weight w = oz_weight_shape(codec, slices, rows, cols);
    struct oz_plane_view *codes = &w.planes[OZ_PLANE_CODES];
    codes->data = data;
    codes->row_stride_bytes = row_bytes;
    codes->slice_stride_bytes = rows * row_bytes;
    codes->bytes = slices * rows * row_bytes;
    return w;
}

void oz_encode_state_init(struct oz_encode_state *state)
{
    *state = (struct oz_encode_state){.bad_row = -1, .bad_col = -1};
}

void oz_encode_state_merge(struct oz_encode_state *into, const struct oz_encode_state *from)
{
    if (from->amax > into->amax) {
        into->amax = from->amax;
    }
    into->sum += from->sum;
    into->count += from->count;
}
