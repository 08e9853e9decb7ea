/*
 * num/codec.h: CONTRACT. What a stored weight is: a codec (the number format and its scales), the
 * planes that hold it, and a logical shape [slices, rows, cols]; how to decode it and how to make
 * it.
 *
 * Each format is defined once, in scalar C, in src/num; everything faster is tested against it.
 * Nothing here does I/O, allocates, or knows a device: codec functions run on planes in host
 * memory only. All functions are thread safe: they touch only what they are given.
 *
 * Conventions
 *  - A weight is W[rows = out features, cols = in features], row-major; y = x W^T. `slices` stacks
 *    equal matrices (experts); geometry, scopes and scales start anew in each slice.
 *  - Planes are canonical: row-major cells, element 0 of a row in the low bits, scales linear (not
 *    swizzled) and multiplying. What a maker stores otherwise, its dialect moves into place band by
 *    band in staging: bits are moved, values are never computed.
 *  - Decoding does the maker's operations in the maker's order and precision; each codec states
 *    its formula. Two makers with different arithmetic are two codecs.
 */
#ifndef OZ_NUM_CODEC_H
#define OZ_NUM_CODEC_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "num/dtype.h"

/*
 * The named parts of a weight. A dialect (quant/dialect) says which file tensor is which plane.
 * The first group is what `decode` applies. The second are side planes: data of the scheme for the
 * operators, the same geometry in every codec, never applied by `decode`.
 */
enum oz_plane {
    OZ_PLANE_CODES = 0, /* the elements, or whole super-blocks */
    OZ_PLANE_SCALES,    /* multiply the decoded code */
    OZ_PLANE_SCALES2,   /* second level: multiplies the scales (NVFP4, dual scale, nested nf4) */
    OZ_PLANE_SCALES3,   /* third level (SVDQuant NVFP4) */
    OZ_PLANE_ZEROS,     /* zero points, in code units */
    OZ_PLANE_MINS,      /* added to code * scale (q s + m) */
    OZ_PLANE_OFFSETS,   /* added to decoded scales (nested nf4) */
    OZ_PLANE_CODEBOOK,  /* code -> value */
    OZ_PLANE_CODEBOOK2, /* the same for nested scales */
    OZ_PLANE_PERM,      /* input feature -> group (GPTQ g_idx), i32 [cols] */

    OZ_PLANE_SMOOTH,       /* f32 [cols]: activations are divided by it before the product */
    OZ_PLANE_INPUT_SCALE,  /* static activation scale, f32 [1] or [cols] */
    OZ_PLANE_INPUT_OFFSET, /* static activation zero point */
    OZ_PLANE_ROTATE_L,     /* rotation of activations: left and right factors */
    OZ_PLANE_ROTATE_R,
    OZ_PLANE_LOW_RANK_A, /* [rank, cols]: W x += B (A x) */
    OZ_PLANE_LOW_RANK_B, /* [rows, rank] */
    OZ_PLANE_COUNT
};

#define OZ_PLANE_FIRST_SIDE OZ_PLANE_SMOOTH

/* Values of cell_rows, cell_cols and flat_cells beside positive counts. */
#define OZ_CELL_ALL 0      /* the whole extent of the slice */
#define OZ_CELL_GROUP (-1) /* the weight's group_cols */

/*
 * Geometry of one plane: a slice is tiled into cells of cell_rows x cell_cols elements and the
 * plane holds cell_bits for each, cells row-major. {ALL, ALL} is per tensor, {1, ALL} per output
 * channel, {ALL, 1} per input feature, {1, 32} an MX group, {128, 128} an FP8 block, {1, 256} with
 * 1152 bits a Q4_K super-block. A last cell may be short in either direction; it still takes
 * cell_bits. Each row of cells is padded to a whole byte.
 * flat_cells != 0: one cell for each that many elements of the row-major slice, across rows
 * (bitsandbytes), times flat_times where that is not 0; then the plane is one row of cells.
 * fixed_elements > 0: the plane does not tile: it has that many elements (codebooks).
 */
struct oz_plane_spec {
    enum oz_plane plane;
    enum oz_dtype
        dtype; /* of one cell; U8 for opaque super-blocks. A weight's view may say otherwise */
    int32_t cell_rows, cell_cols, cell_bits;
    int32_t flat_cells, flat_times;
    int32_t fixed_elements;
    bool optional;
};

/* One plane in memory. Borrowed: the weight never frees it, and only encoders write through it
 * (data may point into a read-only map). `present` tells whether the weight has the plane; data is
 * set once the weight is loaded. */
struct oz_plane_view {
    void *data; /* any alignment; readers use memcpy */
    bool present;
    enum oz_dtype dtype;      /* of a cell */
    int64_t bytes;            /* valid bytes from data */
    int64_t row_stride_bytes; /* from one row of cells to the next, >= the packed row */
    int64_t slice_stride_bytes;
};

/*
 * A weight: codec + planes + logical shape. Plain data, copied by assignment; owns nothing. All
 * zero in an empty weight (codec NULL).
 */
struct oz_weight {
    const struct oz_codec *codec;
    int64_t slices, rows, cols; /* of one slice: rows, cols */
    int32_t group_cols;         /* for OZ_CELL_GROUP; 0 where the codec has none */
    int32_t rank;               /* of the low-rank planes; 0 without */
    struct oz_plane_view planes[OZ_PLANE_COUNT];
};

/* How an encoder turns amax into a shared power-of-two scale; docs name the formulas. */
enum oz_exponent_rule {
    OZ_EXPONENT_DEFAULT = 0, /* the codec's own */
    OZ_EXPONENT_CEIL,        /* ceil(log2(amax / max)) */
    OZ_EXPONENT_EVEN,        /* amax rounded to even in the element format first */
    OZ_EXPONENT_FLOOR,       /* floor(log2(amax)) - emax, OCP MX 1.0 */
    OZ_EXPONENT_ALG2, /* ceil(log2(amax / 7.25)), FP4 alone (oz_mx_rule_known in num/group.h) */
};

/* What an encoder is told, and what it learns in its passes over a slice. Caller's storage, one
 * for each thread; begin with oz_encode_state_init. After the passes the threads' states are merged
 * into one, begin() gets that, and every encode() a copy of it. States of several weights may be
 * merged before begin(): then they share their slice-wide scales (one scale for a fused q, k, v). */
struct oz_encode_state {
    enum oz_exponent_rule exponent_rule; /* in */
    bool keep_nonfinite;                 /* in: NaN and infinity are coded, not refused */
    int32_t pass;                        /* in: 0 .. codec->observe_passes - 1 */
    float amax;                          /* learnt */
    double sum;                          /* learnt */
    int64_t count;                       /* learnt */
    int64_t bad_row, bad_col;            /* out: the first NaN or infinity met, with the error */
};

/*
 * A codec. Instances are constant and live for ever.
 *
 * scope_rows: how many consecutive rows share a scale and must be encoded in one call; 1 for row
 * and group scales, 128 for 128x128 blocks, OZ_CELL_GROUP for blocks that run across rows (the
 * number depends on the shape), OZ_CELL_ALL for whole-slice scales: then observe_passes > 0, and
 * each pass runs observe() over all bands before the next; begin() then writes the slice-wide planes
 * once, and encode() the rest. oz_weight_scope_rows says how many rows a band must be a multiple of
 * in any case.
 *
 * What is not finite, where it is let through (keep_nonfinite): it takes no part in a scale, and
 * decodes to NaN: alone where the element format has a NaN, else with all that share its smallest
 * scale.
 */
struct oz_codec {
    const char *name; /* "bf16", "mxfp4", "q4_k": lower case, unique */
    int32_t scope_rows;
    int32_t col_multiple; /* cols must be a multiple of it; 1 when short tails are defined */
    int32_t observe_passes;
    int32_t group_cols; /* what oz_weight_shape gives the weight; 0 where the codec has none */
    int32_t plane_count;
    const struct oz_plane_spec *planes; /* [plane_count]; no side planes */

    /*
     * Decodes elements [col, col + count) of one row of a slice to f32. The range must lie inside
     * the weight (asserted). dst must not overlap the planes.
     */
    void (*decode)(const struct oz_weight *w, int64_t slice, int64_t row, int64_t col,
                   int64_t count, float *dst);

    /* Takes a band [rows, w->cols] f32 (`stride` elements between rows) of a slice into state; of
     * whole scopes, as encode. NULL without passes. OZ_ERR_FORMAT as encode. */
    OZ_MUST_USE enum oz_status (*observe)(const struct oz_weight *w, int64_t row0, const float *src,
                                          int64_t rows, int64_t stride,
                                          struct oz_encode_state *state);
    void (*begin)(struct oz_weight *w, int64_t slice, const struct oz_encode_state *state);

    /*
     * Encodes a band: rows [row0, row0 + rows) of a slice from src [rows, w->cols] f32. The planes
     * that it writes have the codec's own dtypes (decode takes what the views say). row0 is a
     * multiple of scope_rows and the band holds whole scopes (the last may be short). Writes only
     * those rows' cells, so bands may run on several threads. OZ_ERR_FORMAT when a NaN or infinity
     * is met and keep_nonfinite is false (state says where; the band's cells are then undefined).
     * NULL for read-only codecs.
     */
    OZ_MUST_USE enum oz_status (*encode)(struct oz_weight *w, int64_t slice, int64_t row0,
                                         const float *src, int64_t rows, int64_t stride,
                                         struct oz_encode_state *state);
};

/* The codec of that name, or NULL. */
const struct oz_codec *oz_codec_find(const char *name);

/* The codec of unscaled elements of a floating dtype (f32, f16, bf16, f64), or NULL. */
const struct oz_codec *oz_codec_plain(enum oz_dtype dtype);
bool oz_codec_is_plain(const struct oz_codec *codec); /* NULL is none */

/* The spec of a plane: the codec's own, or the side plane's common one; NULL when there is none. */
const struct oz_plane_spec *oz_codec_plane(const struct oz_codec *codec, enum oz_plane plane);

/*
 * Bytes of one plane of all slices, rows of cells packed one after the other, and the bytes of one
 * row of cells, from the weight's codec, shape, group_cols, rank and the view's dtype (the data is
 * not looked at). OZ_ERR_ARG when the codec has no such plane, cols is no multiple of col_multiple
 * or a plane goes by group_cols and that is not positive; OZ_ERR_FORMAT when the size overflows 63 bits.
 */
OZ_MUST_USE enum oz_status oz_weight_plane_bytes(const struct oz_weight *w, enum oz_plane plane,
                                                 int64_t *bytes, int64_t *row_bytes);

/* Sum over the planes that are present: what the weight takes. Errors as above. */
OZ_MUST_USE enum oz_status oz_weight_bytes(const struct oz_weight *w, int64_t *bytes);

/* Bands of this weight, for observe and encode, are multiples of so many rows (the last may be
 * short): the codec's scope_rows, resolved for the shape; at least 1. */
int64_t oz_weight_scope_rows(const struct oz_weight *w);

/* A weight with the codec's required planes marked present and its group_cols, and no data. */
struct oz_weight oz_weight_shape(const struct oz_codec *codec, int64_t slices, int64_t rows,
                                 int64_t cols);

/* A view of plain elements at `data`, packed. dtype must have a plain codec. */
struct oz_weight oz_weight_plain(enum oz_dtype dtype, int64_t slices, int64_t rows, int64_t cols,
                                 void *data);

void oz_encode_state_init(struct oz_encode_state *state);
/* Joins what another thread's state learnt (maximum, sums); the order of merging is the bands'. */
void oz_encode_state_merge(struct oz_encode_state *into, const struct oz_encode_state *from);

#endif
