/*
 * Shapes of real models, and operands for them. Qwen-Image: D = 3072 (24 heads of 128), 4 D in the
 * MLP, 4160 rows at 1024 x 1024 with 64 of text; its VAE. The emoji model: D = 256.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/pool.h"
#include "cpu/bench.h"
#include "cpu/gemm.h"
#include "cpu/kern/ref/ref.h"
#include "cpu/plan.h"
#include "cpu/qgemm.h"
#include "num/float.h"

#define ALIGN 64
#define COLD_BYTES ((size_t)512 << 20) /* operands that no cache holds, all copies together */
#define MAX_COPIES 96
#define SECOND_CACHE ((size_t)512 << 10) /* where the system does not say */
#define PAGE ((size_t)4096)
#define ENCODED_ROWS 128 /* of different random values, where a codec allows */

#define LINEAR(where, m, n, k, tail)                                               \
    {OZ_OP_LINEAR, where,          m,    n,          k, tail, 0, 0, OZ_DTYPE_BF16, \
     false,        OZ_CEILING_F32, NULL, OZ_ACT_NONE},
#define LINEAR_LARGE(where, m, n, k, tail)                                         \
    {OZ_OP_LINEAR, where,          m,    n,          k, tail, 0, 0, OZ_DTYPE_BF16, \
     true,         OZ_CEILING_F32, NULL, OZ_ACT_NONE},
#define LINEAR_READ(where, n, k, tail)                                              \
    {OZ_OP_LINEAR, where,           1,    n,          k, tail, 0, 0, OZ_DTYPE_BF16, \
     false,        OZ_CEILING_READ, NULL, OZ_ACT_NONE},
#define LINEAR_F32(where, m, n, k, tail)                                          \
    {OZ_OP_LINEAR, where,          m,    n,          k, tail, 0, 0, OZ_DTYPE_F32, \
     false,        OZ_CEILING_F32, NULL, OZ_ACT_NONE},
/* Weights of a codec by rows of an activation mode, 3072 x 3072: one row as memory is read, many. */
#define LINEAR_CODEC(codec, act)                                                              \
    {OZ_OP_LINEAR, "qwen.qkv",      1,     3072, 3072, OZ_BENCH_BIAS, 0, 0, OZ_DTYPE_BF16,    \
     false,        OZ_CEILING_READ, codec, act},                                              \
        {OZ_OP_LINEAR, "qwen.qkv",     64,    3072, 3072, OZ_BENCH_BIAS, 0, 0, OZ_DTYPE_BF16, \
         false,        OZ_CEILING_F32, codec, act},                                           \
        {OZ_OP_LINEAR, "qwen.qkv",     256,   3072, 3072, OZ_BENCH_BIAS, 0, 0, OZ_DTYPE_BF16, \
         false,        OZ_CEILING_F32, codec, act},                                           \
        {OZ_OP_LINEAR,  "qwen.qkv", 1024,           3072,  3072, OZ_BENCH_BIAS, 0, 0,         \
         OZ_DTYPE_BF16, false,      OZ_CEILING_F32, codec, act},
/* m rows, that many heads of k */
#define ATTENTION(where, m, heads, k, large)                                             \
    {OZ_OP_ATTENTION, where,          m,    (heads) * (k), k, heads, k, 0, OZ_DTYPE_F32, \
     large,           OZ_CEILING_F32, NULL, OZ_ACT_NONE},
/* n features in, k out, height, width, side of the window; m its pixels */
#define CONV(where, h, w, in, out, side)                                     \
    {OZ_OP_CONV,    where, (int64_t)(h) * (w), out,  in,         h, w, side, \
     OZ_DTYPE_BF16, false, OZ_CEILING_F32,     NULL, OZ_ACT_NONE},
/* m rows of n; a: which of an operator's forms */
#define ROWS(op, where, m, n, a, dtype) \
    {op, where, m, n, 0, a, 128, 0, dtype, false, OZ_CEILING_UPDATE, NULL, OZ_ACT_NONE},
#define RESAMPLE(where, h, w, c)                                           \
    {OZ_OP_RESAMPLE, where, (int64_t)(h) * (w), c,    0,          h, w, 2, \
     OZ_DTYPE_F32,   false, OZ_CEILING_UPDATE,  NULL, OZ_ACT_NONE},

// clang-format off
const struct oz_bench_shape oz_bench_shapes[] = {
    LINEAR_READ("qwen.qkv", 3072, 3072, OZ_BENCH_BIAS)
    LINEAR("qwen.qkv", 64, 3072, 3072, OZ_BENCH_BIAS)
    LINEAR("qwen.qkv", 256, 3072, 3072, OZ_BENCH_BIAS)
    LINEAR("qwen.qkv", 1024, 3072, 3072, OZ_BENCH_BIAS)
    LINEAR_LARGE("qwen.qkv", 4096, 3072, 3072, OZ_BENCH_BIAS)
    LINEAR_READ("qwen.mlp.up", 12288, 3072, OZ_BENCH_GELU)
    LINEAR("qwen.mlp.up", 64, 12288, 3072, OZ_BENCH_GELU)
    LINEAR("qwen.mlp.up", 256, 12288, 3072, OZ_BENCH_GELU)
    LINEAR("qwen.mlp.up", 1024, 12288, 3072, OZ_BENCH_GELU)
    LINEAR_LARGE("qwen.mlp.up", 4096, 12288, 3072, OZ_BENCH_GELU)
    LINEAR_READ("qwen.mlp.down", 3072, 12288, OZ_BENCH_RESIDUAL)
    LINEAR("qwen.mlp.down", 64, 3072, 12288, OZ_BENCH_RESIDUAL)
    LINEAR("qwen.mlp.down", 256, 3072, 12288, OZ_BENCH_RESIDUAL)
    LINEAR("qwen.mlp.down", 1024, 3072, 12288, OZ_BENCH_RESIDUAL)
    LINEAR_LARGE("qwen.mlp.down", 4096, 3072, 12288, OZ_BENCH_RESIDUAL)
    LINEAR_F32("qwen.qkv", 256, 3072, 3072, OZ_BENCH_BIAS)
    LINEAR("emoji.qkv", 64, 256, 256, OZ_BENCH_BIAS)
    LINEAR("emoji.mlp.up", 64, 1024, 256, OZ_BENCH_GELU)
    LINEAR("emoji.mlp.down", 64, 256, 1024, OZ_BENCH_RESIDUAL)
    LINEAR_CODEC("int8_channel", OZ_ACT_INT8_TOKEN)
    LINEAR_CODEC("int8_channel", OZ_ACT_NONE)
    LINEAR_CODEC("fp8_channel", OZ_ACT_FP8_TOKEN)
    LINEAR_CODEC("fp8_channel", OZ_ACT_NONE)
    LINEAR_CODEC("fp8_block", OZ_ACT_FP8_GROUP)
    LINEAR_CODEC("mxfp8", OZ_ACT_MXFP8)
    LINEAR_CODEC("mxfp8", OZ_ACT_NONE)
    LINEAR_CODEC("mxfp4", OZ_ACT_MXFP4)
    LINEAR_CODEC("mxfp4", OZ_ACT_MXFP8)
    LINEAR_CODEC("mxfp4", OZ_ACT_NONE)
    LINEAR_CODEC("mxfp4_dualscale", OZ_ACT_MXFP4_DUALSCALE)
    LINEAR_CODEC("nvfp4", OZ_ACT_NVFP4)
    LINEAR_CODEC("nvfp4", OZ_ACT_NONE)
    LINEAR_CODEC("nf4", OZ_ACT_NONE)
    LINEAR_CODEC("u4_group", OZ_ACT_NONE)
    ATTENTION("emoji.joint", 76, 4, 64, false)
    ATTENTION("qwen.joint", 320, 24, 128, false)
    ATTENTION("qwen.joint", 1088, 24, 128, false)
    ATTENTION("qwen.joint", 4160, 24, 128, true)
    ROWS(OZ_OP_NORM_MOD, "qwen.norm", 4096, 3072, 0, OZ_DTYPE_BF16)
    ROWS(OZ_OP_NORM_MOD, "qwen.norm", 4096, 3072, 0, OZ_DTYPE_F32)
    ROWS(OZ_OP_NORM_MOD, "qwen.residual.norm", 4096, 3072, 1, OZ_DTYPE_BF16)
    ROWS(OZ_OP_NORM_MOD, "emoji.norm", 64, 256, 0, OZ_DTYPE_F32)
    ROWS(OZ_OP_QK_NORM_ROPE, "qwen.qk", 4096, 3072, 0, OZ_DTYPE_F32)
    ROWS(OZ_OP_ACT_QUANT, "qwen.convert", 4096, 3072, 0, OZ_DTYPE_BF16)
    CONV("emoji.vae.mid", 16, 16, 96, 96, 3)
    CONV("emoji.vae.out", 128, 128, 24, 24, 3)
    CONV("qwen.vae.mid", 64, 64, 384, 384, 3)
    CONV("qwen.vae.up2", 128, 128, 192, 192, 3)
    CONV("qwen.vae.up3", 256, 256, 96, 96, 3)
    CONV("qwen.vae.rgb", 256, 256, 96, 3, 3)
    RESAMPLE("qwen.vae.up2", 128, 128, 192)
};
// clang-format on
const int32_t oz_bench_shape_count = (int32_t)(sizeof oz_bench_shapes / sizeof *oz_bench_shapes);

void oz_bench_shape_name(const struct oz_bench_shape *s, char name[OZ_BENCH_NAME_BYTES])
{
    const char *dtype = s->dtype == OZ_DTYPE_BF16 ? "bf16" : "f32";
    switch (s->op) {
    case OZ_OP_LINEAR:
        (void)snprintf(name, OZ_BENCH_NAME_BYTES, "%s m%d n%d k%d %s%s%s", s->where, (int)s->m,
                       (int)s->n, (int)s->k, s->codec != NULL ? s->codec : dtype,
                       s->codec != NULL ? "/" : "",
                       s->codec != NULL ? oz_act_mode_name(s->act) : "");
        break;
    case OZ_OP_ATTENTION:
        (void)snprintf(name, OZ_BENCH_NAME_BYTES, "%s s%d h%dx%d", s->where, (int)s->m, s->a, s->b);
        break;
    case OZ_OP_CONV:
        (void)snprintf(name, OZ_BENCH_NAME_BYTES, "%s %dx%d %d>%d %dx%d %s", s->where, s->a, s->b,
                       (int)s->k, (int)s->n, s->c, s->c, dtype);
        break;
    case OZ_OP_RESAMPLE:
        (void)snprintf(name, OZ_BENCH_NAME_BYTES, "%s %dx%d c%d", s->where, s->a, s->b, (int)s->n);
        break;
    default:
        (void)snprintf(name, OZ_BENCH_NAME_BYTES, "%s m%d n%d %s", s->where, (int)s->m, (int)s->n,
                       dtype);
        break;
    }
}

/* ---- operands ---- */

/* Everything that a case's arguments point to. */
struct operands {
    struct oz_bench_case *c;
    enum oz_status status; /* sticky */
    uint64_t random;
    struct oz_act x, y, out, table, cosine, sine;
    struct oz_param weight, vector, bias;
    struct oz_param_plan *plan;
    struct oz_linear linears[MAX_COPIES];
    int32_t copies;
    struct {
        struct oz_act *act;
        uint8_t *copies;
        size_t bytes; /* of one */
    } streams[4];     /* that differ from run to run */
    int32_t stream_count;
    int32_t offsets[2];
    struct oz_ragged rows;
    union {
        struct oz_linear_args linear;
        struct oz_attention_args attention;
        struct oz_conv_args conv;
        struct oz_norm_mod_args norm_mod;
        struct oz_qk_norm_rope_args qk_norm_rope;
        struct oz_act_quant_args act_quant;
        struct oz_resample_args resample;
    } args;
};

static void *block(struct operands *o, size_t bytes)
{
    struct oz_bench_case *c = o->c;
    void *memory = NULL;
    if (o->status == OZ_OK && c->block_count < OZ_BENCH_BLOCKS) {
        memory = oz_alloc_large((bytes + ALIGN - 1) / ALIGN * ALIGN, ALIGN);
        c->blocks[c->block_count++] = memory;
    }
    if (memory == NULL && o->status == OZ_OK) {
        o->status = OZ_ERR_NOMEM;
    }
    return memory;
}

/* Uniform in [-1, 1) times `scale`. */
static float draw(struct operands *o, float scale)
{
    o->random = o->random * 6364136223846793005U + 1442695040888963407U;
    return scale * ((float)(o->random >> 40) * 0x1p-23F - 1.0F);
}

static void *numbers(struct operands *o, int64_t count, enum oz_dtype dtype, float scale)
{
    void *memory = block(o, (size_t)count * (size_t)oz_dtype_bits(dtype) / 8);
    for (int64_t i = 0; memory != NULL && i < count; i++) {
        float v = draw(o, scale);
        if (dtype == OZ_DTYPE_BF16) {
            ((uint16_t *)memory)[i] = oz_f32_to_bf16(v);
        } else {
            ((float *)memory)[i] = v;
        }
    }
    return memory;
}

static struct oz_act act(struct operands *o, int64_t rows, int64_t cols, enum oz_dtype dtype)
{
    return (struct oz_act){.data = numbers(o, rows * cols, dtype, 1.7F),
                           .rows = rows,
                           .cols = cols,
                           .stride = cols,
                           .spec = {.dtype = dtype}};
}

static struct oz_param vector(struct operands *o, int64_t n)
{
    return (struct oz_param){
        .name = "vector",
        .rank = 1,
        .shape = {n},
        .weight = oz_weight_plain(OZ_DTYPE_F32, 1, 1, n, numbers(o, n, OZ_DTYPE_F32, 0.1F))};
}

/* Of a codec that nothing is encoded in here: any bytes are codes, scales are numbers. */
static void draw_planes(struct operands *o, struct oz_weight *w)
{
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        struct oz_plane_view *v = &w->planes[i];
        for (int64_t at = 0; v->present && v->dtype == OZ_DTYPE_F32 && at < v->bytes / 4; at++) {
            ((float *)v->data)[at] = draw(o, 0.1F);
        }
        for (int64_t at = 0; v->present && v->dtype == OZ_DTYPE_U8 && at < v->bytes; at++) {
            ((uint8_t *)v->data)[at] = (uint8_t)(128 + (int)draw(o, 128));
        }
    }
}

/* Random values in the weight's codec: as many rows as it takes at once, again and again. */
static enum oz_status encode_weight(struct operands *o, struct oz_weight *w)
{
    int64_t scope = oz_weight_scope_rows(w);
    int64_t rows = scope < w->rows && scope < ENCODED_ROWS ? ENCODED_ROWS : w->rows;
    float *values = numbers(o, rows * w->cols, OZ_DTYPE_F32, 0.1F);
    struct oz_encode_state state;
    for (int i = 0; i < OZ_PLANE_COUNT && o->status == OZ_OK; i++) {
        struct oz_plane_view *v = &w->planes[i];
        if (v->present) {
            OZ_TRY(oz_weight_plane_bytes(w, (enum oz_plane)i, &v->bytes, &v->row_stride_bytes));
            v->slice_stride_bytes = v->bytes;
            v->data = block(o, (size_t)v->bytes);
        }
    }
    OZ_TRY(o->status);
    if (w->codec->encode == NULL) {
        draw_planes(o, w);
        return OZ_OK;
    }
    oz_encode_state_init(&state);
    for (; state.pass < w->codec->observe_passes; state.pass++) {
        OZ_TRY(w->codec->observe(w, 0, values, rows, w->cols, &state));
    }
    if (w->codec->begin != NULL) {
        w->codec->begin(w, 0, &state);
    }
    for (int64_t row = 0; row < w->rows; row += rows) {
        int64_t some = w->rows - row < rows ? w->rows - row : rows;
        OZ_TRY(w->codec->encode(w, 0, row, values, some, w->cols, &state));
    }
    return OZ_OK;
}

/* The format of a mode (levels above have the whole table). */
static struct oz_act_spec rows_in(enum oz_act_mode mode)
{
    struct oz_act_spec s = {.dtype = OZ_DTYPE_F32, .scale_count = mode != OZ_ACT_NONE};
    bool mx = mode == OZ_ACT_MXFP8 || mode == OZ_ACT_MXFP4 || mode == OZ_ACT_MXFP4_DUALSCALE;
    bool fp4 = mode == OZ_ACT_MXFP4 || mode == OZ_ACT_MXFP4_DUALSCALE || mode == OZ_ACT_NVFP4;
    if (mode != OZ_ACT_NONE) {
        s.dtype = fp4 ? OZ_DTYPE_F4 : mode == OZ_ACT_INT8_TOKEN ? OZ_DTYPE_I8 : OZ_DTYPE_F8_E4M3;
        s.scale[0].dtype = mx                     ? OZ_DTYPE_F8_E8M0
                           : mode == OZ_ACT_NVFP4 ? OZ_DTYPE_F8_E4M3
                                                  : OZ_DTYPE_F32;
        s.scale[0].group_cols = mx                         ? 32
                                : mode == OZ_ACT_NVFP4     ? 16
                                : mode == OZ_ACT_FP8_GROUP ? 128
                                                           : 0;
    }
    if (mode == OZ_ACT_NVFP4 || mode == OZ_ACT_MXFP4_DUALSCALE) {
        s.scale_count = 2;
        s.scale[1].dtype = OZ_DTYPE_F32;
        s.scale[1].group_cols = mode == OZ_ACT_MXFP4_DUALSCALE ? 512 : 0;
    }
    return s;
}

/* Rows in a quantized format. */
static struct oz_act quantized_rows(struct operands *o, int64_t rows, int64_t cols,
                                    const struct oz_act_spec *spec)
{
    struct oz_act from = act(o, rows, cols, OZ_DTYPE_F32);
    struct oz_act a = {.rows = rows, .cols = cols, .stride = cols, .spec = *spec};
    a.data = block(o, (size_t)(rows * cols * oz_dtype_bits(spec->dtype) / 8));
    for (int i = 0; i < spec->scale_count; i++) {
        int64_t group = spec->scale[i].group_cols > 0 ? spec->scale[i].group_cols : cols;
        a.scales[i] = block(o, (size_t)(rows * ((cols + group - 1) / group) *
                                        oz_dtype_bits(spec->scale[i].dtype) / 8));
    }
    for (int64_t r = 0; r < rows && o->status == OZ_OK; r++) {
        oz_ref_store_row(&a, r, 1.7F, (const float *)from.data + r * cols);
    }
    return a;
}

/* Why the one kernel declines. */
static void keep_reason(void *ctx, const char *kernel, const char *reason)
{
    struct oz_bench_case *c = ctx;
    c->declined = strcmp(kernel, c->kernel->name) == 0 ? reason : c->declined;
}

/* The weight, planned and packed for the one kernel. */
static enum oz_status plan_weight(struct operands *o, const struct oz_bench_shape *s, int64_t depth,
                                  enum oz_param_use use, struct oz_plan_answer *answer,
                                  struct oz_error *err)
{
    struct oz_bench_case *c = o->c;
    const struct oz_plan_request request = {.use = use, .report = keep_reason, .report_ctx = c};
    struct oz_param *w = &o->weight;
    *w = (struct oz_param){.name = "weight", .rank = 2, .shape = {s->n, depth}};
    const struct oz_codec *codec =
        s->codec != NULL ? oz_codec_find(s->codec) : oz_codec_plain(s->dtype);
    w->weight = oz_weight_shape(codec, 1, s->n, depth);
    if (s->codec != NULL) {
        w->act_count = 1;
        w->acts[0] = rows_in(s->act);
    }
    OZ_TRY(oz_cpu_plan_param(c->dev, w, &request, answer, err));
    w->plan = answer->plan;
    if (answer->plan->kernel != c->kernel) {
        c->declined = c->declined != NULL ? c->declined : "its plan declines such weights";
        return OZ_OK;
    }
    if (s->codec != NULL && s->m == 1 && c->kernel->q == NULL) {
        c->declined = "it decodes a weight for many rows";
        return OZ_OK;
    }
    if (s->codec == NULL) {
        w->weight =
            oz_weight_plain(s->dtype, 1, s->n, depth, numbers(o, s->n * depth, s->dtype, 0.1F));
    } else {
        OZ_TRY(encode_weight(o, &w->weight));
    }
    if (answer->packed_bytes > 0) {
        w->packed = block(o, answer->packed_bytes);
    }
    if (o->status != OZ_OK || w->packed == NULL) {
        return o->status;
    }
    struct oz_weight band = w->weight;
    return oz_cpu_pack_band(c->dev, NULL, w, 0, 0, s->n, &band, err);
}

static void turn_linear(struct oz_bench_case *c, int64_t run)
{
    struct operands *o = c->turn_ctx;
    o->args.linear.w = &o->linears[run % o->copies];
}

/* Copies of what the kernel reads of the weight, until no cache holds them all. */
static void copy_weight(struct operands *o, size_t bytes)
{
    bool packed = o->weight.packed != NULL;
    const void *from = packed ? o->weight.packed : o->weight.weight.planes[OZ_PLANE_CODES].data;
    size_t count = COLD_BYTES / bytes;
    count = count < 2 ? 2 : count > MAX_COPIES ? MAX_COPIES : count;
    uint8_t *all = block(o, bytes * count);
    for (size_t i = 0; i < count && all != NULL; i++) {
        uint8_t *to = all + i * bytes;
        memcpy(to, from, bytes);
        o->linears[i] = o->linears[0];
        if (packed) {
            o->linears[i].w.packed = to;
        } else {
            o->linears[i].w.weight.planes[OZ_PLANE_CODES].data = to;
        }
    }
    o->copies = (int32_t)count;
    o->c->turn = turn_linear;
    o->c->turn_ctx = o;
}

/* Of a core, as far as the system says. */
static size_t second_cache(void)
{
    long bytes = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return bytes > 0 ? (size_t)bytes : SECOND_CACHE;
}

/* What a thread multiplies again and again: its own copy of the weight's first features. */
struct warm {
    struct oz_linear_args args;
    struct oz_linear linear;
    struct oz_act out;
};

static void fill_warm(struct operands *o, struct warm *w, int64_t features, void *packed, void *out)
{
    w->linear = o->linears[0];
    w->linear.w.packed = packed;
    w->linear.w.shape[0] = features;
    w->linear.w.weight.rows = features;
    w->linear.b.shape[0] = features;
    w->linear.b.weight.cols = features;
    w->out = o->y;
    w->out.data = out;
    w->out.cols = features;
    w->out.stride = features;
    w->args = o->args.linear;
    w->args.w = &w->linear;
    w->args.out = &w->out;
}

/* As many panels as half of a second cache holds, at least one: the other half is for rows and sums, and
 * for a neighbour on the core. */
static void keep_warm(struct operands *o, size_t bytes)
{
    struct oz_bench_case *c = o->c;
    int32_t threads = oz_pool_threads(c->dev->pool);
    int64_t panels = o->weight.shape[0] / OZ_Q_NR;
    size_t panel = bytes / (size_t)panels;
    int64_t some = (int64_t)(second_cache() / 2 / panel);
    some = some < 1 ? 1 : some > panels ? panels : some;
    size_t weight = (panel * (size_t)some + PAGE - 1) / PAGE * PAGE;
    size_t out = (size_t)(some * OZ_Q_NR) * sizeof(float);
    struct warm *all = block(o, 2 * (size_t)threads * sizeof *all);
    uint8_t *memory = block(o, (size_t)threads * (weight + (out + PAGE - 1) / PAGE * PAGE));
    c->warm = block(o, (size_t)threads * sizeof *c->warm);
    for (int32_t i = 0; i < threads && o->status == OZ_OK; i++) {
        uint8_t *packed = memory + (size_t)i * (weight + (out + PAGE - 1) / PAGE * PAGE);
        memcpy(packed, o->weight.packed, panel * (size_t)some);
        fill_warm(o, &all[2 * i], some * OZ_Q_NR, packed, packed + weight);
        fill_warm(o, &all[2 * i + 1], OZ_Q_NR, packed, packed + weight);
        c->warm[i] = (struct oz_bench_warm){.args = &all[2 * i].args,
                                            .first = &all[2 * i + 1].args,
                                            .work = 1e-9 * (double)(panel * (size_t)some),
                                            .first_work = 1e-9 * (double)panel};
        c->warm_count = i + 1;
    }
}

static void turn_rows(struct oz_bench_case *c, int64_t run)
{
    struct operands *o = c->turn_ctx;
    for (int32_t i = 0; i < o->stream_count; i++) {
        o->streams[i].act->data =
            o->streams[i].copies + (size_t)(run % o->copies) * o->streams[i].bytes;
    }
}

/* The same for what an operator that moves rows reads and writes: acts, NULL behind the last. */
static void copy_rows(struct operands *o, struct oz_act *const *acts)
{
    size_t all = 0;
    for (int32_t i = 0; acts[i] != NULL; i++) {
        size_t bytes =
            (size_t)(acts[i]->rows * acts[i]->stride * oz_dtype_bits(acts[i]->spec.dtype) / 8);
        o->streams[i].act = acts[i];
        o->streams[i].bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
        all += o->streams[i].bytes;
        o->stream_count++;
    }
    if (o->status != OZ_OK) {
        return;
    }
    o->copies = (int32_t)(COLD_BYTES / all + 1);
    for (int32_t i = 0; i < o->stream_count; i++) {
        o->streams[i].copies = block(o, o->streams[i].bytes * (size_t)o->copies);
        for (int32_t j = 0; j < o->copies && o->streams[i].copies != NULL; j++) {
            memcpy(
                o->streams[i].copies + (size_t)j * o->streams[i].bytes, acts[i]->data,
                (size_t)(acts[i]->rows * acts[i]->stride * oz_dtype_bits(acts[i]->spec.dtype) / 8));
        }
    }
    o->c->turn = o->status == OZ_OK ? turn_rows : NULL;
    o->c->turn_ctx = o;
}

/* ---- cases ---- */

/* What a kernel's inputs multiply at. */
static enum oz_ceiling ceiling_of(const struct oz_cpu_kernel *k)
{
    if (k->q != NULL) {
        enum oz_qrows rows = k->q->rows;
        return rows == OZ_QROWS_BF16 || rows == OZ_QROWS_FOLDED ? OZ_CEILING_BF16
               : rows == OZ_QROWS_F32                           ? OZ_CEILING_F32
                                                                : OZ_CEILING_S8;
    }
    if (k->gemm != NULL) {
        return k->gemm->a_dtype == OZ_DTYPE_BF16 ? OZ_CEILING_BF16 : OZ_CEILING_F32;
    }
    return strstr(k->name, "_bf16_") != NULL || strstr(k->name, "_bf16__") != NULL ? OZ_CEILING_BF16
                                                                                   : OZ_CEILING_F32;
}

static enum oz_status make_linear(struct operands *o, const struct oz_bench_shape *s,
                                  struct oz_error *err)
{
    struct oz_plan_answer answer;
    OZ_TRY(plan_weight(o, s, s->k, OZ_USE_LINEAR, &answer, err));
    if (o->c->declined != NULL) {
        return OZ_OK;
    }
    o->x = s->codec != NULL && s->act != OZ_ACT_NONE ? quantized_rows(o, s->m, s->k, &answer.wants)
                                                     : act(o, s->m, s->k, answer.wants.dtype);
    o->linears[0] = (struct oz_linear){.w = o->weight, .b = vector(o, s->n)};
    o->copies = 1;
    o->args.linear = (struct oz_linear_args){.x = &o->x, .w = &o->linears[0]};
    o->y = act(o, s->m, s->n, s->a == OZ_BENCH_GELU ? answer.wants.dtype : OZ_DTYPE_F32);
    if (s->a == OZ_BENCH_RESIDUAL) {
        o->table = act(o, 1, s->n, OZ_DTYPE_F32);
        o->args.linear.gate.table = &o->table;
        o->args.linear.residual = &o->y;
    } else {
        o->args.linear.fn = s->a == OZ_BENCH_GELU ? OZ_FN_GELU_TANH : OZ_FN_NONE;
        o->args.linear.out = &o->y;
    }
    if (s->ceiling == OZ_CEILING_READ && o->status == OZ_OK) {
        size_t plain = (size_t)(s->n * s->k) * (size_t)oz_dtype_bits(s->dtype) / 8;
        size_t bytes = answer.packed_bytes > 0 ? answer.packed_bytes : plain;
        copy_weight(o, bytes);
        if (o->c->kernel->q != NULL) {
            keep_warm(o, bytes);
        }
        o->c->work = (double)bytes * 1e-9;
    } else {
        o->c->work = 2e-9 * (double)s->m * (double)s->n * (double)s->k;
    }
    return o->status;
}

static enum oz_status make_conv(struct operands *o, const struct oz_bench_shape *s,
                                struct oz_error *err)
{
    struct oz_plan_answer answer;
    int64_t depth = s->k * s->c * s->c;
    OZ_TRY(plan_weight(o, s, depth, OZ_USE_CONV, &answer, err));
    if (o->c->declined != NULL) {
        return OZ_OK;
    }
    o->x = act(o, s->m, s->k, OZ_DTYPE_F32);
    o->out = act(o, s->m, s->n, OZ_DTYPE_F32);
    o->bias = vector(o, s->n);
    o->args.conv = (struct oz_conv_args){
        .x = &o->x,
        .frames = 1,
        .height = s->a,
        .width = s->b,
        .w = &o->weight,
        .b = &o->bias,
        .kt = 1,
        .kh = s->c,
        .kw = s->c,
        .stride = 1,
        .stride_t = 1,
        .pad_top = s->c / 2,
        .pad_bottom = s->c / 2,
        .pad_left = s->c / 2,
        .pad_right = s->c / 2,
        .out = &o->out,
    };
    o->c->work = 2e-9 * (double)s->m * (double)s->n * (double)depth;
    return o->status;
}

static enum oz_status make_attention(struct operands *o, const struct oz_bench_shape *s)
{
    o->offsets[1] = (int32_t)s->m;
    o->rows = (struct oz_ragged){.count = 1, .offsets = o->offsets, .device_offsets = o->offsets};
    o->x = act(o, s->m, s->n, OZ_DTYPE_F32);
    o->y = act(o, s->m, s->n, OZ_DTYPE_F32);
    o->table = act(o, s->m, s->n, OZ_DTYPE_F32);
    o->out = act(o, s->m, s->n, OZ_DTYPE_F32);
    o->args.attention = (struct oz_attention_args){.segment_count = 1,
                                                   .heads = s->a,
                                                   .kv_heads = s->a,
                                                   .head_dim = s->b,
                                                   .scale = 0.088F,
                                                   .mask = OZ_MASK_NONE};
    o->args.attention.segments[0].q = &o->x;
    o->args.attention.segments[0].k = &o->y;
    o->args.attention.segments[0].v = &o->table;
    o->args.attention.segments[0].rows = &o->rows;
    o->args.attention.segments[0].out = &o->out;
    o->c->work = 4e-9 * (double)s->m * (double)s->m * (double)s->n;
    return o->status;
}

static enum oz_status make_norm_mod(struct operands *o, const struct oz_bench_shape *s)
{
    double bytes = 4 + (double)oz_dtype_bits(s->dtype) / 8;
    o->x = act(o, s->m, s->n, OZ_DTYPE_F32);
    o->out = act(o, s->m, s->n, s->dtype);
    o->table = act(o, 1, 3 * s->n, OZ_DTYPE_F32);
    o->args.norm_mod = (struct oz_norm_mod_args){
        .x = &o->x,
        .norm = OZ_NORM_LAYER,
        .eps = 1e-6F,
        .scale = {.table = &o->table},
        .shift = {.table = &o->table, .col = s->n},
        .out = &o->out,
    };
    if (s->a == 1) {
        bytes += 8;
        o->y = act(o, s->m, s->n, OZ_DTYPE_F32);
        o->args.norm_mod.y = &o->y;
        o->args.norm_mod.gate = (struct oz_mod){.table = &o->table, .col = 2 * s->n};
    }
    o->c->work = 1e-9 * bytes * (double)s->m * (double)s->n;
    copy_rows(o, (struct oz_act *const[]){&o->x, &o->out, s->a == 1 ? &o->y : NULL, NULL});
    return o->status;
}

static enum oz_status make_qk_norm_rope(struct operands *o, const struct oz_bench_shape *s)
{
    o->x = act(o, s->m, s->n, OZ_DTYPE_F32);
    o->cosine = act(o, s->m, s->b / 2, OZ_DTYPE_F32);
    o->sine = act(o, s->m, s->b / 2, OZ_DTYPE_F32);
    o->vector = vector(o, s->b);
    o->args.qk_norm_rope = (struct oz_qk_norm_rope_args){.x = &o->x,
                                                         .heads = (int32_t)(s->n / s->b),
                                                         .head_dim = s->b,
                                                         .weight = &o->vector,
                                                         .eps = 1e-6F,
                                                         .rope = OZ_ROPE_PAIRS,
                                                         .cosine = &o->cosine,
                                                         .sine = &o->sine};
    o->c->work = 1e-9 * (double)s->m * (8.0 * (double)s->n + 4.0 * (double)s->b);
    copy_rows(o, (struct oz_act *const[]){&o->x, NULL});
    return o->status;
}

static enum oz_status make_act_quant(struct operands *o, const struct oz_bench_shape *s)
{
    o->x = act(o, s->m, s->n, OZ_DTYPE_F32);
    o->out = act(o, s->m, s->n, s->dtype);
    o->args.act_quant = (struct oz_act_quant_args){.x = &o->x, .out = &o->out, .rows = s->m};
    o->c->work = 1e-9 * (double)(s->m * s->n) * (4 + (double)oz_dtype_bits(s->dtype) / 8);
    copy_rows(o, (struct oz_act *const[]){&o->x, &o->out, NULL});
    return o->status;
}

static enum oz_status make_resample(struct operands *o, const struct oz_bench_shape *s)
{
    int64_t scale = (int64_t)s->c * s->c;
    o->x = act(o, s->m, s->n, OZ_DTYPE_F32);
    o->out = act(o, s->m * scale, s->n, OZ_DTYPE_F32);
    o->args.resample = (struct oz_resample_args){.x = &o->x,
                                                 .kind = OZ_RESAMPLE_NEAREST,
                                                 .frames = 1,
                                                 .height = s->a,
                                                 .width = s->b,
                                                 .factor_t = 1,
                                                 .factor_y = s->c,
                                                 .factor_x = s->c,
                                                 .out = &o->out};
    o->c->work = 4e-9 * (double)(s->m * s->n) * (double)(1 + scale);
    copy_rows(o, (struct oz_act *const[]){&o->x, &o->out, NULL});
    return o->status;
}

static enum oz_status make(struct operands *o, const struct oz_bench_shape *s, struct oz_error *err)
{
    switch (s->op) {
    case OZ_OP_LINEAR: return make_linear(o, s, err);
    case OZ_OP_CONV: return make_conv(o, s, err);
    case OZ_OP_ATTENTION: return make_attention(o, s);
    case OZ_OP_NORM_MOD: return make_norm_mod(o, s);
    case OZ_OP_QK_NORM_ROPE: return make_qk_norm_rope(o, s);
    case OZ_OP_ACT_QUANT: return make_act_quant(o, s);
    case OZ_OP_RESAMPLE: return make_resample(o, s);
    default: break;
    }
    return OZ_ERR_INTERNAL;
}

enum oz_status oz_bench_case_make(struct oz_bench_case *c, const struct oz_bench_shape *s,
                                  struct oz_error *err)
{
    char name[OZ_BENCH_NAME_BYTES];
    struct operands *o = oz_alloc_zero(1, sizeof *o);
    oz_bench_shape_name(s, name);
    if (o == NULL) {
        return OZ_FAIL_NOMEM(err, name);
    }
    c->blocks[c->block_count++] = o;
    o->c = c;
    o->random = 88172645463325252U;
    c->args = &o->args;
    c->ceiling = s->ceiling == OZ_CEILING_F32 ? ceiling_of(c->kernel) : s->ceiling;
    enum oz_status status = make(o, s, err);
    if (status == OZ_ERR_NOMEM) {
        return OZ_FAIL_NOMEM(err, name);
    }
    OZ_TRY(status);
    if (c->declined == NULL && c->kernel->reject != NULL) {
        c->declined = c->kernel->reject(c->dev, c->args);
    }
    return OZ_OK;
}

void oz_bench_case_free(struct oz_bench_case *c)
{
    while (c->block_count > 0) {
        oz_free(c->blocks[--c->block_count]);
    }
}
