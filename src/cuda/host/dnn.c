/* What is made of cuDNN's graph interface: descriptors, and the first plan that an engine gives. */
#include "cuda/host/dnn.h"

#define MOST_CONFIGS 8 /* of a heuristic */

cudnnBackendDescriptor_t oz_dnn_make(struct oz_dnn_parts *p, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;
    if (p->status == CUDNN_STATUS_SUCCESS && p->count < OZ_DNN_MOST_PARTS) {
        p->status = cudnnBackendCreateDescriptor(type, &d);
        if (p->status == CUDNN_STATUS_SUCCESS) {
            p->list[p->count++] = d;
        }
    }
    return d;
}

void oz_dnn_set(struct oz_dnn_parts *p, cudnnBackendDescriptor_t d,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                const void *values)
{
    if (p->status == CUDNN_STATUS_SUCCESS) {
        p->status = cudnnBackendSetAttribute(d, name, type, count, values);
    }
}

void oz_dnn_finalize(struct oz_dnn_parts *p, cudnnBackendDescriptor_t d)
{
    if (p->status == CUDNN_STATUS_SUCCESS) {
        p->status = cudnnBackendFinalize(d);
    }
}

cudnnBackendDescriptor_t oz_dnn_tensor(struct oz_dnn_parts *p, int64_t uid, cudnnDataType_t type,
                                       const int64_t dims[4], const int64_t strides[4],
                                       enum oz_dnn_place place)
{
    const bool yes = true;
    int64_t align = 16;
    cudnnBackendDescriptor_t d = oz_dnn_make(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    oz_dnn_set(p, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    oz_dnn_set(p, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    oz_dnn_set(p, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    oz_dnn_set(p, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    oz_dnn_set(p, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    if (place == OZ_DNN_BY_VALUE) {
        oz_dnn_set(p, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    } else if (place == OZ_DNN_VIRTUAL) {
        oz_dnn_set(p, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    }
    oz_dnn_finalize(p, d);
    return d;
}

cudnnBackendDescriptor_t oz_dnn_graph(struct oz_dnn_parts *p, cudnnHandle_t handle,
                                      const cudnnBackendDescriptor_t *ops, int count)
{
    cudnnBackendDescriptor_t graph = oz_dnn_make(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    oz_dnn_set(p, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, ops);
    oz_dnn_set(p, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    oz_dnn_finalize(p, graph);
    return graph;
}

void oz_dnn_drop(struct oz_dnn_parts *p)
{
    for (int i = p->count - 1; i >= 0; i--) {
        (void)cudnnBackendDestroyDescriptor(p->list[i]);
    }
    p->count = 0;
}

/* A plan of one engine; NULL where it makes none within the workspace. */
static cudnnBackendDescriptor_t
plan_with(cudnnHandle_t handle, const cudnnBackendDescriptor_t *config, cudnnStatus_t *status)
{
    int64_t workspace = 0;
    int64_t written = 0;
    cudnnBackendDescriptor_t d = NULL;
    struct oz_dnn_parts p = {
        .status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &d)};
    oz_dnn_set(&p, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    oz_dnn_set(&p, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
               config);
    oz_dnn_finalize(&p, d);
    if (p.status == CUDNN_STATUS_SUCCESS) {
        p.status = cudnnBackendGetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                            CUDNN_TYPE_INT64, 1, &written, &workspace);
    }
    *status = p.status;
    if (p.status == CUDNN_STATUS_SUCCESS && workspace <= OZ_CUDA_WORKSPACE_BYTES) {
        return d;
    }
    if (d != NULL) {
        (void)cudnnBackendDestroyDescriptor(d);
    }
    return NULL;
}

/* The first of a heuristic's engines that makes a plan. *stage: how far it came. */
static cudnnBackendDescriptor_t plan_of(cudnnHandle_t handle, cudnnBackendDescriptor_t graph,
                                        cudnnBackendHeurMode_t mode, cudnnStatus_t *status,
                                        const char **stage)
{
    struct oz_dnn_parts p = {.status = CUDNN_STATUS_SUCCESS};
    cudnnBackendDescriptor_t configs[MOST_CONFIGS] = {0};
    cudnnBackendDescriptor_t plan = NULL;
    int64_t count = 0;
    *stage = "its heuristic";
    cudnnBackendDescriptor_t heuristic = oz_dnn_make(&p, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    oz_dnn_set(&p, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               1, &graph);
    oz_dnn_set(&p, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    oz_dnn_finalize(&p, heuristic);
    for (int i = 0; i < MOST_CONFIGS; i++) {
        configs[i] = oz_dnn_make(&p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    }
    if (p.status == CUDNN_STATUS_SUCCESS) {
        p.status =
            cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_CONFIGS, &count, configs);
    }
    *status = p.status != CUDNN_STATUS_SUCCESS ? p.status : CUDNN_STATUS_NOT_SUPPORTED;
    for (int64_t i = 0; p.status == CUDNN_STATUS_SUCCESS && i < count && plan == NULL; i++) {
        *stage = "its engines";
        plan = plan_with(handle, &configs[i], status);
    }
    oz_dnn_drop(&p);
    return plan;
}

cudnnBackendDescriptor_t oz_dnn_plan(struct oz_cuda *c, oz_dnn_graph_fn *graph_of,
                                     const void *shape, cudnnStatus_t *status, const char **stage)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    struct oz_dnn_parts p = {.status =
                                 c->dnn == NULL ? cudnnCreate(&c->dnn) : CUDNN_STATUS_SUCCESS};
    cudnnBackendDescriptor_t plan = NULL;
    *stage = "the operation";
    cudnnBackendDescriptor_t graph = graph_of(&p, c->dnn, shape);
    *status = p.status;
    for (size_t i = 0; i < 2 && p.status == CUDNN_STATUS_SUCCESS && plan == NULL; i++) {
        plan = plan_of(c->dnn, graph, modes[i], status, stage);
    }
    oz_dnn_drop(&p);
    return plan;
}

cudnnStatus_t oz_dnn_run(const struct oz_op_ctx *ctx, cudnnBackendDescriptor_t plan, int count,
                         const int64_t *uids, void *const *pointers)
{
    struct oz_cuda *c = oz_cuda_of(ctx->dev);
    void *workspace = oz_cuda_workspace_of(ctx->dev, ctx->queue);
    struct oz_dnn_parts p = {.status =
                                 cudnnSetStream(c->dnn, oz_cuda_stream_of(ctx->dev, ctx->queue))};
    cudnnBackendDescriptor_t pack = oz_dnn_make(&p, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    oz_dnn_set(&p, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids);
    oz_dnn_set(&p, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
               pointers);
    oz_dnn_set(&p, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    oz_dnn_finalize(&p, pack);
    if (p.status == CUDNN_STATUS_SUCCESS) {
        p.status = cudnnBackendExecute(c->dnn, plan, pack);
    }
    oz_dnn_drop(&p);
    return p.status;
}
