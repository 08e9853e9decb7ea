#include "quant/dialect/dialect.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "quant/dialect/detect.h"

#define OZ_STORED_NOTE_BYTES 512

size_t oz_stored_bytes(const struct oz_layer_table *table)
{
    size_t rows = (size_t)table->count;
    return oz_arena_round(rows * sizeof(struct oz_scheme)) +
           oz_arena_round(rows * sizeof(struct oz_stored_weight)) +
           OZ_STORED_NOTES * oz_arena_round(OZ_STORED_NOTE_BYTES);
}

enum oz_status oz_stored_prepare(struct oz_ckpt *ckpt, const struct oz_layer_table *table,
                                 struct oz_error *err)
{
    OZ_TRY(oz_modelslim_unwrap(ckpt, table, err));
    return oz_svdquant_divide(ckpt, table, err);
}

const struct oz_tensor_view *oz_stored_find(const struct oz_ckpt *ckpt,
                                            const struct oz_layer *layer, const char *suffix,
                                            int64_t *index)
{
    char name[OZ_CKPT_MAX_NAME_BYTES + 64];
    (void)snprintf(name, sizeof name, "%s.%s", layer->module, suffix);
    return oz_ckpt_find(ckpt, name, index);
}

enum oz_status oz_stored_take(struct oz_stored_weight *weight, const struct oz_ckpt *ckpt,
                              const char *path, const struct oz_layer *layer,
                              const struct oz_dialect_tensor *want, struct oz_error *err)
{
    int64_t index;
    const struct oz_tensor_view *t = oz_stored_find(ckpt, layer, want->suffix, &index);
    if (t == NULL) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s says that %s is quantized, but the tensor %s.%s is missing.", path,
                       layer->module, layer->module, want->suffix);
    }
    bool floats = t->dtype == OZ_DTYPE_BF16 || t->dtype == OZ_DTYPE_F16;
    bool wide = want->dtype == OZ_DTYPE_F32 && floats &&
                (want->move == OZ_MOVE_BYTES || want->move == OZ_MOVE_REPEAT);
    int64_t elements = want->shape[0] * (want->rank > 1 ? want->shape[1] : 1);
    bool shape = t->elements == elements &&
                 (want->shape[0] == 1 || t->rank == 0 || t->shape[0] == want->shape[0]);
    bool bytes =
        t->dtype == OZ_DTYPE_F8_E8M0 ||
        (t->dtype == OZ_DTYPE_I8 && want->dtype == OZ_DTYPE_U8 && want->plane == OZ_PLANE_CODES);
    bool same = t->dtype == want->dtype || (want->dtype == OZ_DTYPE_U8 && bytes);
    if (!shape || (!same && !wide)) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "Tensor %s is %s with %" PRId64 " elements, but %s asks for %s with %" PRId64
                       " [%" PRId64 ", %" PRId64 "].",
                       t->name, oz_dtype_name(t->dtype), t->elements, path,
                       oz_dtype_name(want->dtype), elements, want->shape[0],
                       want->rank > 1 ? want->shape[1] : 1);
    }
    weight->planes[want->plane].tensor = t;
    weight->planes[want->plane].index = index;
    bool widens = wide && want->move == OZ_MOVE_BYTES && want->at == NULL;
    weight->planes[want->plane].move = widens ? OZ_MOVE_WIDEN : want->move;
    weight->planes[want->plane].at = want->at;
    return OZ_OK;
}

enum oz_status oz_stored_scheme(struct oz_scheme *out, const char *name, enum oz_act_mode mode,
                                struct oz_error *err)
{
    const struct oz_scheme_info *info = oz_scheme_find(name);
    *out = (struct oz_scheme){.name = info->name,
                              .codec = oz_codec_find(info->codec),
                              .exponent_rule = info->rule,
                              .mode_count = 1,
                              .acts = {mode}};
    return out->codec != NULL ? OZ_OK
                              : OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                                        "This build does not have the codec %s.", info->codec);
}

bool oz_stored_is_matrix(const struct oz_layer *layer)
{
    const char *ending = strrchr(layer->name, '.');
    return layer->kind == OZ_LAYER_LINEAR && layer->rank == 2 && ending != NULL &&
           strcmp(ending, ".weight") == 0;
}

void oz_stored_note(struct oz_stored *out, struct oz_arena *arena, const char *format, ...)
{
    char text[OZ_STORED_NOTE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *copy = out->note_count < OZ_STORED_NOTES ? oz_arena_string(arena, text) : NULL;
    if (copy != NULL) {
        out->notes[out->note_count++] = copy;
    }
}

/* The toolchains, by the method that names them. */
static const struct {
    const char *method;
    enum oz_status (*read)(const struct oz_dialect_reader *r);
} readers[] = {
    {OZ_CT_METHOD, oz_ct_read},
    {OZ_BNB_METHOD, oz_bnb_read},
    {"fp8", oz_hf_fp8_read},
    {"deepseek_v4_fp8", oz_hf_fp8_read},
    {"int8", oz_vllm_omni_read},
    {"mxfp8", oz_vllm_omni_read},
    {"mxfp4", oz_vllm_omni_read},
    {"mxfp4_dualscale", oz_vllm_omni_read},
    {"modelopt", oz_modelopt_read},
    {"modelopt_fp4", oz_modelopt_read},
    {"modelopt_mxfp8", oz_modelopt_read},
    {"modelopt_mixed", oz_modelopt_read},
    {"comfy", oz_comfy_read},
    {"comfy_nvfp4", oz_comfy_read},
    {"int8_convrot", oz_comfy_read},
    {"torchao", oz_torchao_read},
    {"torchao_float8_weight_only", oz_torchao_read},
    {"ascend", oz_modelslim_read},
    {"quark", oz_quark_read},
    {"gpt_oss_mxfp4", oz_gpt_oss_read},
    {"svdquant", oz_svdquant_read},
    {OZ_GPTQ_METHOD, oz_int_groups_read},
    {OZ_AWQ_METHOD, oz_int_groups_read},
    {OZ_AUTO_ROUND_METHOD, oz_int_groups_read},
    {OZ_GGUF_METHOD, oz_gguf_read_rows},
    {OZ_METHOD_INFERRED, oz_inferred_read},
};

static enum oz_status read_by(const struct oz_dialect_reader *r)
{
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (strcmp(readers[i].method, r->out->method) == 0) {
            return readers[i].read(r);
        }
    }
    return OZ_FAIL(
        r->err, OZ_ERR_UNSUPPORTED,
        "%s: the checkpoint is quantized by \"%.100s\". This version opens plain "
        "checkpoints and those of compressed-tensors, bitsandbytes, fp8, ModelOpt, "
        "ComfyUI, TorchAO, msModelSlim, Quark, SVDQuant, GPTQ, AWQ, AutoRound, GGUF, int8, "
        "mxfp8 and mxfp4; take the "
        "plain one and quantize it while loading (--quantization).",
        r->path, r->out->method);
}

static enum oz_status take_rows(struct oz_stored *out, const struct oz_stored_input *in,
                                struct oz_error *err)
{
    void *schemes;
    void *weights;
    size_t rows = (size_t)in->table->count;
    if (oz_arena_push(in->arena, rows * sizeof *out->schemes, &schemes) != OZ_OK ||
        oz_arena_push(in->arena, rows * sizeof *out->weights, &weights) != OZ_OK) {
        return OZ_FAIL_NOMEM(err, "the list of quantized weights");
    }
    out->schemes = schemes;
    out->weights = weights;
    memset(weights, 0, rows * sizeof *out->weights);
    for (size_t i = 0; i < rows; i++) {
        out->schemes[i] = oz_scheme_as_stored();
    }
    return OZ_OK;
}

/* What is made of it, for people. */
static void note_result(const struct oz_dialect_reader *r)
{
    struct oz_stored *out = r->out;
    int32_t scales = 0;
    int32_t expanded = 0;
    for (int32_t i = 0; i < r->table->count; i++) {
        scales += out->weights[i].planes[OZ_PLANE_INPUT_SCALE].tensor != NULL;
        expanded += out->weights[i].codec != NULL;
    }
    if (scales > 0) {
        oz_stored_note(
            out, r->arena,
            "%d static scales of activations are in the file; activations are scaled for "
            "each token unless \"fp8_per_tensor_static\" is asked for",
            (int)scales);
    }
    if (expanded > 0) {
        oz_stored_note(
            out, r->arena,
            "%d layers are expanded to bf16 while loading: no operator applies what they "
            "have beside their codes (smoothing, rotation, a low-rank branch)",
            (int)expanded);
    }
}

/* A GGUF file's tensors outrank a config; one that says something else is of another file. */
static enum oz_status take_gguf(struct oz_stored *out, const struct oz_stored_input *in,
                                struct oz_detected *found, struct oz_error *err)
{
    const char *file = oz_ckpt_file(in->ckpt, 0)->path;
    if (out->method != NULL && strcmp(out->method, OZ_GGUF_METHOD) != 0) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s says that the weights are quantized by %s, but %s is a GGUF file with "
                       "types of its own. Take \"quantization_config\" out of the config.",
                       found->path, out->method, file);
    }
    out->method = OZ_GGUF_METHOD;
    found->path = in->path;
    oz_stored_note(out, in->arena, "%s is a GGUF file, whose tensors say their types", file);
    return OZ_OK;
}

enum oz_status oz_stored_read(struct oz_stored *out, const struct oz_stored_input *in,
                              struct oz_error *err)
{
    struct oz_detected found;
    *out = (struct oz_stored){0};
    enum oz_status status = oz_detect(&found, out, in, err);
    const bool gguf = oz_gguf_reads(in->ckpt);
    if (status == OZ_OK && gguf) {
        status = take_gguf(out, in, &found, err);
    }
    struct oz_dialect_reader r = {.q = found.q,
                                  .path = found.path,
                                  .ckpt = in->ckpt,
                                  .table = in->table,
                                  .arena = in->arena,
                                  .out = out,
                                  .err = err};
    if (status == OZ_OK && out->method != NULL) {
        status = take_rows(out, in, err);
        status = status == OZ_OK ? read_by(&r) : status;
        if (status == OZ_OK && out->count == 0 && !gguf) { /* that may be of another model */
            status =
                OZ_FAIL(err, OZ_ERR_FORMAT,
                        "%s says that the weights are quantized (%s), but no layer of the file is. "
                        "Take \"quantization_config\" out of it, and quantize while loading "
                        "(--quantization).",
                        found.path, out->method);
        }
        if (status == OZ_OK) {
            note_result(&r);
        }
    }
    oz_detected_deinit(&found);
    return status;
}
