/*
 * time_embed: sinusoids of the timestep in f32, step by step as PyTorch computes them (exponent,
 * exp, times t, times scale, cos and sin), then the two linears; without linears the sinusoids alone.
 */
#include "cpu/kern/ref/ref.h"

struct layout {
    size_t phi, hidden, bias_1, bias_2, product, total;
    int64_t width_1, width_2;
};

static struct layout lay_out(const struct oz_device *dev, const struct oz_time_embed_args *a)
{
    struct layout l = {0};
    if (a->linear_1 == NULL) {
        l.phi = oz_ref_reserve(&l.total, a->dim, sizeof(float));
        return l;
    }
    l.width_1 = a->linear_1->w.shape[0];
    l.width_2 = a->linear_2->w.shape[0];
    l.phi = oz_ref_reserve(&l.total, oz_ref_times(a->rows, a->dim), sizeof(float));
    l.hidden = oz_ref_reserve(&l.total, oz_ref_times(a->rows, l.width_1), sizeof(float));
    l.bias_1 = oz_ref_reserve(&l.total, l.width_1, sizeof(float));
    l.bias_2 = oz_ref_reserve(&l.total, l.width_2, sizeof(float));
    l.product = oz_ref_reserve(
        &l.total, oz_ref_product_floats(dev, oz_ref_max(a->dim, l.width_1), 0), sizeof(float));
    return l;
}

size_t oz_ref_scratch_time_embed(const struct oz_device *dev, const void *args)
{
    return lay_out(dev, args).total;
}

/* phi = [cos a | sin a], an odd last column 0 */
static void sinusoids(float t, int32_t dim, float scale, float *phi)
{
    int32_t half = dim / 2;
    for (int32_t k = 0; k < half; k++) {
        float exponent = -9.2103404F * (float)k / (float)half; /* -ln 10000 */
        float angle = scale * (t * expf(exponent));
        phi[k] = cosf(angle);
        phi[half + k] = sinf(angle);
    }
    if (dim % 2 != 0) {
        phi[dim - 1] = 0;
    }
}

struct output {
    const float *bias;
    float *hidden;                       /* the first linear: silu of it; else NULL */
    int64_t width;                       /* of hidden */
    const struct oz_act *out, *silu_out; /* the second */
};

static void store(const void *ctx, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                  const float *y, const float *up)
{
    const struct output *o = ctx;
    (void)up;
    for (int64_t r = 0; r < rows; r++) {
        float line[OZ_REF_COLS];
        for (int64_t c = 0; c < cols; c++) {
            line[c] = y[r * OZ_REF_COLS + c];
            line[c] += o->bias != NULL ? o->bias[col0 + c] : 0.0F;
        }
        if (o->out != NULL) {
            oz_ref_store(o->out, row0 + r, col0, cols, line);
        }
        oz_ref_fn_row(OZ_FN_SILU, line, cols);
        if (o->silu_out != NULL) {
            oz_ref_store(o->silu_out, row0 + r, col0, cols, line);
        }
        if (o->hidden != NULL) {
            memcpy(o->hidden + (row0 + r) * o->width + col0, line, (size_t)cols * sizeof *line);
        }
    }
}

static enum oz_status check_linear(const struct oz_linear *w, int64_t n, int64_t k)
{
    OZ_TRY(oz_ref_check_param("time_embed", &w->w, 1, n, k));
    return oz_ref_check_param("time_embed", oz_ref_param(&w->b), 1, 1, n);
}

static enum oz_status store_sinusoids(const struct oz_time_embed_args *a, float *phi)
{
    OZ_TRY(oz_ref_check_act("time_embed", a->out));
    for (int64_t r = 0; r < a->rows; r++) {
        sinusoids(a->t[r], a->dim, a->scale, phi);
        oz_ref_store(a->out, r, 0, a->dim, phi);
    }
    return OZ_OK;
}

enum oz_status oz_time_embed_f32_any_f32__scalar(const struct oz_op_ctx *ctx,
                                                 const struct oz_time_embed_args *a)
{
    struct layout l = lay_out(ctx->dev, a);
    OZ_TRY(oz_ref_begin(ctx, l.total));
    if (a->linear_1 == NULL) {
        return store_sinusoids(a, oz_ref_at(ctx, l.phi));
    }
    OZ_TRY(oz_ref_check_act("time_embed", a->out));
    OZ_TRY(oz_ref_check_act("time_embed", a->silu_out));
    OZ_TRY(check_linear(a->linear_1, l.width_1, a->dim));
    OZ_TRY(check_linear(a->linear_2, l.width_2, l.width_1));
    float *phi = oz_ref_at(ctx, l.phi);
    float *hidden = oz_ref_at(ctx, l.hidden);
    for (int64_t r = 0; r < a->rows; r++) {
        sinusoids(a->t[r], a->dim, a->scale, phi + r * a->dim);
    }
    struct oz_act input = {.data = phi, .rows = a->rows, .cols = a->dim, .stride = a->dim};
    input.spec.dtype = OZ_DTYPE_F32;
    struct output first = {
        .bias = oz_ref_vector(&a->linear_1->b, l.width_1, oz_ref_at(ctx, l.bias_1)),
        .hidden = hidden,
        .width = l.width_1,
    };
    struct oz_ref_product p = {
        .rows = a->rows,
        .cols = l.width_1,
        .depth = a->dim,
        .w = &a->linear_1->w.weight,
        .fetch = oz_ref_fetch_act,
        .fetch_ctx = &input,
        .store = store,
        .store_ctx = &first,
        .scratch = oz_ref_at(ctx, l.product),
    };
    oz_ref_product_run(ctx->dev->pool, &p);
    struct output second = {
        .bias = oz_ref_vector(&a->linear_2->b, l.width_2, oz_ref_at(ctx, l.bias_2)),
        .out = a->out,
        .silu_out = a->silu_out,
    };
    input.data = hidden;
    input.cols = input.stride = l.width_1;
    p.cols = l.width_2;
    p.depth = l.width_1;
    p.w = &a->linear_2->w.weight;
    p.store_ctx = &second;
    oz_ref_product_run(ctx->dev->pool, &p);
    return OZ_OK;
}
