/* What the reference kernels share; see ref.h. */
#include "base/log.h"
#include "cpu/kern/ref/ref.h"

#define SCRATCH_ALIGN 64

size_t oz_ref_reserve(size_t *total, int64_t count, size_t size)
{
    size_t offset = *total;
    size_t bytes;
    if (count < 0 || __builtin_mul_overflow((size_t)count, size, &bytes) ||
        bytes > SIZE_MAX - SCRATCH_ALIGN ||
        __builtin_add_overflow(*total, (bytes + SCRATCH_ALIGN - 1) & ~(size_t)(SCRATCH_ALIGN - 1),
                               total)) {
        *total = SIZE_MAX;
    }
    return offset;
}

size_t oz_ref_scratch_none(const struct oz_device *dev, const void *args)
{
    (void)dev;
    (void)args;
    return 0;
}

enum oz_status oz_ref_begin(const struct oz_op_ctx *ctx, size_t need)
{
    if (ctx->dev->plan_only) {
        return OZ_ERR_DEVICE;
    }
    return ctx->scratch_bytes >= need ? OZ_OK : OZ_ERR_INTERNAL;
}

enum oz_status oz_ref_check_act(const char *op, const struct oz_act *a)
{
    if (a == NULL) {
        return OZ_OK;
    }
    const struct oz_act_spec *spec = &a->spec;
    const char *what = NULL;
    if (spec->dtype != OZ_DTYPE_F32 && spec->dtype != OZ_DTYPE_BF16) {
        what = "elements";
    } else if (spec->smooth != NULL) {
        what = "a smoothing vector";
    } else if (spec->rotate_cols != 0) {
        what = "a rotation";
    } else if (spec->low_rank_a != NULL) {
        what = "a low-rank branch";
    } else if (spec->scale_count != 0) {
        what = "scales";
    }
    if (what == NULL) {
        return OZ_OK;
    }
    oz_log(OZ_LOG_ERROR, "dispatch",
           "%s: an activation in %s with %s; the reference kernels take plain F32 and BF16.", op,
           oz_dtype_name(spec->dtype), what);
    return OZ_ERR_UNSUPPORTED;
}

void oz_ref_load(const struct oz_act *a, int64_t row, int64_t col, int64_t count, float *dst)
{
    if (a->spec.dtype == OZ_DTYPE_F32) {
        memcpy(dst, oz_ref_f32(a, row, col), (size_t)count * sizeof *dst);
        return;
    }
    if (a->spec.dtype != OZ_DTYPE_BF16) {
        oz_ref_load_quantized(a, row, col, count, dst);
        return;
    }
    const uint16_t *src = oz_ref_bf16(a, row, col);
    for (int64_t i = 0; i < count; i++) {
        dst[i] = oz_bf16_to_f32(src[i]);
    }
}

void oz_ref_store(const struct oz_act *a, int64_t row, int64_t col, int64_t count, const float *src)
{
    if (a->spec.dtype == OZ_DTYPE_F32) {
        memcpy(oz_ref_f32(a, row, col), src, (size_t)count * sizeof *src);
        return;
    }
    uint16_t *dst = oz_ref_bf16(a, row, col);
    for (int64_t i = 0; i < count; i++) {
        dst[i] = oz_f32_to_bf16(src[i]);
    }
}

enum oz_status oz_ref_check_param(const char *op, const struct oz_param *p, int64_t slices,
                                  int64_t rows, int64_t cols)
{
    if (p == NULL) {
        return OZ_OK;
    }
    const struct oz_weight *w = &p->weight;
    if (w->codec == NULL || w->slices != slices || w->rows != rows || w->cols != cols) {
        oz_log(OZ_LOG_ERROR, "dispatch",
               "%s: %s is %s of [%lld, %lld, %lld]; [%lld, %lld, %lld] is needed.", op, p->name,
               w->codec != NULL ? w->codec->name : "not loaded", (long long)w->slices,
               (long long)w->rows, (long long)w->cols, (long long)slices, (long long)rows,
               (long long)cols);
        return OZ_ERR_INTERNAL;
    }
    if (w->planes[OZ_PLANE_CODES].present && w->planes[OZ_PLANE_CODES].data == NULL) {
        oz_log(
            OZ_LOG_ERROR, "dispatch",
            "%s: %s was packed for another kernel and its planes given back; that kernel declines "
            "these arguments.",
            op, p->name);
        return OZ_ERR_INTERNAL;
    }
    for (int plane = OZ_PLANE_FIRST_SIDE; plane < OZ_PLANE_COUNT; plane++) {
        bool producers = plane == OZ_PLANE_SMOOTH || plane == OZ_PLANE_INPUT_SCALE;
        if (w->planes[plane].present && !producers) {
            oz_log(OZ_LOG_ERROR, "dispatch",
                   "%s: %s has side plane %d, which the reference kernels do not apply.", op,
                   p->name, plane);
            return OZ_ERR_UNSUPPORTED;
        }
    }
    return OZ_OK;
}

const float *oz_ref_vector(const struct oz_param *p, int64_t n, float *dst)
{
    if (p == NULL || p->name == NULL) {
        return NULL;
    }
    p->weight.codec->decode(&p->weight, 0, 0, 0, n, dst);
    return dst;
}

static float sigmoid(float x)
{
    return 1.0F / (1.0F + expf(-x));
}

float oz_ref_fn(enum oz_fn fn, float x)
{
    switch (fn) {
    case OZ_FN_NONE: return x;
    case OZ_FN_SILU: return x / (1.0F + expf(-x));
    case OZ_FN_GELU_TANH:
        return 0.5F * x * (1.0F + tanhf(0.79788456F * (x + 0.044715F * x * x * x)));
    case OZ_FN_GELU_ERF: return 0.5F * x * (1.0F + erff(x * 0.70710678F));
    case OZ_FN_SIGMOID: return sigmoid(x);
    }
    return x;
}

void oz_ref_fn_row(enum oz_fn fn, float *x, int64_t count)
{
    if (fn == OZ_FN_NONE) {
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        x[i] = oz_ref_fn(fn, x[i]);
    }
}
