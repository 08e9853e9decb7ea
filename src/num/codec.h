/*
 * num/codec.h: CONTRACT. What a stored weight is: a codec (the number format and its scales), the
 * planes that hold it, and a logical shape [rows, cols]; how to decode it and how to make it.
 *
 * Each format is defined once, in scalar C, in src/num; everything faster is tested against it.
 * Nothing here does I/O, allocates, or knows a device. All functions are thread safe: they touch
 * only what they are given.
 *
 * Convention: a weight is W[rows = out features, cols = in features], row-major; y = x W^T.
 */
#ifndef OZ_NUM_CODEC_H
#define OZ_NUM_CODEC_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "num/dtype.h"

/* The named parts of a weight. A dialect (quant/dialect) says which file tensor is which plane. */
enum oz_plane {
    OZ_PLANE_CODES = 0,   /* the elements, or whole super-blocks */
    OZ_PLANE_SCALES,      /* multiply the decoded code */
    OZ_PLANE_SCALES2,     /* second level: multiplies the scales (NVFP4, dual scale, nested nf4) */
    OZ_PLANE_ZEROS,       /* zero points, in code units */
    OZ_PLANE_OFFSETS,     /* added to decoded scales (nested nf4) */
    OZ_PLANE_CODEBOOK,    /* code -> value */
    OZ_PLANE_PERM,        /* input feature -> group (GPTQ g_idx) */
    OZ_PLANE_SMOOTH,      /* per input feature; activations are divided by it before the product */
    OZ_PLANE_INPUT_SCALE, /* static activation scale: data for kernels, not used by decode */
    OZ_PLANE_LOW_RANK_A,  /* [rank, cols], added to the weight as B A (SVDQuant) */
    OZ_PLANE_LOW_RANK_B,  /* [rows, rank] */
    OZ_PLANE_COUNT
};

/*
 * Geometry of one plane: the weight is tiled into cells of cell_rows x cell_cols elements and the
 * plane holds cell_bits for each, cells row-major. 0 for cell_rows or cell_cols means "the whole
 * extent", so {0, 0} is per tensor, {1, 0} per output channel, {0, 1} per input feature, {1, 32} an
 * MX group, {128, 128} an FP8 block, {1, 256} with cell_bits 1152 a Q4_K super-block. A last cell
 * may be short in either direction; it still takes cell_bits. Each row of cells is padded to a
 * whole byte.
 *
 * Planes that do not tile the weight (codebook, low-rank factors) set cell_bits to 0: their size
 * is the codec's `extra_bytes`. The planes that one weight really has may vary within a codec
 * (an optional smoothing vector): `optional`.
 */
struct oz_plane_spec {
    enum oz_plane plane;
    enum oz_dtype dtype; /* of one cell when it is a plain element; U8 for opaque super-blocks */
    int32_t cell_rows, cell_cols, cell_bits;
    bool optional;
};

/* One plane in memory. Borrowed: the weight never frees it. */
struct oz_plane_view {
    void *data;               /* any alignment; readers use memcpy. NULL: absent, or MEASURE */
    int64_t bytes;            /* valid bytes from data */
    int64_t row_stride_bytes; /* from one row of cells to the next, >= the packed row */
};

/*
 * A weight: codec + planes + logical shape. Plain data, copied by assignment; owns nothing. All
 * members are zero or NULL in an empty weight.
 */
struct oz_weight {
    const struct oz_codec *codec;
    int64_t rows, cols;
    struct oz_plane_view planes[OZ_PLANE_COUNT];
};

/* How an encoder turns amax into a shared power-of-two scale; decisions.md 10 names them. */
enum oz_exponent_rule {
    OZ_EXPONENT_DEFAULT = 0, /* the codec's own */
    OZ_EXPONENT_CEIL,        /* ceil(log2(amax / max)) */
    OZ_EXPONENT_EVEN,        /* amax rounded to even in the element format first */
    OZ_EXPONENT_FLOOR,       /* floor(log2(amax)) - emax, OCP MX 1.0 */
    OZ_EXPONENT_ALG2,
};

/* What an encoder is told and what it carries from one band to the next. Caller's storage. */
struct oz_encode_state {
    enum oz_exponent_rule exponent_rule; /* in */
    bool keep_nonfinite;                 /* in: NaN and infinity are coded, not refused */
    float amax;                          /* observe() raises it; encode() reads it */
    int64_t nonfinite_row, nonfinite_col; /* out: first NaN or infinity met, with the error */
};

/*
 * A codec. Instances are constant and live for ever.
 *
 * scope_rows: how many consecutive rows share a scale and must be encoded in one call; 1 for row
 * and group scales, 128 for 128x128 blocks, 0 for the whole tensor (then observe() is not NULL
 * and is called over all bands first).
 */
struct oz_codec {
    const char *name;        /* "bf16", "mxfp4", "q4_k": lower case, unique */
    int32_t scope_rows;      /* see above */
    int32_t col_multiple;    /* cols must be a multiple of it; 1 when short tails are defined */
    int32_t plane_count;
    const struct oz_plane_spec *planes; /* [plane_count] */

    /*
     * Decodes elements [col, col + count) of one row to f32. Exact: each result is the f32 nearest
     * to the true product of code and scales (ties to even), denormals kept. The range must lie
     * inside the weight (asserted). dst must not overlap the planes.
     */
    void (*decode)(const struct oz_weight *w, int64_t row, int64_t col, int64_t count, float *dst);

    /*
     * First pass of whole-tensor scopes: takes a band of `rows` rows of f32, [rows, w->cols] with
     * `stride` elements between rows, into state->amax. NULL where scope_rows != 0.
     */
    enum oz_status (*observe)(const struct oz_weight *w, const float *src, int64_t rows,
                              int64_t stride, struct oz_encode_state *state);

    /*
     * Encodes a band: rows [row0, row0 + rows) of w from src [rows, w->cols] f32. row0 is a
     * multiple of scope_rows and the band holds whole scopes (the last may be short). Writes only
     * those rows' cells. OZ_ERR_FORMAT when a NaN or infinity is met and keep_nonfinite is false
     * (state says where; the band's cells are then undefined). NULL for read-only codecs.
     */
    enum oz_status (*encode)(struct oz_weight *w, int64_t row0, const float *src, int64_t rows,
                             int64_t stride, struct oz_encode_state *state);

    /* Bytes of a plane with cell_bits 0; NULL when the codec has none. Negative: overflow. */
    int64_t (*extra_bytes)(enum oz_plane plane, int64_t rows, int64_t cols);
};

/* The codec of that name, or NULL. */
const struct oz_codec *oz_codec_find(const char *name);

/* The codec of unscaled elements of a floating dtype (f32, f16, bf16, f64), or NULL. */
const struct oz_codec *oz_codec_plain(enum oz_dtype dtype);

/* The spec of a plane within a codec, or NULL when the codec has no such plane. */
const struct oz_plane_spec *oz_codec_plane(const struct oz_codec *codec, enum oz_plane plane);

/*
 * Bytes of one plane of a [rows, cols] weight, rows of cells packed one after the other, and the
 * bytes of one row of cells. OZ_ERR_ARG when the codec has no such plane or cols is no multiple of
 * col_multiple; OZ_ERR_FORMAT when the size overflows 63 bits.
 */
OZ_MUST_USE enum oz_status oz_codec_plane_bytes(const struct oz_codec *codec, enum oz_plane plane,
                                                int64_t rows, int64_t cols, int64_t *bytes,
                                                int64_t *row_bytes);

/* Sum over the required planes: what a weight of this codec takes in memory. */
OZ_MUST_USE enum oz_status oz_codec_bytes(const struct oz_codec *codec, int64_t rows, int64_t cols,
                                          int64_t *bytes);

/* A view of plain elements at `data`: one plane, packed rows. dtype must have a plain codec. */
struct oz_weight oz_weight_plain(enum oz_dtype dtype, int64_t rows, int64_t cols, void *data);

#endif
