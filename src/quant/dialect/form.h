/*
 * quant/dialect/form.h: forms that several toolchains share: codes and scales of one scheme under some
 * names, with their scopes. A dialect says which form a layer has; taking it finds and checks the
 * tensors.
 */
#ifndef OZ_QUANT_DIALECT_FORM_H
#define OZ_QUANT_DIALECT_FORM_H

#include "quant/dialect/dialect.h"

/* What one scale spans. */
enum oz_form_scope {
    OZ_FORM_TENSOR,
    OZ_FORM_ROW,
    OZ_FORM_BLOCK, /* 128 x 128 */
    OZ_FORM_GROUP, /* `group` of a row */
};

struct oz_form {
    const char *scheme;         /* of quant/scheme.inc */
    const char *codes, *scales; /* suffixes of the tensors: "weight", "weight_scale" */
    const char *scales2;        /* NULL: none */
    enum oz_dtype code_dtype, scale_dtype;
    int32_t per_byte; /* codes in an element of their tensor: 1 or 2 */
    enum oz_form_scope scope;
    int32_t group;
    enum oz_plane_move code_move, scale_move, scale2_move;
    bool swizzled;   /* scales in tiles of 128 x 4 (oz_at_swizzled), rows and groups filled up */
    bool transposed; /* scales [groups, rows] */
    int32_t row_multiple; /* the file fills rows up to it; 0: it does not */
    enum oz_act_mode mode;
};

/* Codes in groups of 32 columns under scales that are exponents, "weight_scale". */
#define OZ_FORM_MX(scheme_name, codes_name, dtype, codes_in_a_byte)                       \
    {                                                                                     \
        .scheme = (scheme_name), .codes = (codes_name), .scales = "weight_scale",         \
        .code_dtype = (dtype), .scale_dtype = OZ_DTYPE_U8, .per_byte = (codes_in_a_byte), \
        .scope = OZ_FORM_GROUP, .group = 32,                                              \
    }

/* The form of a layer, into row `row` of r->out. Errors as oz_stored_take. */
OZ_MUST_USE enum oz_status oz_form_take(const struct oz_dialect_reader *r, int32_t row,
                                        const struct oz_form *form);

/* FP8 in the common names with scales of a tensor, of rows or of 128x128, told apart by the elements of
 * the tensor `scales`; OZ_ERR_FORMAT where it is none of these. Beside: one that multiplies from the
 * file's reciprocal with `inverse`. */
OZ_MUST_USE enum oz_status oz_form_take_fp8(const struct oz_dialect_reader *r, int32_t row,
                                            const char *codes, const char *scales, bool inverse);

/* INT8, with a scale of each row, or one of the tensor, which is then each row's. */
OZ_MUST_USE enum oz_status oz_form_take_int8(const struct oz_dialect_reader *r, int32_t row,
                                             const char *codes, const char *scales,
                                             enum oz_act_mode mode);

/* Integers of 4 bits in groups; codes of `form` are one nibble each at `at` (NULL: row by row, the even
 * one low), scales [rows, groups] or `transposed`; `mins` like scales, or NULL. code_move: SIGNED or BYTES
 * (unsigned with the zero at 8). They stay packed, as the codec u4_group. With `bytes` codes are 8 bits
 * each, of u8_group. */
struct oz_form_int4 {
    const char *codes, *scales, *mins;
    enum oz_dtype code_dtype;
    int64_t code_shape[2]; /* of the tensor */
    oz_dialect_at_fn at;
    enum oz_plane_move code_move;
    int64_t group;
    bool transposed;
    oz_dialect_at_fn
        scales_at;       /* of scales and mins, [groups, rows] in the file; NULL: as they say */
    bool unsigned_codes; /* their zero is 0 */
    bool bytes;
};
OZ_MUST_USE enum oz_status oz_form_take_int4(const struct oz_dialect_reader *r, int32_t row,
                                             const struct oz_form_int4 *form);

/* A tensor of zeros beside the weight (offsets of a symmetric weight): read, and spent. Absent is fine.
 * OZ_ERR_UNSUPPORTED: some are not zero. */
OZ_MUST_USE enum oz_status oz_form_zeros(const struct oz_dialect_reader *r, int32_t row,
                                         const char *suffix);

/* One F32 of a tensor of one element. OZ_ERR_FORMAT: it is missing, otherwise, or not above 0. */
OZ_MUST_USE enum oz_status oz_form_number(const struct oz_dialect_reader *r, int32_t row,
                                          const char *suffix, float *out);

/* A tensor beside the weight whose contents are known or have no effect; absent is fine. Returns whether
 * it is there. */
bool oz_form_spend(const struct oz_dialect_reader *r, int32_t row, const char *suffix);

/* A static scale of activations: a plane where the scheme can have such activations, else without effect.
 * Absent is fine. OZ_ERR_FORMAT: it is not one number. *found: it is there; may be NULL. */
OZ_MUST_USE enum oz_status oz_form_input_scale(const struct oz_dialect_reader *r, int32_t row,
                                               const char *suffix, bool *found);

/* The layer is expanded to bf16 while loading. */
void oz_form_expand(const struct oz_dialect_reader *r, int32_t row);
/* A vector [cols] that activations are multiplied (else divided) by. The layer is expanded. */
OZ_MUST_USE enum oz_status oz_form_smooth(const struct oz_dialect_reader *r, int32_t row,
                                          const char *suffix, bool multiplies);
/* A branch y += B (A x), A of [rank, cols], B of [rows, rank] by their places in the tensors (NULL: as
 * they stand); A's tensor has down_shape. The layer is expanded. */
OZ_MUST_USE enum oz_status oz_form_low_rank(const struct oz_dialect_reader *r, int32_t row,
                                            const char *down, const char *up, bool down_transposed,
                                            oz_dialect_at_fn down_at, oz_dialect_at_fn up_at);

/* Factors L [rows, rows] and R [cols / rows, cols / rows] that activations are multiplied by
 * (oz_stored_weight.rotate_rows), or one of them. The layer is expanded. */
OZ_MUST_USE enum oz_status oz_form_factors(const struct oz_dialect_reader *r, int32_t row,
                                           const char *left, const char *right);

/* The tensor of a layer under that suffix. */
const struct oz_tensor_view *oz_form_find(const struct oz_dialect_reader *r, int32_t row,
                                          const char *suffix);

/* The rows that are matrices and whose tensor `suffix` is there and of that dtype (COUNT: any). */
bool oz_form_has(const struct oz_dialect_reader *r, int32_t row, const char *suffix,
                 enum oz_dtype dtype);

/* ---- places ---- */

/* Scales in tiles of 128 rows and 4 groups, as cuBLAS takes them. */
int64_t oz_at_swizzled(int64_t row, int64_t col, int64_t rows, int64_t cols);
int64_t oz_at_transposed(int64_t row, int64_t col, int64_t rows, int64_t cols);

#endif
