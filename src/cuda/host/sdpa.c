/*
 * Long attention without masks, by cuDNN's one operation for it. A plan belongs to the very numbers of
 * queries and keys, is made when they are first met and kept; of the oldest ones when there are too many
 * it lets go. (Measured with cuDNN 9.19 on an H200: the operation that is told lengths, which would
 * let a plan serve many of them, and the graph of two products and a softmax are both refused there.)
 */
#include "base/log.h"
#include "cuda/host/dnn.h"

enum uid { UID_Q = 1, UID_K, UID_V, UID_O, UID_SCALE };

/* Rows [rows, heads * dim] as [1, heads, rows, dim]. */
static cudnnBackendDescriptor_t rows_tensor(struct oz_dnn_parts *p, int64_t uid, int64_t heads,
                                            int64_t rows, int64_t dim)
{
    const int64_t dims[4] = {1, heads, rows, dim};
    const int64_t strides[4] = {rows * heads * dim, dim, heads * dim, 1};
    return oz_dnn_tensor(p, uid, CUDNN_DATA_BFLOAT16, dims, strides, OZ_DNN_IN_MEMORY);
}

static cudnnBackendDescriptor_t graph_of(struct oz_dnn_parts *p, cudnnHandle_t handle,
                                         const void *shape)
{
    const struct oz_cuda_sdpa *s = shape;
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
         oz_dnn_tensor(p, UID_SCALE, CUDNN_DATA_FLOAT, one, one, OZ_DNN_BY_VALUE)},
    };
    cudnnBackendDescriptor_t op = oz_dnn_make(p, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
    size_t count = sizeof links / sizeof *links;
    for (size_t i = 0; i < count; i++) {
        oz_dnn_set(p, op, links[i].name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &links[i].tensor);
    }
    oz_dnn_finalize(p, op);
    return oz_dnn_graph(p, handle, &op, 1);
}

static void build(struct oz_cuda *c, struct oz_cuda_sdpa *s)
{
    cudnnStatus_t status;
    const char *stage;
    s->plan = oz_dnn_plan(c, graph_of, s, &status, &stage);
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
    const int64_t uids[5] = {UID_Q, UID_K, UID_V, UID_O, UID_SCALE};
    void *pointers[5] = {j->q, j->k, j->v, j->out, &scale};
    cudnnStatus_t status = oz_dnn_run(ctx, s->plan, 5, uids, pointers);
    if (status != CUDNN_STATUS_SUCCESS) {
        oz_log(OZ_LOG_ERROR, "dispatch", "cuDNN's attention failed: %s.",
               cudnnGetErrorString(status));
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
