/* What the CUDA backend makes of a parameter: nothing is packed, operators read the planes. */
#include <string.h>

#include "base/log.h"
#include "cuda/host/cuda.h"
#include "dev/act_spec.h"

static const struct oz_param_plan plans[] = {
    [OZ_CUDA_GEMM_BF16] = {OZ_CUDA_GEMM_BF16, "oz_linear_bf16_bf16_f32__cublaslt"},
    [OZ_CUDA_GEMM_F32] = {OZ_CUDA_GEMM_F32, "oz_linear_f32_any_f32__cublaslt"},
    [OZ_CUDA_DECODE_BF16] = {OZ_CUDA_DECODE_BF16, "oz_linear_bf16_codes_f32__cublaslt"},
    [OZ_CUDA_FP8] = {OZ_CUDA_FP8, "oz_linear_e4m3_e4m3_f32__cublaslt"},
    [OZ_CUDA_INT8] = {OZ_CUDA_INT8, "oz_linear_s8_s8_s32__cublaslt"},
    [OZ_CUDA_CONV_BF16] = {OZ_CUDA_CONV_BF16, "oz_conv_bf16_bf16_f32__cublaslt"},
    [OZ_CUDA_CONV_F32] = {OZ_CUDA_CONV_F32, "oz_conv_f32_any_f32__cublaslt"},
    [OZ_CUDA_EMBED] = {OZ_CUDA_EMBED, "oz_embed_any_any__cuda"},
    [OZ_CUDA_VECTOR] = {OZ_CUDA_VECTOR, "oz_vector_f32__cuda"},
};

/* ---- weights ---- */

/* Codecs by name: the core's objects are not linked here. */
struct known_codec {
    const char *name;
    int32_t levels;
    enum oz_plane planes[2];
    struct {
        int32_t rows, cols; /* of a cell; 0: all */
    } cells[2];
    int32_t block; /* not 0: codes of a table, under one absmax for a block of the flat matrix */
};

static const struct known_codec known[] = {
    {"f32", 0, {0}, {{0}}, 0},
    {"bf16", 0, {0}, {{0}}, 0},
    {"f16", 0, {0}, {{0}}, 0},
    {"f64", 0, {0}, {{0}}, 0},
    {"fp8_tensor", 1, {OZ_PLANE_SCALES}, {{0, 0}}, 0},
    {"fp8_channel", 1, {OZ_PLANE_SCALES}, {{1, 0}}, 0},
    {"fp8_block", 1, {OZ_PLANE_SCALES}, {{128, 128}}, 0},
    {"int8_channel", 1, {OZ_PLANE_SCALES}, {{1, 0}}, 0},
    {"int8_channel_bf16", 1, {OZ_PLANE_SCALES}, {{1, 0}}, 0},
    {"mxfp8", 1, {OZ_PLANE_SCALES}, {{1, 32}}, 0},
    {"mxfp4", 1, {OZ_PLANE_SCALES}, {{1, 32}}, 0},
    {"mxfp4_dualscale", 2, {OZ_PLANE_SCALES, OZ_PLANE_SCALES2}, {{1, 32}, {1, 512}}, 0},
    {"nf4", 1, {OZ_PLANE_SCALES}, {{0}}, 64},
    {"nf4_nested", 1, {OZ_PLANE_SCALES}, {{0}}, 64},
    {"fp4_bnb", 1, {OZ_PLANE_SCALES}, {{0}}, 64},
    {"fp4_bnb_nested", 1, {OZ_PLANE_SCALES}, {{0}}, 64},
    {"nvfp4", 2, {OZ_PLANE_SCALES, OZ_PLANE_SCALES2}, {{1, 16}, {0, 0}}, 0},
};

static const struct known_codec *find_codec(const struct oz_weight *w)
{
    for (size_t i = 0; w->codec != NULL && i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, w->codec->name) == 0) {
            return &known[i];
        }
    }
    return NULL;
}

/* ---- scales that lie with their codes ---- */

static const struct {
    const char *name;
    uint32_t number;
    int32_t elements, bytes;
} gguf_types[] = {
#define OZ_GGUF_PLAIN(number_, name_, dtype_, bytes_)
#define OZ_GGUF_BLOCK(number_, name_, codec_, elements_, bytes_, first_, second_) \
    {#codec_, (number_), (elements_), (bytes_)},
#include "num/gguf.inc"
#undef OZ_GGUF_PLAIN
#undef OZ_GGUF_BLOCK
};

/* GGUF's blocks; false: no such codec. */
static bool gguf_of(const struct oz_weight *w, struct oz_cuda_weight *out)
{
    for (size_t i = 0; i < sizeof gguf_types / sizeof *gguf_types; i++) {
        if (strcmp(gguf_types[i].name, w->codec->name) == 0) {
            out->gguf.number = gguf_types[i].number;
            out->gguf.elements = gguf_types[i].elements;
            out->gguf.bytes = gguf_types[i].bytes;
            return true;
        }
    }
    return false;
}

/* A plane of floats of a row, or NULL; false: not in f32. */
static bool floats_of(const struct oz_plane_view *v, const float **out, int64_t *stride)
{
    *out = v->present ? v->data : NULL;
    *stride = v->row_stride_bytes / (int64_t)sizeof(float);
    return !v->present || v->dtype == OZ_DTYPE_F32;
}

/* Integers of 2 to 8 bits in groups, "u4_group"; false: no such codec, or its scales are not f32. */
static bool groups_of(const struct oz_weight *w, struct oz_cuda_weight *out)
{
    const char *name = w->codec->name;
    if (name[0] != 'u' || name[1] < '2' || name[1] > '8' || strcmp(name + 2, "_group") != 0) {
        return false;
    }
    const struct oz_plane_view *zeros = &w->planes[OZ_PLANE_ZEROS];
    const struct oz_plane_view *perm = &w->planes[OZ_PLANE_PERM];
    out->group.bits = name[1] - '0';
    out->group.cols = w->group_cols;
    out->group.zeros = zeros->present ? zeros->data : NULL;
    out->group.zero_bytes = zeros->row_stride_bytes;
    out->group.of_cols = perm->present ? perm->data : NULL;
    return floats_of(&w->planes[OZ_PLANE_SCALES], &out->group.scales, &out->group.scale_stride) &&
           floats_of(&w->planes[OZ_PLANE_MINS], &out->group.mins, &out->group.min_stride);
}

/* A table of values; false: not in f32. */
static bool table_of(const struct oz_plane_view *v, const float **out)
{
    *out = v->present ? v->data : NULL;
    return !v->present || v->dtype == OZ_DTYPE_F32;
}

static bool blocks_of(const struct oz_weight *w, struct oz_cuda_weight *out)
{
    out->block = w->group_cols;
    out->nf4 = strncmp(w->codec->name, "nf4", 3) == 0;
    if (w->planes[OZ_PLANE_SCALES2].present) {
        out->nested_codes = w->planes[OZ_PLANE_SCALES].data;
        out->nested = w->planes[OZ_PLANE_SCALES2].data;
        out->offset = w->planes[OZ_PLANE_OFFSETS].data;
    }
    return table_of(&w->planes[OZ_PLANE_CODEBOOK], &out->table) &&
           table_of(&w->planes[OZ_PLANE_CODEBOOK2], &out->table2);
}

bool oz_cuda_weight_of(const struct oz_weight *w, struct oz_cuda_weight *out)
{
    const struct known_codec *k = find_codec(w);
    const struct oz_plane_view *codes = &w->planes[OZ_PLANE_CODES];
    *out = (struct oz_cuda_weight){.rows = w->rows,
                                   .cols = w->cols,
                                   .codes = codes->data,
                                   .dtype = codes->dtype,
                                   .row_bytes = codes->row_stride_bytes};
    if (k == NULL) {
        return w->codec != NULL && (gguf_of(w, out) || groups_of(w, out));
    }
    out->levels = k->levels;
    for (int32_t i = 0; i < k->levels; i++) {
        const struct oz_plane_view *v = &w->planes[k->planes[i]];
        out->level[i].data = v->data;
        out->level[i].dtype = v->dtype;
        out->level[i].cell_rows = k->cells[i].rows;
        out->level[i].cell_cols = k->cells[i].cols;
        out->level[i].row_bytes = v->row_stride_bytes;
    }
    return k->block == 0 || blocks_of(w, out);
}

bool oz_cuda_scales_wait(const struct oz_weight *w)
{
    const struct known_codec *k = find_codec(w);
    return k != NULL && k->levels == 1 && k->block == 0 && k->cells[0].cols == 0 &&
           k->cells[0].rows <= 1 && w->planes[OZ_PLANE_SCALES].dtype == OZ_DTYPE_F32;
}

static bool is_plain(const struct oz_weight *w)
{
    const struct known_codec *k = find_codec(w);
    return k != NULL && k->levels == 0;
}

/* ---- kinds ---- */

static bool fits_units(const struct oz_weight *w)
{
    return w->rows % 16 == 0 && w->cols % 16 == 0;
}

enum oz_cuda_kind oz_cuda_kind_of(const struct oz_device *dev, const struct oz_weight *w,
                                  const struct oz_act_spec *x, enum oz_param_use use)
{
    bool bf16 = is_plain(w) && w->planes[OZ_PLANE_CODES].dtype == OZ_DTYPE_BF16;
    switch (use) {
    case OZ_USE_EMBED: return OZ_CUDA_EMBED;
    case OZ_USE_VECTOR: return OZ_CUDA_VECTOR;
    case OZ_USE_CONV: return bf16 && !dev->f32_math ? OZ_CUDA_CONV_BF16 : OZ_CUDA_CONV_F32;
    case OZ_USE_LINEAR:
    case OZ_USE_EXPERTS: break;
    }
    enum oz_dtype code = w->planes[OZ_PLANE_CODES].dtype;
    bool by_row = x->scale_count == 0 || (x->scale_count == 1 && x->scale[0].group_cols == 0 &&
                                          x->scale[0].layout == OZ_SCALE_ROWS);
    if (x->dtype == OZ_DTYPE_I8 && code == OZ_DTYPE_I8 && by_row && x->static_scale == NULL &&
        oz_cuda_scales_wait(w) && fits_units(w)) {
        return OZ_CUDA_INT8; /* exact, also where f32 was asked for */
    }
    if (dev->f32_math) {
        return OZ_CUDA_GEMM_F32;
    }
    if (is_plain(w)) {
        return bf16 ? OZ_CUDA_GEMM_BF16 : OZ_CUDA_GEMM_F32;
    }
    return x->dtype == OZ_DTYPE_F8_E4M3 && code == OZ_DTYPE_F8_E4M3 && by_row &&
                   oz_cuda_scales_wait(w) && fits_units(w) && oz_cuda_of(dev)->sm >= 90
               ? OZ_CUDA_FP8
               : OZ_CUDA_DECODE_BF16;
}

/* ---- planning ---- */

const char *oz_cuda_act_problem(const struct oz_act_spec *s)
{
    if (s->rotate_cols != 0 || s->low_rank_a != NULL || s->static_offset != NULL) {
        return "rotations, low-rank branches and zero points of activations are not applied";
    }
    for (int32_t i = 0; i < s->scale_count; i++) {
        if (s->scale[i].layout == OZ_SCALE_SWIZZLE_128X4) {
            return "swizzled scales are not written";
        }
    }
    return NULL;
}

struct oz_act_support oz_cuda_act_support(const struct oz_device *dev)
{
    (void)dev;
    /* Every mode is quantized on the device; what its units do not multiply is decoded there. */
    return (struct oz_act_support){.possible = OZ_ACT_BIT(OZ_ACT_MODE_COUNT) - 1};
}

static const char *decline(const struct oz_param *param, const struct oz_plan_request *request)
{
    static const enum oz_plane not_applied[] = {OZ_PLANE_INPUT_OFFSET, OZ_PLANE_ROTATE_L,
                                                OZ_PLANE_ROTATE_R, OZ_PLANE_LOW_RANK_A,
                                                OZ_PLANE_LOW_RANK_B};
    const struct oz_weight *w = &param->weight;
    for (size_t i = 0; i < sizeof not_applied / sizeof *not_applied; i++) {
        if (w->planes[not_applied[i]].present) {
            return "rotations, low-rank branches and zero points of activations are not applied";
        }
    }
    struct oz_cuda_weight view;
    if (!oz_cuda_weight_of(w, &view)) {
        return "its codec is not decoded on the device";
    }
    if (request->use == OZ_USE_EXPERTS) {
        return "experts do not run on the device";
    }
    if ((request->use == OZ_USE_CONV || request->use == OZ_USE_VECTOR) && !is_plain(w)) {
        return "this operator reads plain weights only";
    }
    if (param->act_count == 0) {
        return w->planes[OZ_PLANE_SMOOTH].present || w->planes[OZ_PLANE_INPUT_SCALE].present
                   ? "its smoothing vector or static scale belongs to no activation mode"
                   : NULL;
    }
    return request->use != OZ_USE_LINEAR ? "this operator takes plain rows only"
                                         : oz_cuda_act_problem(&param->acts[request->mode]);
}

enum oz_status oz_cuda_plan_param(struct oz_device *dev, const struct oz_param *param,
                                  const struct oz_plan_request *request,
                                  struct oz_plan_answer *answer, struct oz_error *err)
{
    const char *name = param->name != NULL ? param->name : "(unnamed)";
    struct oz_act_spec spec = {.dtype = OZ_DTYPE_F32};
    *answer = (struct oz_plan_answer){.wants = spec};
    if (param->weight.codec == NULL) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%s: it has no codec yet, so no kernel can be chosen.",
                       name);
    }
    if (request->mode != 0 && request->mode >= param->act_count) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s (%s): activation mode %d was asked for; it has %d.", name,
                       param->weight.codec->name, (int)request->mode,
                       param->act_count > 0 ? (int)param->act_count : 1);
    }
    const char *reason = decline(param, request);
    if (reason != NULL) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: no kernel of device %s reads %s weights in mode %d: %s. Use --device "
                       "cpu, or another method for this layer.",
                       name, dev->name, param->weight.codec->name, (int)request->mode, reason);
    }
    if (param->act_count > 0) {
        spec = param->acts[request->mode];
    }
    enum oz_cuda_kind kind = oz_cuda_kind_of(dev, &param->weight, &spec, request->use);
    if ((kind == OZ_CUDA_GEMM_BF16 || kind == OZ_CUDA_DECODE_BF16 || kind == OZ_CUDA_CONV_BF16) &&
        spec.dtype == OZ_DTYPE_F32) {
        spec.dtype = OZ_DTYPE_BF16;
    }
    answer->plan = &plans[kind];
    answer->kernel = plans[kind].kernel;
    answer->wants = spec;
    return OZ_OK;
}

enum oz_status oz_cuda_pack_band(struct oz_device *dev, struct oz_queue *queue,
                                 struct oz_param *param, int64_t slice, int64_t row0, int64_t rows,
                                 const struct oz_weight *band, struct oz_error *err)
{
    (void)queue;
    (void)slice;
    (void)row0;
    (void)rows;
    (void)band;
    return OZ_FAIL(err, OZ_ERR_INTERNAL,
                   "%s: device %s packs nothing; its kernels read the planes.",
                   param->name != NULL ? param->name : "(unnamed)", dev->name);
}
