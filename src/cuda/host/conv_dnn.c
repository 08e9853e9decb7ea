/*
 * Convolutions of one frame by cuDNN, channel-last, with bias and residual in the same kernel. A plan belongs
 * to a shape, is made when that is first met and kept; what cuDNN refuses, and small pictures for which
 * making a plan would not pay, go through patches (conv.c).
 */
#include "base/clock.h"
#include "base/log.h"
#include "cuda/host/dnn.h"

#define LEAST_WORK 1e9 /* operations from which a plan pays */

enum uid { UID_X = 1, UID_W, UID_B, UID_R, UID_Y, UID_SUMS, UID_ADDED };

/* Of channels last, [1, channels, height, width]. */
static cudnnBackendDescriptor_t picture(struct oz_dnn_parts *p, int64_t uid, cudnnDataType_t type,
                                        int64_t channels, int64_t height, int64_t width,
                                        enum oz_dnn_place place)
{
    const int64_t dims[4] = {1, channels, height, width};
    const int64_t strides[4] = {channels * height * width, 1, width * channels, channels};
    return oz_dnn_tensor(p, uid, type, dims, strides, place);
}

static cudnnBackendDescriptor_t convolution(struct oz_dnn_parts *p, const struct oz_cuda_conv *s,
                                            cudnnBackendDescriptor_t y)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t spatial = 2;
    const int64_t ones[2] = {1, 1};
    const int64_t strides[2] = {s->stride, s->stride};
    const int64_t before[2] = {s->pad_top, s->pad_left};
    const int64_t behind[2] = {s->pad_bottom, s->pad_right};
    const int64_t dims[4] = {s->out, s->in, s->kh, s->kw};
    const int64_t w_strides[4] = {(int64_t)s->kh * s->kw * s->in, 1, (int64_t)s->kw * s->in, s->in};
    const float one = 1;
    const float zero = 0;
    cudnnBackendDescriptor_t x =
        picture(p, UID_X, CUDNN_DATA_BFLOAT16, s->in, s->height, s->width, OZ_DNN_IN_MEMORY);
    cudnnBackendDescriptor_t w =
        oz_dnn_tensor(p, UID_W, CUDNN_DATA_BFLOAT16, dims, w_strides, OZ_DNN_IN_MEMORY);
    cudnnBackendDescriptor_t how = oz_dnn_make(p, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    oz_dnn_set(p, how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    oz_dnn_set(p, how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    oz_dnn_set(p, how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
    oz_dnn_set(p, how, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones);
    oz_dnn_set(p, how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
    oz_dnn_set(p, how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, before);
    oz_dnn_set(p, how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, behind);
    oz_dnn_finalize(p, how);
    cudnnBackendDescriptor_t op =
        oz_dnn_make(p, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    oz_dnn_set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
               &x);
    oz_dnn_set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
               &w);
    oz_dnn_set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
               &y);
    oz_dnn_set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    oz_dnn_set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    oz_dnn_set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
    oz_dnn_finalize(p, op);
    return op;
}

static cudnnBackendDescriptor_t addition(struct oz_dnn_parts *p, cudnnBackendDescriptor_t x,
                                         cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t y)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
    cudnnBackendDescriptor_t how = oz_dnn_make(p, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    oz_dnn_set(p, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    oz_dnn_set(p, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    oz_dnn_finalize(p, how);
    cudnnBackendDescriptor_t op = oz_dnn_make(p, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    oz_dnn_set(p, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               1, &how);
    oz_dnn_set(p, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
    oz_dnn_set(p, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b);
    oz_dnn_set(p, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
    oz_dnn_finalize(p, op);
    return op;
}

/* y = conv(x, w) (+ r) + b */
static cudnnBackendDescriptor_t graph_of(struct oz_dnn_parts *p, cudnnHandle_t handle,
                                         const void *shape)
{
    const struct oz_cuda_conv *s = shape;
    const cudnnDataType_t type = s->half_out ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    const int64_t height = (s->height + s->pad_top + s->pad_bottom - s->kh) / s->stride + 1;
    const int64_t width = (s->width + s->pad_left + s->pad_right - s->kw) / s->stride + 1;
    cudnnBackendDescriptor_t ops[3];
    cudnnBackendDescriptor_t y = picture(p, UID_Y, type, s->out, height, width, OZ_DNN_IN_MEMORY);
    cudnnBackendDescriptor_t sums =
        picture(p, UID_SUMS, CUDNN_DATA_FLOAT, s->out, height, width, OZ_DNN_VIRTUAL);
    cudnnBackendDescriptor_t bias =
        picture(p, UID_B, CUDNN_DATA_FLOAT, s->out, 1, 1, OZ_DNN_IN_MEMORY);
    ops[0] = convolution(p, s, sums);
    if (!s->adds) {
        ops[1] = addition(p, sums, bias, y);
        return oz_dnn_graph(p, handle, ops, 2);
    }
    cudnnBackendDescriptor_t added =
        picture(p, UID_ADDED, CUDNN_DATA_FLOAT, s->out, height, width, OZ_DNN_VIRTUAL);
    cudnnBackendDescriptor_t r = picture(p, UID_R, type, s->out, height, width, OZ_DNN_IN_MEMORY);
    ops[1] = addition(p, sums, r, added);
    ops[2] = addition(p, added, bias, y);
    return oz_dnn_graph(p, handle, ops, 3);
}

static void build(struct oz_cuda *c, struct oz_cuda_conv *s)
{
    cudnnStatus_t status;
    const char *stage;
    const double start = oz_clock_seconds();
    s->plan = oz_dnn_plan(c, graph_of, s, &status, &stage);
    if (s->plan == NULL) {
        oz_log(OZ_LOG_DEBUG, "dispatch",
               "cuDNN %zu makes no convolution of %d x %d, %d to %d channels: %s: %s. Patches are "
               "multiplied.",
               cudnnGetVersion(), s->height, s->width, s->in, s->out, stage,
               cudnnGetErrorString(status));
    } else {
        oz_log(OZ_LOG_DEBUG, "dispatch",
               "cuDNN's convolution of %d x %d, %d to %d channels: planned in %.1f ms", s->height,
               s->width, s->in, s->out, 1e3 * (oz_clock_seconds() - start));
    }
}

static bool same(const struct oz_cuda_conv *a, const struct oz_cuda_conv *b)
{
    return a->height == b->height && a->width == b->width && a->in == b->in && a->out == b->out &&
           a->kh == b->kh && a->kw == b->kw && a->stride == b->stride && a->pad_top == b->pad_top &&
           a->pad_bottom == b->pad_bottom && a->pad_left == b->pad_left &&
           a->pad_right == b->pad_right && a->adds == b->adds && a->half_out == b->half_out;
}

/* The plan of a shape; NULL: there is none, or there are too many. */
static void *find(struct oz_cuda *c, const struct oz_cuda_conv *wanted)
{
    struct oz_cuda_conv *s = NULL;
    pthread_mutex_lock(&c->lock);
    for (int32_t i = 0; i < c->conv_count && s == NULL; i++) {
        s = same(&c->convs[i], wanted) ? &c->convs[i] : NULL;
    }
    if (s == NULL && c->conv_count < OZ_CUDA_MOST_CONVS) {
        s = &c->convs[c->conv_count++];
        *s = *wanted;
        build(c, s);
    }
    pthread_mutex_unlock(&c->lock);
    return s != NULL ? s->plan : NULL;
}

static bool tight(const struct oz_act *a)
{
    return a->stride == a->cols && (uintptr_t)a->data % 16 == 0;
}

enum oz_status oz_cuda_conv_dnn(const struct oz_op_ctx *ctx, const struct oz_conv_args *a,
                                bool *done)
{
    const struct oz_act *r = a->residual;
    const struct oz_cuda_conv wanted = {.height = a->height,
                                        .width = a->width,
                                        .in = (int32_t)a->x->cols,
                                        .out = (int32_t)a->out->cols,
                                        .kh = a->kh,
                                        .kw = a->kw,
                                        .stride = a->stride,
                                        .pad_top = a->pad_top,
                                        .pad_bottom = a->pad_bottom,
                                        .pad_left = a->pad_left,
                                        .pad_right = a->pad_right,
                                        .adds = r != NULL,
                                        .half_out = a->out->spec.dtype == OZ_DTYPE_BF16};
    const double work =
        2.0 * (double)a->out->rows * (double)a->out->cols * (double)a->x->cols * a->kh * a->kw;
    *done = false;
    if (a->frames != 1 || a->kt != 1 || a->fn != OZ_FN_NONE || work < LEAST_WORK ||
        a->x->cols % 8 != 0 || a->out->cols % 8 != 0 || a->x->spec.dtype != OZ_DTYPE_BF16 ||
        !oz_cuda_plain(&a->x->spec) || !tight(a->x) || !tight(a->out) ||
        oz_cuda_vector(a->b) == NULL ||
        (r != NULL && (!tight(r) || r->spec.dtype != a->out->spec.dtype))) {
        return OZ_OK;
    }
    void *plan = find(oz_cuda_of(ctx->dev), &wanted);
    if (plan == NULL) {
        return OZ_OK;
    }
    const int64_t uids[5] = {UID_X, UID_W, UID_B, UID_Y, UID_R};
    void *pointers[5] = {a->x->data, a->w->weight.planes[OZ_PLANE_CODES].data,
                         a->b->weight.planes[OZ_PLANE_CODES].data, a->out->data,
                         r != NULL ? r->data : NULL};
    cudnnStatus_t status = oz_dnn_run(ctx, plan, r != NULL ? 5 : 4, uids, pointers);
    if (status != CUDNN_STATUS_SUCCESS) {
        oz_log(OZ_LOG_ERROR, "dispatch", "conv %s: cuDNN's convolution failed: %s.", a->w->name,
               cudnnGetErrorString(status));
        return OZ_ERR_DEVICE;
    }
    *done = true;
    return OZ_OK;
}

void oz_cuda_conv_close(struct oz_cuda *c)
{
    for (int32_t i = 0; i < c->conv_count; i++) {
        if (c->convs[i].plan != NULL) {
            (void)cudnnBackendDestroyDescriptor(c->convs[i].plan);
        }
    }
}
