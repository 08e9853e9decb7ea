/* cfg_combine: classifier-free guidance, with or without the norm of the positive row. */
#include "cpu/kern/ref/ref.h"

static float element(const struct oz_act *x, int64_t row, int64_t col)
{
    float value;
    oz_ref_load(x, row, col, 1, &value);
    return value;
}

static void run_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct oz_cfg_combine_args *a = ctx;
    int64_t cols = a->out->cols;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        double positive_squares = 0;
        double squares = 0;
        float factor = 1;
        for (int64_t c = 0; a->rescale && c < cols; c++) {
            float p = element(a->positive, r, c);
            float n = element(a->negative, r, c);
            float combined = n + a->guidance * (p - n);
            positive_squares += (double)p * p;
            squares += (double)combined * combined;
        }
        if (a->rescale && squares != 0) { /* a zero row stays zero */
            factor = (float)sqrt(positive_squares / squares);
        }
        for (int64_t c = 0; c < cols; c++) {
            float p = element(a->positive, r, c);
            float n = element(a->negative, r, c);
            float combined = n + a->guidance * (p - n);
            combined = a->rescale ? combined * factor : combined;
            oz_ref_store(a->out, r, c, 1, &combined);
        }
    }
}

enum oz_status oz_cfg_combine_f32__scalar(const struct oz_op_ctx *ctx,
                                          const struct oz_cfg_combine_args *a)
{
    struct oz_cfg_combine_args copy = *a;
    OZ_TRY(oz_ref_begin(ctx, 0));
    OZ_TRY(oz_ref_check_act("cfg_combine", a->positive));
    OZ_TRY(oz_ref_check_act("cfg_combine", a->negative));
    OZ_TRY(oz_ref_check_act("cfg_combine", a->out));
    oz_pool_for(ctx->dev->pool, a->out->rows, oz_ref_grain(a->out->cols), run_rows, &copy);
    return OZ_OK;
}
