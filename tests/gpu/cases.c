/* Cases of one operator each, on random data; see ops.c for what is asked of them. */
#include "cases.h"

#include <math.h>

#include "dev/act_spec.h"

static union {
    struct oz_embed_args embed;
    struct oz_linear_args linear;
    struct oz_attention_args attention;
    struct oz_norm_mod_args norm_mod;
    struct oz_qk_norm_rope_args rope;
    struct oz_act_quant_args quant;
    struct oz_conv_args conv;
    struct oz_resample_args resample;
    struct oz_time_embed_args time;
    struct oz_patch_args patch;
    struct oz_unpatch_args unpatch;
    struct oz_cfg_combine_args cfg;
    struct oz_sched_step_args sched;
    struct oz_sample_args sample;
} args;

static const struct oz_act_spec f32 = {.dtype = OZ_DTYPE_F32};
static const struct oz_act_spec bf16 = {.dtype = OZ_DTYPE_BF16};

static struct oz_act_spec mode_spec(enum oz_act_mode mode)
{
    return oz_act_spec_of(mode, OZ_EXPONENT_DEFAULT, NULL, NULL);
}

/* ---- linear ---- */

struct linear_shape {
    const char *codec;
    enum oz_act_mode mode;
    int64_t m, n, k;
    enum oz_dtype x, out;
    bool bias, up, residual;
    enum oz_fn fn;
};

static const struct linear_shape linears[] = {
    {"bf16", OZ_ACT_NONE, 130, 256, 256, OZ_DTYPE_BF16, OZ_DTYPE_F32, true, false, false, 0},
    {"bf16", OZ_ACT_NONE, 1, 3072, 3072, OZ_DTYPE_BF16, OZ_DTYPE_F32, true, false, false, 0},
    {"bf16", OZ_ACT_NONE, 77, 1024, 256, OZ_DTYPE_BF16, OZ_DTYPE_BF16, true, false, false,
     OZ_FN_GELU_TANH},
    {"bf16", OZ_ACT_NONE, 33, 768, 256, OZ_DTYPE_BF16, OZ_DTYPE_BF16, false, true, false,
     OZ_FN_SILU},
    {"bf16", OZ_ACT_NONE, 64, 256, 1024, OZ_DTYPE_BF16, OZ_DTYPE_F32, true, false, true, 0},
    {"bf16", OZ_ACT_NONE, 19, 33, 27, OZ_DTYPE_F32, OZ_DTYPE_F32, true, false, false, 0},
    {"f32", OZ_ACT_NONE, 40, 96, 288, OZ_DTYPE_F32, OZ_DTYPE_F32, true, false, false, 0},
    {"fp8_channel", OZ_ACT_FP8_TOKEN, 70, 256, 512, OZ_DTYPE_F8_E4M3, OZ_DTYPE_F32, true, false,
     false, 0},
    {"fp8_tensor", OZ_ACT_FP8_TOKEN, 70, 256, 512, OZ_DTYPE_F8_E4M3, OZ_DTYPE_BF16, true, false,
     false, OZ_FN_GELU_TANH},
    {"fp8_channel", OZ_ACT_FP8_TOKEN, 300, 3072, 512, OZ_DTYPE_F8_E4M3, OZ_DTYPE_F8_E4M3, true,
     false, false, OZ_FN_GELU_TANH},
    {"fp8_channel", OZ_ACT_FP8_TOKEN, 45, 3072, 512, OZ_DTYPE_F8_E4M3, OZ_DTYPE_BF16, true, false,
     false, OZ_FN_GELU_TANH},
    {"int8_channel", OZ_ACT_INT8_TOKEN, 45, 3072, 512, OZ_DTYPE_I8, OZ_DTYPE_I8, true, false, false,
     OZ_FN_GELU_TANH},
    {"int8_channel", OZ_ACT_INT8_TOKEN, 70, 256, 512, OZ_DTYPE_I8, OZ_DTYPE_F32, true, false, true,
     0},
    {"fp8_channel", OZ_ACT_NONE, 50, 256, 512, OZ_DTYPE_BF16, OZ_DTYPE_F32, true, false, false, 0},
    {"int8_channel", OZ_ACT_NONE, 50, 256, 512, OZ_DTYPE_BF16, OZ_DTYPE_F32, true, false, false, 0},
    {"fp8_block", OZ_ACT_FP8_GROUP, 50, 256, 512, OZ_DTYPE_F8_E4M3, OZ_DTYPE_F32, true, false,
     false, 0},
    {"mxfp8", OZ_ACT_NONE, 50, 256, 512, OZ_DTYPE_BF16, OZ_DTYPE_F32, true, false, false, 0},
    {"mxfp8", OZ_ACT_MXFP8, 50, 256, 512, OZ_DTYPE_F8_E4M3, OZ_DTYPE_F32, true, false, false, 0},
    {"mxfp4", OZ_ACT_NONE, 50, 256, 512, OZ_DTYPE_BF16, OZ_DTYPE_F32, true, false, false, 0},
    {"mxfp4", OZ_ACT_MXFP4, 50, 256, 512, OZ_DTYPE_F4, OZ_DTYPE_F32, true, false, false, 0},
    {"mxfp4_dualscale", OZ_ACT_MXFP4_DUALSCALE, 50, 256, 1024, OZ_DTYPE_F4, OZ_DTYPE_F32, true,
     false, false, 0},
    {"nvfp4", OZ_ACT_NONE, 50, 256, 512, OZ_DTYPE_BF16, OZ_DTYPE_F32, true, false, false, 0},
    {"nvfp4", OZ_ACT_NVFP4_TOKEN, 50, 256, 512, OZ_DTYPE_F4, OZ_DTYPE_F32, true, false, false, 0},
    {"nf4", OZ_ACT_NONE, 50, 256, 512, OZ_DTYPE_BF16, OZ_DTYPE_F32, true, false, false, 0},
    {"nf4_nested", OZ_ACT_NONE, 50, 256, 512, OZ_DTYPE_BF16, OZ_DTYPE_F32, true, false, false, 0},
    {"fp4_bnb", OZ_ACT_NONE, 50, 256, 512, OZ_DTYPE_BF16, OZ_DTYPE_F32, true, false, false, 0},
    {"u4_group+zeros", OZ_ACT_NONE, 50, 256, 512, OZ_DTYPE_BF16, OZ_DTYPE_F32, true, false, true,
     0},
    {"u3_group+zeros+perm", OZ_ACT_NONE, 50, 256, 512, OZ_DTYPE_BF16, OZ_DTYPE_F32, true, true,
     false, OZ_FN_SILU},
    {"u4_group+mins", OZ_ACT_NONE, 19, 36, 100, OZ_DTYPE_BF16, OZ_DTYPE_F32, true, false, false, 0},
    {"q4_k", OZ_ACT_NONE, 50, 256, 512, OZ_DTYPE_BF16, OZ_DTYPE_F32, true, false, true, 0},
    {"q8_0", OZ_ACT_NONE, 19, 36, 96, OZ_DTYPE_F32, OZ_DTYPE_F32, true, false, false, 0},
};

/* Rounding decoded weights (and rows) to bf16: half a unit in 2^8 of each factor. */
static double linear_bound(const struct linear_shape *s)
{
    bool wide = strcmp(s->codec, "f32") != 0 && strcmp(s->codec, "bf16") != 0;
    bool exact = s->mode == OZ_ACT_FP8_TOKEN || s->mode == OZ_ACT_INT8_TOKEN;
    /* Codes: where a sum lies between two, another rounding before it takes the other one; half a unit of
     * e4m3 is 2^-4, and one element in eight at most is so near. */
    double store = s->out == OZ_DTYPE_BF16      ? 0x1p-9
                   : s->out == OZ_DTYPE_F8_E4M3 ? 0x1p-6
                   : s->out == OZ_DTYPE_I8      ? 0x1p-10
                                                : 0;
    /* Tensor cores of e4m3 keep 13 bits below the largest term of a sum. */
    double sums = s->mode == OZ_ACT_FP8_TOKEN ? 0x1p-11 : 0x1p-18;
    double rows = strcmp(s->codec, "bf16") == 0 && s->x == OZ_DTYPE_F32 ? 0x1p-9 : 0;
    /* Where cuBLASLt adds the bias behind FP8, it is rounded to bf16; gelu comes behind bf16 there. */
    double bias = s->mode == OZ_ACT_FP8_TOKEN && s->bias ? 0x1p-10 : 0;
    double half = s->mode == OZ_ACT_FP8_TOKEN && s->fn != OZ_FN_NONE ? 0x1p-9 : 0;
    return store + sums + rows + bias + half + (wide && !exact ? 0x1p-8 : 0);
}

static struct gpu_case linear(struct twin *t, int variant)
{
    const struct linear_shape *s = &linears[variant];
    struct oz_act_spec spec = mode_spec(s->mode);
    bool coded = s->out == OZ_DTYPE_F8_E4M3 || s->out == OZ_DTYPE_I8;
    const struct oz_act_spec out = coded ? spec : (struct oz_act_spec){.dtype = s->out};
    struct oz_act *x = s->mode == OZ_ACT_NONE ? twin_act(t, s->m, s->k, 0, s->x, 1)
                                              : twin_quantized(t, s->m, s->k, &spec);
    struct oz_linear *w = twin_linear(t, s->codec, s->n, s->k, s->bias);
    args.linear = (struct oz_linear_args){.x = x, .w = w, .fn = s->fn};
    w->w.act_count = s->mode == OZ_ACT_NONE ? 0 : 1;
    w->w.acts[0] = spec;
    if (s->up) {
        args.linear.up = twin_linear(t, s->codec, s->n, s->k, s->bias);
    }
    struct oz_act *y =
        s->residual ? twin_act(t, s->m, s->n, 0, OZ_DTYPE_F32, 1) : twin_out(t, s->m, s->n, &out);
    if (s->residual) {
        struct oz_act *table = twin_act(t, 5, 2 * s->n, 0, OZ_DTYPE_F32, 1);
        args.linear.residual = y;
        args.linear.gate = (struct oz_mod){table, s->n};
        args.linear.mod_index = twin_ids(t, s->m, 5);
    } else {
        args.linear.out = y;
    }
    return (struct gpu_case){OZ_OP_LINEAR, &args, y, linear_bound(s)};
}

/* Weights whose scales lie with their codes. */
static const char *const packed[] = {
    "q4_0",           "q4_1",          "q5_0",           "q5_1",
    "q8_0",           "q8_1",          "q2_k",           "q3_k",
    "q4_k",           "q5_k",          "q6_k",           "q8_k",
    "iq4_nl",         "iq4_xs",        "iq2_xxs",        "iq2_xs",
    "iq2_s",          "iq3_xxs",       "iq3_s",          "iq1_s",
    "iq1_m",          "tq1_0",         "tq2_0",          "gguf_mxfp4",
    "gguf_nvfp4",     "q1_0",          "q2_0",           "u2_group",
    "u3_group",       "u4_group",      "u5_group",       "u6_group",
    "u7_group",       "u8_group",      "u2_group+zeros", "u3_group+zeros",
    "u4_group+zeros", "u8_group+mins", "u4_group+mins",  "u5_group+zeros+mins+perm",
    "u4_group+perm",  "u7_group+mins", "u6_group+zeros",
};

/* Rows of one 1 each pick columns of the weight: in f32 what it decodes to, bit for bit; else within half a unit
 * of bf16, which all elements of a block of few values may miss alike. */
static struct gpu_case decode(struct twin *t, int variant)
{
    enum { M = 64, N = 80, K = 768 };
    struct oz_act *x = twin_act(t, M, K, 0, OZ_DTYPE_F32, 0);
    struct oz_act *y = twin_out(t, M, N, &f32);
    for (int64_t r = 0; t->side == 0 && r < M; r++) {
        ((float *)x->data)[r * K + r * 253 % K] = 1;
    }
    args.linear = (struct oz_linear_args){
        .x = x, .w = twin_linear(t, packed[variant], N, K, false), .out = y};
    return (struct gpu_case){OZ_OP_LINEAR, &args, y, t->gpu->f32_math ? 0 : 0x1p-8};
}

/* ---- attention ---- */

struct attention_shape {
    int segments, heads, kv_heads, dim;
    enum oz_mask mask;
    int window;
    enum oz_dtype dtype, out;
    bool sinks;
};

static const struct attention_shape attentions[] = {
    {2, 4, 4, 64, OZ_MASK_NONE, 0, OZ_DTYPE_F32, OZ_DTYPE_BF16, false},
    {2, 3, 3, 128, OZ_MASK_NONE, 0, OZ_DTYPE_BF16, OZ_DTYPE_BF16, false},
    {1, 4, 2, 64, OZ_MASK_CAUSAL, 0, OZ_DTYPE_F32, OZ_DTYPE_F32, false},
    {1, 4, 2, 128, OZ_MASK_WINDOW, 37, OZ_DTYPE_F32, OZ_DTYPE_F32, true},
    {1, 1, 1, 96, OZ_MASK_NONE, 0, OZ_DTYPE_F32, OZ_DTYPE_F32, false},
    {1, 1, 1, 384, OZ_MASK_NONE, 0, OZ_DTYPE_F32, OZ_DTYPE_F32, false},
    {1, 2, 1, 16, OZ_MASK_CAUSAL, 0, OZ_DTYPE_F32, OZ_DTYPE_F32, false},
    {1, 2, 1, 40, OZ_MASK_CAUSAL, 0, OZ_DTYPE_F32, OZ_DTYPE_F32, false},
    {2, 2, 2, 128, OZ_MASK_NONE, 0, OZ_DTYPE_F32, OZ_DTYPE_BF16, false}, /* from here on long */
    {2, 2, 2, 64, OZ_MASK_NONE, 0, OZ_DTYPE_BF16, OZ_DTYPE_F32, false},
    {2, 1, 1, 384, OZ_MASK_NONE, 0, OZ_DTYPE_F32, OZ_DTYPE_BF16, false},
    {2, 2, 2, 264, OZ_MASK_NONE, 0, OZ_DTYPE_F32, OZ_DTYPE_F32, false},
    {2, 2, 2, 128, OZ_MASK_NONE, 0, OZ_DTYPE_F32, OZ_DTYPE_BF16, false}, /* multiples of 64 */
};
#define LONG 8
#define WHOLE 12

static struct gpu_case attention(struct twin *t, int variant)
{
    static const int32_t lengths[2][3] = {{70, 1, 150}, {20, 64, 3}};
    static const int32_t long_lengths[2][3] = {{30, 64, 11}, {700, 100, 1024}};
    static const int32_t whole_lengths[2][3] = {{64, 32, 128}, {704, 608, 1024}};
    const struct attention_shape *s = &attentions[variant];
    const struct oz_act_spec out = {.dtype = s->out};
    struct oz_act *y = NULL;
    args.attention = (struct oz_attention_args){.segment_count = s->segments,
                                                .heads = s->heads,
                                                .kv_heads = s->kv_heads,
                                                .head_dim = s->dim,
                                                .scale = 1.0F / sqrtf((float)s->dim),
                                                .mask = s->mask,
                                                .window = s->window};
    for (int i = s->segments - 1; i >= 0; i--) { /* the last made is the first: compared */
        struct oz_ragged *r = twin_ragged(t, 3,
                                          variant < LONG    ? lengths[i]
                                          : variant < WHOLE ? long_lengths[i]
                                                            : whole_lengths[i]);
        int64_t rows = r->offsets[3];
        int64_t q = (int64_t)s->heads * s->dim;
        int64_t kv = (int64_t)s->kv_heads * s->dim;
        y = twin_out(t, rows, q, &out);
        args.attention.segments[i].q = twin_act(t, rows, q, 0, s->dtype, 1);
        args.attention.segments[i].k = twin_act(t, rows, kv, 8, s->dtype, 1);
        args.attention.segments[i].v = twin_act(t, rows, kv, 16, s->dtype, 1);
        args.attention.segments[i].rows = r;
        args.attention.segments[i].out = y;
    }
    if (s->sinks) {
        args.attention.sinks = twin_vector(t, s->heads, 1);
    }
    /* q, k, v to bf16 (scores move by 2^-8 of their size, about 1), weights to bf16, the store. */
    return (struct gpu_case){OZ_OP_ATTENTION, &args, y, 0x1p-7};
}

/* ---- rows ---- */

static struct gpu_case norm_mod(struct twin *t, int variant)
{
    static const enum oz_norm norms[] = {OZ_NORM_LAYER, OZ_NORM_RMS,  OZ_NORM_CHANNEL_L2,
                                         OZ_NORM_LAYER, OZ_NORM_NONE, OZ_NORM_CHANNEL_L2,
                                         OZ_NORM_LAYER};
    static const int64_t cols[] = {3072, 256, 96, 100, 33, 384, 1000};
    static const int64_t rows[] = {37, 64, 1000, 9, 5, 77, 50};
    int64_t n = cols[variant];
    int64_t m = rows[variant];
    struct oz_act *x = twin_act(t, m, n, 4, OZ_DTYPE_F32, 1);
    struct oz_act *table = twin_act(t, 3, 3 * n, 0, OZ_DTYPE_F32, 1);
    struct oz_act *out = twin_out(t, m, n, variant == 0 || variant == 3 ? &bf16 : &f32);
    args.norm_mod = (struct oz_norm_mod_args){.x = x,
                                              .norm = norms[variant],
                                              .eps = 1e-6F,
                                              .out = out,
                                              .fn = variant == 2 ? OZ_FN_SILU : OZ_FN_NONE};
    if (variant != 0) {
        args.norm_mod.weight = twin_vector(t, n, 1);
    }
    if (variant == 0 || variant == 3) {
        args.norm_mod.shift = (struct oz_mod){table, 0};
        args.norm_mod.scale = (struct oz_mod){table, n};
        args.norm_mod.mod_index = twin_ids(t, m, 3);
    }
    if (variant == 3 || variant == 4) {
        args.norm_mod.y = twin_act(t, m, n, 0, OZ_DTYPE_BF16, 1);
        args.norm_mod.gate = (struct oz_mod){table, 2 * n};
        args.norm_mod.mul = twin_act(t, m, variant == 3 ? n : 1, 0, OZ_DTYPE_F32, 1);
        args.norm_mod.mul_fn = OZ_FN_SIGMOID;
    }
    return (struct gpu_case){OZ_OP_NORM_MOD, &args, out,
                             variant == 0 || variant == 3 ? 0x1p-10 : 0x1p-20};
}

static struct gpu_case rope(struct twin *t, int variant)
{
    bool pairs = variant != 1;
    struct oz_act *x = twin_act(t, 50, 4 * 64, 0, variant == 2 ? OZ_DTYPE_BF16 : OZ_DTYPE_F32, 1);
    args.rope =
        (struct oz_qk_norm_rope_args){.x = x,
                                      .heads = 4,
                                      .head_dim = 64,
                                      .eps = 1e-6F,
                                      .weight = pairs ? twin_vector(t, 64, 1) : NULL,
                                      .rope = pairs ? OZ_ROPE_PAIRS : OZ_ROPE_HALVES,
                                      .cosine = twin_act(t, 80, 32, 0, OZ_DTYPE_F32, 1),
                                      .sine = twin_act(t, 80, 32, 0, OZ_DTYPE_F32, 1),
                                      .table_rows = variant == 0 ? twin_ids(t, 50, 80) : NULL};
    return (struct gpu_case){OZ_OP_QK_NORM_ROPE, &args, x, variant == 2 ? 0x1p-9 : 0x1p-20};
}

static struct gpu_case act_quant(struct twin *t, int variant)
{
    static const enum oz_act_mode modes[] = {
        OZ_ACT_NONE,  OZ_ACT_FP8_TOKEN,       OZ_ACT_FP8_GROUP, OZ_ACT_INT8_TOKEN, OZ_ACT_MXFP8,
        OZ_ACT_MXFP4, OZ_ACT_MXFP4_DUALSCALE, OZ_ACT_NVFP4,     OZ_ACT_NVFP4_TOKEN};
    static const int32_t lengths[] = {10, 1, 26};
    struct oz_act_spec spec = mode_spec(modes[variant % 9]);
    int64_t cols = variant < 9 ? 1536 : 96; /* a block for a row; a warp */
    struct oz_act *x = twin_act(t, 37, cols, 0, OZ_DTYPE_F32, 3);
    if (variant % 9 == 0) {
        spec = bf16;
    } else if (variant >= 9) {
        spec.smooth = twin_vector(t, cols, 1)->weight.planes[OZ_PLANE_CODES].data;
    }
    struct oz_act *out = twin_out(t, 37, cols, &spec);
    args.quant = (struct oz_act_quant_args){
        .x = x, .out = out, .rows = 37, .sequences = twin_ragged(t, 3, lengths)};
    return (struct gpu_case){OZ_OP_ACT_QUANT, &args, out, 0}; /* the same codes and scales */
}

static struct gpu_case embed(struct twin *t, int variant)
{
    static const char *const codecs[] = {"bf16", "int8_channel", "mxfp4"};
    const char *codec = variant < 3 ? codecs[variant] : packed[variant - 3];
    struct oz_act *out = twin_out(t, 40, 256, &f32);
    args.embed = (struct oz_embed_args){.table = twin_weight(t, codec, 100, 256, 1),
                                        .ids = twin_ids(t, 40, 100),
                                        .scale = 1.5F,
                                        .out = out};
    return (struct gpu_case){OZ_OP_EMBED, &args, out, 0};
}

static struct gpu_case time_embed(struct twin *t, int variant)
{
    struct oz_act *times = twin_act(t, 1, 20, 0, OZ_DTYPE_F32, 0.3);
    struct oz_act *out = twin_out(t, 20, 256, &f32);
    args.time = (struct oz_time_embed_args){
        .t = times->data,
        .rows = 20,
        .dim = 256,
        .scale = 1000.0F,
        .linear_1 = twin_linear(t, variant == 0 ? "f32" : "bf16", 256, 256, true),
        .linear_2 = twin_linear(t, variant == 0 ? "f32" : "bf16", 256, 256, true),
        .silu_out = out};
    if (variant == 2) { /* quantized linears come apart */
        args.time.linear_1 = args.time.linear_2 = NULL;
        args.time.silu_out = NULL;
        args.time.out = out;
    }
    /* angles up to about 1000: half a unit of one is 2^-15, and expf is off by two. */
    return (struct gpu_case){OZ_OP_TIME_EMBED, &args, out, 0x1p-11};
}

/* ---- pictures ---- */

#define IN_PLACE 2

struct conv_shape {
    const char *codec;
    int frames, height, width, in, out, kt, k, stride, pad;
    int residual; /* 0: none; 1: of its own; IN_PLACE: what lies in the output's place */
    enum oz_fn fn;
};

static const struct conv_shape convs[] = {
    {"bf16", 1, 20, 31, 24, 48, 1, 3, 1, 1, 0, OZ_FN_NONE},
    {"bf16", 1, 16, 16, 96, 3, 1, 3, 1, 1, 0, OZ_FN_NONE},
    {"bf16", 1, 16, 18, 96, 96, 1, 3, 1, 1, 1, OZ_FN_SILU},
    {"f32", 1, 16, 16, 16, 16, 1, 1, 1, 0, 0, OZ_FN_NONE},
    {"f32", 3, 9, 8, 8, 20, 3, 3, 1, 1, 0, OZ_FN_NONE},
    {"bf16", 1, 17, 17, 24, 24, 1, 3, 2, 0, 0, OZ_FN_NONE},
    /* large enough for cuDNN's own */
    {"bf16", 1, 80, 96, 96, 96, 1, 3, 1, 1, 1, OZ_FN_NONE},
    {"bf16", 1, 80, 96, 96, 192, 1, 3, 1, 1, 0, OZ_FN_NONE},
    {"bf16", 1, 163, 165, 96, 96, 1, 3, 2, 0, 0, OZ_FN_NONE},
    {"bf16", 1, 80, 96, 96, 96, 1, 3, 1, 1, IN_PLACE, OZ_FN_NONE},
    {"bf16", 1, 16, 18, 96, 96, 1, 3, 1, 1, IN_PLACE, OZ_FN_NONE},
};

static struct gpu_case conv(struct twin *t, int variant)
{
    const struct conv_shape *s = &convs[variant];
    int64_t depth = (int64_t)s->kt * s->k * s->k * s->in;
    int64_t height = (s->height + 2 * s->pad - s->k) / s->stride + 1;
    int64_t width = (s->width + 2 * s->pad - s->k) / s->stride + 1;
    int64_t rows = s->frames * height * width;
    struct oz_act *x = twin_act(t, (int64_t)s->frames * s->height * s->width, s->in, 0,
                                strcmp(s->codec, "bf16") == 0 ? OZ_DTYPE_BF16 : OZ_DTYPE_F32, 1);
    struct oz_param *w = twin_weight(t, s->codec, s->out, depth, 1 / sqrt((double)depth));
    struct oz_act *out = s->residual == IN_PLACE ? twin_act(t, rows, s->out, 0, OZ_DTYPE_F32, 1)
                                                 : twin_out(t, rows, s->out, &f32);
    args.conv = (struct oz_conv_args){.x = x,
                                      .frames = s->frames,
                                      .height = s->height,
                                      .width = s->width,
                                      .w = w,
                                      .b = twin_vector(t, s->out, 1),
                                      .kt = s->kt,
                                      .kh = s->k,
                                      .kw = s->k,
                                      .stride = s->stride,
                                      .stride_t = 1,
                                      .pad_top = s->pad,
                                      .pad_bottom = s->pad,
                                      .pad_left = s->pad,
                                      .pad_right = s->pad,
                                      .fn = s->fn,
                                      .out = out};
    if (s->residual != 0) {
        args.conv.residual =
            s->residual == IN_PLACE ? out : twin_act(t, rows, s->out, 0, OZ_DTYPE_F32, 1);
    }
    return (struct gpu_case){OZ_OP_CONV, &args, out, 0x1p-18};
}

static struct gpu_case resample(struct twin *t, int variant)
{
    static const enum oz_resample kinds[] = {OZ_RESAMPLE_NEAREST, OZ_RESAMPLE_DUP_UP,
                                             OZ_RESAMPLE_AVG_DOWN, OZ_RESAMPLE_NEAREST};
    bool down = variant == 2;
    int32_t frames = variant == 3 ? 1 : 2;
    struct oz_act *x = twin_act(t, frames * 8 * 10, 16, 0, OZ_DTYPE_F32, 1);
    struct oz_act *out = twin_out(t, down ? 2 * 4 * 5 : frames * 16 * 20, variant == 1 ? 8 : 16,
                                  variant == 3 ? &bf16 : &f32);
    args.resample = (struct oz_resample_args){.x = x,
                                              .kind = kinds[variant],
                                              .frames = frames,
                                              .height = 8,
                                              .width = 10,
                                              .factor_t = 1,
                                              .factor_y = 2,
                                              .factor_x = 2,
                                              .out = out};
    return (struct gpu_case){OZ_OP_RESAMPLE, &args, out, variant == 3 ? 0x1p-8 : 0};
}

static struct gpu_case patch(struct twin *t, int variant)
{
    struct oz_act *out = twin_out(t, 2 * 4 * 5, 12, &f32);
    args.patch =
        (struct oz_patch_args){.picture = twin_act(t, 1, 3 * 2 * 8 * 10, 0, OZ_DTYPE_F32, 1)->data,
                               .order = (enum oz_patch_order)variant,
                               .channels = 3,
                               .frames = 2,
                               .height = 8,
                               .width = 10,
                               .patch = 2,
                               .tokens = out};
    return (struct gpu_case){OZ_OP_PATCH, &args, out, 0};
}

static struct gpu_case unpatch(struct twin *t, int variant)
{
    bool last = variant % 2 == 0;
    struct oz_act *out = twin_out(t, last ? 160 : 3, last ? 3 : 160, &f32);
    args.unpatch =
        (struct oz_unpatch_args){.tokens = twin_act(t, 2 * 4 * 5, 12, 0, OZ_DTYPE_F32, 1),
                                 .order = (enum oz_patch_order)variant,
                                 .channels = 3,
                                 .frames = 2,
                                 .height = 8,
                                 .width = 10,
                                 .patch = 2,
                                 .channel_scale = twin_act(t, 1, 3, 0, OZ_DTYPE_F32, 1)->data,
                                 .channel_shift = twin_act(t, 1, 3, 0, OZ_DTYPE_F32, 1)->data,
                                 .out = out,
                                 .channel_last = last};
    return (struct gpu_case){OZ_OP_UNPATCH, &args, out, 0};
}

/* ---- steps ---- */

static struct gpu_case cfg_combine(struct twin *t, int variant)
{
    struct oz_act *positive = twin_act(t, 64, 64, 0, OZ_DTYPE_F32, 1);
    args.cfg = (struct oz_cfg_combine_args){.positive = positive,
                                            .negative = twin_act(t, 64, 64, 0, OZ_DTYPE_F32, 1),
                                            .guidance = 4,
                                            .rescale = variant == 1,
                                            .out = positive};
    return (struct gpu_case){OZ_OP_CFG_COMBINE, &args, positive, variant == 1 ? 0x1p-20 : 0};
}

static struct gpu_case sched_step(struct twin *t, int variant)
{
    struct oz_act *x = twin_act(t, 64, 64, 0, OZ_DTYPE_F32, 1);
    args.sched =
        (struct oz_sched_step_args){.x = x,
                                    .keep = variant == 0,
                                    .count = 1 + variant,
                                    .factors = twin_act(t, 1, 8, 0, OZ_DTYPE_F32, 1)->data};
    for (int i = 0; i <= variant; i++) {
        args.sched.terms[i] = twin_act(t, 64, 64, 0, OZ_DTYPE_F32, 1);
    }
    return (struct gpu_case){OZ_OP_SCHED_STEP, &args, x, 0x1p-22}; /* the CPU's fuses */
}

#define COUNT(list) (int)(sizeof(list) / sizeof *(list))

const struct gpu_family gpu_families[] = {
    {"linear", linear, COUNT(linears)},
    {"decode", decode, COUNT(packed)},
    {"attention", attention, COUNT(attentions)},
    {"norm_mod", norm_mod, 7},
    {"qk_norm_rope", rope, 3},
    {"act_quant", act_quant, 18},
    {"embed", embed, 3 + COUNT(packed)},
    {"time_embed", time_embed, 3},
    {"conv", conv, COUNT(convs)},
    {"resample", resample, 4},
    {"patch", patch, 3},
    {"unpatch", unpatch, 3},
    {"cfg_combine", cfg_combine, 2},
    {"sched_step", sched_step, 2},
    {NULL, NULL, 0},
};
