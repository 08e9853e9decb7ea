/*
 * linear: the product, bias, and one of three epilogues. Weights in any codec, rows in any format.
 *
 * What is summed: f32 products of decoded values, in the order of ref.h. For s8 rows by s8 weights
 * with one scale each (cpu/int8.h): integers, exactly, and then
 * y = x_scale[row] (w_scale[feature] f32(sum)).
 */
#include "base/log.h"
#include "cpu/int8.h"
#include "cpu/kern/ref/ref.h"

struct layout {
    size_t bias, up_bias, scales, up_scales, product, total;
    bool int8;
};

static struct layout lay_out(const struct oz_device *dev, const struct oz_linear_args *a)
{
    int64_t n = a->residual != NULL ? a->residual->cols : a->out->cols;
    struct layout l = {.int8 = oz_int8_product(&a->x->spec, &a->w->w.weight)};
    l.scales = oz_ref_reserve(&l.total, l.int8 ? n : 0, sizeof(float));
    l.up_scales = oz_ref_reserve(&l.total, l.int8 && a->up != NULL ? n : 0, sizeof(float));
    l.bias = oz_ref_reserve(&l.total, n, sizeof(float));
    l.up_bias = oz_ref_reserve(&l.total, a->up != NULL ? n : 0, sizeof(float));
    l.product = oz_ref_reserve(&l.total, oz_ref_product_floats(dev, a->x->cols, a->up != NULL),
                               sizeof(float));
    return l;
}

size_t oz_ref_scratch_linear(const struct oz_device *dev, const void *args)
{
    return lay_out(dev, args).total;
}

struct epilogue {
    const struct oz_linear_args *a;
    const float *bias, *up_bias;
};

static void add_bias(const float *y, const float *bias, int64_t col0, int64_t cols, float *dst)
{
    for (int64_t c = 0; c < cols; c++) {
        dst[c] = bias != NULL ? y[c] + bias[col0 + c] : y[c];
    }
}

/* residual += gate * y */
static void add_residual(const struct oz_linear_args *a, int64_t row, int64_t col0, int64_t cols,
                         const float *y)
{
    const float *gate = oz_ref_mod(&a->gate, a->mod_index, row);
    float sum[OZ_REF_COLS];
    oz_ref_load(a->residual, row, col0, cols, sum);
    for (int64_t c = 0; c < cols; c++) {
        sum[c] += gate != NULL ? gate[col0 + c] * y[c] : y[c];
    }
    oz_ref_store(a->residual, row, col0, cols, sum);
}

static void store(const void *ctx, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                  const float *y, const float *up)
{
    const struct epilogue *e = ctx;
    for (int64_t r = 0; r < rows; r++) {
        float line[OZ_REF_COLS];
        float factor[OZ_REF_COLS];
        add_bias(y + r * OZ_REF_COLS, e->bias, col0, cols, line);
        if (e->a->residual != NULL) {
            add_residual(e->a, row0 + r, col0, cols, line);
            continue;
        }
        oz_ref_fn_row(e->a->fn, line, cols);
        if (up != NULL) {
            add_bias(up + r * OZ_REF_COLS, e->up_bias, col0, cols, factor);
            for (int64_t c = 0; c < cols; c++) {
                line[c] *= factor[c];
            }
        }
        oz_ref_store(e->a->out, row0 + r, col0, cols, line);
    }
}

static enum oz_status check_linear(const struct oz_linear *w, int64_t n, int64_t k)
{
    if (w == NULL) {
        return OZ_OK;
    }
    OZ_TRY(oz_ref_check_param("linear", &w->w, 1, n, k));
    return oz_ref_check_param("linear", oz_ref_param(&w->b), 1, 1, n);
}

static enum oz_status check_args(const struct oz_linear_args *a, const struct layout *l)
{
    int64_t n = a->residual != NULL ? a->residual->cols : a->out->cols;
    OZ_TRY(oz_ref_check_quantized("linear", a->x));
    OZ_TRY(oz_ref_check_act("linear", a->out));
    OZ_TRY(oz_ref_check_act("linear", a->residual));
    OZ_TRY(check_linear(a->w, n, a->x->cols));
    OZ_TRY(check_linear(a->up, n, a->x->cols));
    OZ_TRY(oz_ref_check_smooth("linear", &a->x->spec, &a->w->w));
    OZ_TRY(oz_ref_check_smooth("linear", &a->x->spec, a->up != NULL ? &a->up->w : NULL));
    if (a->up != NULL && oz_int8_product(&a->x->spec, &a->up->w.weight) != l->int8) {
        oz_log(OZ_LOG_ERROR, "dispatch", "linear: %s and %s are stored in different formats.",
               a->w->w.name, a->up->w.name);
        return OZ_ERR_UNSUPPORTED;
    }
    return OZ_OK;
}

enum oz_status oz_linear_f32_any_f32__scalar(const struct oz_op_ctx *ctx,
                                             const struct oz_linear_args *a)
{
    struct layout l = lay_out(ctx->dev, a);
    int64_t n = a->residual != NULL ? a->residual->cols : a->out->cols;
    struct oz_weight codes;
    struct oz_weight up_codes;
    OZ_TRY(oz_ref_begin(ctx, l.total));
    OZ_TRY(check_args(a, &l));
    struct epilogue e = {
        .a = a,
        .bias = oz_ref_vector(&a->w->b, n, oz_ref_at(ctx, l.bias)),
        .up_bias = a->up != NULL ? oz_ref_vector(&a->up->b, n, oz_ref_at(ctx, l.up_bias)) : NULL,
    };
    struct oz_ref_product p = {
        .rows = a->x->rows,
        .cols = n,
        .depth = a->x->cols,
        .w = &a->w->w.weight,
        .up = a->up != NULL ? &a->up->w.weight : NULL,
        .fetch = oz_ref_fetch_act,
        .fetch_ctx = a->x,
        .store = store,
        .store_ctx = &e,
        .scratch = oz_ref_at(ctx, l.product),
    };
    if (l.int8) {
        codes = oz_int8_codes(p.w);
        oz_int8_scales(p.w, 0, 0, n, oz_ref_at(ctx, l.scales));
        p.w = &codes;
        p.fetch = oz_ref_fetch_codes;
        p.row_scales = a->x->scales[0];
        p.col_scales = oz_ref_at(ctx, l.scales);
        p.up_col_scales = oz_ref_at(ctx, l.up_scales);
    }
    if (l.int8 && a->up != NULL) {
        up_codes = oz_int8_codes(p.up);
        oz_int8_scales(p.up, 0, 0, n, oz_ref_at(ctx, l.up_scales));
        p.up = &up_codes;
    }
    oz_ref_product_run(ctx->dev->pool, &p);
    return OZ_OK;
}
