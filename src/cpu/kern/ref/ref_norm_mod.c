/* norm_mod: residual, normalisation, modulation. Statistics of a row are sums in double. */
#include "cpu/kern/ref/ref.h"

struct layout {
    size_t weight, bias, rows, total;
};

struct job {
    const struct oz_norm_mod_args *a;
    const float *weight, *bias; /* [cols] or NULL */
    float *rows;                /* [threads, 3, cols] */
};

static struct layout lay_out(const struct oz_device *dev, const struct oz_norm_mod_args *a)
{
    struct layout l = {0};
    l.weight = oz_ref_reserve(&l.total, a->x->cols, sizeof(float));
    l.bias = oz_ref_reserve(&l.total, a->x->cols, sizeof(float));
    l.rows =
        oz_ref_reserve(&l.total, oz_ref_times(oz_ref_threads(dev) * 3, a->x->cols), sizeof(float));
    return l;
}

size_t oz_ref_scratch_norm_mod(const struct oz_device *dev, const void *args)
{
    return lay_out(dev, args).total;
}

/* x += gate * y * mul_fn(mul), as stored. y and mul are room for a row. */
static void add_residual(const struct oz_norm_mod_args *a, int64_t r, float *x, float *y,
                         float *mul)
{
    int64_t cols = a->x->cols;
    oz_ref_load(a->y, r, 0, cols, y);
    const float *gate = oz_ref_mod(&a->gate, a->mod_index, r);
    if (gate != NULL) {
        for (int64_t c = 0; c < cols; c++) {
            y[c] *= gate[c];
        }
    }
    if (a->mul != NULL) {
        int64_t step = a->mul->cols == 1 ? 0 : 1;
        oz_ref_load(a->mul, r, 0, a->mul->cols, mul);
        oz_ref_fn_row(a->mul_fn, mul, a->mul->cols);
        for (int64_t c = 0; c < cols; c++) {
            y[c] *= mul[c * step];
        }
    }
    for (int64_t c = 0; c < cols; c++) {
        x[c] += y[c];
    }
    oz_ref_store(a->x, r, 0, cols, x);
    oz_ref_load(a->x, r, 0, cols, x);
}

static double sum_of_squares(const float *x, int64_t cols, double mean)
{
    double sum = 0;
    for (int64_t c = 0; c < cols; c++) {
        sum += (x[c] - mean) * (x[c] - mean);
    }
    return sum;
}

static double mean_of(const float *x, int64_t cols)
{
    double sum = 0;
    for (int64_t c = 0; c < cols; c++) {
        sum += x[c];
    }
    return sum / (double)cols;
}

/* x = (x - mean) * factor */
static void normalise(enum oz_norm norm, float eps, int64_t cols, float *x)
{
    double n = (double)cols;
    double mean = 0;
    double factor = 1;
    switch (norm) {
    case OZ_NORM_NONE: return;
    case OZ_NORM_LAYER:
        mean = mean_of(x, cols);
        factor = 1 / sqrt(sum_of_squares(x, cols, mean) / n + eps);
        break;
    case OZ_NORM_RMS: factor = 1 / sqrt(sum_of_squares(x, cols, 0) / n + eps); break;
    case OZ_NORM_CHANNEL_L2: {
        double length = sqrt(sum_of_squares(x, cols, 0));
        factor = sqrt(n) / (length < eps ? eps : length);
        break;
    }
    }
    for (int64_t c = 0; c < cols; c++) {
        x[c] = (float)((x[c] - mean) * factor);
    }
}

static void modulate(const struct job *job, int64_t r, float *x)
{
    const struct oz_norm_mod_args *a = job->a;
    int64_t cols = a->x->cols;
    const float *scale = oz_ref_mod(&a->scale, a->mod_index, r);
    const float *shift = oz_ref_mod(&a->shift, a->mod_index, r);
    for (int64_t c = 0; c < cols; c++) {
        if (job->weight != NULL) {
            x[c] *= a->weight_plus_one ? job->weight[c] + 1.0F : job->weight[c];
        }
        if (job->bias != NULL) {
            x[c] += job->bias[c];
        }
        if (scale != NULL) {
            x[c] *= 1.0F + scale[c];
        }
        if (shift != NULL) {
            x[c] += shift[c];
        }
    }
}

static void run_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    const struct oz_norm_mod_args *a = job->a;
    int64_t cols = a->x->cols;
    float *x = job->rows + 3 * cols * thread;
    for (int64_t r = begin; r < end; r++) {
        oz_ref_load(a->x, r, 0, cols, x);
        if (a->y != NULL) {
            add_residual(a, r, x, x + cols, x + 2 * cols);
        }
        if (a->out != NULL) {
            normalise(a->norm, a->eps, cols, x);
            modulate(job, r, x);
            oz_ref_fn_row(a->fn, x, cols);
            oz_ref_store(a->out, r, 0, cols, x);
        }
    }
}

enum oz_status oz_norm_mod_f32__scalar(const struct oz_op_ctx *ctx,
                                       const struct oz_norm_mod_args *a)
{
    struct layout l = lay_out(ctx->dev, a);
    const struct oz_act *acts[4] = {a->x, a->y, a->mul, a->out};
    int64_t cols = a->x->cols;
    OZ_TRY(oz_ref_begin(ctx, l.total));
    for (size_t i = 0; i < 4; i++) {
        OZ_TRY(oz_ref_check_act("norm_mod", acts[i]));
    }
    OZ_TRY(oz_ref_check_param("norm_mod", oz_ref_param(a->weight), 1, 1, cols));
    OZ_TRY(oz_ref_check_param("norm_mod", oz_ref_param(a->bias), 1, 1, cols));
    struct job job = {
        .a = a,
        .weight = oz_ref_vector(a->weight, cols, oz_ref_at(ctx, l.weight)),
        .bias = oz_ref_vector(a->bias, cols, oz_ref_at(ctx, l.bias)),
        .rows = oz_ref_at(ctx, l.rows),
    };
    oz_pool_for(ctx->dev->pool, a->x->rows, oz_ref_grain(cols), run_rows, &job);
    return OZ_OK;
}
