/*
 * dev/ops.h: CONTRACT. The operator vocabulary: what travels between operators (struct oz_act),
 * what weights look like to them (struct oz_param), the arguments of each operator, and the table
 * that a backend fills.
 *
 * The vocabulary is fixed; every backend implements all of it, slow forms first. Forward functions
 * do not call the table: they call the functions of ops/ops.h, the one dispatch point, which knows
 * MEASURE and RUN, scratch memory, timing, trace and dump.
 *
 * Conventions for all operators
 *  - Matrices are row-major. Rows are tokens (or pixels, channel-last: row = (t * h + y) * w + x),
 *    columns are features (or channels).
 *  - Arguments are read during the call only. Arrays marked "device" are device memory, so that a
 *    captured graph can be replayed with new values in them.
 *  - Outputs never overlap inputs unless the argument says "in place".
 *  - x, y, q, k, v and residual may be F32 or BF16: arithmetic is f32 with one rounding at the
 * store. Tables, logits and latents are F32. Weights' and activations' own formats say the rest;
 *    accumulation is f32 or wider. NaN and infinity propagate.
 *  - Row independence: a row's bytes depend on that row's inputs and on the rows of its own
 *    sequence where the operator mixes them (attention; scales that span a sequence): never on the
 *    number or order of other sequences. Sums over K run in an order fixed by (N, K, scheme).
 *    `sequences` tells which rows belong together; NULL means that every row is a sequence of its
 *    own, so a forgotten field is slow, never wrong.
 *  - Presence is a pointer that is not NULL, in MEASURE as in RUN: measuring arenas hand out
 *    addresses that are not NULL and must not be followed.
 *  - Operators do not allocate and do not block; scratch comes through struct oz_op_ctx.
 *  - The list of operators only grows.
 */
#ifndef OZ_DEV_OPS_H
#define OZ_DEV_OPS_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "num/codec.h"
#include "num/dtype.h"
#include "quant/scheme.h"

struct oz_device;

/* ---- what travels ---- */

/* How the scales of an activation lie in memory. */
enum oz_scale_layout {
    OZ_SCALE_ROWS = 0,      /* [rows, groups] */
    OZ_SCALE_COLS,          /* [groups, rows] */
    OZ_SCALE_SWIZZLE_128X4, /* tiles of 128 rows x 4 groups, as block-scaled tensor cores read them
                             */
};

/*
 * A format of activations: what a consumer asks of its producer (oz_linear_wants in ops/ops.h).
 * Consumers that share an input share it only when their specs are equal in every member.
 * F32, BF16: no scales. F8_E4M3, I8, F4: scale[i] has one entry for each `group_cols` columns of a
 * row. group_cols 0: of scale[0] one for the row; of scale[1], the second level, one for the whole
 * sequence (second_by_row: for the row), written again in each of its rows, so that consumers need
 * not know sequences. Static scales are in no plane: scale_count 0, and static_scale says it.
 */
struct oz_act_spec {
    enum oz_dtype dtype;
    int32_t scale_count; /* 0 to 2 */
    struct {
        enum oz_dtype dtype;
        int32_t group_cols;
        enum oz_scale_layout layout;
    } scale[2];
    bool second_by_row; /* scale[1] with group_cols 0 spans its row, not the sequence */
    enum oz_exponent_rule exponent_rule;
    const float *smooth; /* device [cols]: divide by it first; NULL: no */
    int32_t rotate_cols; /* Hadamard transform over groups of so many columns; 0: no */
    const float *static_scale, *static_offset; /* device [1]: given, not computed; NULL: dynamic */
    const struct oz_weight *low_rank_a; /* the producer also writes x A^T into the branch; NULL */
};

/*
 * An activation: rows x cols in a format. A view: owns nothing, copied by assignment.
 * branch: [rows, rank] f32, from x before smoothing, when the spec has low_rank_a.
 */
struct oz_act {
    void *data; /* device */
    int64_t rows, cols;
    int64_t stride; /* elements from one row to the next, >= cols */
    struct oz_act_spec spec;
    void *scales[2]; /* device; scale_count of them */
    const struct oz_act *branch;
};

/* Address `elements` after a plane's start; addresses that are only measured with are fine. */
static inline void *oz_act_at(const void *plane, enum oz_dtype dtype, int64_t elements)
{
    return (void *)((uintptr_t)plane + (uintptr_t)(elements * oz_dtype_bits(dtype) / 8));
}

/* Rows [first, first + count) of it, where each scale is laid out row by row. */
static inline struct oz_act oz_act_rows(const struct oz_act *a, int64_t first, int64_t count)
{
    struct oz_act view = *a;
    view.rows = count;
    view.data = oz_act_at(a->data, a->spec.dtype, first * a->stride);
    for (int32_t i = 0; i < a->spec.scale_count; i++) {
        int64_t group = a->spec.scale[i].group_cols;
        int64_t groups = group > 0 ? (a->cols + group - 1) / group : 1;
        view.scales[i] = oz_act_at(a->scales[i], a->spec.scale[i].dtype, first * groups);
    }
    return view;
}

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

#define OZ_PARAM_MAX_RANK 5

struct oz_param_plan; /* a backend's choice for a parameter: kernels by class and mode, packing */

/*
 * A parameter that is resident on a device. Shape comes from the layer table when the model is
 * built, so that MEASURE works before loading; weight.codec is NULL until then. weight's planes are
 * device memory: codec functions must not be called on them unless the device has host_memory.
 * For convolutions the weight is a matrix [out, ((t * kh + y) * kw + x) * in + c], for embeddings
 * [vocab, width], for experts slices of [out, in], for vectors and norms [1, n] in F32.
 * `packed` is what the plan's kernels made of the weight; NULL where they read the planes.
 * acts: what the weight's scheme wants of its input, for each of its activation modes (0 is its own);
 * act_count 0: plain rows, in the format that the device's kernel likes best. The loader fills them
 * (oz_param_set_acts in ops/param.h).
 */
struct oz_param {
    const char *name; /* canonical; borrowed from the layer table; NULL: the parameter is absent */
    int32_t rank;
    int64_t shape[OZ_PARAM_MAX_RANK];
    struct oz_weight weight;
    int32_t act_count; /* 0 to OZ_SCHEME_MODES */
    struct oz_act_spec acts[OZ_SCHEME_MODES];
    const struct oz_param_plan *plan;
    void *packed;
};

/* A linear layer: weight [n, k] and optional bias [n] (b.name NULL: none). */
struct oz_linear {
    struct oz_param w, b;
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
    OZ_FN_SIGMOID,   /* 1 / (1 + exp(-x)) */
};

/*
 * y = x W^T + b, then exactly one of
 *   up == NULL, residual == NULL:  out = fn(y)
 *   up != NULL:                    out = fn(y) * (x Wup^T + bup)
 *   residual != NULL:              residual += gate[row] * y in place (gate absent: += y); out is
 * NULL out may have any spec that its consumer wants. mode: which of the scheme's activation modes
 * (per-step W4A8 switching); 0 is the scheme's own, and the only one of a weight without a second.
 */
struct oz_linear_args {
    const struct oz_act *x; /* [m, k] */
    const struct oz_linear *w, *up;
    int32_t mode;
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
    bool renormalise;            /* weights divided by their sum (SOFTMAX_TOPK) */
    float scale;                 /* multiplies the weights at the end; 1 for none */
    const struct oz_param *bias; /* [experts], added for the choice only; NULL: none */
    int32_t k;
    int32_t *ids;   /* device */
    float *weights; /* device */
};

enum oz_glu {
    OZ_GLU_SILU,    /* silu(gate) * up, gate rows first */
    OZ_GLU_GELU,    /* gelu_tanh(gate) * up, gate rows first */
    OZ_GLU_CLAMPED, /* gpt-oss: rows interleaved gate, up; gate = min(g, limit), up = clamp(u,
                       limit); (up + 1) gate sigmoid(alpha gate) */
};

/*
 * out[r] = sum over j < k, in that order, of weights[r, j] * (down_e(glu(up_e x[r])) + bias_e),
 * e = ids[r, j]. up: [experts, 2 f, d]; down: [experts, d, f]; biases may be NULL.
 */
struct oz_experts_args {
    const struct oz_act *x; /* [m, d] */
    const struct oz_param *up, *up_bias, *down, *down_bias;
    int32_t mode;
    struct oz_act_spec hidden; /* format between glu and down */
    enum oz_glu glu;
    float alpha, limit; /* CLAMPED only */
    int32_t k;
    const int32_t *ids;
    const float *weights;
    struct oz_act *out; /* [m, d] */
    const struct oz_ragged *sequences;
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
 * offsets); positions count through the segments that have keys. q and out NULL: the segment asks
 * nothing; k and v NULL: it offers no keys (cross attention: one segment asks, the other offers).
 * CAUSAL and WINDOW need queries and keys in one segment. The sum over keys runs in position order.
 * All segments have the same ragged.count. out may have any spec.
 */
struct oz_attention_args {
    int32_t segment_count;
    struct {
        const struct oz_act *q;     /* [rows, heads * head_dim] */
        const struct oz_act *k, *v; /* [rows, kv_heads * head_dim] */
        const struct oz_ragged *rows;
        struct oz_act *out; /* [rows, heads * head_dim] */
    } segments[OZ_ATTENTION_SEGMENTS];
    const struct oz_paged_kv *paged;   /* keys and values instead of k, v; then one segment */
    int32_t heads, kv_heads, head_dim; /* query head h reads kv head h / (heads / kv_heads) */
    float scale;
    enum oz_mask mask;
    int32_t window;
    const struct oz_param *sinks; /* [heads]: exp(sink) joins the denominator only; NULL: none */
    const struct oz_act *bias;    /* f32 [heads, 2 * reach - 1]: bias[h, key - query + reach - 1];
                                       NULL: none */
};

enum oz_norm {
    OZ_NORM_NONE = 0,   /* no normalisation */
    OZ_NORM_LAYER,      /* (x - mean) / sqrt(var + eps), biased variance */
    OZ_NORM_RMS,        /* x / sqrt(mean(x^2) + eps) */
    OZ_NORM_CHANNEL_L2, /* x / max(|x|_2, eps) * sqrt(cols) */
};

/*
 * Per row: if y: x += gate * y * mul_fn(mul) in place (absent factors are 1). Then, if out:
 *   n = norm(x); n *= weight (+ 1 when weight_plus_one); n += weight bias;
 *   n = n * (1 + scale) + shift; out = fn(n).
 * weight, bias, scale, shift, gate and mul are each optional.
 */
struct oz_norm_mod_args {
    struct oz_act *x;         /* [m, n]; changed only when y is given */
    const struct oz_act *y;   /* [m, n] or NULL */
    const struct oz_act *mul; /* [m, n] or [m, 1], or NULL */
    enum oz_fn mul_fn;
    enum oz_norm norm;
    float eps;
    const struct oz_param *weight, *bias; /* [n] or NULL */
    bool weight_plus_one;
    struct oz_mod gate, scale, shift;
    const int32_t *mod_index; /* device [m]; NULL: row 0 for all */
    enum oz_fn fn;            /* NONE or SILU */
    struct oz_act *out;       /* [m, n], any spec; NULL: only the residual */
    const struct oz_ragged *sequences;
};

enum oz_rope {
    OZ_ROPE_NONE = 0,
    OZ_ROPE_PAIRS,  /* features (2 j, 2 j + 1) turn together */
    OZ_ROPE_HALVES, /* features (j, j + r / 2) turn together, r = 2 * table cols */
};

/*
 * On x [m, heads * head_dim], in place or to out (plain bf16 rows; on devices with rope_out): per head, RMS norm over head_dim with weight (absent: no
 * norm), then rotation of the first 2 * cols features by the angles of row table_rows[r] of the
 * tables: (a, b) -> (a cos - b sin, a sin + b cos).
 */
struct oz_qk_norm_rope_args {
    struct oz_act *x;
    int32_t heads, head_dim;
    const struct oz_param *weight; /* [head_dim] or NULL */
    bool weight_plus_one;
    float eps;
    enum oz_rope rope;
    const struct oz_act *cosine, *sine; /* [.., pairs] */
    const int32_t *table_rows;          /* device [m]; NULL: row r */
    struct oz_act *out;                 /* [m, heads * head_dim]; NULL: x itself */
};

/*
 * Rows of x in out's spec; the same spec is a copy. Row out_rows[i] of out comes from row x_rows[i]
 * of x, i < rows: gathering the last rows for a head, scattering keys and values into pages,
 * latents into the tall matrix. x and out may have different strides.
 */
struct oz_act_quant_args {
    const struct oz_act *x; /* F32 or BF16 */
    struct oz_act *out;
    int64_t rows;
    const int32_t *x_rows, *out_rows;  /* device [rows]; NULL: row i */
    const struct oz_ragged *sequences; /* of the rows of x */
};

/*
 * Convolution over [frames * height * width, in] to [frames' * height' * width', out].
 * Kernel [kt, kh, kw]. Time is causal: kt - 1 zero frames in the past, stride 1 (stride_t steps
 * over frames otherwise). Space is zero padded by pad_top, pad_bottom, pad_left, pad_right with
 * stride. Then + bias, then + residual, then fn. `past` holds the kt - 1 frames before x, for long
 * clips in pieces; NULL: zeros.
 * weight: matrix [out, ((t * kh + y) * kw + x) * in + c]. A weight whose rank-5 kernel was cut to
 * its last temporal tap has kt = 1 and gives the same result for a single frame.
 */
struct oz_conv_args {
    const struct oz_act *x;
    const struct oz_act *past; /* [(kt - 1) * height * width, in] or NULL */
    int32_t frames, height, width;
    const struct oz_param *w, *b; /* b may be NULL or absent */
    int32_t kt, kh, kw;
    int32_t stride, stride_t;
    int32_t pad_top, pad_bottom, pad_left, pad_right;
    const struct oz_act *residual; /* as out, or NULL; may be out itself */
    enum oz_fn fn;
    struct oz_act *out;
};

enum oz_resample {
    OZ_RESAMPLE_NEAREST,  /* out[t, y, x] = x[t / ft, y / fy, x / fx] */
    OZ_RESAMPLE_DUP_UP,   /* channels repeated and dealt out over (out channel, ft, fy, fx) */
    OZ_RESAMPLE_AVG_DOWN, /* cells of (c, ft, fy, fx) averaged in consecutive groups */
};

/* Resampling of [frames * height * width, c] by whole factors. Output channels are out->cols. */
struct oz_resample_args {
    const struct oz_act *x;
    enum oz_resample kind;
    int32_t frames, height, width;
    int32_t factor_t, factor_y, factor_x;
    struct oz_act *out;
};

/*
 * Sinusoidal embedding of t[r], r < m, and its two-layer MLP:
 * a_k = scale t 10000^(-k / (dim / 2)); phi = [cos a | sin a]; temb = l2(silu(l1(phi))).
 * silu_out = silu(temb) when given. out may be NULL when only silu_out is wanted. The two linears
 * must hold plain weights; where a user quantizes them, forwards leave both NULL, which makes out = phi
 * [m, dim], and call `linear` with it.
 */
struct oz_time_embed_args {
    const float *t; /* device [m] */
    int64_t rows;
    int32_t dim;
    float scale;
    const struct oz_linear *linear_1, *linear_2;
    struct oz_act *out, *silu_out; /* [m, linear_2 n] f32 */
};

/*
 * Pictures [channels, frames, height, width] (f32, packed) to tokens and back. Token of frame f,
 * cell (i, j): row (f * (height / p) + i) * (width / p) + j; the feature order is named.
 * `unpatch` also maps each channel: v * channel_scale[c] + channel_shift[c] when given, and may
 * write channel-last rows [frames * height * width, channels] instead.
 */
enum oz_patch_order {
    OZ_PATCH_CYX = 0, /* feature c * p * p + dy * p + dx */
    OZ_PATCH_YXC,     /* (dy * p + dx) * channels + c */
    OZ_PATCH_CXY,     /* c * p * p + dx * p + dy */
};
struct oz_patch_args {
    const float *picture; /* device */
    enum oz_patch_order order;
    int32_t channels, frames, height, width, patch;
    struct oz_act *tokens;
};
struct oz_unpatch_args {
    const struct oz_act *tokens;
    enum oz_patch_order order;
    int32_t channels, frames, height, width, patch;
    const float *channel_scale, *channel_shift; /* device [channels] or NULL */
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
 * A solver step as a linear combination, in place: x = factors[0] x + sum over i < count, in order,
 * of factors[1 + i] terms[i]. keep: factors[0] is not used and x enters unmultiplied (Euler).
 */
struct oz_sched_step_args {
    struct oz_act *x;
    bool keep;
    int32_t count;
    const float *factors; /* device [1 + count] */
    const struct oz_act *terms[OZ_SCHED_TERMS];
};

/* How one row's token is drawn. */
struct oz_sample_row {
    float temperature; /* 0: the largest logit, ties to the lower id */
    float top_p;       /* 1: all */
    float min_p;       /* 0: all */
    int32_t top_k;     /* 0: all */
    float uniform;     /* in [0, 1) */
};

/*
 * Draws a token for each row of logits: softmax(logits / temperature), in descending order of
 * probability (ties to the lower id) the first top_k, of those the ones of at least min_p times the
 * largest, of those the smallest set whose sum reaches top_p; then the inverse of the cumulative
 * sum at uniform times the kept sum.
 */
struct oz_sample_args {
    const struct oz_act *logits;
    const struct oz_sample_row *rows; /* device [m] */
    int32_t *ids;                     /* device [m] */
};

/* ---- the table ---- */

/* id, name (also of the table's member), argument struct. Append only. */
#define OZ_OP_MAP(X)                                                 \
    X(OZ_OP_EMBED, embed, struct oz_embed_args)                      \
    X(OZ_OP_LINEAR, linear, struct oz_linear_args)                   \
    X(OZ_OP_ROUTE, route, struct oz_route_args)                      \
    X(OZ_OP_EXPERTS, experts, struct oz_experts_args)                \
    X(OZ_OP_ATTENTION, attention, struct oz_attention_args)          \
    X(OZ_OP_NORM_MOD, norm_mod, struct oz_norm_mod_args)             \
    X(OZ_OP_QK_NORM_ROPE, qk_norm_rope, struct oz_qk_norm_rope_args) \
    X(OZ_OP_ACT_QUANT, act_quant, struct oz_act_quant_args)          \
    X(OZ_OP_CONV, conv, struct oz_conv_args)                         \
    X(OZ_OP_RESAMPLE, resample, struct oz_resample_args)             \
    X(OZ_OP_TIME_EMBED, time_embed, struct oz_time_embed_args)       \
    X(OZ_OP_PATCH, patch, struct oz_patch_args)                      \
    X(OZ_OP_UNPATCH, unpatch, struct oz_unpatch_args)                \
    X(OZ_OP_CFG_COMBINE, cfg_combine, struct oz_cfg_combine_args)    \
    X(OZ_OP_SCHED_STEP, sched_step, struct oz_sched_step_args)       \
    X(OZ_OP_SAMPLE, sample, struct oz_sample_args)

enum oz_op {
#define OZ_OP_ENUM(id, name, args) id,
    OZ_OP_MAP(OZ_OP_ENUM)
#undef OZ_OP_ENUM
        OZ_OP_COUNT
};

/* Which operator will read a weight. */
enum oz_param_use { OZ_USE_LINEAR, OZ_USE_CONV, OZ_USE_EXPERTS, OZ_USE_EMBED, OZ_USE_VECTOR };

struct oz_plan_request {
    enum oz_param_use use;
    /* Of param->acts; 0 is the scheme's own. Beyond them: OZ_ERR_UNSUPPORTED. A parameter has one packing
     * for all of its modes: packed_bytes and band_rows of the answers are the same; kernel, what declined
     * and what is wanted may differ. It keeps the plan of mode 0, which says how it is packed to the
     * kernels of the others, too. */
    int32_t mode;
    /* When given, gets each better kernel that declined, and why. */
    void (*report)(void *ctx, const char *kernel, const char *reason);
    void *report_ctx;
};

struct oz_plan_answer {
    const struct oz_param_plan *plan;
    const char *kernel; /* its name */
    size_t packed_bytes;
    int32_t band_rows; /* pack_band takes bands that begin at multiples of it; 0: any */
    struct oz_act_spec wants;
};

/* The codec's own observe and encode, where they are listed beside faster forms. */
#define OZ_ENCODER_OF_CODEC "oz_encode_any_any__scalar"

/*
 * A faster form of a codec's observe and encode, of rows as a file stores them: to the same bytes.
 * src: [rows, w->cols] of the dtype that it was found for, `stride` elements apart; the rest as in
 * num/codec.h. False: there is something here that it leaves to the codec (NaN, infinity, a short
 * tail that it does not know); what it wrote is then undefined, and state as it was. Any thread.
 */
struct oz_encoder {
    const char *name; /* oz_encode_<stored>_<codec>__<tier> */
    bool (*observe)(const struct oz_weight *w, int64_t row0, const void *src, int64_t rows,
                    int64_t stride,
                    struct oz_encode_state *state); /* NULL: the codec has no pass */
    bool (*encode)(struct oz_weight *w, int64_t slice, int64_t row0, const void *src, int64_t rows,
                   int64_t stride, struct oz_encode_state *state);
};

/*
 * Rows of a weight that a device encodes itself, from rows as a file stores them: to the codec's own
 * bytes. w: whole planes in device memory; rows [row0, row0 + rows) of a slice, whole scopes as the codec's
 * encode takes them.
 */
struct oz_encode_rows_args {
    const struct oz_weight *w;
    int64_t slice, row0, rows;
    const void *src; /* device memory, aligned to OZ_DEVICE_ALIGN: [rows, w->cols], without gaps */
    struct oz_encode_state state; /* the rule, and what the passes over the scope have learnt */
    /* Device memory. Becomes the least row * cols + col (of the slice) of a NaN or infinity, where that
     * is less than what stands there; with keep_nonfinite it stays as it is. */
    uint64_t *bad;
};

/* Elements [first, first + count) of a tensor that is drawn (num/noise.h), as bf16. All but `state` is
 * device memory; dst is aligned to 8 bytes. */
struct oz_draw_args {
    const uint16_t *table; /* [OZ_NOISE_NUMBERS] */
    uint64_t state;
    int64_t first, count;
    void *dst;
};

/* What a running operator gets besides its arguments. */
struct oz_op_ctx {
    struct oz_device *dev;
    struct oz_queue *queue;
    void *scratch; /* device memory of at least scratch_bytes(op, args), 64-byte aligned */
    size_t scratch_bytes;
};

/*
 * A backend's operators. Each member runs one operator; arguments have been checked by the dispatch
 * point. OZ_ERR_UNSUPPORTED when the backend has no kernel for these formats (nothing has been
 * written); OZ_ERR_DEVICE when the device failed.
 * scratch_bytes depends on shapes only (pointers may be compared with NULL, never followed) and on
 * the device's thread count; SIZE_MAX when it overflows.
 */
struct oz_op_table {
    size_t (*scratch_bytes)(const struct oz_device *dev, enum oz_op op, const void *args);

    /*
     * Planning of a weight that operators will read, from its shape, codec and planes present
     * (weight.planes[].data is not looked at): chooses the kernel, says what it wants of the
     * activation and how many bytes of packed weight it needs (0: it reads the planes).
     * OZ_ERR_UNSUPPORTED: nothing here reads such a weight, or not in that mode. Who plans a parameter
     * asks for each of its modes.
     */
    OZ_MUST_USE enum oz_status (*plan_param)(struct oz_device *dev, const struct oz_param *param,
                                             const struct oz_plan_request *request,
                                             struct oz_plan_answer *answer, struct oz_error *err);
    /* The activation modes that plan_param takes with weights whose schemes have them, and those for
     * which the device has units: what requests are held against before anything is planned. */
    struct oz_act_support (*act_support)(const struct oz_device *dev);
    /* Packs rows [row0, row0 + rows) of a slice from `band` (host memory, the weight's codec) into
     * param->packed, its final place. Bands may come in any order, whole scopes each, from multiples
     * of the plan's band_rows. `band` has the whole weight's shape and is addressed as the whole
     * would be; only the cells of those rows need be there. */
    OZ_MUST_USE enum oz_status (*pack_band)(struct oz_device *dev, struct oz_queue *queue,
                                            struct oz_param *param, int64_t slice, int64_t row0,
                                            int64_t rows, const struct oz_weight *band,
                                            struct oz_error *err);
    /* How the host makes a codec's cells fast from elements of `stored`; NULL: as the codec does. */
    const struct oz_encoder *(*find_encoder)(const struct oz_device *dev,
                                             const struct oz_codec *codec, enum oz_dtype stored);
    /* The name of what encodes such rows on the device, in the order of the queue; NULL: the host does.
     * Both members NULL: it never does. */
    const char *(*row_encoder)(const struct oz_device *dev, const struct oz_codec *codec,
                               enum oz_dtype stored);
    OZ_MUST_USE enum oz_status (*encode_rows)(struct oz_device *dev, struct oz_queue *queue,
                                              const struct oz_encode_rows_args *a,
                                              struct oz_error *err);
    /* Draws on the device, in the order of the queue. NULL: the host does. */
    OZ_MUST_USE enum oz_status (*draw)(struct oz_device *dev, struct oz_queue *queue,
                                       const struct oz_draw_args *a, struct oz_error *err);

#define OZ_OP_MEMBER(id, name, args) \
    OZ_MUST_USE enum oz_status (*name)(const struct oz_op_ctx *ctx, const args *a);
    OZ_OP_MAP(OZ_OP_MEMBER)
#undef OZ_OP_MEMBER
};

#endif
