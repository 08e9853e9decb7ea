/* linear and conv as packed products: arguments, refusals, gathering of patches. */
#include <string.h>

#include "cpu/gemm.h"

/* ---- linear ---- */

static const float *vector(const struct oz_param *p)
{
    return p != NULL && p->name != NULL ? p->weight.planes[OZ_PLANE_CODES].data : NULL;
}

static struct oz_gemm linear_product(const struct oz_linear_args *a, const struct oz_cpu_kernel *k,
                                     struct oz_gemm_epilogue *e)
{
    *e = (struct oz_gemm_epilogue){.bias = vector(&a->w->b),
                                   .up_bias = a->up != NULL ? vector(&a->up->b) : NULL,
                                   .fn = a->fn,
                                   .gate = a->gate.table != NULL ? &a->gate : NULL,
                                   .mod_index = a->mod_index,
                                   .residual = a->residual,
                                   .out = a->out};
    return (struct oz_gemm){.kernel = k->gemm,
                            .m = a->x->rows,
                            .n = a->w->w.shape[0],
                            .k = a->x->cols,
                            .stored = a->w->w.plan != NULL ? a->w->w.plan->stored : OZ_DTYPE_F32,
                            .packed = a->w->w.packed,
                            .packed_up = a->up != NULL ? a->up->w.packed : NULL,
                            .a = a->x->data,
                            .lda = a->x->stride,
                            .epilogue = e};
}

size_t oz_gemm_linear_scratch(const struct oz_device *dev, const struct oz_linear_args *a,
                              const struct oz_cpu_kernel *k)
{
    struct oz_gemm_epilogue e;
    struct oz_gemm p = linear_product(a, k, &e);
    p.packed_up = a->up != NULL ? a->up : NULL; /* only whether it is there counts */
    return oz_gemm_scratch(dev, &p);
}

/* No scales, and nothing that a producer would have to apply first. */
static bool plain(const struct oz_act_spec *s)
{
    return s->scale_count == 0 && s->smooth == NULL && s->rotate_cols == 0 && s->low_rank_a == NULL;
}

static const char *out_reject(const struct oz_act *out)
{
    return out == NULL || ((out->spec.dtype == OZ_DTYPE_F32 || out->spec.dtype == OZ_DTYPE_BF16) &&
                           plain(&out->spec))
               ? NULL
               : "it writes plain f32 and bf16 only";
}

const char *oz_gemm_linear_reject(const struct oz_linear_args *a, const struct oz_cpu_kernel *k)
{
    if (a->w->w.plan == NULL || a->w->w.plan->kernel != k) {
        return "the weight is not packed for it";
    }
    if (a->up != NULL && (a->up->w.plan == NULL || a->up->w.plan->kernel != k ||
                          a->up->w.plan->stored != a->w->w.plan->stored)) {
        return "the second weight is not packed like the first";
    }
    if (a->x->spec.dtype != k->gemm->a_dtype || !plain(&a->x->spec)) {
        return "the input has another format";
    }
    if (a->residual != NULL && a->residual->spec.dtype != OZ_DTYPE_F32) {
        return "the residual is not f32";
    }
    return out_reject(a->out);
}

enum oz_status oz_gemm_linear(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                              const struct oz_cpu_kernel *k)
{
    struct oz_gemm_epilogue e;
    struct oz_gemm p = linear_product(a, k, &e);
    oz_gemm_run(ctx, &p);
    return OZ_OK;
}

/* ---- conv ---- */

struct conv {
    const struct oz_conv_args *a;
    int64_t out_height, out_width;
};

/* Columns [k0, k0 + count) of the patch under one output pixel: taps outside the picture are zero. */
static void fetch_patch(const void *ctx, int64_t pixel, int64_t k0, int64_t count, float *dst)
{
    const struct conv *c = ctx;
    const struct oz_conv_args *a = c->a;
    int64_t channels = a->x->cols;
    int64_t frame = pixel / (c->out_height * c->out_width) * a->stride_t - (a->kt - 1);
    int64_t top = pixel / c->out_width % c->out_height * a->stride - a->pad_top;
    int64_t left = pixel % c->out_width * a->stride - a->pad_left;
    int64_t tap = k0 / channels;
    int64_t from = k0 - tap * channels;
    while (count > 0) {
        int64_t n = channels - from < count ? channels - from : count;
        int64_t t = frame + tap / (a->kh * a->kw);
        int64_t y = top + tap / a->kw % a->kh;
        int64_t x = left + tap % a->kw;
        const struct oz_act *source = t < 0 ? a->past : a->x;
        if (source == NULL || y < 0 || y >= a->height || x < 0 || x >= a->width) {
            memset(dst, 0, (size_t)n * sizeof *dst);
        } else {
            int64_t f = t < 0 ? t + a->kt - 1 : t;
            int64_t row = (f * a->height + y) * a->width + x;
            memcpy(dst, (const float *)source->data + row * source->stride + from,
                   (size_t)n * sizeof *dst);
        }
        dst += n;
        count -= n;
        from = 0;
        tap++;
    }
}

static struct oz_gemm conv_product(const struct oz_conv_args *a, const struct oz_cpu_kernel *k,
                                   struct conv *c, struct oz_gemm_epilogue *e)
{
    *c = (struct conv){
        .a = a,
        .out_height = (a->height + a->pad_top + a->pad_bottom - a->kh) / a->stride + 1,
        .out_width = (a->width + a->pad_left + a->pad_right - a->kw) / a->stride + 1};
    *e = (struct oz_gemm_epilogue){
        .bias = vector(a->b), .fn = a->fn, .add = a->residual, .out = a->out};
    return (struct oz_gemm){.kernel = k->gemm,
                            .m = a->out->rows,
                            .n = a->out->cols,
                            .k = (int64_t)a->kt * a->kh * a->kw * a->x->cols,
                            .stored = a->w->plan != NULL ? a->w->plan->stored : OZ_DTYPE_F32,
                            .packed = a->w->packed,
                            .fetch = fetch_patch,
                            .fetch_ctx = c,
                            .epilogue = e};
}

size_t oz_gemm_conv_scratch(const struct oz_device *dev, const struct oz_conv_args *a,
                            const struct oz_cpu_kernel *k)
{
    struct conv c;
    struct oz_gemm_epilogue e;
    struct oz_gemm p = conv_product(a, k, &c, &e);
    return oz_gemm_scratch(dev, &p);
}

const char *oz_gemm_conv_reject(const struct oz_conv_args *a, const struct oz_cpu_kernel *k)
{
    if (a->w->plan == NULL || a->w->plan->kernel != k) {
        return "the weight is not packed for it";
    }
    if (a->x->spec.dtype != OZ_DTYPE_F32 ||
        (a->past != NULL && a->past->spec.dtype != OZ_DTYPE_F32) ||
        (a->residual != NULL && a->residual->spec.dtype != OZ_DTYPE_F32)) {
        return "the picture is not f32";
    }
    return out_reject(a->out);
}

enum oz_status oz_gemm_conv(const struct oz_op_ctx *ctx, const struct oz_conv_args *a,
                            const struct oz_cpu_kernel *k)
{
    struct conv c;
    struct oz_gemm_epilogue e;
    struct oz_gemm p = conv_product(a, k, &c, &e);
    oz_gemm_run(ctx, &p);
    return OZ_OK;
}
