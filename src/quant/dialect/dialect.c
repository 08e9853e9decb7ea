#include "quant/dialect/dialect.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

size_t oz_stored_bytes(const struct oz_layer_table *table)
{
    size_t rows = (size_t)table->count;
    return oz_arena_round(rows * sizeof(struct oz_scheme)) +
           oz_arena_round(rows * sizeof(struct oz_stored_weight));
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
    if (*out == NULL || strcmp((*out)->name, OZ_CT_METHOD) != 0) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: the checkpoint is quantized by \"%.100s\". This version opens plain "
                       "checkpoints and those of compressed-tensors; take the plain one and "
                       "quantize it while loading (--quantization).",
                       path, name);
    }
    return OZ_OK;
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
    return oz_ct_read(out, q, path, ckpt, table, err);
}
