/* What the reference kernels share; see ref.h. */
#include "base/log.h"
#include "cpu/kern/ref/ref.h"
#include "num/act.h"
#include "num/group.h"

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

static struct oz_act_format format_of(const struct oz_act_spec *spec)
{
    struct oz_act_format f = {.element = spec->dtype,
                              .scale_count = spec->scale_count,
                              .exponent_rule = spec->exponent_rule,
                              .static_scale = spec->static_scale != NULL};
    for (int i = 0; i < 2; i++) {
        f.scale[i].dtype = spec->scale[i].dtype;
        f.scale[i].group_cols = spec->scale[i].group_cols;
    }
    return f;
}

static struct oz_act_given given_of(const struct oz_act_spec *spec, float amax)
{
    return (struct oz_act_given){
        .amax = amax,
        .scale = spec->static_scale != NULL ? *spec->static_scale : 0,
        .offset = spec->static_offset != NULL ? *spec->static_offset : 0,
    };
}

static struct oz_act_row row_of(const struct oz_act *a, const struct oz_act_format *f, int64_t row)
{
    int64_t bits = row * a->stride * oz_dtype_bits(a->spec.dtype);
    struct oz_act_row r = {.codes = (uint8_t *)a->data + bits / 8};
    for (int i = 0; i < a->spec.scale_count; i++) {
        bool cols = a->spec.scale[i].layout == OZ_SCALE_COLS;
        int64_t first = cols ? row : row * oz_act_groups(f, i, a->cols);
        r.scales[i] = (uint8_t *)a->scales[i] + first * (oz_dtype_bits(f->scale[i].dtype) / 8);
        r.scale_stride[i] = cols ? a->rows : 1;
    }
    return r;
}

static bool is_float(const struct oz_act_spec *spec)
{
    return spec->dtype == OZ_DTYPE_F32 || spec->dtype == OZ_DTYPE_BF16;
}

const char *oz_ref_act_problem(const struct oz_act_spec *spec)
{
    if (spec->rotate_cols != 0) {
        return "a rotation";
    }
    if (spec->low_rank_a != NULL) {
        return "a low-rank branch";
    }
    if (is_float(spec)) {
        return spec->scale_count != 0 ? "scales" : NULL;
    }
    struct oz_act_format f = format_of(spec);
    if (!oz_act_format_known(&f)) {
        return "such elements and scales";
    }
    for (int i = 0; i < spec->scale_count; i++) {
        if (spec->scale[i].layout == OZ_SCALE_SWIZZLE_128X4) {
            return "swizzled scales";
        }
    }
    return NULL;
}

/* What these kernels cannot do with an activation; NULL when nothing. */
static const char *reject_format(const struct oz_act *a, bool quantized)
{
    const char *problem = oz_ref_act_problem(&a->spec);
    if (problem != NULL) {
        return problem;
    }
    if (!quantized && !oz_ref_is_plain(&a->spec)) {
        return a->spec.smooth != NULL ? "a smoothing vector" : "such elements and scales";
    }
    return a->spec.dtype == OZ_DTYPE_F4 && a->stride % 2 != 0 ? "rows that begin inside a byte"
                                                              : NULL;
}

static enum oz_status check_format(const char *op, const struct oz_act *a, bool quantized)
{
    const char *what = a != NULL ? reject_format(a, quantized) : NULL;
    if (what == NULL) {
        return OZ_OK;
    }
    oz_log(OZ_LOG_ERROR, "dispatch",
           "%s: an activation in %s with %s; the reference kernels take %s here.", op,
           oz_dtype_name(a->spec.dtype), what,
           quantized ? "F32, BF16 and the formats of num/act.h" : "plain F32 and BF16");
    return OZ_ERR_UNSUPPORTED;
}

enum oz_status oz_ref_check_act(const char *op, const struct oz_act *a)
{
    return check_format(op, a, false);
}

enum oz_status oz_ref_check_quantized(const char *op, const struct oz_act *a)
{
    return check_format(op, a, true);
}

bool oz_ref_needs_amax(const struct oz_act *a)
{
    struct oz_act_format f = format_of(&a->spec);
    return !is_float(&a->spec) && oz_act_needs_amax(&f);
}

void oz_ref_store_row(const struct oz_act *a, int64_t row, float amax, const float *src)
{
    oz_ref_code_row(NULL, a, row, amax, src);
}

void oz_ref_code_row(const struct oz_ref_coder *coder, const struct oz_act *a, int64_t row,
                     float amax, const float *src)
{
    if (coder != NULL && a->spec.dtype == OZ_DTYPE_BF16) {
        coder->narrow(src, a->cols, oz_ref_bf16(a, row, 0));
        return;
    }
    if (is_float(&a->spec)) {
        oz_ref_store(a, row, 0, a->cols, src);
        return;
    }
    struct oz_act_format f = format_of(&a->spec);
    struct oz_act_given given = given_of(&a->spec, amax);
    struct oz_act_row to = row_of(a, &f, row);
    if (coder == NULL || !coder->encode(&f, &given, src, a->cols, &to)) {
        oz_act_encode_row(&f, &given, src, a->cols, &to);
    }
}

const char *oz_ref_by_row_problem(const struct oz_act *a, const struct oz_ragged *sequences)
{
    const char *problem = oz_ref_act_problem(&a->spec);
    return problem != NULL ? problem
           : oz_ref_needs_amax(a) && sequences != NULL && !a->spec.second_by_row
               ? "a scale spans its sequence"
               : NULL;
}

void oz_ref_finish_row(const struct oz_ref_coder *coder, const struct oz_act *a, int64_t row,
                       float *values)
{
    float amax = 0;
    if (a->spec.smooth != NULL && coder != NULL) {
        coder->divide(values, a->spec.smooth, a->cols, values);
    } else {
        oz_ref_smooth(&a->spec, values, a->cols);
    }
    if (oz_ref_needs_amax(a)) {
        amax = coder != NULL ? coder->amax(values, a->cols) : oz_ref_amax(values, a->cols);
    }
    oz_ref_code_row(coder, a, row, amax, values);
}

void oz_ref_smooth(const struct oz_act_spec *spec, float *row, int64_t cols)
{
    for (int64_t c = 0; spec->smooth != NULL && c < cols; c++) {
        row[c] /= spec->smooth[c];
    }
}

float oz_ref_amax(const float *row, int64_t cols)
{
    bool bad = false;
    return oz_group_amax(row, cols, &bad);
}

void oz_ref_load(const struct oz_act *a, int64_t row, int64_t col, int64_t count, float *dst)
{
    if (a->spec.dtype == OZ_DTYPE_F32) {
        memcpy(dst, oz_ref_f32(a, row, col), (size_t)count * sizeof *dst);
        return;
    }
    if (!is_float(&a->spec)) {
        struct oz_act_format f = format_of(&a->spec);
        struct oz_act_given given = given_of(&a->spec, 0);
        struct oz_act_row from = row_of(a, &f, row);
        oz_act_decode_row(&f, &given, &from, col, count, dst);
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

enum oz_status oz_ref_check_smooth(const char *op, const struct oz_act_spec *rows,
                                   const struct oz_param *p)
{
    if (p == NULL) {
        return OZ_OK;
    }
    const struct oz_plane_view *v = &p->weight.planes[OZ_PLANE_SMOOTH];
    const void *wanted = v->present ? v->data : NULL;
    if (rows->smooth == wanted && (wanted != NULL || !v->present)) {
        return OZ_OK;
    }
    oz_log(OZ_LOG_ERROR, "dispatch", "%s: %s %s.", op, p->name,
           v->present ? "has a smoothing vector by which its input was not divided"
                      : "has no smoothing vector, and its input was divided by one");
    return OZ_ERR_UNSUPPORTED;
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
