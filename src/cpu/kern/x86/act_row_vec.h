/*
 * cpu/kern/x86/act_row_vec.h: rows of activations in the formats of num/act.h, over vec_avx2.h or
 * vec_avx512.h and codes_vec.h in f32: what struct oz_ref_coder has of a tier, to the same bytes as
 * num/; and act_quant by it.
 */
#ifndef OZ_CPU_KERN_X86_ACT_ROW_VEC_H
#define OZ_CPU_KERN_X86_ACT_ROW_VEC_H

#define OZ_ENCODE_F32
#include "cpu/kern/ref/ref.h"
#include "cpu/kern/x86/codes_vec.h"
#include "cpu/kernel.h"
#include "num/act.h"

/* ---- formats ---- */

static struct places row_places(const struct oz_act_row *row)
{
    return (struct places){.codes = row->codes,
                           .scales = {row->scales[0], row->scales[1]},
                           .apart = {row->scale_stride[0], row->scale_stride[1]}};
}

static bool fp8_row(const struct oz_act_format *f, const struct oz_act_given *given, const float *x,
                    int64_t cols, const struct oz_act_row *row)
{
    uint8_t *codes = row->codes;
    if (f->static_scale) {
        float inverse = 1.0F / given->scale;
        if (!(given->scale > 0) || !isfinite(inverse) || largest(x, cols) >= INFINITE) {
            return false;
        }
        fp8_multiply(x, cols, inverse, codes);
        return true;
    }
    bool groups = f->scale[0].group_cols > 0;
    int64_t group = groups ? f->scale[0].group_cols : cols;
    for (int64_t c = 0; c < cols; c += group) {
        int64_t n = oz_min_count(group, cols - c);
        magnitude most = largest(x + c, n);
        float amax = value_of(most);
        float scale = groups ? oz_fp8_group_scale(amax) : oz_fp8_channel_scale(amax);
        if (most >= INFINITE) {
            return false;
        }
        oz_plane_put_f32(row->scales[0], c / group * row->scale_stride[0], scale);
        fp8_divide(x + c, n, scale, codes + c);
    }
    return true;
}

/* codes[i] = x[i] / scale to an integer in -128 .. 127 when the offset has been added. */
static void int8_static(const struct oz_act_given *given, const float *x, int64_t cols,
                        int8_t *codes)
{
    int32_t offset = (int32_t)given->offset;
    vf scale = v_set(given->scale);
    vf low = v_set((float)(-128 - offset));
    vf high = v_set((float)(127 - offset));
    int64_t i = 0;
    for (; i + OZ_VL <= cols; i += OZ_VL) {
        vf q = v_min(v_max(v_div(load(x + i), scale), low), high);
        i_store_bytes((uint8_t *)codes + i, I_(add_epi32)(i_round(q), i_set((uint32_t)offset)));
    }
    for (; i < cols; i++) {
        codes[i] =
            (int8_t)(oz_f32_to_int(x[i] / given->scale, -128 - offset, 127 - offset) + offset);
    }
}

static bool int8_row(const struct oz_act_format *f, const struct oz_act_given *given,
                     const float *x, int64_t cols, const struct oz_act_row *row)
{
    magnitude most = largest(x, cols);
    float amax = value_of(most);
    if (most >= INFINITE) {
        return false;
    }
    if (f->static_scale) {
        if (!(given->scale > 0)) { /* zeros divided by zero */
            return false;
        }
        int8_static(given, x, cols, row->codes);
        return true;
    }
    float inverse = amax == 0 ? 0.0F : 127.0F / amax;
    if (!isfinite(inverse)) {
        return false;
    }
    oz_plane_put_f32(row->scales[0], 0, amax / 127.0F);
    int8_multiply(x, cols, inverse, row->codes);
    return true;
}

/* Groups, each codec's in a loop of its own. */
static bool mxfp8_row(const struct oz_act_format *f, const float *x, int64_t cols,
                      const struct places *to)
{
    return group_row(
        x, cols,
        &(struct grouping){.codes = OZ_DTYPE_F8_E4M3, .width = MX, .rule = f->exponent_rule}, to);
}

static bool mxfp4_row(const struct oz_act_format *f, const float *x, int64_t cols,
                      const struct places *to)
{
    return group_row(
        x, cols, &(struct grouping){.codes = OZ_DTYPE_F4, .width = MX, .rule = f->exponent_rule},
        to);
}

static bool nvfp4_row(const struct oz_act_format *f, const struct oz_act_given *given,
                      const float *x, int64_t cols, const struct places *to)
{
    float g = f->static_scale ? 1.0F / given->scale : oz_nvfp4_global(given->amax);
    if (!f->static_scale) {
        oz_plane_put_f32(to->scales[1], 0, 1.0F / g);
    }
    return isfinite(g) &&
           group_row(x, cols,
                     &(struct grouping){
                         .codes = OZ_DTYPE_F4, .width = NV, .global = g, .inverse = 1.0F / g},
                     to);
}

static bool encode_row(const struct oz_act_format *f, const struct oz_act_given *given,
                       const float *x, int64_t cols, const struct oz_act_row *row)
{
    const struct places to = row_places(row);
    if (f->element == OZ_DTYPE_I8) {
        return int8_row(f, given, x, cols, row);
    }
    if (f->element == OZ_DTYPE_F8_E4M3) {
        return f->scale_count > 0 && f->scale[0].dtype == OZ_DTYPE_F8_E8M0
                   ? mxfp8_row(f, x, cols, &to)
                   : fp8_row(f, given, x, cols, row);
    }
    if (f->scale[0].dtype == OZ_DTYPE_F8_E4M3) {
        return nvfp4_row(f, given, x, cols, &to);
    }
    return f->scale_count == 2 ? dual_row(x, cols, &to) : mxfp4_row(f, x, cols, &to);
}

/* ---- rows of f32 ---- */

static void divide_row(const float *x, const float *by, int64_t n, float *dst)
{
    int64_t i = 0;
    for (; i + OZ_VL <= n; i += OZ_VL) {
        v_store(dst + i, v_div(v_load(x + i), v_load(by + i)));
    }
    for (; i < n; i++) {
        dst[i] = x[i] / by[i];
    }
}

static float amax_row(const float *x, int64_t n)
{
    bool bad = false;
    magnitude most = largest(x, n);
    return most < INFINITE ? value_of(most) : oz_group_amax(x, n, &bad);
}

static void widen_row(const uint16_t *x, int64_t n, float *dst)
{
    int64_t i = 0;
    for (; i + OZ_VL <= n; i += OZ_VL) {
        v_store(dst + i, v_load_bf16(x + i));
    }
    for (; i < n; i++) {
        dst[i] = oz_bf16_to_f32(x[i]);
    }
}

static void narrow_row(const float *x, int64_t n, uint16_t *dst)
{
    int64_t i = 0;
    for (; i + OZ_VL <= n; i += OZ_VL) {
        v_store_bf16(dst + i, v_load(x + i));
    }
    for (; i < n; i++) {
        dst[i] = oz_f32_to_bf16(x[i]);
    }
}

/* ---- act_quant ---- */

static const char *codes_reject(const struct oz_device *dev, const void *args)
{
    const struct oz_act_quant_args *a = args;
    (void)dev;
    return oz_ref_is_plain(&a->out->spec) ? "it writes quantized rows" : NULL;
}

#define OZ_CODER(coder_, kernel_, text_, tier_)                                    \
    const struct oz_ref_coder coder_ = {.encode = encode_row,                      \
                                        .divide = divide_row,                      \
                                        .amax = amax_row,                          \
                                        .widen = widen_row,                        \
                                        .narrow = narrow_row};                     \
    static enum oz_status codes_run(const struct oz_op_ctx *ctx, const void *args) \
    {                                                                              \
        return oz_ref_act_quant(ctx, args, &(coder_));                             \
    }                                                                              \
    const struct oz_cpu_kernel kernel_ = {.name = (text_),                         \
                                          .op = OZ_OP_ACT_QUANT,                   \
                                          .tier = (tier_),                         \
                                          .proven = OZ_CODES_PROVEN,               \
                                          .reject = codes_reject,                  \
                                          .scratch = oz_ref_scratch_act_quant,     \
                                          .run = codes_run};

#endif
