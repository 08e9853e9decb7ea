/* sched_step: a solver step as a linear combination, in place. */
#include "cpu/kern/ref/ref.h"

static void run_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct oz_sched_step_args *a = ctx;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        for (int64_t c = 0; c < a->x->cols; c++) {
            float x;
            oz_ref_load(a->x, r, c, 1, &x);
            x = a->keep ? x : a->factors[0] * x;
            for (int32_t i = 0; i < a->count; i++) {
                float term;
                oz_ref_load(a->terms[i], r, c, 1, &term);
                x += a->factors[1 + i] * term;
            }
            oz_ref_store(a->x, r, c, 1, &x);
        }
    }
}

enum oz_status oz_sched_step_f32__scalar(const struct oz_op_ctx *ctx,
                                         const struct oz_sched_step_args *a)
{
    struct oz_sched_step_args copy = *a;
    OZ_TRY(oz_ref_begin(ctx, 0));
    OZ_TRY(oz_ref_check_act("sched_step", a->x));
    for (int32_t i = 0; i < a->count; i++) {
        OZ_TRY(oz_ref_check_act("sched_step", a->terms[i]));
    }
    oz_pool_for(ctx->dev->pool, a->x->rows, oz_ref_grain(a->x->cols), run_rows, &copy);
    return OZ_OK;
}
