#include "num/act.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "num/group.h"
#include "num/plane.h"

enum kind {
    KIND_NONE,
    KIND_FP8_ROW,
    KIND_FP8_GROUP,
    KIND_FP8_STATIC,
    KIND_INT8_ROW,
    KIND_INT8_STATIC,
    KIND_MXFP8,
    KIND_MXFP4,
    KIND_DUAL,
    KIND_NVFP4, /* scale[1] or the given scale */
};

static bool level_is(const struct oz_act_format *f, int32_t level, enum oz_dtype dtype,
                     int32_t group)
{
    return level < f->scale_count && f->scale[level].dtype == dtype &&
           f->scale[level].group_cols == group;
}

static enum kind kind_fp8(const struct oz_act_format *f)
{
    if (f->static_scale) {
        return f->scale_count == 0 ? KIND_FP8_STATIC : KIND_NONE;
    }
    if (f->scale_count != 1) {
        return KIND_NONE;
    }
    if (f->scale[0].dtype == OZ_DTYPE_F32) {
        return f->scale[0].group_cols == 0  ? KIND_FP8_ROW
               : f->scale[0].group_cols > 0 ? KIND_FP8_GROUP
                                            : KIND_NONE;
    }
    return level_is(f, 0, OZ_DTYPE_F8_E8M0, 32) &&
                   oz_mx_rule_known(OZ_DTYPE_F8_E4M3, f->exponent_rule)
               ? KIND_MXFP8
               : KIND_NONE;
}

static enum kind kind_int8(const struct oz_act_format *f)
{
    if (f->static_scale) {
        return f->scale_count == 0 ? KIND_INT8_STATIC : KIND_NONE;
    }
    return f->scale_count == 1 && level_is(f, 0, OZ_DTYPE_F32, 0) ? KIND_INT8_ROW : KIND_NONE;
}

static enum kind kind_fp4(const struct oz_act_format *f)
{
    if (level_is(f, 0, OZ_DTYPE_F8_E4M3, 16)) {
        bool second = f->scale_count == 2 && level_is(f, 1, OZ_DTYPE_F32, 0);
        return f->static_scale ? (f->scale_count == 1 ? KIND_NVFP4 : KIND_NONE)
               : second        ? KIND_NVFP4
                               : KIND_NONE;
    }
    if (!level_is(f, 0, OZ_DTYPE_F8_E8M0, 32) || f->static_scale) {
        return KIND_NONE;
    }
    if (f->scale_count == 1) {
        return oz_mx_rule_known(OZ_DTYPE_F4, f->exponent_rule) ? KIND_MXFP4 : KIND_NONE;
    }
    return level_is(f, 1, OZ_DTYPE_F32, 512) ? KIND_DUAL : KIND_NONE;
}

static enum kind kind_of(const struct oz_act_format *f)
{
    switch (f->element) {
    case OZ_DTYPE_F8_E4M3: return kind_fp8(f);
    case OZ_DTYPE_I8: return kind_int8(f);
    case OZ_DTYPE_F4: return kind_fp4(f);
    default: return KIND_NONE;
    }
}

bool oz_act_format_known(const struct oz_act_format *f)
{
    return kind_of(f) != KIND_NONE;
}

int64_t oz_act_groups(const struct oz_act_format *f, int32_t level, int64_t cols)
{
    int64_t group = f->scale[level].group_cols;
    return group > 0 ? (cols + group - 1) / group : 1;
}

bool oz_act_needs_amax(const struct oz_act_format *f)
{
    return kind_of(f) == KIND_NVFP4 && !f->static_scale;
}

/* ---- encode ---- */

static void put_scale(const struct oz_act_row *row, int32_t level, int64_t i, float x)
{
    oz_plane_put_f32(row->scales[level], i * row->scale_stride[level], x);
}

static void put_code(const struct oz_act_row *row, int64_t i, uint8_t code)
{
    ((uint8_t *)row->scales[0])[i * row->scale_stride[0]] = code;
}

static float amax_of(const float *x, int64_t n)
{
    bool bad = false;
    return oz_group_amax(x, n, &bad);
}

static void fp8_row(const struct oz_act_format *f, const float *x, int64_t cols,
                    const struct oz_act_row *row)
{
    int64_t group = f->scale[0].group_cols > 0 ? f->scale[0].group_cols : cols;
    uint8_t *codes = row->codes;
    for (int64_t c = 0; c < cols; c += group) {
        int64_t n = oz_min_count(group, cols - c);
        float amax = amax_of(x + c, n);
        float scale =
            f->scale[0].group_cols > 0 ? oz_fp8_group_scale(amax) : oz_fp8_channel_scale(amax);
        put_scale(row, 0, c / group, scale);
        oz_fp8_divide(x + c, n, scale, codes + c);
    }
}

static void int8_static(const struct oz_act_given *given, const float *x, int64_t cols,
                        int8_t *codes)
{
    int32_t offset = (int32_t)given->offset;
    for (int64_t c = 0; c < cols; c++) {
        codes[c] =
            (int8_t)(oz_f32_to_int(x[c] / given->scale, -128 - offset, 127 - offset) + offset);
    }
}

static void mx_row(const struct oz_act_format *f, bool fp4, const float *x, int64_t cols,
                   const struct oz_act_row *row)
{
    uint8_t *codes = row->codes;
    for (int64_t c = 0; c < cols; c += 32) {
        int64_t n = oz_min_count(32, cols - c);
        put_code(row, c / 32,
                 fp4 ? oz_mxfp4_encode(x + c, n, f->exponent_rule, codes + c / 2)
                     : oz_mxfp8_encode(x + c, n, f->exponent_rule, codes + c));
    }
}

static void dual_row(const float *x, int64_t cols, const struct oz_act_row *row)
{
    uint8_t *codes = row->codes;
    for (int64_t c = 0; c < cols; c += 512) {
        int64_t end = oz_min_count(c + 512, cols);
        float dual = oz_dual_scale(amax_of(x + c, end - c));
        put_scale(row, 1, c / 512, dual);
        for (int64_t g = c; g < end; g += 32) {
            put_code(row, g / 32,
                     oz_dual_encode(x + g, oz_min_count(32, end - g), dual, codes + g / 2));
        }
    }
}

static void nvfp4_row(const struct oz_act_format *f, const struct oz_act_given *given,
                      const float *x, int64_t cols, const struct oz_act_row *row)
{
    float g = f->static_scale ? 1.0F / given->scale : oz_nvfp4_global(given->amax);
    uint8_t *codes = row->codes;
    if (!f->static_scale) {
        put_scale(row, 1, 0, 1.0F / g);
    }
    for (int64_t c = 0; c < cols; c += 16) {
        put_code(row, c / 16, oz_nvfp4_encode(x + c, oz_min_count(16, cols - c), g, codes + c / 2));
    }
}

void oz_act_encode_row(const struct oz_act_format *f, const struct oz_act_given *given,
                       const float *x, int64_t cols, const struct oz_act_row *row)
{
    switch (kind_of(f)) {
    case KIND_FP8_ROW:
    case KIND_FP8_GROUP: fp8_row(f, x, cols, row); break;
    case KIND_FP8_STATIC: oz_fp8_multiply(x, cols, given->scale, row->codes); break;
    case KIND_INT8_ROW: put_scale(row, 0, 0, oz_int8_encode(x, cols, row->codes)); break;
    case KIND_INT8_STATIC: int8_static(given, x, cols, row->codes); break;
    case KIND_MXFP8: mx_row(f, false, x, cols, row); break;
    case KIND_MXFP4: mx_row(f, true, x, cols, row); break;
    case KIND_DUAL: dual_row(x, cols, row); break;
    case KIND_NVFP4: nvfp4_row(f, given, x, cols, row); break;
    case KIND_NONE: assert(!"a format that oz_act_format_known refuses"); break;
    }
}

/* ---- decode ---- */

static void apply_level(const struct oz_act_format *f, const struct oz_act_row *row, int32_t level,
                        int64_t col, int64_t count, float *dst)
{
    int64_t group = f->scale[level].group_cols;
    int64_t done = 0;
    while (done < count) {
        int64_t cell = group > 0 ? (col + done) / group : 0;
        int64_t end = group > 0 ? oz_min_count(count, (cell + 1) * group - col) : count;
        float scale = oz_plane_get(f->scale[level].dtype, row->scales[level],
                                   cell * row->scale_stride[level]);
        for (; done < end; done++) {
            dst[done] *= scale;
        }
    }
}

void oz_act_decode_row(const struct oz_act_format *f, const struct oz_act_given *given,
                       const struct oz_act_row *row, int64_t col, int64_t count, float *dst)
{
    oz_plane_read(f->element, row->codes, col, count, dst);
    for (int32_t level = 0; level < f->scale_count; level++) {
        apply_level(f, row, level, col, count, dst);
    }
    for (int64_t i = 0; f->static_scale && i < count; i++) {
        dst[i] = (f->element == OZ_DTYPE_I8 ? dst[i] - given->offset : dst[i]) * given->scale;
    }
}
