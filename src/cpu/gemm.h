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

struct oz_tile_kernel;

#define OZ_GEMM_FEW 12 /* rows of run_few, at most */

/*
 * A micro-kernel. `rows` below is in 1..mr; k is a multiple of kr, of k_multiple where that is
 * larger. With row_multiple > 1 rows up to the next multiple of it are read and written too.
 */
struct oz_gemm_kernel {
    int32_t mr, nr, kr, k_multiple, row_multiple;
    enum oz_dtype a_dtype; /* F32 or BF16: the rows that it is given */
    bool widen_a;          /* a_dtype is BF16 and run reads f32: the driver widens with decode */
    int32_t k_block;       /* multiple of k_multiple; a panel's block stays in the first cache */
    int32_t row_block;     /* rows of a task, at most; a multiple of mr */

    /* c[rows, nr] (ldc apart) = or += a[rows, k] b. a: lda elements between rows. b: a panel from its
     * k-th element. */
    void (*run)(int64_t rows, int64_t k, const void *a, int64_t lda, const void *b, float *c,
                int64_t ldc, bool first);
    /* The same with panels stored in bf16 where run reads f32. NULL where run reads bf16 itself. */
    void (*run_bf16)(int64_t rows, int64_t k, const void *a, int64_t lda, const void *b, float *c,
                     int64_t ldc, bool first);
    /* The same for few_panels[rows] neighbouring panels at once (0: not for so many rows), for panels
     * that stream from memory. Panel j is b_step bytes behind panel j - 1, its sums c_step elements.
     * `stored` says what run and run_bf16 say in two functions. */
    int32_t few_panels[OZ_GEMM_FEW + 1];
    void (*run_few)(int64_t rows, int64_t k, const void *a, int64_t lda, const void *b,
                    int64_t b_step, float *c, int64_t ldc, int64_t c_step, bool first,
                    enum oz_dtype stored);
    /* bf16 to f32, any count. NULL where run reads bf16 itself. */
    void (*decode)(const uint16_t *src, int64_t count, float *dst);
    /* Rows [0, rows) of sums y (and of the second product, or NULL), ld apart, at row0, col0. May
     * change y and up. */
    void (*store)(const struct oz_gemm_epilogue *e, int64_t row0, int64_t rows, int64_t col0,
                  int64_t cols, float *y, float *up, int64_t ld);
    /* Gathered f32 values as run reads them, rounded to a_dtype; NULL: as they are. With widen_a the
     * result is f32 too, and may be src itself. */
    void (*convert)(const float *src, int64_t count, void *dst);
    /* Around each task, on its thread; may be NULL. */
    void (*begin)(void);
    void (*end)(void);
    const struct oz_tile_kernel
        *tiles; /* for large products (cpu/tiles.h), the same sums; or NULL */
};

/* A parameter's plan: the kernel that its packed form is for. */
struct oz_param_plan {
    const struct oz_cpu_kernel *kernel;
    enum oz_dtype stored; /* of packed elements: F32 or BF16 */
    bool decodes;         /* nothing is packed: panels are decoded from the planes band by band */
    bool panels;          /* packed as cpu/qgemm.h says, for any kernel that reads such panels */
};

/* Columns [k0, k0 + count) of gathered rows [row0, row0 + rows) of A, in f32, ld apart. */
typedef void (*oz_gemm_fetch_fn)(const void *ctx, int64_t row0, int64_t rows, int64_t k0,
                                 int64_t count, float *dst, int64_t ld);

struct oz_pool;

struct oz_gemm {
    const struct oz_gemm_kernel *kernel;
    int64_t m, n, k;
    enum oz_dtype stored;
    const void *packed, *packed_up; /* packed_up may be NULL */
    const void *a;                  /* rows as they lie, in a_dtype, lda apart; or */
    int64_t lda;
    oz_gemm_fetch_fn fetch; /* gathered rows (then a is not read) */
    const void *fetch_ctx;
    /* Sums of integers get their scales before the epilogue: y = row_scales[m] (col_scales[n] sum).
     * NULL, all of them: no. */
    const float *row_scales, *col_scales, *up_col_scales;
    const struct oz_gemm_epilogue *epilogue;
};

static inline int64_t oz_gemm_pad(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* Bytes of a packed [n, k] weight; SIZE_MAX when that overflows. */
size_t oz_gemm_packed_bytes(const struct oz_gemm_kernel *g, enum oz_dtype stored, int64_t n,
                            int64_t k);

/* Bytes of one panel of a weight of depth k. */
size_t oz_gemm_panel_bytes(const struct oz_gemm_kernel *g, enum oz_dtype stored, int64_t k);

static inline size_t oz_gemm_element_bytes(enum oz_dtype dtype)
{
    return dtype == OZ_DTYPE_F32 ? 4 : 2;
}

/* Packs rows [row0, row0 + rows) of a weight into place, panels shared out over the pool (may be
 * NULL); row0 is a multiple of nr, and a last band writes its panel's padding. Decodes through the
 * weight's codec where stored is F32; BF16 needs a bf16 weight. */
void oz_gemm_pack(struct oz_pool *pool, const struct oz_gemm_kernel *g, enum oz_dtype stored,
                  const struct oz_weight *w, int64_t slice, int64_t row0, int64_t rows,
                  void *packed);

/* Scratch that a product takes; then the product. */
size_t oz_gemm_scratch(const struct oz_device *dev, const struct oz_gemm *p);
void oz_gemm_run(const struct oz_op_ctx *ctx, const struct oz_gemm *p);

/* Large products over tiles: gemm_tiles.c. Does this one run so? Shapes alone decide. */
bool oz_gemm_tiled(const struct oz_gemm *p);
size_t oz_gemm_tiles_scratch(const struct oz_device *dev, const struct oz_gemm *p);
void oz_gemm_tiles_run(const struct oz_op_ctx *ctx, const struct oz_gemm *p);

/* linear and conv over a micro-kernel: what `scratch`, `reject` and `run` of their list entries
 * call. */
size_t oz_gemm_linear_scratch(const struct oz_device *dev, const struct oz_linear_args *a,
                              const struct oz_cpu_kernel *k);
const char *oz_gemm_linear_reject(const struct oz_linear_args *a, const struct oz_cpu_kernel *k);
OZ_MUST_USE enum oz_status oz_gemm_linear(const struct oz_op_ctx *ctx,
                                          const struct oz_linear_args *a,
                                          const struct oz_cpu_kernel *k);
/* Of linear's arguments; why an output is not written here, or NULL. */
struct oz_gemm_epilogue oz_gemm_linear_epilogue(const struct oz_linear_args *a);
const char *oz_gemm_out_reject(const struct oz_act *out);
/* The same of weights in any codec, whose plan decodes: gemm_decode.c. */
size_t oz_gemm_decode_scratch(const struct oz_device *dev, const struct oz_linear_args *a,
                              const struct oz_cpu_kernel *k);
const char *oz_gemm_decode_reject(const struct oz_linear_args *a);
OZ_MUST_USE enum oz_status oz_gemm_decode_linear(const struct oz_op_ctx *ctx,
                                                 const struct oz_linear_args *a,
                                                 const struct oz_cpu_kernel *k,
                                                 struct oz_gemm_epilogue epilogue);
size_t oz_gemm_conv_scratch(const struct oz_device *dev, const struct oz_conv_args *a,
                            const struct oz_cpu_kernel *k);
const char *oz_gemm_conv_reject(const struct oz_conv_args *a, const struct oz_cpu_kernel *k);
OZ_MUST_USE enum oz_status oz_gemm_conv(const struct oz_op_ctx *ctx, const struct oz_conv_args *a,
                                        const struct oz_cpu_kernel *k);

#endif
