/* embed: rows of a table by id. */
#include "base/log.h"
#include "cpu/kern/ref/ref.h"

struct job {
    const struct oz_embed_args *a;
    float *rows; /* [threads, cols] */
};

size_t oz_ref_scratch_embed(const struct oz_device *dev, const void *args)
{
    const struct oz_embed_args *a = args;
    size_t total = 0;
    (void)oz_ref_reserve(&total, oz_ref_times(oz_ref_threads(dev), a->out->cols), sizeof(float));
    return total;
}

static void run_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    const struct oz_embed_args *a = job->a;
    const struct oz_weight *w = &a->table->weight;
    int64_t cols = a->out->cols;
    float *row = job->rows + thread * cols;
    for (int64_t r = begin; r < end; r++) {
        w->codec->decode(w, 0, a->ids[r], 0, cols, row);
        for (int64_t c = 0; c < cols; c++) {
            row[c] *= a->scale;
        }
        oz_ref_store(a->out, r, 0, cols, row);
    }
}

enum oz_status oz_ref_check_embed(const struct oz_embed_args *a)
{
    const struct oz_weight *w = &a->table->weight;
    OZ_TRY(oz_ref_check_param("embed", a->table, 1, w->rows, a->out->cols));
    for (int64_t r = 0; r < a->out->rows; r++) {
        if (a->ids[r] < 0 || a->ids[r] >= w->rows) {
            oz_log(OZ_LOG_ERROR, "dispatch", "embed: id %d of row %lld; %s has %lld rows.",
                   (int)a->ids[r], (long long)r, a->table->name, (long long)w->rows);
            return OZ_ERR_ARG;
        }
    }
    return OZ_OK;
}

enum oz_status oz_embed_any_f32__scalar(const struct oz_op_ctx *ctx, const struct oz_embed_args *a)
{
    struct job job = {.a = a, .rows = ctx->scratch};
    OZ_TRY(oz_ref_begin(ctx, oz_ref_scratch_embed(ctx->dev, a)));
    OZ_TRY(oz_ref_check_act("embed", a->out));
    OZ_TRY(oz_ref_check_embed(a));
    oz_pool_for(ctx->dev->pool, a->out->rows, oz_ref_grain(a->out->cols), run_rows, &job);
    return OZ_OK;
}
