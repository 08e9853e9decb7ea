/*
 * cuda/launch/launch.h: the launchers of the kernels here, for C. Each puts one kernel (or a few) on a
 * stream and returns the CUDA error of the launch (0: none). Pointers are device memory. Rows travel
 * as struct oz_act by value; data NULL: absent.
 */
#ifndef OZ_CUDA_LAUNCH_LAUNCH_H
#define OZ_CUDA_LAUNCH_LAUNCH_H

#include "dev/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st *oz_cuda_stream;

/* A modulation vector: row r reads data + index[r] * stride (index NULL: data itself). */
struct oz_cuda_mod {
    const float *data; /* NULL: absent */
    int64_t stride;
};

/* A stored matrix [rows, cols], as kernels decode it: value = code, times the scale of each level in
 * order. */
struct oz_cuda_weight {
    const uint8_t *codes;
    enum oz_dtype dtype; /* of a code */
    int64_t rows, cols, row_bytes;
    int32_t levels;
    struct {
        const uint8_t *data;
        enum oz_dtype dtype;
        int32_t cell_rows, cell_cols; /* 0: the whole extent */
        int64_t row_bytes;
    } level[2];
    /* Blocks of the flat matrix under a table of values (bitsandbytes); block 0: not so. */
    int32_t block;
    bool nf4;                     /* the standard table is nf4's; else fp4's */
    const float *table, *table2;  /* [16], [256]: a file's own; NULL: the standard ones */
    const uint8_t *nested_codes;  /* NULL: level[0] holds the absmax of each block */
    const float *nested, *offset; /* [blocks / 256], [1] */
    /* Integers in groups (num/int_group.h); bits 0: not so. Strides from one row to the next. */
    struct {
        int32_t bits, cols;
        const uint8_t *zeros; /* NULL, here and below: there is none */
        const float *scales, *mins;
        const int32_t *of_cols;
        int64_t zero_bytes, scale_stride, min_stride;
    } group;
    /* GGUF's blocks; elements 0: not so. */
    struct {
        uint32_t number; /* of the type */
        int32_t elements, bytes;
    } gguf;
};

/* dst [out_rows, out_cols] of F32 or BF16, `stride` elements between rows: the weight, zeros beyond
 * it. codes_only: the levels are not applied. */
int oz_launch_decode(oz_cuda_stream stream, const struct oz_cuda_weight *w, bool codes_only,
                     enum oz_dtype dtype, void *dst, int64_t out_rows, int64_t out_cols,
                     int64_t stride);

/* packed.cu: the same of integers in groups and of GGUF's blocks, for oz_launch_decode and
 * oz_launch_embed. */
bool oz_packed_takes(const struct oz_cuda_weight *w);
int oz_packed_decode(oz_cuda_stream stream, const struct oz_cuda_weight *w, enum oz_dtype dtype,
                     void *dst, int64_t out_rows, int64_t out_cols, int64_t stride);
int oz_packed_embed(oz_cuda_stream stream, const struct oz_cuda_weight *w, const int32_t *ids,
                    float scale, const struct oz_act *out);

/* encode.cu: rows of bf16 to a weight's planes, see struct oz_encode_rows_args. Planes of the slice, from
 * its first row on, and the bytes between rows of them. */
enum oz_encode_kind {
    OZ_ENCODE_FP8_TENSOR,
    OZ_ENCODE_FP8_CHANNEL,
    OZ_ENCODE_FP8_BLOCK,
    OZ_ENCODE_INT8,
    OZ_ENCODE_MXFP8,
    OZ_ENCODE_MXFP4,
    OZ_ENCODE_DUAL,
    OZ_ENCODE_NVFP4,
};
struct oz_cuda_encode {
    enum oz_encode_kind kind;
    const uint16_t *src; /* [rows, cols] */
    int64_t row0, rows, cols;
    uint8_t *codes, *scales[2];
    int64_t code_bytes, scale_bytes[2];
    enum oz_exponent_rule rule;
    float amax; /* of the scope, where it spans the slice */
    bool keep_nonfinite;
    uint64_t *bad;
};
int oz_launch_encode(oz_cuda_stream stream, const struct oz_cuda_encode *a);
int oz_launch_draw(oz_cuda_stream stream, const struct oz_draw_args *a);

/* out[i] = rows of x in out's spec; see struct oz_act_quant_args. amax: of each row's sequence, f32
 * [x.rows], or NULL. */
int oz_launch_act_quant(oz_cuda_stream stream, const struct oz_act *x, const struct oz_act *out,
                        int64_t rows, const int32_t *x_rows, const int32_t *out_rows,
                        const float *amax);
/* amax [x.rows] of what the rows' sequences hold, after smoothing; offsets NULL: of each row. */
int oz_launch_amax(oz_cuda_stream stream, const struct oz_act *x, const float *smooth,
                   const int32_t *offsets, int32_t count, float *amax);

/* dst [rows, pad_cols] F32 or BF16 from rows of any spec, zeros behind x.cols. */
int oz_launch_convert(oz_cuda_stream stream, const struct oz_act *x, enum oz_dtype dtype, void *dst,
                      int64_t pad_cols);

int oz_launch_embed(oz_cuda_stream stream, const struct oz_cuda_weight *w, const int32_t *ids,
                    float scale, const struct oz_act *out);

struct oz_cuda_norm_mod {
    struct oz_act x, y, mul, out; /* y, mul, out: data NULL when absent */
    enum oz_fn mul_fn, fn;
    enum oz_norm norm;
    float eps;
    const float *weight, *bias;
    bool weight_plus_one;
    struct oz_cuda_mod gate, scale, shift;
    const int32_t *index;
};
int oz_launch_norm_mod(oz_cuda_stream stream, const struct oz_cuda_norm_mod *a);

/* What becomes of a product's sums [rows, cols], f32, s32 (`integer`) or bf16 (`half_sums`; where
 * oz_wide_takes_end says yes), sum_stride apart. */
struct oz_cuda_linear_end {
    const void *sums, *up_sums; /* up_sums NULL: none */
    bool integer, half_sums;
    int64_t rows, cols, sum_stride;
    const float *row_scale; /* [rows * row_scale_stride]; NULL: none */
    int64_t row_scale_stride;
    const float *col_scale, *up_col_scale; /* [cols * col_scale_stride]; NULL: none */
    int64_t col_scale_stride;
    const float *bias, *up_bias;
    enum oz_fn fn;
    struct oz_cuda_mod gate;
    const int32_t *index;
    struct oz_act residual, out; /* data NULL: absent */
    bool residual_added;         /* out = fn(sums + bias + residual): convolutions */
};
int oz_launch_linear_end(oz_cuda_stream stream, const struct oz_cuda_linear_end *a);

struct oz_cuda_rope {
    struct oz_act x, out, cosine, sine; /* out may be x */
    int32_t heads, head_dim;
    int64_t pairs;
    const float *weight;
    bool plus_one;
    float eps;
    enum oz_rope kind;
    const int32_t *table_rows;
};
int oz_launch_qk_norm_rope(oz_cuda_stream stream, const struct oz_qk_norm_rope_args *a,
                           const float *weight);
/* phi [rows, dim] f32. */
int oz_launch_sinusoids(oz_cuda_stream stream, const float *t, int64_t rows, int32_t dim,
                        float scale, float *phi);
int oz_launch_cfg_combine(oz_cuda_stream stream, const struct oz_cfg_combine_args *a);
int oz_launch_sched_step(oz_cuda_stream stream, const struct oz_sched_step_args *a);
int oz_launch_argmax(oz_cuda_stream stream, const struct oz_sample_args *a);

/* dst [pixels of rows [row0, row0 + rows), pad_cols] of F32 or BF16: the patches that a convolution
 * multiplies, zeros behind taps * in. Rows are output pixels. */
struct oz_cuda_im2col {
    struct oz_act x, past; /* past: data NULL for zeros */
    int32_t frames, height, width, out_height, out_width;
    int32_t kt, kh, kw, stride, stride_t, pad_top, pad_left;
    int64_t row0, rows, pad_cols;
    enum oz_dtype dtype;
    void *dst;
};
int oz_launch_im2col(oz_cuda_stream stream, const struct oz_cuda_im2col *a);
int oz_launch_resample(oz_cuda_stream stream, const struct oz_resample_args *a);
int oz_launch_patch(oz_cuda_stream stream, const struct oz_patch_args *a);
int oz_launch_unpatch(oz_cuda_stream stream, const struct oz_unpatch_args *a);

struct oz_cuda_attention {
    struct {
        struct oz_act q, k, v, out; /* data NULL: absent */
        const int32_t *offsets;     /* device */
    } segments[OZ_ATTENTION_SEGMENTS];
    int32_t first_sequence; /* sequences [first_sequence, first_sequence + sequences) run */
    int32_t segment_count, sequences, heads, kv_heads, head_dim;
    int32_t asking;       /* the segment whose queries run */
    int64_t most_queries; /* of a sequence in it */
    float scale;
    enum oz_mask mask;
    int32_t window;
    const float *sinks;
    struct oz_act bias;
    struct oz_act paged_k, paged_v; /* data NULL: not paged */
    const int32_t *tables, *lengths;
    int64_t table_stride;
    int32_t page_rows;
};
/* The rows of one sequence (first_sequence), segment after segment, as bf16: queries of those that ask,
 * keys and values of those that offer any; zeros up to `queries` and `keys` rows. */
int oz_launch_join(oz_cuda_stream stream, const struct oz_cuda_attention *a, void *q, void *k,
                   void *v, int64_t queries, int64_t keys);
/* weights bf16 [rows, padded] = softmax(scores f32 [rows, padded] * scale) over the first `keys`; zeros
 * behind them. */
int oz_launch_softmax(oz_cuda_stream stream, const float *scores, int64_t rows, int64_t keys,
                      int64_t padded, float scale, void *weights);
/* In f32, any head_dim up to OZ_CUDA_MOST_HEAD. */
#define OZ_CUDA_MOST_HEAD 1024
int oz_launch_attention_f32(oz_cuda_stream stream, const struct oz_cuda_attention *a);
/* bf16 operands on tensor cores, f32 sums; head_dim a multiple of 16 up to 512. */
int oz_launch_attention_bf16(oz_cuda_stream stream, const struct oz_cuda_attention *a);

/* wide.cu: faster forms, for launchers that ask first. */
bool oz_wide_takes_quant(const struct oz_act *x, const struct oz_act *out);
int oz_wide_quant(oz_cuda_stream stream, const struct oz_act *x, const struct oz_act *out,
                  int64_t rows);
bool oz_wide_takes_norm(const struct oz_cuda_norm_mod *a);
int oz_wide_norm(oz_cuda_stream stream, const struct oz_cuda_norm_mod *a);
bool oz_wide_takes_residual(const struct oz_cuda_linear_end *a);
int oz_wide_residual(oz_cuda_stream stream, const struct oz_cuda_linear_end *a);
bool oz_wide_takes_end(const struct oz_cuda_linear_end *a);
int oz_wide_end(oz_cuda_stream stream, const struct oz_cuda_linear_end *a);

/* usual.cu: likewise, for wide.cu. */
bool oz_usual_takes_norm(const struct oz_cuda_norm_mod *a);
int oz_usual_norm(oz_cuda_stream stream, const struct oz_cuda_norm_mod *a);
bool oz_usual_takes_end(const struct oz_cuda_linear_end *a);
int oz_usual_end(oz_cuda_stream stream, const struct oz_cuda_linear_end *a);

/* few.cu: a whole weight to bf16, for oz_launch_decode. */
bool oz_codes_take_decode(const struct oz_cuda_weight *w);
int oz_codes_decode(oz_cuda_stream stream, const struct oz_cuda_weight *w, bool codes_only,
                    void *dst, int64_t stride);
/* sums f32 [rows, w->rows] = x bf16 [rows, w->cols] times the weight, decoded to bf16 on the way; the bytes of
 * a row depend on nothing but it and the weight. x begins at 16 bytes, its stride is a multiple of 8. */
bool oz_few_takes(const struct oz_cuda_weight *w);
int oz_few_product(oz_cuda_stream stream, const struct oz_cuda_weight *w, bool codes_only,
                   const void *x, int64_t x_stride, int64_t rows, float *sums, int64_t sum_stride);

/* heads.cu: likewise. */
bool oz_heads_takes_rope(const struct oz_cuda_rope *a);
int oz_heads_rope(oz_cuda_stream stream, const struct oz_cuda_rope *a);

/* narrow.cu: likewise, for rows of pictures. */
bool oz_narrow_takes_norm(const struct oz_cuda_norm_mod *a);
int oz_narrow_norm(oz_cuda_stream stream, const struct oz_cuda_norm_mod *a);
bool oz_narrow_takes_enlarge(const struct oz_resample_args *a);
int oz_narrow_enlarge(oz_cuda_stream stream, const struct oz_resample_args *a);

#ifdef __cplusplus
}
#endif

#endif
