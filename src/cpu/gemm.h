/*
 * cpu/gemm.h: packed matrix products. A micro-kernel multiplies a few rows by one panel of packed
 * weight columns; the driver cuts the product into tasks, keeps a tile of sums in the cache, and
 * hands finished tiles to an epilogue.
 *
 * Order of sums: every output element has one accumulator, and K runs from first to last (in steps
 * of kr products that the instruction sums). So an element's bytes depend on its row and its weight
 * column alone: not on M, the blocking, the number of rows in a call, or threads.
 *
 * Packed weights: panels of nr output features, panel after panel; within a panel
 * [k_padded / kr][nr][kr] elements, K padded with zeros to a multiple of k_multiple, features padded
 * with zeros to nr.
 */
#ifndef OZ_CPU_GEMM_H
#define OZ_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/kernel.h"
#include "dev/ops.h"

/* What the epilogue of linear and conv does with a tile of sums. Vectors are f32, NULL: absent. */
struct oz_gemm_epilogue {
    const float *bias, *up_bias; /* [n] */
    enum oz_fn fn;
    const struct oz_mod *gate; /* linear with a residual */
    const int32_t *mod_index;
    struct oz_act *residual;  /* linear: += gate y in place */
    const struct oz_act *add; /* conv: + add before fn; may be out */
    struct oz_act *out;
};

struct oz_gemm_kernel {
    int32_t mr, nr, kr, k_multiple;
    enum oz_dtype a_dtype; /* F32 or BF16: the rows that it reads */
    int32_t k_block;       /* multiple of k_multiple; a panel's block stays in the first cache */

    /* c[rows, nr] (ldc apart) = or += a[rows, k] b. rows in 1..mr, k a multiple of kr (of k_multiple
     * where that is larger). a: lda elements between rows. b: a panel from its k-th element. */
    void (*run)(int64_t rows, int64_t k, const void *a, int64_t lda, const void *b, float *c,
                int64_t ldc, bool first);
    /* The same with panels stored in bf16 where run reads f32; and their decoding, `count` elements.
     * NULL where run reads bf16 itself. */
    void (*run_bf16)(int64_t rows, int64_t k, const void *a, int64_t lda, const void *b, float *c,
                     int64_t ldc, bool first);
    void (*decode)(const uint16_t *src, int64_t count, float *dst);
    /* Rows [0, rows) of sums y (and of the second product, or NULL), ld apart, at row0, col0. May
     * change y and up. */
    void (*store)(const struct oz_gemm_epilogue *e, int64_t row0, int64_t rows, int64_t col0,
                  int64_t cols, float *y, float *up, int64_t ld);
    /* f32 to what a_dtype says, for gathered rows. */
    void (*convert)(const float *src, int64_t count, void *dst);
};

/* A parameter's plan: the kernel that its packed form is for. */
struct oz_param_plan {
    const struct oz_cpu_kernel *kernel;
    enum oz_dtype stored; /* of packed elements: F32 or BF16 */
};

/* Rows of A that must be gathered: rows [row0, row0 + rows), k_padded elements each in the kernel's
 * a_dtype, ld apart. `room` is a row of f32. */
typedef void (*oz_gemm_fetch_fn)(const void *ctx, const struct oz_gemm_kernel *g, int64_t row0,
                                 int64_t rows, void *dst, int64_t ld, float *room);

struct oz_gemm {
    const struct oz_gemm_kernel *kernel;
    int64_t m, n, k;
    enum oz_dtype stored;
    const void *packed, *packed_up; /* packed_up may be NULL */
    const void *a;                  /* rows as they lie, in a_dtype, lda apart; or */
    int64_t lda;
    oz_gemm_fetch_fn fetch; /* gathered rows (then a is not read) */
    const void *fetch_ctx;
    const struct oz_gemm_epilogue *epilogue;
};

static inline int64_t oz_gemm_pad(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* Bytes of a packed [n, k] weight; SIZE_MAX when that overflows. */
size_t oz_gemm_packed_bytes(const struct oz_gemm_kernel *g, enum oz_dtype stored, int64_t n,
                            int64_t k);

/* Packs rows [row0, row0 + rows) of a weight into place; row0 is a multiple of nr, and a last band
 * writes its panel's padding. Decodes through the weight's codec where stored is F32; BF16 needs a
 * bf16 weight. */
void oz_gemm_pack(const struct oz_gemm_kernel *g, enum oz_dtype stored, const struct oz_weight *w,
                  int64_t slice, int64_t row0, int64_t rows, void *packed);

/* Scratch that a product takes; then the product. */
size_t oz_gemm_scratch(const struct oz_device *dev, const struct oz_gemm *p);
void oz_gemm_run(const struct oz_op_ctx *ctx, const struct oz_gemm *p);

/* linear and conv over a micro-kernel: what `scratch`, `reject` and `run` of their list entries
 * call. */
size_t oz_gemm_linear_scratch(const struct oz_device *dev, const struct oz_linear_args *a,
                              const struct oz_cpu_kernel *k);
const char *oz_gemm_linear_reject(const struct oz_linear_args *a, const struct oz_cpu_kernel *k);
OZ_MUST_USE enum oz_status oz_gemm_linear(const struct oz_op_ctx *ctx,
                                          const struct oz_linear_args *a,
                                          const struct oz_cpu_kernel *k);
size_t oz_gemm_conv_scratch(const struct oz_device *dev, const struct oz_conv_args *a,
                            const struct oz_cpu_kernel *k);
const char *oz_gemm_conv_reject(const struct oz_conv_args *a, const struct oz_cpu_kernel *k);
OZ_MUST_USE enum oz_status oz_gemm_conv(const struct oz_op_ctx *ctx, const struct oz_conv_args *a,
                                        const struct oz_cpu_kernel *k);

#endif
