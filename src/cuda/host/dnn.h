/* cuda/host/dnn.h: cuDNN's graph interface, as sdpa.c and conv_dnn.c use it. */
#ifndef OZ_CUDA_HOST_DNN_H
#define OZ_CUDA_HOST_DNN_H

#include <cudnn.h>
#include <stdint.h>

#include "cuda/host/cuda.h"

/* Descriptors that live while a plan is made; the first failure sticks. */
#define OZ_DNN_MOST_PARTS 24
struct oz_dnn_parts {
    cudnnBackendDescriptor_t list[OZ_DNN_MOST_PARTS];
    int count;
    cudnnStatus_t status;
};

enum oz_dnn_place { OZ_DNN_IN_MEMORY, OZ_DNN_BY_VALUE, OZ_DNN_VIRTUAL };

cudnnBackendDescriptor_t oz_dnn_make(struct oz_dnn_parts *p, cudnnBackendDescriptorType_t type);
void oz_dnn_set(struct oz_dnn_parts *p, cudnnBackendDescriptor_t d,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                const void *values);
void oz_dnn_finalize(struct oz_dnn_parts *p, cudnnBackendDescriptor_t d);
cudnnBackendDescriptor_t oz_dnn_tensor(struct oz_dnn_parts *p, int64_t uid, cudnnDataType_t type,
                                       const int64_t dims[4], const int64_t strides[4],
                                       enum oz_dnn_place place);
cudnnBackendDescriptor_t oz_dnn_graph(struct oz_dnn_parts *p, cudnnHandle_t handle,
                                      const cudnnBackendDescriptor_t *ops, int count);
void oz_dnn_drop(struct oz_dnn_parts *p);

/* The operation graph of a shape. */
typedef cudnnBackendDescriptor_t oz_dnn_graph_fn(struct oz_dnn_parts *p, cudnnHandle_t handle,
                                                 const void *shape);
/* The first engine's plan for it that keeps to the workspace; NULL: none, and *stage and *status say how far
 * it came. */
cudnnBackendDescriptor_t oz_dnn_plan(struct oz_cuda *c, oz_dnn_graph_fn *graph_of,
                                     const void *shape, cudnnStatus_t *status, const char **stage);
cudnnStatus_t oz_dnn_run(const struct oz_op_ctx *ctx, cudnnBackendDescriptor_t plan, int count,
                         const int64_t *uids, void *const *pointers);

#endif
