#include "cpu/int8.h"

bool oz_int8_product(const struct oz_act_spec *x, const struct oz_weight *w)
{
    const struct oz_plane_spec *codes;
    const struct oz_plane_spec *scales;
    if (w->codec == NULL || x->dtype != OZ_DTYPE_I8 || x->scale_count != 1 ||
        x->scale[0].group_cols != 0 || x->scale[0].dtype != OZ_DTYPE_F32 ||
        x->static_scale != NULL || x->scale[0].layout != OZ_SCALE_ROWS ||
        w->codec->plane_count != 2 || w->cols >= OZ_INT8_MOST_DEPTH) {
        return false;
    }
    codes = oz_codec_plane(w->codec, OZ_PLANE_CODES);
    scales = oz_codec_plane(w->codec, OZ_PLANE_SCALES);
    return codes != NULL && scales != NULL && codes->dtype == OZ_DTYPE_I8 &&
           codes->cell_rows == 1 && codes->cell_cols == 1 && scales->cell_rows == 1 &&
           scales->cell_cols == OZ_CELL_ALL &&
           oz_codec_plain(w->planes[OZ_PLANE_SCALES].dtype) != NULL;
}

static void decode_codes(const struct oz_weight *w, int64_t slice, int64_t row, int64_t col,
                         int64_t count, float *dst)
{
    const struct oz_plane_view *v = &w->planes[OZ_PLANE_CODES];
    const int8_t *src =
        (const int8_t *)v->data + slice * v->slice_stride_bytes + row * v->row_stride_bytes + col;
    for (int64_t i = 0; i < count; i++) {
        dst[i] = (float)src[i];
    }
}

struct oz_weight oz_int8_codes(const struct oz_weight *w)
{
    static const struct oz_codec codes = {
        .name = "s8 codes", .scope_rows = 1, .col_multiple = 1, .decode = decode_codes};
    struct oz_weight view = *w;
    view.codec = &codes;
    return view;
}

void oz_int8_scales(const struct oz_weight *w, int64_t slice, int64_t row0, int64_t rows,
                    float *dst)
{
    const struct oz_plane_view *v = &w->planes[OZ_PLANE_SCALES];
    struct oz_weight one = oz_weight_plain(v->dtype, 1, 1, 1, NULL);
    for (int64_t r = 0; r < rows; r++) {
        one.planes[OZ_PLANE_CODES].data =
            (uint8_t *)v->data + slice * v->slice_stride_bytes + (row0 + r) * v->row_stride_bytes;
        one.codec->decode(&one, 0, 0, 0, 1, dst + r);
    }
}

void oz_int8_load(const struct oz_act *a, int64_t row, int64_t col, int64_t count, float *dst)
{
    const int8_t *src = (const int8_t *)a->data + row * a->stride + col;
    for (int64_t i = 0; i < count; i++) {
        dst[i] = (float)src[i];
    }
}
