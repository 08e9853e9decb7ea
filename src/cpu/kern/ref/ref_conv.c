/*
 * conv: the matrix product with rows gathered from the picture. Row = output pixel, column = output
 * channel, K = kernel taps times input channels, as the weight has them.
 */
#include "cpu/kern/ref/ref.h"

struct layout {
    size_t bias, product, total;
};

/* Derived extents. */
struct job {
    const struct oz_conv_args *a;
    const float *bias;
    int64_t out_frames, out_height, out_width, channels;
};

static int64_t depth_of(const struct oz_conv_args *a)
{
    return oz_ref_times((int64_t)a->kt * a->kh * a->kw, a->x->cols);
}

static struct layout lay_out(const struct oz_device *dev, const struct oz_conv_args *a)
{
    struct layout l = {0};
    l.bias = oz_ref_reserve(&l.total, a->out->cols, sizeof(float));
    l.product = oz_ref_reserve(&l.total, oz_ref_product_floats(dev, depth_of(a), 0), sizeof(float));
    return l;
}

size_t oz_ref_scratch_conv(const struct oz_device *dev, const void *args)
{
    return lay_out(dev, args).total;
}

/* `count` channels from `channel` of the input pixel under tap (t, y, x) of an output pixel. */
static void load_tap(const struct job *job, int64_t pixel, int64_t tap, int64_t channel,
                     int64_t count, float *dst)
{
    const struct oz_conv_args *a = job->a;
    int64_t t = tap / a->kw / a->kh;
    int64_t frame = pixel / (job->out_height * job->out_width) * a->stride_t + t - (a->kt - 1);
    int64_t y =
        pixel / job->out_width % job->out_height * a->stride + tap / a->kw % a->kh - a->pad_top;
    int64_t x = pixel % job->out_width * a->stride + tap % a->kw - a->pad_left;
    const struct oz_act *from = a->x;
    if (frame < 0) { /* the past ends where x begins */
        from = a->past;
        frame += a->kt - 1;
    }
    if (from == NULL || y < 0 || y >= a->height || x < 0 || x >= a->width) {
        memset(dst, 0, (size_t)count * sizeof *dst);
        return;
    }
    oz_ref_load(from, (frame * a->height + y) * a->width + x, channel, count, dst);
}

static const float *fetch(const void *ctx, int64_t row0, int64_t rows, int64_t k0, int64_t count,
                          float *room, int64_t *stride)
{
    const struct job *job = ctx;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t k = k0; k < k0 + count;) {
            int64_t channel = k % job->channels;
            int64_t run = oz_ref_min(job->channels - channel, k0 + count - k);
            load_tap(job, row0 + r, k / job->channels, channel, run, room + r * count + k - k0);
            k += run;
        }
    }
    *stride = count;
    return room;
}

static void store(const void *ctx, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                  const float *y, const float *up)
{
    const struct job *job = ctx;
    const struct oz_conv_args *a = job->a;
    (void)up;
    for (int64_t r = 0; r < rows; r++) {
        float line[OZ_REF_COLS];
        float residual[OZ_REF_COLS];
        for (int64_t c = 0; c < cols; c++) {
            line[c] = y[r * OZ_REF_COLS + c];
            line[c] += job->bias != NULL ? job->bias[col0 + c] : 0.0F;
        }
        if (a->residual != NULL) {
            oz_ref_load(a->residual, row0 + r, col0, cols, residual);
            for (int64_t c = 0; c < cols; c++) {
                line[c] += residual[c];
            }
        }
        oz_ref_fn_row(a->fn, line, cols);
        oz_ref_store(a->out, row0 + r, col0, cols, line);
    }
}

enum oz_status oz_conv_f32_any_f32__scalar(const struct oz_op_ctx *ctx,
                                           const struct oz_conv_args *a)
{
    struct layout l = lay_out(ctx->dev, a);
    const struct oz_act *acts[4] = {a->x, a->past, a->residual, a->out};
    OZ_TRY(oz_ref_begin(ctx, l.total));
    for (size_t i = 0; i < 4; i++) {
        OZ_TRY(oz_ref_check_act("conv", acts[i]));
    }
    OZ_TRY(oz_ref_check_param("conv", a->w, 1, a->out->cols, depth_of(a)));
    OZ_TRY(oz_ref_check_param("conv", oz_ref_param(a->b), 1, 1, a->out->cols));
    struct job job = {
        .a = a,
        .bias = oz_ref_vector(a->b, a->out->cols, oz_ref_at(ctx, l.bias)),
        .out_frames = (a->frames - 1) / a->stride_t + 1,
        .out_height = (a->height + a->pad_top + a->pad_bottom - a->kh) / a->stride + 1,
        .out_width = (a->width + a->pad_left + a->pad_right - a->kw) / a->stride + 1,
        .channels = a->x->cols,
    };
    oz_ref_product_run(ctx->dev->pool, &(struct oz_ref_product){
                                           .rows = job.out_frames * job.out_height * job.out_width,
                                           .cols = a->out->cols,
                                           .depth = depth_of(a),
                                           .w = &a->w->weight,
                                           .fetch = fetch,
                                           .fetch_ctx = &job,
                                           .store = store,
                                           .store_ctx = &job,
                                           .scratch = oz_ref_at(ctx, l.product),
                                       });
    return OZ_OK;
}
