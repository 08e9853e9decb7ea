#include "quant/dialect/dialect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

size_t oz_stored_bytes(const struct oz_layer_table *table)
{
    size_t rows = (size_t)table->count;
    return oz_arena_round(rows * sizeof(struct oz_scheme)) +
           oz_arena_round(rows * sizeof(struct oz_stored_weight));
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
    bool wide = want->dtype == OZ_DTYPE_F32 && want->move == OZ_MOVE_BYTES &&
                (t->dtype == OZ_DTYPE_BF16 || t->dtype == OZ_DTYPE_F16);
    int64_t elements = want->shape[0] * (want->rank > 1 ? want->shape[1] : 1);
    bool shape = t->elements == elements &&
                 (want->shape[0] == 1 || t->rank == 0 || t->shape[0] == want->shape[0]);
    bool same =
        t->dtype == want->dtype || (want->dtype == OZ_DTYPE_U8 && t->dtype == OZ_DTYPE_F8_E8M0);
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
    weight->planes[want->plane].move = wide ? OZ_MOVE_WIDEN : want->move;
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

/* The toolchain that a config declares, canonical; NULL: none. */
static enum oz_status read_method(const struct oz_json *q, const char *path,
                                  const struct oz_method **out, struct oz_error *err)
{
    const char *name = oz_json_string(q, NULL); /* "int8" alone */
    *out = NULL;
    if (oz_json_type(q) == OZ_JSON_NULL) {
        return OZ_OK;
    }
    if (name == NULL && oz_json_type(q) != OZ_JSON_OBJECT) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"quantization_config\" is %s, not an object.",
                       path, oz_json_type_name(q));
    }
    if (name == NULL) {
        name = oz_json_string(oz_json_get(q, "quant_method"), NULL);
    }
    if (name == NULL) {
        name = oz_json_string(oz_json_get(q, "method"), NULL);
    }
    if (name == NULL) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: \"quantization_config\" names no method (\"quant_method\").", path);
    }
    *out = oz_method_find(name);
    if (*out == NULL ||
        (strcmp((*out)->name, OZ_CT_METHOD) != 0 && strcmp((*out)->name, OZ_HF_FP8_METHOD) != 0 &&
         strcmp((*out)->name, OZ_BNB_METHOD) != 0 && strcmp((*out)->name, OZ_GGUF_METHOD) != 0 &&
         !oz_int_groups_reads((*out)->name) && !oz_vllm_omni_reads((*out)->name))) {
        return OZ_FAIL(
            err, OZ_ERR_UNSUPPORTED,
            "%s: the checkpoint is quantized by \"%.100s\". This version opens plain "
            "checkpoints and those of compressed-tensors, bitsandbytes, fp8, int8, mxfp8, "
            "gptq, awq and auto-round; take the plain one and quantize it while loading "
            "(--quantization).",
            path, name);
    }
    return OZ_OK;
}

/* A GGUF file's tensors outrank a config; one that says something else is of another file. */
static enum oz_status check_gguf(const struct oz_method *declared, const char *path,
                                 const struct oz_ckpt *ckpt, struct oz_error *err)
{
    if (declared == NULL || strcmp(declared->name, OZ_GGUF_METHOD) == 0) {
        return OZ_OK;
    }
    return OZ_FAIL(err, OZ_ERR_FORMAT,
                   "%s says that the weights are quantized by %s, but %s is a GGUF file with types "
                   "of its own. Take \"quantization_config\" out of the config.",
                   path, declared->name, oz_ckpt_file(ckpt, 0)->path);
}

enum oz_status oz_stored_read(struct oz_stored *out, const struct oz_json *config, const char *path,
                              const struct oz_ckpt *ckpt, const struct oz_layer_table *table,
                              struct oz_arena *arena, struct oz_error *err)
{
    const struct oz_json *q = oz_json_get(config, "quantization_config");
    const struct oz_method *method;
    void *schemes;
    void *weights;
    *out = (struct oz_stored){0};
    if (q == NULL) {
        q = oz_json_get(config, "compression_config"); /* older files */
    }
    OZ_TRY(read_method(q, path, &method, err));
    const bool gguf = oz_gguf_reads(ckpt);
    if (gguf) {
        OZ_TRY(check_gguf(method, path, ckpt, err));
        method = oz_method_find(OZ_GGUF_METHOD);
    }
    if (method == NULL) {
        return OZ_OK;
    }
    size_t rows = (size_t)table->count;
    if (oz_arena_push(arena, rows * sizeof *out->schemes, &schemes) != OZ_OK ||
        oz_arena_push(arena, rows * sizeof *out->weights, &weights) != OZ_OK) {
        return OZ_FAIL_NOMEM(err, "the list of quantized weights");
    }
    out->method = method->name;
    out->schemes = schemes;
    out->weights = weights;
    memset(weights, 0, rows * sizeof *out->weights);
    for (size_t i = 0; i < rows; i++) {
        out->schemes[i] = oz_scheme_as_stored();
    }
    enum oz_status status =
        strcmp(method->name, OZ_GGUF_METHOD) == 0 ? oz_gguf_read_rows(out, path, ckpt, table, err)
        : oz_int_groups_reads(method->name) ? oz_int_groups_read(out, q, path, ckpt, table, err)
        : strcmp(method->name, OZ_CT_METHOD) == 0 ? oz_ct_read(out, q, path, ckpt, table, err)
        : strcmp(method->name, OZ_HF_FP8_METHOD) == 0
            ? oz_hf_fp8_read(out, q, path, ckpt, table, err)
        : strcmp(method->name, OZ_BNB_METHOD) == 0
            ? oz_bnb_read(out, q, path, ckpt, table, err)
            : oz_vllm_omni_read(out, q, path, ckpt, table, err);
    if (status == OZ_OK && out->count == 0 && !gguf) { /* a GGUF file may be of another model */
        return OZ_FAIL(
            err, OZ_ERR_FORMAT,
            "%s says that the weights are quantized (%s), but no layer of the file is. Take "
            "\"quantization_config\" out of it, and quantize while loading "
            "(--quantization).",
            path, out->method);
    }
    return status;
}
