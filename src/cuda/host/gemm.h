/* cuda/host/gemm.h: one product as cuBLASLt sees it; between gemm.c and algo.c. */
#ifndef OZ_CUDA_HOST_GEMM_H
#define OZ_CUDA_HOST_GEMM_H

#include "cuda/host/cuda.h"

/* Descriptors of one product: no heap behind them. */
struct oz_cuda_problem {
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t w, x, y;
    struct oz_cuda_algo key;
};

/* Of m rows of g; fills the key too, but for the algorithm. */
cublasStatus_t oz_cuda_gemm_set_up(const struct oz_cuda_gemm *g, int64_t m,
                                   struct oz_cuda_problem *p);
cublasStatus_t oz_cuda_gemm_launch(struct oz_cuda *c, const struct oz_cuda_gemm *g,
                                   struct oz_cuda_problem *p, const cublasLtMatmulAlgo_t *algo,
                                   cudaStream_t stream, void *workspace);

/* algo.c: is there an algorithm for g? Chosen once for each kind of product; *key has its names. */
bool oz_cuda_find_algo(struct oz_cuda *c, const struct oz_cuda_gemm *g, struct oz_cuda_algo *key);
/* algo_file.c: what earlier runs chose, if there is a file of it. */
void oz_cuda_read_algos(struct oz_cuda *c);
/* Keeps what was chosen by timing for later runs; nothing happens where there is no place for it. */
void oz_cuda_keep_algos(struct oz_cuda *c);

#endif
