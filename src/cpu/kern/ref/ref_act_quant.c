/* act_quant: rows copied, gathered, scattered, between F32 and BF16. */
#include "cpu/kern/ref/ref.h"

/* A row passes through f32 in pieces of this size. */
#define PIECE 256

static void copy_row(const struct oz_act *x, int64_t from, const struct oz_act *out, int64_t to)
{
    int64_t cols = x->cols;
    if (x->spec.dtype == out->spec.dtype) { /* bit for bit */
        size_t size = x->spec.dtype == OZ_DTYPE_F32 ? 4 : 2;
        memcpy((uint8_t *)out->data + (size_t)(to * out->stride) * size,
               (const uint8_t *)x->data + (size_t)(from * x->stride) * size, (size_t)cols * size);
        return;
    }
    for (int64_t c = 0; c < cols; c += PIECE) {
        float piece[PIECE];
        int64_t count = oz_ref_min(PIECE, cols - c);
        oz_ref_load(x, from, c, count, piece);
        oz_ref_store(out, to, c, count, piece);
    }
}

static void run_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct oz_act_quant_args *a = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        copy_row(a->x, a->x_rows != NULL ? a->x_rows[i] : i, a->out,
                 a->out_rows != NULL ? a->out_rows[i] : i);
    }
}

enum oz_status oz_act_quant_f32_bf16__scalar(const struct oz_op_ctx *ctx,
                                             const struct oz_act_quant_args *a)
{
    struct oz_act_quant_args copy = *a;
    OZ_TRY(oz_ref_begin(ctx, 0));
    OZ_TRY(oz_ref_check_act("act_quant", a->x));
    OZ_TRY(oz_ref_check_act("act_quant", a->out));
    if (a->x->cols > 0) {
        oz_pool_for(ctx->dev->pool, a->rows, oz_ref_grain(a->x->cols), run_rows, &copy);
    }
    return OZ_OK;
}
