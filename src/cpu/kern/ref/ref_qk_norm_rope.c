/* qk_norm_rope: RMS norm of each head, then rotation by position. In place. */
#include "cpu/kern/ref/ref.h"

struct layout {
    size_t weight, rows, total;
};

struct job {
    const struct oz_qk_norm_rope_args *a;
    const float *weight; /* [head_dim] or NULL; already + 1 */
    float *rows;         /* [threads, head_dim + 2 * pairs] */
    int64_t pairs;
};

static int64_t count_pairs(const struct oz_qk_norm_rope_args *a)
{
    return a->rope != OZ_ROPE_NONE ? a->cosine->cols : 0;
}

static struct layout lay_out(const struct oz_device *dev, const struct oz_qk_norm_rope_args *a)
{
    struct layout l = {0};
    l.weight = oz_ref_reserve(&l.total, a->head_dim, sizeof(float));
    l.rows = oz_ref_reserve(&l.total,
                            oz_ref_times(oz_ref_threads(dev), a->head_dim + 2 * count_pairs(a)),
                            sizeof(float));
    return l;
}

size_t oz_ref_scratch_qk_norm_rope(const struct oz_device *dev, const void *args)
{
    return lay_out(dev, args).total;
}

static void normalise(const float *weight, float eps, int64_t dim, float *x)
{
    double sum = 0;
    for (int64_t c = 0; c < dim; c++) {
        sum += (double)x[c] * x[c];
    }
    double factor = 1 / sqrt(sum / (double)dim + eps);
    for (int64_t c = 0; c < dim; c++) {
        x[c] = (float)(x[c] * factor) * weight[c];
    }
}

static void rotate(enum oz_rope rope, const float *cosine, const float *sine, int64_t pairs,
                   float *x)
{
    for (int64_t j = 0; j < pairs; j++) {
        float *a = rope == OZ_ROPE_PAIRS ? x + 2 * j : x + j;
        float *b = rope == OZ_ROPE_PAIRS ? a + 1 : a + pairs;
        float turned = *a * cosine[j] - *b * sine[j];
        *b = *a * sine[j] + *b * cosine[j];
        *a = turned;
    }
}

static void run_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    const struct oz_qk_norm_rope_args *a = job->a;
    float *x = job->rows + thread * (a->head_dim + 2 * job->pairs);
    float *cosine = x + a->head_dim;
    float *sine = cosine + job->pairs;
    for (int64_t r = begin; r < end; r++) {
        if (a->rope != OZ_ROPE_NONE) {
            int64_t at = a->table_rows != NULL ? a->table_rows[r] : r;
            oz_ref_load(a->cosine, at, 0, job->pairs, cosine);
            oz_ref_load(a->sine, at, 0, job->pairs, sine);
        }
        for (int64_t h = 0; h < a->heads; h++) {
            oz_ref_load(a->x, r, h * a->head_dim, a->head_dim, x);
            if (job->weight != NULL) {
                normalise(job->weight, a->eps, a->head_dim, x);
            }
            rotate(a->rope, cosine, sine, job->pairs, x);
            oz_ref_store(a->x, r, h * a->head_dim, a->head_dim, x);
        }
    }
}

enum oz_status oz_qk_norm_rope_f32__scalar(const struct oz_op_ctx *ctx,
                                           const struct oz_qk_norm_rope_args *a)
{
    struct layout l = lay_out(ctx->dev, a);
    OZ_TRY(oz_ref_begin(ctx, l.total));
    OZ_TRY(oz_ref_check_act("qk_norm_rope", a->x));
    OZ_TRY(oz_ref_check_act("qk_norm_rope", a->cosine));
    OZ_TRY(oz_ref_check_act("qk_norm_rope", a->sine));
    OZ_TRY(oz_ref_check_param("qk_norm_rope", oz_ref_param(a->weight), 1, 1, a->head_dim));
    float *weight = oz_ref_at(ctx, l.weight);
    struct job job = {
        .a = a,
        .weight = oz_ref_vector(a->weight, a->head_dim, weight),
        .rows = oz_ref_at(ctx, l.rows),
        .pairs = count_pairs(a),
    };
    for (int64_t c = 0; job.weight != NULL && a->weight_plus_one && c < a->head_dim; c++) {
        weight[c] += 1.0F;
    }
    oz_pool_for(ctx->dev->pool, a->x->rows, oz_ref_grain(a->x->cols), run_rows, &job);
    return OZ_OK;
}
