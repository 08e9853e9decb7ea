/* cuda/host/cuda.h: the CUDA device as its own files know it. */
#ifndef OZ_CUDA_HOST_CUDA_H
#define OZ_CUDA_HOST_CUDA_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

#include "base/error.h"
#include "cuda/launch/launch.h"
#include "dev/backends.h"
#include "dev/device.h"
#include "dev/ops.h"

/* Of the vendor's libraries, taken when the device is opened: engine constants, not scratch. */
#define OZ_CUDA_WORKSPACE_BYTES (INT64_C(64) << 20)
#define OZ_CUDA_MOST_ALGOS 512
#define OZ_CUDA_MOST_SDPA 256
#define OZ_CUDA_MOST_CONVS 256

/* Attention of one length by cuDNN. */
struct oz_cuda_sdpa {
    int64_t queries, keys;
    int32_t heads, dim;
    uint64_t asked; /* when last, counted */
    void *plan;     /* NULL: cuDNN has none */
};

/* A convolution of one frame by cuDNN. */
struct oz_cuda_conv {
    int32_t height, width, in, out, kh, kw, stride;
    int32_t pad_top, pad_bottom, pad_left, pad_right;
    bool adds, half_out; /* a residual; out and residual are bf16, else f32 */
    void *plan;          /* NULL: cuDNN has none */
};

/* Biases in bf16 (halves.c). */
#define OZ_CUDA_HALVES_BYTES ((size_t)8 << 20)
#define OZ_CUDA_MOST_HALVES 2048
struct oz_cuda_half {
    const void *from; /* f32 [count], device; NULL: free */
    int64_t count;
    void *to;
    bool valid; /* nobody has written to `from` since */
};
struct oz_cuda_halves {
    pthread_mutex_t lock;
    uint8_t *room;
    size_t used;
    struct oz_cuda_half list[OZ_CUDA_MOST_HALVES];
};

/* A sequence of so many rows has few: its products have an algorithm of their own. */
#define OZ_CUDA_FEW_ROWS 256

/* One product's algorithm: chosen once for a layer's shape, used for any number of rows. */
struct oz_cuda_algo {
    int64_t n, k;
    int32_t x_type, w_type, y_type; /* cudaDataType_t */
    int32_t kind;                   /* transposition, scales, what is fused, few rows */
    bool none;                      /* cuBLASLt has no such product */
    bool from_file, passing;        /* not checked yet; of a picture's size, not of a layer */
    cublasLtMatmulAlgo_t algo;
};

struct oz_queue {
    cudaStream_t stream;
    void *
        workspace; /* of the vendor's libraries; NULL: a queue for transfers, or the device's own */
};

struct oz_cuda {
    struct oz_device dev;
    char name[16], tier[16];
    int index;
    int sm;               /* 90 */
    bool vendor_only;     /* OZ_DEVICE_LINEAR_VENDOR: no product by a kernel of ours */
    bool untried;         /* OUNCE_UNTRIED: also what has not run on any card yet */
    cudaStream_t stream;  /* the default queue */
    struct oz_queue side; /* for small work beside it: its blocks go first */
    cublasLtHandle_t lt;
    void *workspace;
    pthread_mutex_t lock; /* of algos */
    bool algos_read, algos_changed;
    int32_t algo_count;
    struct oz_cuda_algo algos[OZ_CUDA_MOST_ALGOS];
    struct cudnnContext *dnn; /* NULL until it is needed */
    int32_t sdpa_count;
    uint64_t sdpa_asked;
    struct oz_cuda_sdpa sdpa[OZ_CUDA_MOST_SDPA];
    int32_t conv_count;
    struct oz_cuda_conv convs[OZ_CUDA_MOST_CONVS];
    struct oz_cuda_halves halves;
    struct oz_cuda_pinned *pinned; /* large pieces; under the lock */
};

struct oz_event {
    cudaEvent_t event;
};

static inline struct oz_cuda *oz_cuda_of(const struct oz_device *dev)
{
    return dev->impl;
}

static inline cudaStream_t oz_cuda_stream_of(const struct oz_device *dev,
                                             const struct oz_queue *queue)
{
    return queue != NULL ? queue->stream : oz_cuda_of(dev)->stream;
}

/* Queues compute beside one another, each with a workspace. */
static inline void *oz_cuda_workspace_of(const struct oz_device *dev, const struct oz_queue *queue)
{
    return queue != NULL && queue->workspace != NULL ? queue->workspace
                                                     : oz_cuda_of(dev)->workspace;
}

/* The services of the core; set before anything else runs (plugin.c). */
extern const struct oz_backend_host *oz_cuda_host;

/* OZ_OK, or OZ_ERR_DEVICE with a log line: what the operators say of a launch. */
OZ_MUST_USE enum oz_status oz_cuda_check(const struct oz_device *dev, const char *what, int error);
/* The same into an error: what everything else says. */
OZ_MUST_USE enum oz_status oz_cuda_report(const struct oz_device *dev, const char *what, int error,
                                          struct oz_error *err);

/* device.c */
/* Every thread of the host has a current device of its own; OZ_ERR_DEVICE also where it was opened for
 * planning only. */
OZ_MUST_USE enum oz_status oz_cuda_choose(struct oz_device *dev, struct oz_error *err);
OZ_MUST_USE enum oz_status oz_cuda_open(struct oz_device **out, int32_t index, uint32_t flags,
                                        struct oz_pool *pool, struct oz_error *err);
OZ_MUST_USE enum oz_status oz_cuda_present(struct oz_error *err);
bool oz_cuda_is_tried(int sm); /* have the kernels run on that architecture? */

/* describe.c */
struct oz_kernel_report;
void oz_cuda_describe(struct oz_device *dev, const struct oz_kernel_report *report);

/* plan.c: plan_param, act_support, pack_band. */
enum oz_cuda_kind {
    OZ_CUDA_GEMM_BF16,   /* plain bf16 planes */
    OZ_CUDA_GEMM_F32,    /* any weight, decoded to f32 where it is not */
    OZ_CUDA_DECODE_BF16, /* decoded to bf16: exactly where the codec allows, else rounded */
    OZ_CUDA_FP8,         /* e4m3 by e4m3 */
    OZ_CUDA_INT8,        /* s8 by s8 */
    OZ_CUDA_CONV_BF16,
    OZ_CUDA_CONV_F32,
    OZ_CUDA_EMBED,
    OZ_CUDA_VECTOR,
};
struct oz_param_plan {
    enum oz_cuda_kind kind;
    const char *kernel;
};
struct oz_act_support oz_cuda_act_support(const struct oz_device *dev);
OZ_MUST_USE enum oz_status oz_cuda_plan_param(struct oz_device *dev, const struct oz_param *param,
                                              const struct oz_plan_request *request,
                                              struct oz_plan_answer *answer, struct oz_error *err);
OZ_MUST_USE enum oz_status oz_cuda_pack_band(struct oz_device *dev, struct oz_queue *queue,
                                             struct oz_param *param, int64_t slice, int64_t row0,
                                             int64_t rows, const struct oz_weight *band,
                                             struct oz_error *err);
/* The kind of a weight for rows of a spec; a parameter that nobody planned has one too. */
enum oz_cuda_kind oz_cuda_kind_of(const struct oz_device *dev, const struct oz_weight *w,
                                  const struct oz_act_spec *x, enum oz_param_use use);
/* A weight as kernels decode it; false: its codec is not known here. */
bool oz_cuda_weight_of(const struct oz_weight *w, struct oz_cuda_weight *out);
/* Are its scales one for each row, or one in all? Then they can wait for the sums. */
bool oz_cuda_scales_wait(const struct oz_weight *w);

/*
 * gemm.c: y [m, n] = x [m, k] w [n, k]^T; with w_by_k w is [k, n]. Strides in elements. Then, where asked
 * for, times x_scales[row] w_scales[feature] (of e4m3), plus `add`, plus bias, through gelu (tanh).
 */
struct oz_cuda_gemm {
    int64_t m, n, k;
    const void *x, *w;
    void *y;
    int64_t x_stride, w_stride, y_stride;
    enum oz_dtype x_dtype, w_dtype, y_dtype; /* F32, BF16, F8_E4M3, I8; y: F32, BF16, I32 */
    bool w_by_k;
    bool unique;      /* a shape that a picture's size makes: its algorithm is not timed */
    bool few;         /* the algorithm for few rows; oz_cuda_gemm_run sets it */
    const void *bias; /* [n]; NULL: none */
    bool half_bias;   /* it is bf16; else f32 */
    bool gelu;
    const float *x_scales, *w_scales; /* f32 [m], [n]; NULL: none */
    float *scale_room; /* f32 [m]: scales of rows that begin inside 16 bytes move here */
    const void *add;   /* as y, with its stride; may be y itself; NULL: none */
};
/* Has cuBLASLt an algorithm for it? */
bool oz_cuda_gemm_can(const struct oz_device *dev, const struct oz_cuda_gemm *g);
/* sequences: of the rows; NULL: each row is one. */
OZ_MUST_USE enum oz_status oz_cuda_gemm_run(const struct oz_op_ctx *ctx,
                                            const struct oz_cuda_gemm *g,
                                            const struct oz_ragged *sequences);
bool oz_cuda_few_rows(int64_t rows);
/* Sequences from s up to the one given have few rows, all of them, or many: *few. s < count. */
int32_t oz_cuda_class_end(const struct oz_ragged *r, int32_t s, bool *few);

/* sdpa.c: attention without masks of one sequence, whose rows have been joined. */
struct oz_cuda_joined {
    void *q, *k, *v, *out; /* bf16 [rows, heads * head_dim] */
};
/* For so many rows; NULL: there is no such plan. */
const struct oz_cuda_sdpa *oz_cuda_sdpa_find(struct oz_cuda *c, int64_t queries, int64_t keys,
                                             int32_t heads, int32_t dim);
OZ_MUST_USE enum oz_status oz_cuda_sdpa_run(const struct oz_op_ctx *ctx,
                                            const struct oz_cuda_sdpa *s,
                                            const struct oz_cuda_joined *j, float scale);
void oz_cuda_sdpa_close(struct oz_cuda *c);

/* halves.c: a bias in bf16, kept from earlier calls or, where there is no room to keep it, made in `own`
 * (bf16 [n]). */
OZ_MUST_USE enum oz_status oz_cuda_half_of(const struct oz_op_ctx *ctx, const struct oz_param *b,
                                           void *own, const void **half);
/* Somebody writes to this memory. */
void oz_cuda_halves_forget(struct oz_cuda *c, const void *memory, size_t bytes);

/* pinned.c: alloc_host and free_host of a device. */
OZ_MUST_USE enum oz_status oz_cuda_pin(struct oz_device *dev, size_t bytes, void **out,
                                       struct oz_error *err);
void oz_cuda_unpin(struct oz_device *dev, void *memory);

/* encode.c: of the operator table. */
const char *oz_cuda_row_encoder(const struct oz_device *dev, const struct oz_codec *codec,
                                enum oz_dtype stored);
OZ_MUST_USE enum oz_status oz_cuda_encode_rows(struct oz_device *dev, struct oz_queue *queue,
                                               const struct oz_encode_rows_args *a,
                                               struct oz_error *err);
OZ_MUST_USE enum oz_status oz_cuda_draw(struct oz_device *dev, struct oz_queue *queue,
                                        const struct oz_draw_args *a, struct oz_error *err);

/* conv_dnn.c: the convolution where cuDNN takes it; false in *done: nothing has been done. */
OZ_MUST_USE enum oz_status oz_cuda_conv_dnn(const struct oz_op_ctx *ctx,
                                            const struct oz_conv_args *a, bool *done);
void oz_cuda_conv_close(struct oz_cuda *c);

/* linear.c, conv.c, attention.c, ops.c: scratch and run of one operator. */
size_t oz_cuda_scratch_linear(const struct oz_device *dev, const struct oz_linear_args *a);
OZ_MUST_USE enum oz_status oz_cuda_linear(const struct oz_op_ctx *ctx,
                                          const struct oz_linear_args *a);
size_t oz_cuda_scratch_time_embed(const struct oz_device *dev, const struct oz_time_embed_args *a);
OZ_MUST_USE enum oz_status oz_cuda_time_embed(const struct oz_op_ctx *ctx,
                                              const struct oz_time_embed_args *a);
size_t oz_cuda_scratch_conv(const struct oz_device *dev, const struct oz_conv_args *a);
OZ_MUST_USE enum oz_status oz_cuda_conv(const struct oz_op_ctx *ctx, const struct oz_conv_args *a);
size_t oz_cuda_scratch_attention(const struct oz_device *dev, const struct oz_attention_args *a);
OZ_MUST_USE enum oz_status oz_cuda_attention(const struct oz_op_ctx *ctx,
                                             const struct oz_attention_args *a);
extern const struct oz_op_table oz_cuda_operators;

/* ---- scratch ---- */

/* Adds room for rows * cols elements of `size` bytes and gives its offset; *total becomes SIZE_MAX on
 * overflow and stays so. */
size_t oz_cuda_reserve(size_t *total, int64_t rows, int64_t cols, size_t size);

static inline void *oz_cuda_at(const struct oz_op_ctx *ctx, size_t offset)
{
    return (uint8_t *)ctx->scratch + offset;
}

/* ---- rows and parameters ---- */

/* F32 or BF16 with nothing to apply. */
static inline bool oz_cuda_plain(const struct oz_act_spec *s)
{
    return (s->dtype == OZ_DTYPE_F32 || s->dtype == OZ_DTYPE_BF16) && s->scale_count == 0 &&
           s->smooth == NULL && s->static_scale == NULL;
}

/* Does a format's second scale span the sequence? Such rows are quantized apart. */
static inline bool oz_cuda_spans_sequence(const struct oz_act_spec *s)
{
    return s->scale_count == 2 && s->scale[1].group_cols == 0 && !s->second_by_row;
}

/* Why rows in this format are not known here, or NULL. */
const char *oz_cuda_act_problem(const struct oz_act_spec *spec);

static inline bool oz_cuda_exists(const struct oz_param *p)
{
    return p != NULL && p->name != NULL;
}

/* The f32 values of a vector; NULL when absent. */
static inline const float *oz_cuda_vector(const struct oz_param *p)
{
    return oz_cuda_exists(p) ? p->weight.planes[OZ_PLANE_CODES].data : NULL;
}

static inline struct oz_cuda_mod oz_cuda_mod_of(const struct oz_mod *m)
{
    struct oz_cuda_mod out = {0};
    if (m->table != NULL) {
        out.data = (const float *)m->table->data + m->col;
        out.stride = m->table->stride;
    }
    return out;
}

static inline int64_t oz_cuda_round(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

#endif
