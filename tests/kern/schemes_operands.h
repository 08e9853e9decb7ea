/* Operands of tests of quantized products: weights coded by a scheme, rows in a format, and the values
 * that either stands for. A part of schemes_test.c, which has no room for them. */
#ifndef OZ_TESTS_KERN_SCHEMES_OPERANDS_H
#define OZ_TESTS_KERN_SCHEMES_OPERANDS_H

#include "kern.h"
#include "num/bnb.h"
#include "num/float.h"
#include "num/float4.h"
#include "num/float8.h"
#include "ops/param.h"

static void encode(struct oz_weight *w, const float *values)
{
    for (int64_t s = 0; s < w->slices; s++) {
        const float *slice = values + s * w->rows * w->cols;
        struct oz_encode_state state;
        oz_encode_state_init(&state);
        for (state.pass = 0; state.pass < w->codec->observe_passes; state.pass++) {
            assert_int_equal(w->codec->observe(w, 0, slice, w->rows, w->cols, &state), OZ_OK);
        }
        if (w->codec->begin != NULL) {
            w->codec->begin(w, s, &state);
        }
        assert_int_equal(w->codec->encode(w, s, 0, slice, w->rows, w->cols, &state), OZ_OK);
    }
}

/* Memory for the planes that are present. */
static void lay_planes(struct oz_weight *w)
{
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        struct oz_plane_view *v = &w->planes[i];
        if (v->present) {
            assert_int_equal(
                oz_weight_plane_bytes(w, (enum oz_plane)i, &v->bytes, &v->row_stride_bytes), OZ_OK);
            v->slice_stride_bytes = v->bytes / w->slices;
            v->data = kern_array((size_t)v->bytes);
        }
    }
}

/* Random values in a codec. block: elements under a scale, where the codec lets one choose; 0: its own. */
static struct oz_param *encoded(const char *codec, int64_t slices, int64_t rows, int64_t cols,
                                int32_t block)
{
    struct oz_param *p = kern_param("w", OZ_DTYPE_F32, slices, rows, cols, 0.5);
    const float *values = p->weight.planes[OZ_PLANE_CODES].data;
    assert_non_null(oz_codec_find(codec));
    p->weight = oz_weight_shape(oz_codec_find(codec), slices, rows, cols);
    p->weight.group_cols = block > 0 ? block : p->weight.group_cols;
    lay_planes(&p->weight);
    encode(&p->weight, values);
    return p;
}

static void set_acts(struct oz_param *p, enum oz_act_mode act)
{
    struct oz_error err;
    const struct oz_scheme scheme = {
        .name = p->weight.codec->name, .codec = p->weight.codec, .mode_count = 1, .acts = {act}};
    if (oz_param_set_acts(p, &scheme, &err) != OZ_OK) {
        fail_msg("%s", err.message);
    }
}

/* With the activation modes of a scheme. */
static struct oz_param *coded(const char *codec, int64_t slices, int64_t rows, int64_t cols,
                              enum oz_act_mode act, const float *smooth, const float *static_scale)
{
    struct oz_param *p = encoded(codec, slices, rows, cols, 0);
    if (smooth != NULL) {
        p->weight.planes[OZ_PLANE_SMOOTH] =
            (struct oz_plane_view){.data = (void *)(uintptr_t)smooth, .present = true};
    }
    if (static_scale != NULL) {
        p->weight.planes[OZ_PLANE_INPUT_SCALE] =
            (struct oz_plane_view){.data = (void *)(uintptr_t)static_scale, .present = true};
    }
    set_acts(p, act);
    return p;
}

/* Random integers in groups, which no codec here encodes: a scale and, if asked for, a zero point for each
 * group of a row; perm: the groups of columns, one by one. */
static struct oz_param *integers(int64_t rows, int64_t cols, int32_t group, bool zeros, bool perm)
{
    struct oz_param *p = kern_param("w", OZ_DTYPE_F32, 1, rows, cols, 0.5);
    p->weight = oz_weight_shape(oz_codec_find("u4_group"), 1, rows, cols);
    p->weight.group_cols = group;
    p->weight.planes[OZ_PLANE_ZEROS] =
        (struct oz_plane_view){.dtype = OZ_DTYPE_U8, .present = zeros};
    p->weight.planes[OZ_PLANE_PERM] =
        (struct oz_plane_view){.dtype = OZ_DTYPE_I32, .present = perm};
    lay_planes(&p->weight);
    for (int i = 0; i < 2; i++) { /* any bytes are codes */
        const struct oz_plane_view *v = &p->weight.planes[i == 0 ? OZ_PLANE_CODES : OZ_PLANE_ZEROS];
        const float *random = kern_floats(v->present ? v->bytes : 1, 50);
        for (int64_t at = 0; v->present && at < v->bytes; at++) {
            ((uint8_t *)v->data)[at] = (uint8_t)(int)random[at];
        }
    }
    const struct oz_plane_view *scales = &p->weight.planes[OZ_PLANE_SCALES];
    memcpy(scales->data, kern_floats(scales->bytes / 4, 0.1), (size_t)scales->bytes);
    int32_t *groups = perm ? p->weight.planes[OZ_PLANE_PERM].data : NULL;
    for (int64_t c = 0; perm && c < cols; c++) {
        groups[c] = (int32_t)((c * 7) % (cols / group));
    }
    set_acts(p, OZ_ACT_NONE);
    return p;
}

static double weight_at(const struct oz_param *p, int64_t slice, int64_t row, int64_t col)
{
    float v;
    p->weight.codec->decode(&p->weight, slice, row, col, 1, &v);
    return v;
}

/* A table of 16 values as the plane of a weight. */
static struct oz_plane_view table_plane(float *values)
{
    return (struct oz_plane_view){
        .data = values, .present = true, .dtype = OZ_DTYPE_F32, .bytes = 16 * sizeof *values};
}

/* All of a weight's first slice, row by row. Where bf16 is multiplied, tables are rounded to it. */
static float *decoded(const struct oz_param *p)
{
    struct oz_weight w = p->weight;
    float *values = kern_floats(w.rows * w.cols, 0);
    float table[16];
    const struct oz_qgemm_kernel *q = p->plan != NULL ? p->plan->kernel->q : NULL;
    if (oz_bnb_is(w.codec) && q != NULL && q->rows == OZ_QROWS_BF16) {
        oz_bnb_values(&w, 0, table);
        for (int i = 0; i < 16; i++) {
            table[i] = oz_bf16_to_f32(oz_f32_to_bf16(table[i]));
        }
        w.planes[OZ_PLANE_CODEBOOK] = table_plane(table);
    }
    for (int64_t r = 0; r < w.rows; r++) {
        w.codec->decode(&w, 0, r, 0, w.cols, values + r * w.cols);
    }
    return values;
}

static int64_t groups_of(const struct oz_act *a, int i)
{
    int64_t group = a->spec.scale[i].group_cols;
    return group > 0 ? (a->cols + group - 1) / group : 1;
}

/* An empty activation in a format: every plane is an output between canaries. */
static struct oz_act *quantized(int64_t rows, int64_t cols, const struct oz_act_spec *spec)
{
    struct oz_act *a = kern_out(0, 0, 0, OZ_DTYPE_F32);
    size_t row = ((size_t)oz_dtype_bits(spec->dtype) * (size_t)cols + 7) / 8;
    *a = (struct oz_act){.rows = rows, .cols = cols, .stride = cols, .spec = *spec};
    if (spec->dtype == OZ_DTYPE_F4) {
        a->stride += cols % 2;
    }
    a->data = kern_array((size_t)rows * row);
    kern_output(a->data);
    for (int i = 0; i < spec->scale_count; i++) {
        size_t count = (size_t)(rows * groups_of(a, i));
        a->scales[i] = kern_array(count * (size_t)oz_dtype_bits(spec->scale[i].dtype) / 8);
        kern_output(a->scales[i]);
    }
    return a;
}

static double scale_at(const struct oz_act *a, int i, int64_t row, int64_t col)
{
    int64_t group = a->spec.scale[i].group_cols;
    int64_t at = row * groups_of(a, i) + (group > 0 ? col / group : 0);
    const uint8_t *bytes = a->scales[i];
    switch (a->spec.scale[i].dtype) {
    case OZ_DTYPE_F32: return ((const float *)a->scales[i])[at];
    case OZ_DTYPE_F8_E8M0: return oz_e8m0_to_f32(bytes[at]);
    default: return oz_e4m3_to_f32(bytes[at]);
    }
}

/* An element of an activation in any format, without a rounding. */
static double value_at(const struct oz_act *a, int64_t row, int64_t col)
{
    static const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const uint8_t *bytes = a->data;
    int64_t at = row * a->stride + col;
    double v;
    switch (a->spec.dtype) {
    case OZ_DTYPE_F32:
    case OZ_DTYPE_BF16: v = kern_get(a, row, col); break;
    case OZ_DTYPE_F8_E4M3: v = oz_e4m3_to_f32(bytes[at]); break;
    case OZ_DTYPE_I8: v = ((const int8_t *)a->data)[at]; break;
    default: {
        int code = bytes[at / 2] >> (at % 2 * 4) & 15;
        v = code & 8 ? -e2m1[code & 7] : e2m1[code];
    }
    }
    for (int i = 0; i < a->spec.scale_count; i++) {
        v *= scale_at(a, i, row, col);
    }
    return a->spec.static_scale != NULL ? v * *a->spec.static_scale : v;
}

#endif
