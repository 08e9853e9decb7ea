/*
 * dev/ops.h: CONTRACT. The operator vocabulary: what travels between operators (struct oz_act), what
 * weights look like to them (struct oz_param), the arguments of each operator, and the table that a
 * backend fills.
 *
 * The vocabulary is fixed; every backend implements all of it, slow forms first. Forward functions
 * do not call the table: they call the functions of ops/ops.h, the one dispatch point, which knows
 * MEASURE and RUN, scratch memory, timing, trace and dump.
 *
 * Conventions for all operators
 *  - Matrices are row-major. Rows are tokens (or pixels, channel-last: row = (t * h + y) * w + x),
 *    columns are features (or channels).
 *  - Arguments are read during the call only. Index arrays marked "device" are device memory.
 *  - Outputs never overlap inputs unless the argument says "in place".
 *  - A row's bytes depend on that row's inputs and, in attention, on its own sequence only: never
 *    on the number or order of other rows (design.md "Row independence"). Sums over K run in an
 *    order fixed by (N, K, scheme).
 *  - Arithmetic is f32 unless a weight's or activation's format says otherwise; accumulation is f32
 *    or wider. NaN and infinity propagate.
 *  - Operators do not allocate and do not block; scratch comes through struct oz_op_ctx.
 */
#ifndef OZ_DEV_OPS_H
#define OZ_DEV_OPS_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "num/codec.h"
#include "num/dtype.h"

struct oz_device;

/* ---- what travels ---- */

/*
 * An activation: rows x cols in a format, with scales when the format needs them. A view: owns
 * nothing, copied by assignment. data is NULL while measuring.
 * F32, BF16: no scales. F8_E4M3, I8, F4: scale[0] has one entry per `group_cols` columns of a row
 * (group_cols 0: one per row); scale[1] is a second level or empty.
 */
struct oz_act_scale {
    void *data; /* device; [rows, groups], packed */
    enum oz_dtype dtype;
    int32_t group_cols;
};

struct oz_act {
    void *data; /* device */
    enum oz_dtype dtype;
    int64_t rows, cols;
    int64_t stride; /* elements from one row to the next, >= cols */
    struct oz_act_scale scale[2];
};

/* Format that a consumer asks of its producer (oz_linear_wants in ops/ops.h). */
struct oz_act_spec {
    enum oz_dtype dtype;
    int32_t group_cols[2]; /* as in oz_act_scale; -1: no such level */
    enum oz_dtype scale_dtype[2];
};

/*
 * The sequences of a ragged batch: sequence s owns rows [offsets[s], offsets[s + 1]).
 * offsets is host memory [count + 1], begins at 0, never decreases; device_offsets is the same
 * numbers in device memory.
 */
struct oz_ragged {
    int32_t count;
    const int32_t *offsets;
    const int32_t *device_offsets;
};

/*
 * A modulation vector for each row: row r uses table[index[r], col .. col + cols). `index` is
 * device memory, shared by the three vectors of one call. table NULL: the vector is absent.
 */
struct oz_mod {
    const struct oz_act *table; /* f32 */
    int64_t col;
};

/* ---- weights ---- */

/*
 * A parameter that is resident on a device. Shape comes from the layer table when the model is
 * built, so that MEASURE works before loading; `weight` is empty until then. For convolutions the
 * weight is a matrix [out, kt * kh * kw * in], tap-major and channel-last, for embeddings [vocab,
 * width], for experts [experts * out, in], for vectors and norms [1, n] in f32.
 */
struct oz_param {
    const char *name; /* canonical; borrowed from the layer table */
    int32_t rank;
    int64_t shape[5];
    struct oz_weight weight;
};

struct oz_kernel; /* a backend's implementation of an operator, chosen when a layer is planned */

/* A linear layer: weight [n, k] and optional bias [n] (bias.rank 0: none). `packed` is what the
 * kernel made of the weight, NULL where it reads the planes as they are. */
struct oz_linear {
    struct oz_param w, b;
    const struct oz_kernel *kernel;
    void *packed;
};

/* ---- operators ---- */

/* out[r] = scale * table[ids[r]]. ids: device int32 [out->rows], each in [0, vocab). */
struct oz_embed_args {
    const struct oz_param *table;
    const int32_t *ids;
    float scale;
    struct oz_act *out;
};

enum oz_fn {
    OZ_FN_NONE = 0,
    OZ_FN_SILU,      /* x sigmoid(x) */
    OZ_FN_GELU_TANH, /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    OZ_FN_GELU_ERF,  /* 0.5 x (1 + erf(x / sqrt 2)) */
};

/*
 * y = x W^T + b, then exactly one of
 *   up == NULL, residual == NULL:  out = fn(y)
 *   up != NULL:                    out = fn(y) * (x Wup^T + bup)
 *   residual != NULL:              residual += gate[row] * y in place (gate absent: += y); out is NULL
 * out may be any format its consumer wants; residual is f32.
 * sequences: the batch that the rows belong to, so that a kernel class is chosen by a sequence's
 * own rows; NULL: all rows are one sequence.
 */
struct oz_linear_args {
    const struct oz_act *x; /* [m, k] */
    const struct oz_linear *w, *up;
    enum oz_fn fn;
    struct oz_mod gate;
    const int32_t *mod_index; /* device [m]; NULL: row 0 for all */
    struct oz_act *residual;  /* [m, n] */
    struct oz_act *out;       /* [m, n] */
    const struct oz_ragged *sequences;
};

enum oz_route {
    OZ_ROUTE_SOFTMAX_TOPK, /* softmax over all experts, then the k largest */
    OZ_ROUTE_TOPK_SOFTMAX, /* the k largest logits, then softmax over them */
};

/* Chooses experts. Ties go to the lower index. ids and weights [m, k] in descending order. */
struct oz_route_args {
    const struct oz_act *logits; /* [m, experts] f32 */
    enum oz_route kind;
    bool renormalise; /* weights divided by their sum (SOFTMAX_TOPK) */
    float scale;      /* multiplies the weights at the end; 1 for none */
    int32_t k;
    int32_t *ids;    /* device */
    float *weights;  /* device */
};

enum oz_glu {
    OZ_GLU_SILU,    /* silu(gate) * up, gate rows first */
    OZ_GLU_GELU,    /* gelu_tanh(gate) * up, gate rows first */
    OZ_GLU_CLAMPED, /* gpt-oss: rows interleaved gate, up; gate = min(g, limit), up = clamp(u, limit);
                       (up + 1) gate sigmoid(alpha gate) */
};

/*
 * out[r] = sum over j < k, in that order, of weights[r, j] * (down_e(glu(up_e x[r])) + bias_e),
 * e = ids[r, j]. up: [experts, 2 f, d]; down: [experts, d, f]; biases optional (rank 0).
 */
struct oz_experts_args {
    const struct oz_act *x; /* [m, d] */
    const struct oz_param *up, *up_bias, *down, *down_bias;
    enum oz_glu glu;
    float alpha, limit; /* CLAMPED only */
    int32_t k;
    const int32_t *ids;
    const float *weights;
    struct oz_act *out; /* [m, d] f32 */
};

enum oz_mask {
    OZ_MASK_NONE = 0,
    OZ_MASK_CAUSAL, /* key position <= query position */
    OZ_MASK_WINDOW, /* causal, and key position > query position - window */
};

/*
 * Keys and values in pages: sequence s has lengths[s] positions, position p lies in page
 * tables[s * table_stride + p / page_rows] at row p % page_rows. k and v pages: [pages * page_rows,
 * kv_heads * head_dim]. The sequence's queries are its last positions.
 */
struct oz_paged_kv {
    const struct oz_act *k, *v;
    const int32_t *tables;  /* device */
    const int32_t *lengths; /* device [sequences] */
    int64_t table_stride;
    int32_t page_rows;
    int32_t max_length; /* bound over the sequences, for scratch */
};

#define OZ_ATTENTION_SEGMENTS 2

/*
 * Softmax(q k^T scale + bias, mask) v, per sequence. A sequence is the concatenation of its rows in
 * each segment (joint attention of text and image: two segments with their own buffers and
 * offsets); positions count through the concatenation. The sum over keys runs in position order.
 * Segments [1..] are unused when segment_count is 1. All segments have the same ragged.count.
 */
struct oz_attention_args {
    int32_t segment_count;
    struct {
        const struct oz_act *q, *k, *v; /* [rows, heads * head_dim], k and v [.., kv_heads * head_dim] */
        const struct oz_ragged *rows;
        struct oz_act *out; /* [rows, heads * head_dim]; NULL: this segment's queries are not needed */
    } segments[OZ_ATTENTION_SEGMENTS];
    const struct oz_paged_kv *paged; /* keys and values instead of segments' k, v (then one segment) */
    int32_t heads, kv_heads, head_dim; /* query head h reads kv head h / (heads / kv_heads) */
    float scale;
    enum oz_mask mask;
    int32_t window;
    const struct oz_param *sinks;   /* [heads]: exp(sink) joins the denominator only; NULL: none */
    const struct oz_act *bias;      /* f32 [heads, 2 * reach - 1]: bias[h, key - query + reach - 1]; NULL */
};

enum oz_norm {
    OZ_NORM_NONE = 0,   /* no normalisation */
    OZ_NORM_LAYER,      /* (x - mean) / sqrt(var + eps), biased variance */
    OZ_NORM_RMS,        /* x / sqrt(mean(x^2) + eps) */
    OZ_NORM_CHANNEL_L2, /* x / max(|x|_2, eps) * sqrt(cols) */
};

/*
 * Per row: if y: x += gate * y in place (gate absent: x += y). Then, if out:
 *   n = norm(x); n *= weight (+ 1 when weight_plus_one); n += weight bias;
 *   n = n * (1 + scale) + shift; out = fn(n).
 * weight, bias, scale, shift and gate are each optional.
 */
struct oz_norm_mod_args {
    struct oz_act *x;       /* f32 [m, n]; changed only when y is given */
    const struct oz_act *y; /* f32 [m, n] or NULL */
    enum oz_norm norm;
    float eps;
    const struct oz_param *weight, *bias; /* [n] or NULL */
    bool weight_plus_one;
    struct oz_mod gate, scale, shift;
    const int32_t *mod_index; /* device [m]; NULL: row 0 for all */
    enum oz_fn fn;            /* NONE or SILU */
    struct oz_act *out;       /* [m, n], any format; NULL: only the residual */
};

enum oz_rope {
    OZ_ROPE_NONE = 0,
    OZ_ROPE_PAIRS,  /* features (2 j, 2 j + 1) turn together */
    OZ_ROPE_HALVES, /* features (j, j + r / 2) turn together, r = 2 * table cols */
};

/*
 * In place on x [m, heads * head_dim]: per head, RMS norm over head_dim with weight (absent: no
 * norm), then rotation of the first 2 * cols features by the angles of row r of the tables:
 * (a, b) -> (a cos - b sin, a sin + b cos).
 */
struct oz_qk_norm_rope_args {
    struct oz_act *x; /* f32 */
    int32_t heads, head_dim;
    const struct oz_param *weight; /* [head_dim] or NULL */
    bool weight_plus_one;
    float eps;
    enum oz_rope rope;
    const struct oz_act *cosine, *sine; /* f32 [m, pairs] */
};

/* out = x in out's format and scales; f32 to f32 is a copy. x and out may have different strides. */
struct oz_act_quant_args {
    const struct oz_act *x; /* f32 or bf16 */
    struct oz_act *out;
};

/*
 * Convolution over [frames * height * width, in] to [frames' * height' * width', out].
 * Kernel [kt, kh, kw]. Time is causal: kt - 1 zero frames in the past, stride 1 (stride_t steps
 * over frames otherwise). Space is zero padded by pad_top, pad_bottom, pad_left, pad_right with
 * stride. If norm precedes, it is its own operator. Then + bias, then + residual, then fn.
 * weight: matrix [out, ((t * kh + y) * kw + x) * in + c]. A weight whose rank-5 kernel was cut to
 * its last temporal tap has kt = 1 and gives the same result for a single frame.
 */
struct oz_conv_args {
    const struct oz_act *x;
    int32_t frames, height, width;
    const struct oz_param *w, *b; /* b may be NULL or rank 0 */
    int32_t kt, kh, kw;
    int32_t stride, stride_t;
    int32_t pad_top, pad_bottom, pad_left, pad_right;
    const struct oz_act *residual; /* as out, or NULL; may be out itself */
    enum oz_fn fn;
    struct oz_act *out;
};

/* Nearest-neighbour enlargement of [frames * height * width, c] by whole factors. */
struct oz_resample_args {
    const struct oz_act *x;
    int32_t frames, height, width;
    int32_t factor_t, factor_y, factor_x;
    struct oz_act *out;
};

/*
 * Sinusoidal embedding of t[r], r < m, and its two-layer MLP:
 * a_k = scale t 10000^(-k / (dim / 2)); phi = [cos a | sin a]; temb = l2(silu(l1(phi))).
 * silu_out = silu(temb) when given. out may be NULL when only silu_out is wanted.
 */
struct oz_time_embed_args {
    const float *t; /* host [m] */
    int64_t rows;
    int32_t dim;
    float scale;
    const struct oz_linear *linear_1, *linear_2;
    struct oz_act *out, *silu_out; /* [m, linear_2 n] f32 */
};

/*
 * Pictures [channels, frames, height, width] (f32, packed) to tokens and back. Token of frame f,
 * cell (i, j): row (f * (height / p) + i) * (width / p) + j; feature c * p * p + dy * p + dx.
 * `unpatch` also maps each channel: v * channel_scale[c] + channel_shift[c] when given, and may
 * write channel-last rows [frames * height * width, channels] instead.
 */
struct oz_patch_args {
    const float *picture; /* device */
    int32_t channels, frames, height, width, patch;
    struct oz_act *tokens;
};
struct oz_unpatch_args {
    const struct oz_act *tokens;
    int32_t channels, frames, height, width, patch;
    const float *channel_scale, *channel_shift; /* host [channels] or NULL */
    struct oz_act *out; /* f32: [channels, frames * height * width], or with channel_last
                           [frames * height * width, channels] */
    bool channel_last;
};

/*
 * Per row: c = negative + guidance (positive - negative); with rescale, c *= |positive| / |c| over
 * the row's columns. out may be positive or negative itself.
 */
struct oz_cfg_combine_args {
    const struct oz_act *positive, *negative;
    float guidance;
    bool rescale;
    struct oz_act *out;
};

#define OZ_SCHED_TERMS 4

/*
 * A solver step as a linear combination: x = x_factor x + sum over i < count, in order, of
 * factors[i] * terms[i], in place, f32. Euler is x_factor 1 and one term. With x_factor 1 the first
 * product is added to x itself (no multiplication).
 */
struct oz_sched_step_args {
    struct oz_act *x;
    float x_factor;
    int32_t count;
    float factors[OZ_SCHED_TERMS];
    const struct oz_act *terms[OZ_SCHED_TERMS];
};

/*
 * Draws a token per row of logits. temperature 0: the largest logit, ties to the lower id. Else:
 * softmax(logits / temperature), the top_k largest (0: all), of those the smallest set whose sum
 * reaches top_p (1: all), and the inverse of the cumulative sum at uniform[r] in [0, 1), in
 * descending order of probability. ids: device [m].
 */
struct oz_sample_args {
    const struct oz_act *logits; /* f32 */
    float temperature, top_p;
    int32_t top_k;
    const float *uniform; /* host [m]; NULL when temperature is 0 */
    int32_t *ids;
};

/* ---- the table ---- */

/* id, lower-case name, argument struct, and the table's member (the same word as the name). */
#define OZ_OP_MAP(X)                                              \
    X(OZ_OP_EMBED, embed, struct oz_embed_args)                   \
    X(OZ_OP_LINEAR, linear, struct oz_linear_args)                \
    X(OZ_OP_ROUTE, route, struct oz_route_args)                   \
    X(OZ_OP_EXPERTS, experts, struct oz_experts_args)             \
    X(OZ_OP_ATTENTION, attention, struct oz_attention_args)       \
    X(OZ_OP_NORM_MOD, norm_mod, struct oz_norm_mod_args)          \
    X(OZ_OP_QK_NORM_ROPE, qk_norm_rope, struct oz_qk_norm_rope_args) \
    X(OZ_OP_ACT_QUANT, act_quant, struct oz_act_quant_args)       \
    X(OZ_OP_CONV, conv, struct oz_conv_args)                      \
    X(OZ_OP_RESAMPLE, resample, struct oz_resample_args)          \
    X(OZ_OP_TIME_EMBED, time_embed, struct oz_time_embed_args)    \
    X(OZ_OP_PATCH, patch, struct oz_patch_args)                   \
    X(OZ_OP_UNPATCH, unpatch, struct oz_unpatch_args)             \
    X(OZ_OP_CFG_COMBINE, cfg_combine, struct oz_cfg_combine_args) \
    X(OZ_OP_SCHED_STEP, sched_step, struct oz_sched_step_args)    \
    X(OZ_OP_SAMPLE, sample, struct oz_sample_args)

enum oz_op {
#define OZ_OP_ENUM(id, name, args) id,
    OZ_OP_MAP(OZ_OP_ENUM)
#undef OZ_OP_ENUM
    OZ_OP_COUNT
};

/* What a running operator gets besides its arguments. */
struct oz_op_ctx {
    struct oz_device *dev;
    void *scratch; /* device memory of at least scratch_bytes(op, args), 64-byte aligned */
    size_t scratch_bytes;
};

/*
 * A backend's operators. Each member runs one operator; arguments have been checked by the dispatch
 * point. OZ_ERR_UNSUPPORTED when the backend has no kernel for these formats (nothing has been
 * written); OZ_ERR_DEVICE when the device failed.
 * scratch_bytes depends on shapes only (never on data pointers, which are NULL while measuring)
 * and on the device's thread count.
 */
struct oz_op_table {
    size_t (*scratch_bytes)(const struct oz_device *dev, enum oz_op op, const void *args);
#define OZ_OP_MEMBER(id, name, args) \
    enum oz_status (*name)(const struct oz_op_ctx *ctx, const args *a);
    OZ_OP_MAP(OZ_OP_MEMBER)
#undef OZ_OP_MEMBER
};

#endif
