/*
 * Long attention without masks, by cuDNN's one operation for it. A plan belongs to the very numbers of
 * queries and keys, is made when they are first met and kept; of the oldest ones when there are too many
 * it lets go. (Measured with cuDNN 9.19 on an H200: the operation that is told lengths, which would
 * let a plan serve many of them, and the graph of two products and a softmax are both refused there.)
 */
#include <cudnn.h>
#include <stdint.h>

#include "base/log.h"
#include "cuda/host/cuda.h"

enum uid { UID_Q = 1, UID_K, UID_V, UID_O, UID_SCALE };

/* Descriptors that live while a plan is made; the first failure sticks. */
#define MOST_PARTS 16
#define MOST_CONFIGS 8
struct parts {
    cudnnBackendDescriptor_t list[MOST_PARTS];
    int count;
    cudnnStatus_t status;
};

static cudnnBackendDescriptor_t make(struct parts *p, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;
    if (p->status == CUDNN_STATUS_SUCCESS && p->count < MOST_PARTS) {
        p->status = cudnnBackendCreateDescriptor(type, &d);
        if (p->status == CUDNN_STATUS_SUCCESS) {
            p->list[p->count++] = d;
        }
    }
    return d;
}

static void set(struct parts *p, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (p->status == CUDNN_STATUS_SUCCESS) {
        p->status = cudnnBackendSetAttribute(d, name, type, count, values);
    }
}

static void finalize(struct parts *p, cudnnBackendDescriptor_t d)
{
    if (p->status == CUDNN_STATUS_SUCCESS) {
        p->status = cudnnBackendFinalize(d);
    }
}

static cudnnBackendDescriptor_t tensor(struct parts *p, int64_t uid, cudnnDataType_t type,
                                       const int64_t dims[4], const int64_t strides[4],
                                       bool by_value)
{
    int64_t align = 16;
    cudnnBackendDescriptor_t d = make(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(p, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(p, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(p, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(p, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(p, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    if (by_value) {
        set(p, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    }
    finalize(p, d);
    return d;
}

/* Rows [rows, heads * dim] as [1, heads, rows, dim]. */
static cudnnBackendDescriptor_t rows_tensor(struct parts *p, int64_t uid, int64_t heads,
                                            int64_t rows, int64_t dim)
{
    const int64_t dims[4] = {1, heads, rows, dim};
    const int64_t strides[4] = {rows * heads * dim, dim, heads * dim, 1};
    return tensor(p, uid, CUDNN_DATA_BFLOAT16, dims, strides, false);
}

static cudnnBackendDescriptor_t graph_of(struct parts *p, cudnnHandle_t handle,
                                         const struct oz_cuda_sdpa *s)
{
    static const int64_t one[4] = {1, 1, 1, 1};
    const struct {
        cudnnBackendAttributeName_t name;
        cudnnBackendDescriptor_t tensor;
    } links[] = {
        {CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, rows_tensor(p, UID_Q, s->heads, s->queries, s->dim)},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, rows_tensor(p, UID_K, s->heads, s->keys, s->dim)},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, rows_tensor(p, UID_V, s->heads, s->keys, s->dim)},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, rows_tensor(p, UID_O, s->heads, s->queries, s->dim)},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC,
         tensor(p, UID_SCALE, CUDNN_DATA_FLOAT, one, one, true)},
    };
    cudnnBackendDescriptor_t op = make(p, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
    size_t count = sizeof links / sizeof *links;
    for (size_t i = 0; i < count; i++) {
        set(p, op, links[i].name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &links[i].tensor);
    }
    finalize(p, op);
    cudnnBackendDescriptor_t graph = make(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(p, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &op);
    set(p, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    finalize(p, graph);
    return graph;
}

/* A plan of one engine; NULL where it makes none within the workspace. */
static cudnnBackendDescriptor_t
plan_with(cudnnHandle_t handle, const cudnnBackendDescriptor_t *config, cudnnStatus_t *status)
{
    int64_t workspace = 0;
    int64_t written = 0;
    cudnnBackendDescriptor_t d = NULL;
    struct parts p = {
        .status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &d)};
    set(&p, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(&p, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, config);
    finalize(&p, d);
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
    struct parts p = {.status = CUDNN_STATUS_SUCCESS};
    cudnnBackendDescriptor_t configs[MOST_CONFIGS] = {0};
    cudnnBackendDescriptor_t plan = NULL;
    int64_t count = 0;
    *stage = "its heuristic";
    cudnnBackendDescriptor_t heuristic = make(&p, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(&p, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &graph);
    set(&p, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finalize(&p, heuristic);
    for (int i = 0; i < MOST_CONFIGS; i++) {
        configs[i] = make(&p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
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
    for (int i = p.count - 1; i >= 0; i--) {
        (void)cudnnBackendDestroyDescriptor(p.list[i]);
    }
    return plan;
}

static void build(struct oz_cuda *c, struct oz_cuda_sdpa *s)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    struct parts p = {.status = c->dnn == NULL ? cudnnCreate(&c->dnn) : CUDNN_STATUS_SUCCESS};
    const char *stage = "the operation";
    cudnnBackendDescriptor_t graph = graph_of(&p, c->dnn, s);
    cudnnStatus_t status = p.status;
    for (size_t i = 0; i < 2 && p.status == CUDNN_STATUS_SUCCESS && s->plan == NULL; i++) {
        s->plan = plan_of(c->dnn, graph, modes[i], &status, &stage);
    }
    for (int i = p.count - 1; i >= 0; i--) {
        (void)cudnnBackendDestroyDescriptor(p.list[i]);
    }
    if (s->plan == NULL) {
        char text[512] = "";
        cudnnGetLastErrorString(text, sizeof text);
        oz_log(OZ_LOG_WARN, "dispatch",
               "cuDNN %zu makes no attention of %lld queries and %lld keys, %d heads of %d: %s: %s "
               "(%s). A slower kernel does it.",
               cudnnGetVersion(), (long long)s->queries, (long long)s->keys, s->heads, s->dim,
               stage, cudnnGetErrorString(status), text);
    }
}

/* Room for one more plan: behind the others, or the place of the one that was asked for longest ago. */
static struct oz_cuda_sdpa *place_for(struct oz_cuda *c)
{
    if (c->sdpa_count < OZ_CUDA_MOST_SDPA) {
        return &c->sdpa[c->sdpa_count++];
    }
    struct oz_cuda_sdpa *oldest = &c->sdpa[0];
    for (int32_t i = 1; i < c->sdpa_count; i++) {
        oldest = c->sdpa[i].asked < oldest->asked ? &c->sdpa[i] : oldest;
    }
    if (oldest->plan != NULL) {
        (void)cudaDeviceSynchronize(); /* it may still run */
        (void)cudnnBackendDestroyDescriptor(oldest->plan);
    }
    return oldest;
}

static struct oz_cuda_sdpa *find(struct oz_cuda *c, const struct oz_cuda_sdpa *wanted)
{
    for (int32_t i = 0; i < c->sdpa_count; i++) {
        struct oz_cuda_sdpa *s = &c->sdpa[i];
        if (s->queries == wanted->queries && s->keys == wanted->keys && s->heads == wanted->heads &&
            s->dim == wanted->dim) {
            return s;
        }
    }
    struct oz_cuda_sdpa *s = place_for(c);
    *s = *wanted;
    build(c, s);
    return s;
}

/* A device has one thread that launches, so that a plan stays until the next call. */
const struct oz_cuda_sdpa *oz_cuda_sdpa_find(struct oz_cuda *c, int64_t queries, int64_t keys,
                                             int32_t heads, int32_t dim)
{
    const struct oz_cuda_sdpa wanted = {
        .queries = queries, .keys = keys, .heads = heads, .dim = dim};
    pthread_mutex_lock(&c->lock);
    struct oz_cuda_sdpa *found = find(c, &wanted);
    found->asked = ++c->sdpa_asked;
    pthread_mutex_unlock(&c->lock);
    return found->plan != NULL ? found : NULL;
}

enum oz_status oz_cuda_sdpa_run(const struct oz_op_ctx *ctx, const struct oz_cuda_sdpa *s,
                                const struct oz_cuda_joined *j, float scale)
{
    struct oz_cuda *c = oz_cuda_of(ctx->dev);
    const int64_t uids[5] = {UID_Q, UID_K, UID_V, UID_O, UID_SCALE};
    void *pointers[5] = {j->q, j->k, j->v, j->out, &scale};
    void *workspace = oz_cuda_workspace_of(ctx->dev, ctx->queue);
    struct parts p = {.status = cudnnSetStream(c->dnn, oz_cuda_stream_of(ctx->dev, ctx->queue))};
    cudnnBackendDescriptor_t pack = make(&p, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&p, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 5, uids);
    set(&p, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 5, pointers);
    set(&p, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finalize(&p, pack);
    if (p.status == CUDNN_STATUS_SUCCESS) {
        p.status = cudnnBackendExecute(c->dnn, s->plan, pack);
    }
    if (pack != NULL) {
        (void)cudnnBackendDestroyDescriptor(pack);
    }
    if (p.status != CUDNN_STATUS_SUCCESS) {
        oz_log(OZ_LOG_ERROR, "dispatch", "cuDNN's attention failed: %s.",
               cudnnGetErrorString(p.status));
        return OZ_ERR_DEVICE;
    }
    return OZ_OK;
}

void oz_cuda_sdpa_close(struct oz_cuda *c)
{
    for (int32_t i = 0; i < c->sdpa_count; i++) {
        if (c->sdpa[i].plan != NULL) {
            (void)cudnnBackendDestroyDescriptor(c->sdpa[i].plan);
        }
    }
    if (c->dnn != NULL) {
        (void)cudnnDestroy(c->dnn);
    }
}
