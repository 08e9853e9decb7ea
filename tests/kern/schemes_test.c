/*
 * linear of every codec by every format of activations, by the kernel that the plan chooses, against
 * a sum in double of the same quantized operands; what act_quant writes, decoded here; producers that
 * write the format directly; row independence.
 */
#include "kern.h"

#include "cpu/gemm.h"
#include "cpu/qgemm.h"
#include "cpu/tiles.h"
#include "num/bnb.h"
#include "num/float.h"
#include "num/float4.h"
#include "num/float8.h"
#include "ops/param.h"
#include "schemes_operands.h"

static const char *const codecs[] = {
    "bf16",       "fp8_tensor", "fp8_channel",     "fp8_block", "int8_channel",
    "mxfp8",      "mxfp4",      "mxfp4_dualscale", "nvfp4",     "nf4",
    "nf4_nested", "fp4_bnb",    "fp4_bnb_nested",
};
#define CODECS (sizeof codecs / sizeof *codecs)

/* ---- act_quant ---- */

/* How far a value may be from what it was: half a step of its format at its scale. */
static double step_bound(const struct oz_act *a, int64_t row, int64_t col, double v)
{
    double scale = a->spec.static_scale != NULL ? *a->spec.static_scale : 1;
    for (int i = 0; i < a->spec.scale_count; i++) {
        scale *= scale_at(a, i, row, col);
    }
    switch (a->spec.dtype) {
    case OZ_DTYPE_I8: return scale * 0.5 * (1 + 1e-4);
    case OZ_DTYPE_F8_E4M3: return fabs(v) / 16 * (1 + 1e-4) + scale * 0x1p-10;
    case OZ_DTYPE_F4: /* steps to 2 above 4 units; nothing under 7.25 units saturates by more */
        return fmax(fabs(v) / 4, scale * 0.25) * (1 + 1e-4) +
               (a->spec.scale_count == 2 && a->spec.scale[1].group_cols == 0 ? fabs(v) / 16 : 0);
    default: return KERN_U32 * fabs(v);
    }
}

static struct oz_act *quantize(const struct oz_act *x, const struct oz_act_spec *spec,
                               const struct oz_ragged *sequences)
{
    struct oz_act *out = quantized(x->rows, x->cols, spec);
    kern_run(OZ_OP_ACT_QUANT, &(struct oz_act_quant_args){
                                  .x = x, .out = out, .rows = x->rows, .sequences = sequences});
    return out;
}

static void act_quant_is_near(void **state)
{
    static const float static_scale = 0.02F;
    for (int mode = OZ_ACT_NONE; mode < OZ_ACT_MODE_COUNT; mode++) {
        for (int smoothed = 0; smoothed < 2; smoothed++) {
            struct oz_act *x = kern_act(9, 576, 3, smoothed ? OZ_DTYPE_BF16 : OZ_DTYPE_F32, 1);
            float *smooth = smoothed ? kern_floats(576, 0.1) : NULL;
            for (int c = 0; smoothed && c < 576; c++) {
                smooth[c] = fabsf(smooth[c]) + 0.5F;
            }
            struct oz_act_spec spec =
                oz_act_spec_of((enum oz_act_mode)mode, OZ_EXPONENT_DEFAULT, smooth, &static_scale);
            struct oz_act *out = quantize(x, &spec, NULL);
            for (int64_t r = 0; r < 9; r++) {
                for (int64_t c = 0; c < 576; c++) {
                    double v = kern_get(x, r, c) / (smoothed ? smooth[c] : 1.0);
                    double got = value_at(out, r, c);
                    if (!(fabs(got - v) <= step_bound(out, r, c, v))) {
                        fail_msg("%s: (%d, %d) is %g, not %g", oz_dtype_name(spec.dtype), (int)r,
                                 (int)c, got, v);
                    }
                }
            }
            kern_forget();
        }
    }
}

/* ---- linear ---- */

/* f32 loses one rounding for each scale of x and one for the weight's decoded value is its own. */
static void check_product(struct oz_linear w, struct oz_linear second, int64_t m, bool up,
                          bool residual)
{
    const char *codec = w.w.weight.codec->name;
    int64_t n = w.w.weight.rows;
    int64_t k = w.w.weight.cols;
    kern_pack(&w.w, OZ_USE_LINEAR);
    kern_pack(&second.w, OZ_USE_LINEAR);
    struct oz_act_spec wants = kern_wants(&w.w);
    struct oz_act *x = quantize(kern_act(m, k, 0, OZ_DTYPE_F32, 1), &wants, NULL);
    struct oz_act *table = kern_act(2, n, 0, OZ_DTYPE_F32, 1);
    struct oz_act *out = residual ? NULL : kern_out(m, n, 3, OZ_DTYPE_F32);
    struct oz_act *sum = residual ? kern_act(m, n, 1, OZ_DTYPE_F32, 1) : NULL;
    struct oz_linear_args a = {.x = x,
                               .w = &w,
                               .up = up ? &second : NULL,
                               .fn = up ? OZ_FN_SILU : OZ_FN_NONE,
                               .gate = {.table = residual ? table : NULL},
                               .residual = sum,
                               .out = out};
    double *before = residual ? kern_doubles(sum) : NULL;
    if (residual) {
        kern_output(sum->data);
    }
    assert_ptr_equal(oz_cpu_pick(kern_device(1), OZ_OP_LINEAR, &a), w.w.plan->kernel);
    kern_run(OZ_OP_LINEAR, &a);
    const float *values[2] = {decoded(&w.w), decoded(&second.w)};
    double *line = (double *)kern_array((size_t)k * sizeof *line);
    for (int64_t r = 0; r < m; r++) {
        for (int64_t i = 0; i < k; i++) {
            line[i] = value_at(x, r, i);
        }
        for (int64_t c = 0; c < n; c++) {
            double y[2] = {0};
            double bound[2];
            for (int j = 0; j < 1 + up; j++) {
                double magnitudes = 0;
                for (int64_t i = 0; i < k; i++) {
                    double term = line[i] * values[j][c * k + i];
                    y[j] += term;
                    magnitudes += fabs(term);
                }
                bound[j] = kern_sum_bound(k + 3, magnitudes);
            }
            y[0] += kern_weight(&w.b, 0, 0, c);
            bound[0] += KERN_U32 * (fabs(y[0]) + bound[0]);
            if (residual) {
                double gate = kern_get(table, 0, c);
                kern_near(codec, sum, r, c, before[r * n + c] + gate * y[0],
                          fabs(gate) * (bound[0] + KERN_U32 * fabs(y[0])));
            } else if (up) {
                double z = kern_fn(OZ_FN_SILU, y[0]);
                double b = 1.2 * bound[0] + 8 * KERN_U32 * (fabs(y[0]) + 1);
                kern_near(codec, out, r, c, z * y[1],
                          b * (fabs(y[1]) + bound[1]) + fabs(z) * bound[1]);
            } else {
                kern_near(codec, out, r, c, y[0], bound[0]);
            }
        }
    }
    kern_forget();
}

static void check_linear(const char *codec, enum oz_act_mode act, int64_t m, int64_t n, int64_t k,
                         bool up, bool residual)
{
    static const float static_scale = 0.02F;
    struct oz_linear w = {.w = *coded(codec, 1, n, k, act, NULL, &static_scale),
                          .b = *kern_vector("b", n, 1)};
    struct oz_linear second = {.w = *coded(codec, 1, n, k, act, NULL, &static_scale)};
    check_product(w, second, m, up, residual);
}

/* Rows divided by the weight's own vector are taken, any others refused. */
static void smoothing(void **state)
{
    float *smooth = kern_floats(96, 1);
    for (int c = 0; c < 96; c++) {
        smooth[c] = fabsf(smooth[c]) + 0.5F;
    }
    for (int act = OZ_ACT_NONE; act < OZ_ACT_MODE_COUNT; act += OZ_ACT_INT8_TOKEN) {
        struct oz_linear w = {
            .w = *coded("fp8_channel", 1, 20, 96, (enum oz_act_mode)act, smooth, NULL)};
        kern_pack(&w.w, OZ_USE_LINEAR);
        struct oz_act_spec wants = kern_wants(&w.w);
        struct oz_act *rows = kern_act(4, 96, 0, OZ_DTYPE_F32, 1);
        struct oz_act *x = quantize(rows, &wants, NULL);
        struct oz_act *out = kern_out(4, 20, 0, OZ_DTYPE_F32);
        struct oz_linear_args a = {.x = x, .w = &w, .out = out};
        kern_run(OZ_OP_LINEAR, &a);
        for (int64_t r = 0; r < 4; r++) {
            for (int64_t c = 0; c < 20; c++) {
                double y = 0;
                double magnitudes = 0;
                for (int64_t i = 0; i < 96; i++) {
                    double term = value_at(x, r, i) * weight_at(&w.w, 0, c, i);
                    y += term;
                    magnitudes += fabs(term);
                }
                kern_near("smoothed", out, r, c, y, kern_sum_bound(96 + 3, magnitudes));
            }
        }
        x->spec.smooth = NULL;
        assert_int_equal(kern_run_once(1, OZ_OP_LINEAR, &a), OZ_ERR_UNSUPPORTED);
        x->spec.smooth = smooth;
        w.w.weight.planes[OZ_PLANE_SMOOTH].present = false;
        assert_int_equal(kern_run_once(1, OZ_OP_LINEAR, &a), OZ_ERR_UNSUPPORTED);
    }
}

static void linear_is_the_sum(void **state)
{
    KERN_SKIP_IDLE()
    for (size_t i = 0; i < CODECS * OZ_ACT_MODE_COUNT; i += kern_stride()) {
        const char *codec = codecs[i / OZ_ACT_MODE_COUNT];
        int act = (int)(i % OZ_ACT_MODE_COUNT);
        check_linear(codec, (enum oz_act_mode)act, 5, 37, 576, false, false);
        check_linear(codec, (enum oz_act_mode)act, 14, 33, 1152, act % 2, !(act % 2));
    }
}

static bool has_kernel_of_panels(void)
{
    const struct oz_cpu_kernel *const *k = oz_cpu_of(kern_device(1))->usable[OZ_OP_LINEAR];
    while (*k != NULL && (*k)->q == NULL) {
        k++;
    }
    return *k != NULL;
}

struct reason {
    const char *wanted;
    bool given;
};

static void look_for_reason(void *ctx, const char *kernel, const char *reason)
{
    struct reason *r = ctx;
    (void)kernel;
    r->given = r->given || (r->wanted != NULL && strcmp(reason, r->wanted) == 0);
}

/* bitsandbytes with blocks of another length, and tables of a file, another one in the second weight. */
static void check_blocks(const char *codec, int64_t m, int64_t k, int32_t block,
                         const char *declined)
{
    struct oz_error err;
    struct oz_plan_answer answer;
    struct reason reason = {.wanted = declined};
    struct oz_plan_request request = {
        .use = OZ_USE_LINEAR, .report = look_for_reason, .report_ctx = &reason};
    struct oz_linear w[2] = {{.b = *kern_vector("b", 35, 1)}, {.w.name = NULL}};
    for (int i = 0; i < 2; i++) {
        float *table = kern_floats(16, 1);
        w[i].w = *encoded(codec, 1, 35, k, block);
        w[i].w.weight.planes[OZ_PLANE_CODEBOOK] = table_plane(table);
    }
    struct oz_device *dev = kern_device(1);
    assert_int_equal(dev->ops->plan_param(dev, &w[0].w, &request, &answer, &err), OZ_OK);
    assert_int_equal(answer.plan->panels, declined == NULL && has_kernel_of_panels());
    assert_int_equal(reason.given, declined != NULL && has_kernel_of_panels());
    check_product(w[0], w[1], m, true, false);
}

static void blocks_and_tables(void **state)
{
    for (int64_t m = 1; m < 9; m += 7) {
        check_blocks("nf4", m, 192, 64, NULL);
        check_blocks("nf4_nested", m, 256, 128, NULL);
        check_blocks("fp4_bnb_nested", m, 64, 64, NULL);
        check_blocks("nf4", m, 100, 64, "its blocks run on from row to row");
        check_blocks("fp4_bnb", m, 512, 256, "its blocks are neither of 64 nor of 128");
    }
}

/* Integers in groups, as GPTQ and AWQ have them, alone and among others. */
static void check_integers(int64_t m, int64_t n, int64_t k, int32_t group, bool zeros, bool perm)
{
    struct oz_linear w = {.w = *integers(n, k, group, zeros, perm), .b = *kern_vector("b", n, 1)};
    struct oz_linear second = {.w = *integers(n, k, group, zeros, perm)};
    check_product(w, second, m, zeros, !zeros);
}

/* Which of them are packed into panels; kernels that decode any weight take the others. */
static void check_panels(int64_t k, int32_t group, bool zeros, bool perm, bool panels)
{
    struct oz_error err;
    struct oz_plan_answer answer;
    struct oz_plan_request request = {.use = OZ_USE_LINEAR};
    struct oz_param *p = integers(20, k, group, zeros, perm);
    struct oz_device *dev = kern_device(1);
    assert_int_equal(dev->ops->plan_param(dev, p, &request, &answer, &err), OZ_OK);
    assert_int_equal(answer.plan->panels, panels && has_kernel_of_panels());
}

static void integers_in_panels(void **state)
{
    check_panels(256, 128, true, false, true);
    check_panels(256, 64, false, false, true);
    check_panels(96, 32, true, false, true);
    check_panels(256, 64, true, true, false);
    check_panels(100, 64, true, false, false);
    check_panels(64, 16, true, false, false);
}

static void integers_in_groups(void **state)
{
    KERN_SKIP_IDLE()
    for (int64_t m = 1; m < 9; m += 7) {
        check_integers(m, 165, 256, 128, true, false);
        check_integers(m, 35, 320, 64, false, false);
        check_integers(m, 64, 1152, 32, true, false);
        check_integers(m, 20, 256, 64, true, true);
        check_integers(m, 20, 100, 64, true, false);
        check_integers(m, 20, 64, 16, true, false);
    }
}

/* NaN codes and scales of a weight make NaN of the features that they are in, and of no others. */
static void check_nan(const char *codec, int64_t m, enum oz_plane plane, int64_t at, uint8_t code)
{
    struct oz_linear w = {.w = *coded(codec, 1, 40, 256, OZ_ACT_NONE, NULL, NULL)};
    ((uint8_t *)w.w.weight.planes[plane].data)[at] = code;
    kern_pack(&w.w, OZ_USE_LINEAR);
    struct oz_act_spec wants = kern_wants(&w.w);
    struct oz_act *x = quantize(kern_act(m, 256, 0, OZ_DTYPE_F32, 1), &wants, NULL);
    struct oz_act *out = kern_out(m, 40, 0, OZ_DTYPE_F32);
    kern_run(OZ_OP_LINEAR, &(struct oz_linear_args){.x = x, .w = &w, .out = out});
    const float *values = decoded(&w.w);
    int found = 0;
    for (int64_t c = 0; c < 40; c++) {
        bool nan = false;
        for (int64_t i = 0; i < 256; i++) {
            nan = nan || isnan(values[c * 256 + i]);
        }
        for (int64_t r = 0; r < m; r++) {
            assert_int_equal(isnan(kern_get(out, r, c)) != 0, nan);
        }
        found += nan;
    }
    assert_int_equal(found, 1);
    kern_forget();
}

static void nan_is_kept(void **state)
{
    for (int64_t m = 1; m < 9; m += 7) {
        check_nan("fp8_channel", m, OZ_PLANE_CODES, 35 * 256 + 77, 0x7F);
        check_nan("mxfp8", m, OZ_PLANE_CODES, 3 * 256 + 1, 0xFF);
        check_nan("mxfp8", m, OZ_PLANE_SCALES, 17 * 8 + 3, 0xFF);
        check_nan("mxfp4", m, OZ_PLANE_SCALES, 9 * 8 + 7, 0xFF);
        check_nan("nvfp4", m, OZ_PLANE_SCALES, 39 * 16 + 15, 0x7F);
    }
}

/* More than one band of a decoding kernel, and a last one that is short. */
static void wide_linear(void **state)
{
    check_linear("mxfp4", OZ_ACT_MXFP8, 3, 1100, 64, true, false);
    check_linear("int8_channel", OZ_ACT_INT8_TOKEN, 3, 1100, 64, false, true);
    check_linear("fp8_channel", OZ_ACT_FP8_TOKEN, 40, 530, 128, false, true);
}

/* s8 by s8: the integers exactly, then the scales, each rounded once. */
static void int8_is_exact(void **state)
{
    KERN_SKIP_IDLE()
    static const int64_t depths[] = {1, 77, 1024, 1025, 5000};
    for (size_t d = 0; d < sizeof depths / sizeof *depths; d++) {
        int64_t k = depths[d];
        struct oz_linear w = {.w = *coded("int8_channel", 1, 21, k, OZ_ACT_INT8_TOKEN, NULL, NULL)};
        kern_pack(&w.w, OZ_USE_LINEAR);
        struct oz_act *x = quantize(kern_act(13, k, 0, OZ_DTYPE_F32, 1), &w.w.acts[0], NULL);
        struct oz_act *out = kern_out(13, 21, 0, OZ_DTYPE_F32);
        kern_run(OZ_OP_LINEAR, &(struct oz_linear_args){.x = x, .w = &w, .out = out});
        const int8_t *codes = w.w.weight.planes[OZ_PLANE_CODES].data;
        const float *scales = w.w.weight.planes[OZ_PLANE_SCALES].data;
        for (int64_t r = 0; r < 13; r++) {
            for (int64_t c = 0; c < 21; c++) {
                int64_t sum = 0;
                for (int64_t i = 0; i < k; i++) {
                    sum += (int64_t)((const int8_t *)x->data)[r * k + i] * codes[c * k + i];
                }
                float want = ((const float *)x->scales[0])[r] * (scales[c] * (float)sum);
                assert_memory_equal((const float *)out->data + r * 21 + c, &want, sizeof want);
            }
        }
        kern_forget();
    }
}

/* ---- producers ---- */

/* norm_mod, linear and attention write what act_quant makes of their f32 rows, byte for byte. */
static void same_planes(const struct oz_act *a, const struct oz_act *b)
{
    size_t row = ((size_t)oz_dtype_bits(a->spec.dtype) * (size_t)a->cols + 7) / 8;
    assert_memory_equal(a->data, b->data, row * (size_t)a->rows);
    for (int i = 0; i < a->spec.scale_count; i++) {
        assert_memory_equal(a->scales[i], b->scales[i],
                            (size_t)(a->rows * groups_of(a, i)) *
                                (size_t)oz_dtype_bits(a->spec.scale[i].dtype) / 8);
    }
}

static void producers(void **state)
{
    static const int32_t lengths[] = {2, 0, 5, 4};
    static const float static_scale = 0.02F;
    for (int mode = OZ_ACT_NONE + 1; mode < OZ_ACT_MODE_COUNT; mode++) {
        struct oz_ragged *sequences = kern_ragged(4, lengths);
        struct oz_act_spec spec = oz_act_spec_of((enum oz_act_mode)mode, OZ_EXPONENT_DEFAULT,
                                                 kern_floats(64, 1), &static_scale);
        struct oz_act *x = kern_act(11, 64, 0, OZ_DTYPE_F32, 1);
        struct oz_act *f32 = kern_out(11, 64, 0, OZ_DTYPE_F32);
        struct oz_act *direct = quantized(11, 64, &spec);
        struct oz_norm_mod_args norm = {
            .x = x, .norm = OZ_NORM_RMS, .eps = 1e-6F, .out = f32, .sequences = sequences};
        kern_run(OZ_OP_NORM_MOD, &norm);
        norm.out = direct;
        kern_run(OZ_OP_NORM_MOD, &norm);
        same_planes(direct, quantize(f32, &spec, sequences));

        struct oz_linear w = {.w = *kern_param("w", OZ_DTYPE_F32, 1, 64, 64, 0.2)};
        kern_pack(&w.w, OZ_USE_LINEAR);
        struct oz_linear_args linear = {
            .x = x, .w = &w, .fn = OZ_FN_GELU_TANH, .out = f32, .sequences = sequences};
        kern_run(OZ_OP_LINEAR, &linear);
        linear.out = direct;
        kern_run(OZ_OP_LINEAR, &linear);
        same_planes(direct, quantize(f32, &spec, sequences));

        struct oz_attention_args attention = {
            .segment_count = 1,
            .segments = {{.q = x, .k = x, .v = x, .rows = sequences, .out = f32}},
            .heads = 2,
            .kv_heads = 2,
            .head_dim = 32,
            .scale = 0.2F};
        kern_run(OZ_OP_ATTENTION, &attention);
        attention.segments[0].out = direct;
        kern_run(OZ_OP_ATTENTION, &attention);
        same_planes(direct, quantize(f32, &spec, sequences));
        kern_forget();
    }
}

/* ---- row independence ---- */

#define ROWS 257

/* Rows [first, first + m) through act_quant and linear give what they gave among all. */
static void check_rows(const struct oz_linear *w, const struct oz_act *x, const struct oz_act *all,
                       int64_t first, int64_t m)
{
    struct oz_act some = kern_rows(x, first, m);
    struct oz_act_spec wants = kern_wants(&w->w);
    struct oz_act *q = quantized(m, x->cols, &wants);
    struct oz_act *out = kern_out(m, all->cols, 0, OZ_DTYPE_F32);
    assert_int_equal(kern_run_once(2, OZ_OP_ACT_QUANT,
                                   &(struct oz_act_quant_args){.x = &some, .out = q, .rows = m}),
                     OZ_OK);
    assert_int_equal(
        kern_run_once(5, OZ_OP_LINEAR, &(struct oz_linear_args){.x = q, .w = w, .out = out}),
        OZ_OK);
    for (int64_t r = 0; r < m; r++) {
        if (!kern_same_row(out, r, all, first + r)) {
            fail_msg("%s: row %lld of %lld rows is not what it is among %d",
                     w->w.weight.codec->name, (long long)(first + r), (long long)m, ROWS);
        }
    }
}

static void rows_are_independent(void **state)
{
    KERN_SKIP_IDLE()
    static const int64_t counts[] = {1, 2, 3, 11, 12, 13, 64, 257};
    static const float static_scale = 0.02F;
    for (size_t i = 0; i < CODECS * OZ_ACT_MODE_COUNT; i += kern_stride()) {
        enum oz_act_mode act = (enum oz_act_mode)(i % OZ_ACT_MODE_COUNT);
        struct oz_linear w = {
            .w = *coded(codecs[i / OZ_ACT_MODE_COUNT], 1, 45, 320, act, NULL, &static_scale)};
        kern_pack(&w.w, OZ_USE_LINEAR);
        struct oz_act *x = kern_act(ROWS, 320, 0, OZ_DTYPE_F32, 1);
        struct oz_act_spec wants = kern_wants(&w.w);
        struct oz_act *q = quantized(ROWS, 320, &wants);
        struct oz_act *all = kern_out(ROWS, 45, 0, OZ_DTYPE_F32);
        assert_int_equal(kern_run_once(1, OZ_OP_ACT_QUANT,
                                       &(struct oz_act_quant_args){.x = x, .out = q, .rows = ROWS}),
                         OZ_OK);
        assert_int_equal(
            kern_run_once(1, OZ_OP_LINEAR, &(struct oz_linear_args){.x = q, .w = &w, .out = all}),
            OZ_OK);
        for (size_t j = 0; j < sizeof counts / sizeof *counts; j++) {
            check_rows(&w, x, all, 0, counts[j]);
            check_rows(&w, x, all, (ROWS - counts[j]) / 2, counts[j]);
            check_rows(&w, x, all, ROWS - counts[j], counts[j]);
        }
        kern_forget();
    }
}

/* One row by panels that stream side by side, and by those left over; K of more than one block. */
static void one_row_by_panels(void **state)
{
    KERN_SKIP_IDLE()
    static const float static_scale = 0.02F;
    for (size_t i = 0; i < CODECS * OZ_ACT_MODE_COUNT; i += kern_stride()) {
        enum oz_act_mode act = (enum oz_act_mode)(i % OZ_ACT_MODE_COUNT);
        int64_t k = act == OZ_ACT_NVFP4 ? 4736 : 576;
        struct oz_linear w = {
            .w = *coded(codecs[i / OZ_ACT_MODE_COUNT], 1, 165, k, act, NULL, &static_scale)};
        kern_pack(&w.w, OZ_USE_LINEAR);
        struct oz_act_spec wants = kern_wants(&w.w);
        struct oz_act *x = kern_act(3, k, 0, OZ_DTYPE_F32, 1);
        struct oz_act *all = kern_out(3, 165, 0, OZ_DTYPE_F32);
        struct oz_linear_args a = {.x = quantize(x, &wants, NULL), .w = &w, .out = all};
        assert_int_equal(kern_run_once(2, OZ_OP_LINEAR, &a), OZ_OK);
        for (int64_t r = 0; r < 3; r++) {
            struct oz_act one = kern_rows(x, r, 1);
            a.x = quantize(&one, &wants, NULL);
            a.out = kern_out(1, 165, 0, OZ_DTYPE_F32);
            assert_int_equal(kern_run_once(1, OZ_OP_LINEAR, &a), OZ_OK);
            if (!kern_same_row(a.out, 0, all, r)) {
                fail_msg("%s: row %d alone is not what it is among 3", w.w.weight.codec->name,
                         (int)r);
            }
        }
        kern_forget();
    }
}

/* The same where scales of groups are the least and the largest powers of two, so that products with codes
 * leave the normal numbers. */
static void rows_by_extreme_scales(void **state)
{
    KERN_SKIP_IDLE()
    static const uint8_t scales[][2] = {{0, 1}, {2, 9}, {9, 10}, {10, 127}, {246, 247}, {200, 254}};
    static const char *const names[] = {"mxfp8", "mxfp4"};
    for (size_t i = 0; i < 2 * sizeof scales / sizeof *scales; i++) {
        struct oz_linear w = {.w = *coded(names[i % 2], 1, 45, 320, OZ_ACT_NONE, NULL, NULL)};
        struct oz_plane_view *plane = &w.w.weight.planes[OZ_PLANE_SCALES];
        for (int64_t at = 0; at < plane->bytes; at++) {
            ((uint8_t *)plane->data)[at] = scales[i / 2][at % 2];
        }
        kern_pack(&w.w, OZ_USE_LINEAR);
        struct oz_act_spec wants = kern_wants(&w.w);
        struct oz_act *x = kern_act(ROWS, 320, 0, OZ_DTYPE_F32, 1);
        struct oz_act *q = quantize(x, &wants, NULL);
        struct oz_act *all = kern_out(ROWS, 45, 0, OZ_DTYPE_F32);
        assert_int_equal(
            kern_run_once(1, OZ_OP_LINEAR, &(struct oz_linear_args){.x = q, .w = &w, .out = all}),
            OZ_OK);
        check_rows(&w, x, all, 0, 1);
        check_rows(&w, x, all, ROWS / 2, 1);
        check_rows(&w, x, all, 5, 3);
        kern_forget();
    }
}

/* How a kernel over tiles cuts a product changes no byte. */
static void check_blocks_of(const char *codec, enum oz_act_mode act, int64_t m)
{
    static const struct oz_tile_tuning tunings[] = {
        {.row_block = 32, .col_block = 32, .steps = 1, .panels = 1, .pack_bytes = 1},
        {.row_block = 64, .col_block = 96, .steps = 5, .panels = 4, .whole_bytes = 1 << 20},
    };
    struct oz_linear w = {.w = *coded(codec, 1, 101, 1100, act, NULL, NULL)};
    kern_pack(&w.w, OZ_USE_LINEAR);
    struct oz_act_spec wants = kern_wants(&w.w);
    struct oz_act *x = quantize(kern_act(m, 1100, 0, OZ_DTYPE_F32, 1), &wants, NULL);
    struct oz_act *all = kern_out(m, 101, 0, OZ_DTYPE_F32);
    struct oz_linear_args a = {.x = x, .w = &w, .out = all};
    kern_run(OZ_OP_LINEAR, &a);
    const struct oz_cpu_kernel *k = w.w.plan->kernel;
    for (size_t i = 0; k->q != NULL && k->q->tiles != NULL && i < 2; i++) {
        struct oz_tile_kernel tiles = *k->q->tiles;
        struct oz_qgemm_kernel q = *k->q;
        struct oz_cpu_kernel other = *k;
        tiles.tuning = tunings[i];
        q.tiles = &tiles;
        other.q = &q;
        struct oz_op_ctx ctx = {.dev = kern_device(i == 0 ? 5 : 2)};
        ctx.scratch_bytes = oz_qgemm_linear_scratch(ctx.dev, &a, &other);
        ctx.scratch = kern_array((ctx.scratch_bytes + 63) / 64 * 64);
        memset(ctx.scratch, 0xFF, ctx.scratch_bytes);
        a.out = kern_out(m, 101, 3, OZ_DTYPE_F32);
        assert_int_equal(oz_qgemm_linear(&ctx, &a, &other), OZ_OK);
        for (int64_t r = 0; r < m; r++) {
            if (!kern_same_row(a.out, r, all, r)) {
                fail_msg("%s: blocks %d change row %lld of %lld", codec, (int)i, (long long)r,
                         (long long)m);
            }
        }
    }
    kern_forget();
}

static void blocks_do_not_matter(void **state)
{
    KERN_SKIP_IDLE()
    for (int64_t m = kern_stride() > 1 ? 73 : 3; m < 200; m += 70 * (int64_t)kern_stride()) {
        check_blocks_of("int8_channel", OZ_ACT_INT8_TOKEN, m);
        check_blocks_of("fp8_block", OZ_ACT_FP8_GROUP, m);
        check_blocks_of("mxfp8", OZ_ACT_NONE, m);
        check_blocks_of("mxfp4_dualscale", OZ_ACT_MXFP4_DUALSCALE, m);
    }
}

/* A scale over a sequence: the same bytes wherever the sequence stands, and none from outside it. */
static void sequences_are_independent(void **state)
{
    static const int32_t lengths[] = {3, 1, 7, 2};
    struct oz_act_spec spec = oz_act_spec_of(OZ_ACT_NVFP4, OZ_EXPONENT_DEFAULT, NULL, NULL);
    struct oz_ragged *sequences = kern_ragged(4, lengths);
    struct oz_act *x = kern_act(13, 96, 0, OZ_DTYPE_F32, 1);
    for (int64_t c = 0; c < 96; c++) {
        kern_set(x, 3, c, 100 * kern_get(x, 3, c)); /* a loud neighbour */
    }
    struct oz_act *all = quantize(x, &spec, sequences);
    struct oz_act part = kern_rows(x, 4, 7);
    struct oz_act *alone = quantize(&part, &spec, kern_ragged(1, &lengths[2]));
    for (int64_t r = 0; r < 7; r++) {
        for (int64_t c = 0; c < 96; c++) {
            assert_true(value_at(all, 4 + r, c) == value_at(alone, r, c));
        }
        assert_true(scale_at(all, 1, 4 + r, 0) == scale_at(all, 1, 4, 0));
    }
    assert_true(scale_at(all, 1, 3, 0) > 10 * scale_at(all, 1, 4, 0));
    /* The same format with a second scale for each row: sequences do not matter. */
    spec = oz_act_spec_of(OZ_ACT_NVFP4_TOKEN, OZ_EXPONENT_DEFAULT, NULL, NULL);
    same_planes(quantize(x, &spec, sequences), quantize(x, &spec, NULL));
}

/* ---- experts ---- */

#define EXPERTS 3
#define TOP 2

static void check_experts(const char *codec, enum oz_act_mode act)
{
    int64_t m = 9;
    int64_t d = 64;
    int64_t f = 96;
    struct oz_param *up = coded(codec, EXPERTS, 2 * f, d, act, NULL, NULL);
    struct oz_param *down = coded(codec, EXPERTS, d, f, act, NULL, NULL);
    struct oz_act *x = quantize(kern_act(m, d, 0, OZ_DTYPE_F32, 1), &up->acts[0], NULL);
    struct oz_act *out = kern_out(m, d, 0, OZ_DTYPE_F32);
    int32_t *ids = kern_ids(m * TOP, EXPERTS);
    float *weights = kern_floats(m * TOP, 1);
    struct oz_experts_args a = {.x = x,
                                .up = up,
                                .down = down,
                                .hidden = down->acts[0],
                                .glu = OZ_GLU_SILU,
                                .k = TOP,
                                .ids = ids,
                                .weights = weights,
                                .out = out};
    kern_run(OZ_OP_EXPERTS, &a);
    /* The same by linear and act_quant, one pair at a time. */
    for (int64_t r = 0; r < m; r++) {
        double want[64] = {0};
        double size[64] = {0};
        for (int j = 0; j < TOP; j++) {
            int32_t e = ids[r * TOP + j];
            struct oz_act *h = kern_out(1, f, 0, OZ_DTYPE_F32);
            for (int64_t i = 0; i < f; i++) {
                double gate = 0;
                double factor = 0;
                for (int64_t c = 0; c < d; c++) {
                    gate += value_at(x, r, c) * weight_at(up, e, i, c);
                    factor += value_at(x, r, c) * weight_at(up, e, f + i, c);
                }
                kern_set(h, 0, i, kern_fn(OZ_FN_SILU, gate) * factor);
            }
            struct oz_act *q = quantized(1, f, &down->acts[0]);
            assert_int_equal(
                kern_run_once(1, OZ_OP_ACT_QUANT,
                              &(struct oz_act_quant_args){.x = h, .out = q, .rows = 1}),
                OZ_OK);
            for (int64_t c = 0; c < d; c++) {
                for (int64_t i = 0; i < f; i++) {
                    double term =
                        weights[r * TOP + j] * value_at(q, 0, i) * weight_at(down, e, c, i);
                    want[c] += term;
                    size[c] += fabs(term);
                }
            }
        }
        /* A hidden value whose f32 error crosses a tie takes the next code: two of the f at most are
         * let through, each a step of a quarter. */
        for (int64_t c = 0; c < d; c++) {
            kern_near(codec, out, r, c, want[c],
                      size[c] * (1e-5 + (act == OZ_ACT_NONE ? 0 : 2 * 0.25 / (double)f)));
        }
    }
    kern_forget();
}

static void experts(void **state)
{
    for (size_t i = 0; i < CODECS; i += kern_stride()) {
        check_experts(codecs[i], OZ_ACT_NONE);
        check_experts(codecs[i], OZ_ACT_INT8_TOKEN);
        check_experts(codecs[i], OZ_ACT_MXFP8);
        check_experts(codecs[i], OZ_ACT_NVFP4);
    }
}

/* ---- planning ---- */

static void plans(void **state)
{
    struct oz_error err;
    struct oz_plan_answer answer;
    struct oz_param *p = coded("mxfp4", 1, 32, 64, OZ_ACT_MXFP8, NULL, NULL);
    struct oz_plan_request request = {.use = OZ_USE_LINEAR};
    struct oz_device *dev = kern_device(1);
    assert_int_equal(dev->ops->plan_param(dev, p, &request, &answer, &err), OZ_OK);
    assert_int_equal(answer.packed_bytes > 0, answer.plan->panels);
    assert_int_equal(answer.wants.dtype, OZ_DTYPE_F8_E4M3);
    assert_int_equal(answer.wants.scale[0].group_cols, 32);
    request.mode = 1;
    assert_int_equal(dev->ops->plan_param(dev, p, &request, &answer, &err), OZ_ERR_UNSUPPORTED);
    request.mode = 0;
    p->acts[0].rotate_cols = 64;
    assert_int_equal(dev->ops->plan_param(dev, p, &request, &answer, &err), OZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "mxfp4"));
    assert_true(strstr(err.message, "oz_linear_f32_any_f32__scalar") != NULL ||
                strstr(err.message, " more.") != NULL || strstr(err.message, "...") != NULL);
    p->acts[0].rotate_cols = 0;
    request.use = OZ_USE_CONV;
    assert_int_equal(dev->ops->plan_param(dev, p, &request, &answer, &err), OZ_ERR_UNSUPPORTED);
    request.use = OZ_USE_LINEAR;
    p->weight.planes[OZ_PLANE_LOW_RANK_A].present = true;
    assert_int_equal(dev->ops->plan_param(dev, p, &request, &answer, &err), OZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "low-rank"));
}

/* What a scheme makes of a parameter: modes in order, smoothing from the weight's own plane, and no
 * static scale out of nothing. */
static void schemes_to_formats(void **state)
{
    static const float smooth[64] = {1};
    struct oz_error err;
    struct oz_param *p = coded("mxfp4", 1, 8, 64, OZ_ACT_NONE, smooth, NULL);
    struct oz_scheme scheme = {.name = "mxfp4",
                               .codec = oz_codec_find("mxfp4"),
                               .act_exponent_rule = OZ_EXPONENT_FLOOR,
                               .mode_count = 2,
                               .acts = {OZ_ACT_MXFP4, OZ_ACT_INT8_TOKEN}};
    assert_int_equal(oz_param_set_acts(p, &scheme, &err), OZ_OK);
    assert_int_equal(p->act_count, 2);
    assert_int_equal(p->acts[0].dtype, OZ_DTYPE_F4);
    assert_int_equal(p->acts[0].exponent_rule, OZ_EXPONENT_FLOOR);
    assert_ptr_equal(p->acts[0].smooth, smooth);
    assert_int_equal(p->acts[1].dtype, OZ_DTYPE_I8);
    assert_int_equal(p->acts[1].exponent_rule, OZ_EXPONENT_DEFAULT);
    assert_int_equal(oz_param_mode(p, 1), 1);
    scheme.acts[1] = OZ_ACT_FP8_STATIC;
    assert_int_equal(oz_param_set_acts(p, &scheme, &err), OZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "input_scale"));
    assert_int_equal(oz_param_mode(p, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERN_TEST(act_quant_is_near),
        KERN_TEST(linear_is_the_sum),
        KERN_TEST(smoothing),
        KERN_TEST(blocks_and_tables),
        KERN_TEST(nan_is_kept),
        KERN_TEST(wide_linear),
        KERN_TEST(int8_is_exact),
        KERN_TEST(producers),
        KERN_TEST(rows_are_independent),
        KERN_TEST(integers_in_groups),
        KERN_TEST(integers_in_panels),
        KERN_TEST(one_row_by_panels),
        KERN_TEST(rows_by_extreme_scales),
        KERN_TEST(blocks_do_not_matter),
        KERN_TEST(sequences_are_independent),
        KERN_TEST(experts),
        KERN_TEST(plans),
        KERN_TEST(schemes_to_formats),
        KERN_TEST_PANELS(linear_is_the_sum, "amx"),
        KERN_TEST_PANELS(int8_is_exact, "amx"),
        KERN_TEST_PANELS(nan_is_kept, "amx"),
        KERN_TEST_PANELS(rows_are_independent, "amx"),
        KERN_TEST_PANELS(rows_by_extreme_scales, "amx"),
        KERN_TEST_PANELS(one_row_by_panels, "amx"),
        KERN_TEST_PANELS(blocks_do_not_matter, "amx"),
        KERN_TEST_PANELS(linear_is_the_sum, "avx512"),
        KERN_TEST_PANELS(int8_is_exact, "avx512"),
        KERN_TEST_PANELS(nan_is_kept, "avx512"),
        KERN_TEST_PANELS(rows_are_independent, "avx512"),
        KERN_TEST_PANELS(rows_by_extreme_scales, "avx512"),
        KERN_TEST_PANELS(one_row_by_panels, "avx512"),
        KERN_TEST_PANELS(integers_in_groups, "avx512"),
        KERN_TEST_PANELS(blocks_do_not_matter, "avx512"),
        KERN_TEST_PANELS(linear_is_the_sum, "avx512bf16"),
        KERN_TEST_PANELS(nan_is_kept, "avx512bf16"),
        KERN_TEST_PANELS(rows_are_independent, "avx512bf16"),
        KERN_TEST_PANELS(rows_by_extreme_scales, "avx512bf16"),
        KERN_TEST_PANELS(one_row_by_panels, "avx512bf16"),
        KERN_TEST_PANELS(blocks_do_not_matter, "avx512bf16"),
        KERN_TEST_PANELS(linear_is_the_sum, "avxvnni"),
        KERN_TEST_PANELS(int8_is_exact, "avxvnni"),
        KERN_TEST_PANELS(rows_are_independent, "avxvnni"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
