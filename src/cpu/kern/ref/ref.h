/*
 * cpu/kern/ref/ref.h: what the reference kernels share: rows in and out of f32, sums in a fixed
 * order, scratch memory, and the one matrix product. See ref.inc for the kernels.
 *
 * Order of sums: a dot product over K is cut into pieces of OZ_REF_DEPTH; in a piece, term i goes
 * to partial sum i % 8, the eight are added pairwise (0+4, 2+6, 1+5, 3+7; then those), and the
 * pieces are added from the first to the last. It depends on K alone.
 */
#ifndef OZ_CPU_KERN_REF_REF_H
#define OZ_CPU_KERN_REF_REF_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/pool.h"
#include "dev/device.h"
#include "dev/ops.h"
#include "num/float.h"

/* ---- the kernels, and the scratch that each needs ---- */

#define OZ_REF(id, member, type, run, scratch)                                  \
    OZ_MUST_USE enum oz_status run(const struct oz_op_ctx *ctx, const type *a); \
    size_t scratch(const struct oz_device *dev, const void *args);
#include "cpu/kern/ref/ref.inc"
#undef OZ_REF

/* ---- scratch ---- */

/* Counts for it: -1 when the result overflows or an operand is negative. */
static inline int64_t oz_ref_times(int64_t a, int64_t b)
{
    int64_t product;
    return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) ? -1 : product;
}

static inline int64_t oz_ref_plus(int64_t a, int64_t b)
{
    int64_t sum;
    return a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum) ? -1 : sum;
}

/* Adds room for count elements of `size` bytes to *total and gives its offset; 64-byte aligned.
 * *total becomes SIZE_MAX, and stays so, when the sum overflows or count is negative. */
size_t oz_ref_reserve(size_t *total, int64_t count, size_t size);

/* Address at an offset of oz_ref_reserve. */
static inline void *oz_ref_at(const struct oz_op_ctx *ctx, size_t offset)
{
    return (uint8_t *)ctx->scratch + offset;
}

/* Is there a device that may run, with at least `need` bytes of scratch? */
OZ_MUST_USE enum oz_status oz_ref_begin(const struct oz_op_ctx *ctx, size_t need);

static inline int64_t oz_ref_threads(const struct oz_device *dev)
{
    return oz_pool_threads(dev->pool);
}

static inline int64_t oz_ref_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t oz_ref_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Grain of a loop over rows of `cols` elements: some 16384 elements, whatever the threads. */
static inline int64_t oz_ref_grain(int64_t cols)
{
    return cols >= 16384 ? 1 : 16384 / oz_ref_max(cols, 1);
}

/* ---- activations ---- */

/* F32 or BF16 with nothing that a producer must apply first. */
static inline bool oz_ref_is_plain(const struct oz_act_spec *s)
{
    return (s->dtype == OZ_DTYPE_F32 || s->dtype == OZ_DTYPE_BF16) && s->scale_count == 0 &&
           s->smooth == NULL && s->rotate_cols == 0 && s->static_scale == NULL &&
           s->static_offset == NULL && s->low_rank_a == NULL;
}

/* OZ_ERR_UNSUPPORTED, with a log line that names the format, unless a is NULL or plain F32 or BF16
 * rows. */
OZ_MUST_USE enum oz_status oz_ref_check_act(const char *op, const struct oz_act *a);

/* The same for operators that take what num/act.h defines as well, and smoothing. */
OZ_MUST_USE enum oz_status oz_ref_check_quantized(const char *op, const struct oz_act *a);

/* Why rows in this format are neither written by act_quant nor read by linear and experts, as a
 * phrase, or NULL. */
const char *oz_ref_act_problem(const struct oz_act_spec *spec);

static inline float *oz_ref_f32(const struct oz_act *a, int64_t row, int64_t col)
{
    return (float *)a->data + row * a->stride + col;
}

static inline uint16_t *oz_ref_bf16(const struct oz_act *a, int64_t row, int64_t col)
{
    return (uint16_t *)a->data + row * a->stride + col;
}

/* Elements [col, col + count) of a row, to f32 from any format of oz_ref_check_quantized; from f32
 * to F32 and BF16. */
void oz_ref_load(const struct oz_act *a, int64_t row, int64_t col, int64_t count, float *dst);
void oz_ref_store(const struct oz_act *a, int64_t row, int64_t col, int64_t count,
                  const float *src);

struct oz_act_format;
struct oz_act_given;
struct oz_act_row;

/* A tier's faster forms of what rows go through on their way into a format: to the same bytes. NULL
 * in place of one: the reference's. */
struct oz_ref_coder {
    /* As oz_act_encode_row. False: it leaves the row to that, and what it wrote is undefined. */
    bool (*encode)(const struct oz_act_format *f, const struct oz_act_given *given, const float *x,
                   int64_t cols, const struct oz_act_row *row);
    void (*divide)(const float *x, const float *by, int64_t n, float *dst); /* dst may be x */
    float (*amax)(const float *x, int64_t n);                               /* oz_ref_amax */
    void (*widen)(const uint16_t *bf16, int64_t n, float *dst);
    void (*narrow)(const float *x, int64_t n, uint16_t *bf16);
};

/* Of tiers that the compiler knows; elsewhere there are none. */
extern const struct oz_ref_coder oz_coder__avx2, oz_coder__avx512;

/* act_quant, its rows by `coder` (may be NULL). */
OZ_MUST_USE enum oz_status oz_ref_act_quant(const struct oz_op_ctx *ctx,
                                            const struct oz_act_quant_args *a,
                                            const struct oz_ref_coder *coder);

/* A whole row in any format of oz_ref_check_quantized, smoothed already; `amax` is the largest finite
 * magnitude of the row's sequence, for formats that need it (oz_ref_needs_amax). */
bool oz_ref_needs_amax(const struct oz_act *a);
void oz_ref_store_row(const struct oz_act *a, int64_t row, float amax, const float *src);
void oz_ref_code_row(const struct oz_ref_coder *coder, const struct oz_act *a, int64_t row,
                     float amax, const float *src); /* the same */

/* Why rows in a's format are not written one by one, each from its own f32 values alone; or NULL. The
 * sequences are those of the operator's arguments. */
const char *oz_ref_by_row_problem(const struct oz_act *a, const struct oz_ragged *sequences);
/* Writes such a row; divides `values` by the format's smoothing vector in place. */
void oz_ref_finish_row(const struct oz_ref_coder *coder, const struct oz_act *a, int64_t row,
                       float *values);

/* Divides a row by the format's smoothing vector, where it has one. */
void oz_ref_smooth(const struct oz_act_spec *spec, float *row, int64_t cols);

/* Largest finite magnitude of a row. */
float oz_ref_amax(const float *row, int64_t cols);

/* The modulation vector of a row; NULL when absent. index NULL: row 0. */
static inline const float *oz_ref_mod(const struct oz_mod *mod, const int32_t *index, int64_t row)
{
    return mod->table == NULL ? NULL
                              : oz_ref_f32(mod->table, index != NULL ? index[row] : 0, mod->col);
}

/* ---- parameters ---- */

static inline const struct oz_param *oz_ref_param(const struct oz_param *p)
{
    return p != NULL && p->name != NULL ? p : NULL;
}

/* OZ_ERR_INTERNAL unless the parameter is loaded and has this shape; OZ_ERR_UNSUPPORTED for side
 * planes that these kernels do not apply (smoothing and static scales are the producers', through
 * the spec). NULL is fine. */
OZ_MUST_USE enum oz_status oz_ref_check_param(const char *op, const struct oz_param *p,
                                              int64_t slices, int64_t rows, int64_t cols);

/* OZ_ERR_UNSUPPORTED unless rows in this format were smoothed with the weight's vector, or neither
 * has one. NULL is fine. */
OZ_MUST_USE enum oz_status oz_ref_check_smooth(const char *op, const struct oz_act_spec *rows,
                                               const struct oz_param *p);

/* A vector [1, n] decoded to dst; returns dst, or NULL when the parameter is absent. */
const float *oz_ref_vector(const struct oz_param *p, int64_t n, float *dst);

/* embed: a table of that shape, ids inside it; OZ_ERR_ARG with a log line otherwise. */
OZ_MUST_USE enum oz_status oz_ref_check_embed(const struct oz_embed_args *a);

/* ---- numbers ---- */

float oz_ref_fn(enum oz_fn fn, float x);
void oz_ref_fn_row(enum oz_fn fn, float *x, int64_t count);

/* One piece (see above) of the dot products of x with w[0], w[stride] ... w[(n - 1) stride]. */
void oz_ref_dots(const float *x, const float *w, int64_t stride, int64_t n, int64_t count,
                 float *out);

/* dst[c] += sum over i < n, in order and from 0, of weights[i] rows[i * stride + c]; c < count. */
void oz_ref_add_weighted(const float *weights, const float *rows, int64_t stride, int64_t n,
                         int64_t count, float *dst);

/* ---- the matrix product ---- */

#define OZ_REF_COLS 32    /* output columns of a block: weight rows decoded together */
#define OZ_REF_ROWS 32    /* output rows of a block */
#define OZ_REF_BAND 512   /* output rows of a task, which decodes its weight rows once */
#define OZ_REF_DEPTH 1024 /* terms of a piece of the sum; of s8 products a piece is exact in f32 */

/*
 * y = x W^T of `rows` rows, block by block. `fetch` gives elements [k0, k0 + count) of rows
 * [row0, row0 + rows) of x: a pointer and the stride between its rows; `room` has space for
 * OZ_REF_ROWS * OZ_REF_DEPTH elements if it needs any. `store` gets blocks of sums with
 * OZ_REF_COLS elements between rows; up is NULL without a second weight. Both are called from
 * several threads for distinct blocks.
 */
struct oz_ref_product {
    int64_t rows, cols, depth;
    const struct oz_weight *w, *up; /* up may be NULL */
    int64_t slice;
    const float *(*fetch)(const void *ctx, int64_t row0, int64_t rows, int64_t k0, int64_t count,
                          float *room, int64_t *stride);
    const void *fetch_ctx;
    void (*store)(const void *ctx, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                  const float *y, const float *up);
    const void *store_ctx;
    /* s8 by s8 (cpu/int8.h): fetch gives codes and the weights decode to codes; sums are s32, and y is
     * row_scales[row] (col_scales[col] sum). NULL, all of them: f32 values. */
    const float *row_scales, *col_scales, *up_col_scales;
    float *scratch; /* oz_ref_product_floats of them */
};

/* Scratch of a product, in floats; -1 when that overflows. */
int64_t oz_ref_product_floats(const struct oz_device *dev, int64_t depth, int up);

void oz_ref_product_run(struct oz_pool *pool, const struct oz_ref_product *p);

/* fetch for an activation (fetch_ctx is a struct oz_act): its values, and its s8 codes. */
const float *oz_ref_fetch_act(const void *ctx, int64_t row0, int64_t rows, int64_t k0,
                              int64_t count, float *room, int64_t *stride);
const float *oz_ref_fetch_codes(const void *ctx, int64_t row0, int64_t rows, int64_t k0,
                                int64_t count, float *room, int64_t *stride);

#endif
