/*
 * Products, by cuBLASLt. Row-major y = x w^T is column-major y^T = w x^T: the weight is A, the rows are
 * B. A layer has two algorithms (algo.c): one for sequences of few rows and one for the others, each
 * chosen once and used for any number of rows; sums over K are never split. So a row's bytes depend on
 * its own sequence alone (tests/gpu compares them).
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cuda/host/gemm.h"

#define MOST_FAST_K 4096

static cudaDataType_t type_of(enum oz_dtype dtype)
{
    switch (dtype) {
    case OZ_DTYPE_BF16: return CUDA_R_16BF;
    case OZ_DTYPE_F8_E4M3: return CUDA_R_8F_E4M3;
    case OZ_DTYPE_I8: return CUDA_R_8I;
    case OZ_DTYPE_I32: return CUDA_R_32I;
    default: return CUDA_R_32F;
    }
}

static void set(struct oz_cuda_problem *p, cublasStatus_t *s, cublasLtMatmulDescAttributes_t name,
                const void *value, size_t bytes)
{
    if (*s == CUBLAS_STATUS_SUCCESS) {
        *s = cublasLtMatmulDescSetAttribute(&p->op, name, value, bytes);
    }
}

/*
 * Sums of e4m3 products in the tensor core's own accumulator, of about 14 bits, all the way: 10 to 20 % less
 * time. On random data it moves results by 1.4e-3 at K = 3072 and 1.0e-2 at 12288 (relative L2), beside
 * 3.7e-2 that e4m3 itself costs: so only where K is moderate. Elsewhere sums move to f32 every 128.
 */
static bool sums_fast(const struct oz_cuda_gemm *g)
{
    return g->x_dtype == OZ_DTYPE_F8_E4M3 && g->k <= MOST_FAST_K;
}

/* Bias, gelu, scales of rows and features. */
static void set_ends(const struct oz_cuda_gemm *g, struct oz_cuda_problem *p, cublasStatus_t *s)
{
    cublasLtEpilogue_t epilogue = g->gelu && g->bias != NULL ? CUBLASLT_EPILOGUE_GELU_BIAS
                                  : g->gelu                  ? CUBLASLT_EPILOGUE_GELU
                                  : g->bias != NULL          ? CUBLASLT_EPILOGUE_BIAS
                                                             : CUBLASLT_EPILOGUE_DEFAULT;
    int32_t bias_type = g->half_bias ? CUDA_R_16BF : CUDA_R_32F;
    int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    int8_t fast = sums_fast(g);
    set(p, s, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
    set(p, s, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (g->bias != NULL) {
        set(p, s, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g->bias, sizeof g->bias);
        set(p, s, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type);
    }
    if (g->w_scales != NULL) {
        set(p, s, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode, sizeof mode);
        set(p, s, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode, sizeof mode);
        set(p, s, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &g->w_scales, sizeof g->w_scales);
        set(p, s, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &g->x_scales, sizeof g->x_scales);
    }
}

cublasStatus_t oz_cuda_gemm_set_up(const struct oz_cuda_gemm *g, int64_t m,
                                   struct oz_cuda_problem *p)
{
    cudaDataType_t w_type = type_of(g->w_dtype);
    cudaDataType_t x_type = type_of(g->x_dtype);
    cudaDataType_t y_type = type_of(g->y_dtype);
    bool integer = g->y_dtype == OZ_DTYPE_I32;
    cublasOperation_t transposed = g->w_by_k ? CUBLAS_OP_N : CUBLAS_OP_T;
    cublasStatus_t s =
        cublasLtMatmulDescInit(&p->op, integer ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                               integer ? CUDA_R_32I : CUDA_R_32F);
    set(p, &s, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    set_ends(g, p, &s);
    if (s == CUBLAS_STATUS_SUCCESS) {
        s = cublasLtMatrixLayoutInit(&p->w, w_type, (uint64_t)(g->w_by_k ? g->n : g->k),
                                     (uint64_t)(g->w_by_k ? g->k : g->n), g->w_stride);
    }
    if (s == CUBLAS_STATUS_SUCCESS) {
        s = cublasLtMatrixLayoutInit(&p->x, x_type, (uint64_t)g->k, (uint64_t)m, g->x_stride);
    }
    if (s == CUBLAS_STATUS_SUCCESS) {
        s = cublasLtMatrixLayoutInit(&p->y, y_type, (uint64_t)g->n, (uint64_t)m, g->y_stride);
    }
    p->key = (struct oz_cuda_algo){.n = g->n,
                                   .k = g->k,
                                   .x_type = (int32_t)x_type,
                                   .w_type = (int32_t)w_type,
                                   .y_type = (int32_t)y_type,
                                   .kind = (g->w_by_k ? 1 : 0) + (g->bias != NULL ? 2 : 0) +
                                           (g->gelu ? 4 : 0) + (g->w_scales != NULL ? 8 : 0) +
                                           (g->few ? 16 : 0) + (g->add != NULL ? 32 : 0) +
                                           (g->half_bias ? 64 : 0) + (sums_fast(g) ? 128 : 0)};
    return s;
}

cublasStatus_t oz_cuda_gemm_launch(struct oz_cuda *c, const struct oz_cuda_gemm *g,
                                   struct oz_cuda_problem *p, const cublasLtMatmulAlgo_t *algo,
                                   cudaStream_t stream, void *workspace)
{
    static const float one = 1;
    static const float zero = 0;
    static const int32_t one_integer = 1;
    static const int32_t zero_integer = 0;
    bool integer = g->y_dtype == OZ_DTYPE_I32;
    return cublasLtMatmul(c->lt, &p->op, integer ? (const void *)&one_integer : (const void *)&one,
                          g->w, &p->w, g->x, &p->x,
                          integer          ? (const void *)&zero_integer
                          : g->add != NULL ? (const void *)&one
                                           : (const void *)&zero,
                          g->add != NULL ? g->add : g->y, &p->y, g->y, &p->y, algo, workspace,
                          (size_t)OZ_CUDA_WORKSPACE_BYTES, stream);
}

bool oz_cuda_gemm_can(const struct oz_device *dev, const struct oz_cuda_gemm *g)
{
    struct oz_cuda_problem p;
    return oz_cuda_gemm_set_up(g, g->m, &p) == CUBLAS_STATUS_SUCCESS &&
           oz_cuda_find_algo(oz_cuda_of(dev), g, &p.key);
}

static enum oz_status run(const struct oz_op_ctx *ctx, const struct oz_cuda_gemm *g)
{
    struct oz_cuda *c = oz_cuda_of(ctx->dev);
    struct oz_cuda_problem p;
    if (g->m == 0 || g->n == 0) {
        return OZ_OK;
    }
    cublasStatus_t s = oz_cuda_gemm_set_up(g, g->m, &p);
    if (s == CUBLAS_STATUS_SUCCESS && !oz_cuda_find_algo(c, g, &p.key)) {
        oz_log(OZ_LOG_ERROR, "dispatch",
               "cuBLASLt has no algorithm for n %lld, k %lld, %s by %s to %s.", (long long)g->n,
               (long long)g->k, oz_dtype_name(g->x_dtype), oz_dtype_name(g->w_dtype),
               oz_dtype_name(g->y_dtype));
        return OZ_ERR_UNSUPPORTED;
    }
    if (s == CUBLAS_STATUS_SUCCESS) {
        s = oz_cuda_gemm_launch(c, g, &p, &p.key.algo, oz_cuda_stream_of(ctx->dev, ctx->queue),
                                oz_cuda_workspace_of(ctx->dev, ctx->queue));
    }
    if (s != CUBLAS_STATUS_SUCCESS) {
        oz_log(OZ_LOG_ERROR, "dispatch", "cuBLASLt failed at m %lld, n %lld, k %lld: %s (%s).",
               (long long)g->m, (long long)g->n, (long long)g->k, cublasLtGetStatusName(s),
               cudaGetErrorName(cudaPeekAtLastError()));
        return OZ_ERR_DEVICE;
    }
    return OZ_OK;
}

/* Rows [first, end) of a product, as one of a class. */
static struct oz_cuda_gemm part(const struct oz_cuda_gemm *g, int64_t first, int64_t end, bool few)
{
    struct oz_cuda_gemm p = *g;
    p.m = end - first;
    p.few = few;
    p.x = (const uint8_t *)g->x + first * g->x_stride * (oz_dtype_bits(g->x_dtype) / 8);
    p.y = (uint8_t *)g->y + first * g->y_stride * (oz_dtype_bits(g->y_dtype) / 8);
    p.x_scales = g->x_scales != NULL ? g->x_scales + first : NULL;
    if (g->add != NULL) {
        p.add = (const uint8_t *)g->add + first * g->y_stride * (oz_dtype_bits(g->y_dtype) / 8);
    }
    return p;
}

/* cuBLASLt reads scales of rows 16 bytes at a time: those of a part may begin in between. */
static enum oz_status align_scales(const struct oz_op_ctx *ctx, struct oz_cuda_gemm *g)
{
    if (g->x_scales == NULL || (uintptr_t)g->x_scales % 16 == 0 || g->m == 0) {
        return OZ_OK;
    }
    int error =
        (int)cudaMemcpyAsync(g->scale_room, g->x_scales, (size_t)g->m * sizeof(float),
                             cudaMemcpyDeviceToDevice, oz_cuda_stream_of(ctx->dev, ctx->queue));
    g->x_scales = g->scale_room;
    return oz_cuda_check(ctx->dev, "moving the scales of rows", error);
}

static bool few_rows(const struct oz_ragged *r, int32_t s)
{
    return oz_cuda_few_rows(r->offsets[s + 1] - r->offsets[s]);
}

bool oz_cuda_few_rows(int64_t rows)
{
    return rows <= OZ_CUDA_FEW_ROWS;
}

int32_t oz_cuda_class_end(const struct oz_ragged *r, int32_t s, bool *few)
{
    *few = few_rows(r, s);
    do {
        s++;
    } while (s < r->count && few_rows(r, s) == *few);
    return s;
}

enum oz_status oz_cuda_gemm_run(const struct oz_op_ctx *ctx, const struct oz_cuda_gemm *g,
                                const struct oz_ragged *sequences)
{
    if (sequences == NULL) { /* each row is a sequence of its own */
        struct oz_cuda_gemm all = part(g, 0, g->m, true);
        return run(ctx, &all);
    }
    const int32_t *offsets = sequences->offsets;
    for (int32_t s = 0; s < sequences->count;) {
        bool few;
        const int32_t end = oz_cuda_class_end(sequences, s, &few);
        struct oz_cuda_gemm one = part(g, offsets[s], offsets[end], few);
        OZ_TRY(align_scales(ctx, &one));
        OZ_TRY(run(ctx, &one));
        s = end;
    }
    return OZ_OK;
}
