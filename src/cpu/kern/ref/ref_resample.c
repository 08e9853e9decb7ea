/* resample: whole factors in time and space. */
#include "cpu/kern/ref/ref.h"

/* Channels of an output row that are made together. */
#define PIECE 256

struct job {
    const struct oz_resample_args *a;
    int64_t out_height, out_width;
    int64_t padding; /* AVG_DOWN: zero frames before the first */
};

static float element(const struct oz_act *x, int64_t row, int64_t col)
{
    float value;
    oz_ref_load(x, row, col, 1, &value);
    return value;
}

static int64_t input_row(const struct oz_resample_args *a, int64_t t, int64_t y, int64_t x)
{
    return (t * a->height + y) * a->width + x;
}

/* Channel c of the output is element (c, dt, dy, dx) of the repeated input channels. */
static float dup_up(const struct oz_resample_args *a, int64_t t, int64_t y, int64_t x, int64_t c)
{
    int64_t cell = (int64_t)a->factor_t * a->factor_y * a->factor_x;
    int64_t repeats = a->out->cols * cell / a->x->cols;
    int64_t place =
        ((c * a->factor_t + t % a->factor_t) * a->factor_y + y % a->factor_y) * a->factor_x +
        x % a->factor_x;
    return element(a->x, input_row(a, t / a->factor_t, y / a->factor_y, x / a->factor_x),
                   place / repeats);
}

/* Mean of a group of consecutive elements (c, dt, dy, dx) of the cell. */
static float avg_down(const struct job *job, int64_t t, int64_t y, int64_t x, int64_t c)
{
    const struct oz_resample_args *a = job->a;
    int64_t cell = (int64_t)a->factor_t * a->factor_y * a->factor_x;
    int64_t group = a->x->cols * cell / a->out->cols;
    double sum = 0;
    for (int64_t i = c * group; i < (c + 1) * group; i++) {
        int64_t dx = i % a->factor_x;
        int64_t dy = i / a->factor_x % a->factor_y;
        int64_t dt = i / a->factor_x / a->factor_y % a->factor_t;
        int64_t frame = t * a->factor_t + dt - job->padding;
        if (frame >= 0) {
            sum += element(a->x, input_row(a, frame, y * a->factor_y + dy, x * a->factor_x + dx),
                           i / cell);
        }
    }
    return (float)(sum / (double)group);
}

static void run_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    const struct oz_resample_args *a = job->a;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int64_t x = r % job->out_width;
        int64_t y = r / job->out_width % job->out_height;
        int64_t t = r / job->out_width / job->out_height;
        for (int64_t c0 = 0; c0 < a->out->cols; c0 += PIECE) {
            float piece[PIECE];
            int64_t count = oz_ref_min(PIECE, a->out->cols - c0);
            if (a->kind == OZ_RESAMPLE_NEAREST) {
                oz_ref_load(a->x, input_row(a, t / a->factor_t, y / a->factor_y, x / a->factor_x),
                            c0, count, piece);
            }
            for (int64_t c = 0; a->kind == OZ_RESAMPLE_DUP_UP && c < count; c++) {
                piece[c] = dup_up(a, t, y, x, c0 + c);
            }
            for (int64_t c = 0; a->kind == OZ_RESAMPLE_AVG_DOWN && c < count; c++) {
                piece[c] = avg_down(job, t, y, x, c0 + c);
            }
            oz_ref_store(a->out, r, c0, count, piece);
        }
    }
}

enum oz_status oz_resample_f32__scalar(const struct oz_op_ctx *ctx,
                                       const struct oz_resample_args *a)
{
    bool down = a->kind == OZ_RESAMPLE_AVG_DOWN;
    OZ_TRY(oz_ref_begin(ctx, 0));
    OZ_TRY(oz_ref_check_act("resample", a->x));
    OZ_TRY(oz_ref_check_act("resample", a->out));
    struct job job = {
        .a = a,
        .out_height = down ? a->height / a->factor_y : (int64_t)a->height * a->factor_y,
        .out_width = down ? a->width / a->factor_x : (int64_t)a->width * a->factor_x,
        .padding = down ? (a->factor_t - a->frames % a->factor_t) % a->factor_t : 0,
    };
    int64_t out_frames =
        down ? (a->frames + job.padding) / a->factor_t : (int64_t)a->frames * a->factor_t;
    oz_pool_for(ctx->dev->pool, out_frames * job.out_height * job.out_width,
                oz_ref_grain(a->out->cols), run_rows, &job);
    return OZ_OK;
}
