/* linear and conv as packed products: arguments, refusals, gathering of patches. */
#include <string.h>

#include "cpu/gemm.h"

/* ---- linear ---- */

static const float *vector(const struct oz_param *p)
{
    return p != NULL && p->name != NULL ? p->weight.planes[OZ_PLANE_CODES].data : NULL;
}

struct oz_gemm_epilogue oz_gemm_linear_epilogue(const struct oz_linear_args *a)
{
    return (struct oz_gemm_epilogue){.bias = vector(&a->w->b),
                                     .up_bias = a->up != NULL ? vector(&a->up->b) : NULL,
                                     .fn = a->fn,
                                     .gate = a->gate.table != NULL ? &a->gate : NULL,
                                     .mod_index = a->mod_index,
                                     .residual = a->residual,
                                     .out = a->out};
}

static struct oz_gemm linear_product(const struct oz_linear_args *a, const struct oz_cpu_kernel *k,
                                     struct oz_gemm_epilogue *e)
{
    *e = oz_gemm_linear_epilogue(a);
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

static bool decodes(const struct oz_linear_args *a)
{
    return a->w->w.plan != NULL && a->w->w.plan->decodes;
}

size_t oz_gemm_linear_scratch(const struct oz_device *dev, const struct oz_linear_args *a,
                              const struct oz_cpu_kernel *k)
{
    if (decodes(a)) {
        return oz_gemm_decode_scratch(dev, a, k);
    }
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

const char *oz_gemm_out_reject(const struct oz_act *out)
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
                          a->up->w.plan->stored != a->w->w.plan->stored ||
                          a->up->w.plan->decodes != a->w->w.plan->decodes)) {
        return "the second weight is not packed like the first";
    }
    if (decodes(a)) {
        const char *reason = oz_gemm_decode_reject(a);
        if (reason != NULL) {
            return reason;
        }
    } else if (a->x->spec.dtype != k->gemm->a_dtype || !plain(&a->x->spec)) {
        return "the input has another format";
    }
    if (a->residual != NULL && a->residual->spec.dtype != OZ_DTYPE_F32) {
        return "the residual is not f32";
    }
    return oz_gemm_out_reject(a->out);
}

enum oz_status oz_gemm_linear(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                              const struct oz_cpu_kernel *k)
{
    if (decodes(a)) {
        return oz_gemm_decode_linear(ctx, a, k, oz_gemm_linear_epilogue(a));
    }
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

/* The place of an output pixel's patch in the input. */
struct corner {
    int64_t frame, top, left;
};

/*
 * Columns of one row of a kernel: taps from x on, of the first of them the channels from `from` on, n
 * in all. Taps outside the picture are zero.
 */
static void fetch_taps(const struct oz_conv_args *a, int64_t frame, int64_t y, int64_t x,
                       int64_t from, int64_t n, float *dst)
{
    const struct oz_act *source = frame < 0 ? a->past : a->x;
    int64_t channels = a->x->cols;
    if (source == NULL || y < 0 || y >= a->height) {
        memset(dst, 0, (size_t)n * sizeof *dst);
        return;
    }
    int64_t row = ((frame < 0 ? frame + a->kt - 1 : frame) * a->height + y) * a->width;
    const float *data = source->data;
    int64_t taps = (from + n + channels - 1) / channels;
    if (source->stride == channels && x >= 0 && x + taps <= a->width) { /* they lie together */
        memcpy(dst, data + (row + x) * channels + from, (size_t)n * sizeof *dst);
        return;
    }
    for (; n > 0; x++, from = 0) {
        int64_t count = channels - from < n ? channels - from : n;
        if (x < 0 || x >= a->width) {
            memset(dst, 0, (size_t)count * sizeof *dst);
        } else {
            memcpy(dst, data + (row + x) * source->stride + from, (size_t)count * sizeof *dst);
        }
        dst += count;
        n -= count;
    }
}

/* Columns [k0, k0 + count) of patches. */
static void fetch_patches(const void *ctx, int64_t row0, int64_t rows, int64_t k0, int64_t count,
                          float *dst, int64_t ld)
{
    const struct conv *c = ctx;
    const struct oz_conv_args *a = c->a;
    int64_t line = a->kw * a->x->cols; /* columns of one row of the kernel */
    int64_t first_t = k0 / line / a->kh;
    int64_t first_y = k0 / line % a->kh;
    int64_t first = k0 % line;
    int64_t at[3] = {row0 / c->out_width / c->out_height, row0 / c->out_width % c->out_height,
                     row0 % c->out_width};
    for (int64_t r = 0; r < rows; r++) {
        struct corner corner = {at[0] * a->stride_t - (a->kt - 1), at[1] * a->stride - a->pad_top,
                                at[2] * a->stride - a->pad_left};
        int64_t t = first_t;
        int64_t y = first_y;
        int64_t from = first;
        for (int64_t done = 0; done < count;) {
            int64_t n = line - from < count - done ? line - from : count - done;
            int64_t tap = from / a->x->cols;
            fetch_taps(a, corner.frame + t, corner.top + y, corner.left + tap,
                       from - tap * a->x->cols, n, dst + r * ld + done);
            done += n;
            from = 0;
            y++;
            t += y == a->kh;
            y = y == a->kh ? 0 : y;
        }
        at[2]++;
        at[1] += at[2] == c->out_width;
        at[2] = at[2] == c->out_width ? 0 : at[2];
        at[0] += at[1] == c->out_height;
        at[1] = at[1] == c->out_height ? 0 : at[1];
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
                            .fetch = fetch_patches,
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
    return oz_gemm_out_reject(a->out);
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
