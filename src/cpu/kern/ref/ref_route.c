/* route: which experts a row goes to, and with what weights. */
#include "cpu/kern/ref/ref.h"

struct layout {
    size_t bias, rows, total;
};

struct job {
    const struct oz_route_args *a;
    const float *bias; /* [experts] or NULL */
    float *rows;       /* [threads, 2, experts]: values, and what the choice goes by */
};

static struct layout lay_out(const struct oz_device *dev, const struct oz_route_args *a)
{
    struct layout l = {0};
    l.bias = oz_ref_reserve(&l.total, a->logits->cols, sizeof(float));
    l.rows = oz_ref_reserve(&l.total, oz_ref_times(oz_ref_threads(dev) * 2, a->logits->cols),
                            sizeof(float));
    return l;
}

size_t oz_ref_scratch_route(const struct oz_device *dev, const void *args)
{
    return lay_out(dev, args).total;
}

static void softmax(float *x, int64_t count)
{
    float largest = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        largest = x[i] > largest ? x[i] : largest;
    }
    for (int64_t i = 0; i < count; i++) {
        x[i] = expf(x[i] - largest);
        sum += x[i];
    }
    for (int64_t i = 0; i < count; i++) {
        x[i] = (float)(x[i] / sum);
    }
}

static bool is_taken(const int32_t *ids, int32_t count, int32_t id)
{
    for (int32_t i = 0; i < count; i++) {
        if (ids[i] == id) {
            return true;
        }
    }
    return false;
}

/* The k largest, the first of equals first. A NaN is never larger. */
static void choose(const float *choice, int32_t experts, int32_t k, int32_t *ids)
{
    for (int32_t j = 0; j < k; j++) {
        int32_t best = -1;
        for (int32_t e = 0; e < experts; e++) {
            if (!is_taken(ids, j, e) && (best < 0 || choice[e] > choice[best])) {
                best = e;
            }
        }
        ids[j] = best;
    }
}

static void run_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    const struct oz_route_args *a = job->a;
    int32_t experts = (int32_t)a->logits->cols;
    float *values = job->rows + (int64_t)thread * 2 * experts;
    float *choice = values + experts;
    for (int64_t r = begin; r < end; r++) {
        int32_t *ids = a->ids + r * a->k;
        float *weights = a->weights + r * a->k;
        oz_ref_load(a->logits, r, 0, experts, values);
        if (a->kind == OZ_ROUTE_SOFTMAX_TOPK) {
            softmax(values, experts);
        }
        for (int32_t e = 0; e < experts; e++) {
            choice[e] = job->bias != NULL ? values[e] + job->bias[e] : values[e];
        }
        choose(choice, experts, a->k, ids);
        double sum = 0;
        for (int32_t j = 0; j < a->k; j++) {
            weights[j] = values[ids[j]];
            sum += weights[j];
        }
        if (a->kind == OZ_ROUTE_TOPK_SOFTMAX) {
            softmax(weights, a->k);
        }
        for (int32_t j = 0; j < a->k; j++) {
            if (a->kind == OZ_ROUTE_SOFTMAX_TOPK && a->renormalise) {
                weights[j] = (float)(weights[j] / sum);
            }
            weights[j] *= a->scale;
        }
    }
}

enum oz_status oz_route_f32__scalar(const struct oz_op_ctx *ctx, const struct oz_route_args *a)
{
    struct layout l = lay_out(ctx->dev, a);
    OZ_TRY(oz_ref_begin(ctx, l.total));
    OZ_TRY(oz_ref_check_act("route", a->logits));
    OZ_TRY(oz_ref_check_param("route", oz_ref_param(a->bias), 1, 1, a->logits->cols));
    if (a->k < 0 || a->k > a->logits->cols) {
        return OZ_ERR_ARG;
    }
    struct job job = {
        .a = a,
        .bias = oz_ref_vector(a->bias, a->logits->cols, oz_ref_at(ctx, l.bias)),
        .rows = oz_ref_at(ctx, l.rows),
    };
    oz_pool_for(ctx->dev->pool, a->logits->rows, oz_ref_grain(a->logits->cols), run_rows, &job);
    return OZ_OK;
}
