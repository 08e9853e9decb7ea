/* conv: by cuDNN where that takes it (conv_dnn.c). Else patches of the picture as rows, a product with the kernel's matrix, bias, residual and fn behind
 * it; chunk by chunk, so that the patches of a large picture never lie there all at once. */
#include "base/log.h"
#include "cuda/host/cuda.h"

#define PATCH_BYTES (INT64_C(64) << 20) /* of one chunk's patches */

struct course {
    enum oz_dtype operand;
    int64_t n, k; /* padded */
    int64_t out_height, out_width, rows, chunk;
    bool decodes;
    size_t patches, w, sums, total;
};

static struct course plan_course(const struct oz_device *dev, const struct oz_conv_args *a)
{
    struct course c = {.operand = OZ_DTYPE_F32};
    const struct oz_weight *w = &a->w->weight;
    if (w->codec != NULL &&
        oz_cuda_kind_of(dev, w, &a->x->spec, OZ_USE_CONV) == OZ_CUDA_CONV_BF16) {
        c.operand = OZ_DTYPE_BF16;
    }
    int64_t size = oz_dtype_bits(c.operand) / 8;
    int64_t depth = (int64_t)a->kt * a->kh * a->kw * a->x->cols;
    c.n = oz_cuda_round(a->out->cols, 16);
    c.k = oz_cuda_round(depth, 16);
    c.out_height = (a->height + a->pad_top + a->pad_bottom - a->kh) / a->stride + 1;
    c.out_width = (a->width + a->pad_left + a->pad_right - a->kw) / a->stride + 1;
    c.rows = a->out->rows;
    c.chunk = PATCH_BYTES / (c.k * size) / 64 * 64;
    c.chunk = c.chunk < 64 ? 64 : c.chunk;
    c.chunk = c.chunk > c.rows ? c.rows : c.chunk;
    c.decodes = w->planes[OZ_PLANE_CODES].dtype != c.operand || c.n != a->out->cols || c.k != depth;
    c.patches = oz_cuda_reserve(&c.total, c.chunk, c.k, (size_t)size);
    c.w = oz_cuda_reserve(&c.total, c.decodes ? c.n : 0, c.k, (size_t)size);
    c.sums = oz_cuda_reserve(&c.total, c.chunk, c.n, sizeof(float));
    return c;
}

size_t oz_cuda_scratch_conv(const struct oz_device *dev, const struct oz_conv_args *a)
{
    return plan_course(dev, a).total;
}

/* Bias and residual by the product itself, where cuBLASLt can; g then says so. */
static bool fuses(const struct oz_device *dev, const struct oz_conv_args *a, const struct course *c,
                  int64_t row0, struct oz_cuda_gemm *g)
{
    const struct oz_act *r = a->residual;
    bool same = r == NULL || (r->stride == a->out->stride && r->spec.dtype == a->out->spec.dtype);
    struct oz_cuda_gemm f = *g;
    if (a->fn != OZ_FN_NONE || c->n != a->out->cols || a->out->stride % 8 != 0 || !same) {
        return false;
    }
    f.y = oz_act_rows(a->out, row0, g->m).data;
    f.y_stride = a->out->stride;
    f.y_dtype = a->out->spec.dtype;
    f.bias = oz_cuda_vector(a->b);
    f.add = r != NULL ? oz_act_rows(r, row0, g->m).data : NULL;
    f.few = oz_cuda_few_rows(g->m);
    if ((uintptr_t)f.y % 16 != 0 || !oz_cuda_gemm_can(dev, &f)) {
        return false;
    }
    *g = f;
    return true;
}

/* Output rows [row0, row0 + rows). */
static enum oz_status run_chunk(const struct oz_op_ctx *ctx, const struct oz_conv_args *a,
                                const struct course *c, const void *weight, int64_t row0,
                                int64_t rows)
{
    oz_cuda_stream stream = oz_cuda_stream_of(ctx->dev, ctx->queue);
    struct oz_cuda_im2col patches = {.x = *a->x,
                                     .frames = a->frames,
                                     .height = a->height,
                                     .width = a->width,
                                     .out_height = (int32_t)c->out_height,
                                     .out_width = (int32_t)c->out_width,
                                     .kt = a->kt,
                                     .kh = a->kh,
                                     .kw = a->kw,
                                     .stride = a->stride,
                                     .stride_t = a->stride_t,
                                     .pad_top = a->pad_top,
                                     .pad_left = a->pad_left,
                                     .row0 = row0,
                                     .rows = rows,
                                     .pad_cols = c->k,
                                     .dtype = c->operand,
                                     .dst = oz_cuda_at(ctx, c->patches)};
    if (a->past != NULL) {
        patches.past = *a->past;
    }
    OZ_TRY(oz_cuda_check(ctx->dev, "conv", oz_launch_im2col(stream, &patches)));
    struct oz_cuda_gemm g = {.m = rows,
                             .n = c->n,
                             .k = c->k,
                             .x = patches.dst,
                             .w = weight,
                             .y = oz_cuda_at(ctx, c->sums),
                             .x_stride = c->k,
                             .w_stride = c->k,
                             .y_stride = c->n,
                             .x_dtype = c->operand,
                             .w_dtype = c->operand,
                             .y_dtype = OZ_DTYPE_F32};
    const int32_t offsets[2] = {0, (int32_t)rows};
    const struct oz_ragged whole = {.count = 1, .offsets = offsets};
    if (fuses(ctx->dev, a, c, row0, &g)) {
        return oz_cuda_gemm_run(ctx, &g, &whole);
    }
    OZ_TRY(oz_cuda_gemm_run(ctx, &g, &whole));
    struct oz_cuda_linear_end e = {.sums = g.y,
                                   .rows = rows,
                                   .cols = a->out->cols,
                                   .sum_stride = c->n,
                                   .bias = oz_cuda_vector(a->b),
                                   .fn = a->fn,
                                   .out = oz_act_rows(a->out, row0, rows)};
    if (a->residual != NULL) {
        e.residual = oz_act_rows(a->residual, row0, rows);
        e.residual_added = true;
    }
    return oz_cuda_check(ctx->dev, "conv", oz_launch_linear_end(stream, &e));
}

enum oz_status oz_cuda_conv(const struct oz_op_ctx *ctx, const struct oz_conv_args *a)
{
    struct course c = plan_course(ctx->dev, a);
    const struct oz_weight *w = &a->w->weight;
    bool done = false;
    const void *weight = w->planes[OZ_PLANE_CODES].data;
    struct oz_cuda_weight view;
    if (weight == NULL || !oz_cuda_weight_of(w, &view) || !oz_cuda_plain(&a->out->spec)) {
        oz_log(OZ_LOG_ERROR, "dispatch",
               "conv %s: a weight or an output that this device does not take.", a->w->name);
        return OZ_ERR_UNSUPPORTED;
    }
    if (c.operand == OZ_DTYPE_BF16 && !c.decodes) {
        OZ_TRY(oz_cuda_conv_dnn(ctx, a, &done));
    }
    if (done) {
        return OZ_OK;
    }
    if (c.decodes) {
        OZ_TRY(oz_cuda_check(ctx->dev, "conv",
                             oz_launch_decode(oz_cuda_stream_of(ctx->dev, ctx->queue), &view, false,
                                              c.operand, oz_cuda_at(ctx, c.w), c.n, c.k, c.k)));
        weight = oz_cuda_at(ctx, c.w);
    }
    for (int64_t row = 0; row < c.rows; row += c.chunk) {
        int64_t rows = c.rows - row < c.chunk ? c.rows - row : c.chunk;
        OZ_TRY(run_chunk(ctx, a, &c, weight, row, rows));
    }
    return OZ_OK;
}
