/* quantization.c: the public words for quantization, as the library's own. */
#define OZ_UNSTABLE
#include <ounce/ounce.h>
#include <string.h>

#include "api/engine.h"
#include "base/alloc.h"
#include "base/error.h"
#include "dev/linear_backend.h"
#include "pipe/pipeline.h"
#include "quant/config.h"
#include "quant/method.h"

#define ACTIVATION_KEY "linear.activation="
#define WEIGHT_ONLY_KEY ACTIVATION_KEY "none"

/* A backend of weight-only products is a word for activations that are not quantized: there must be a
 * request that it belongs to, and none that says otherwise. */
static enum oz_status check_weight_only(const struct oz_engine_options *o,
                                        const struct oz_linear_backend *backend,
                                        struct oz_error *err)
{
    if ((o->quantization == NULL || o->quantization[0] == '\0') &&
        (o->quantization_config == NULL || o->quantization_config[0] == '\0') &&
        o->quantization_key_count == 0) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "--linear-backend %s means %s, but nothing is to be quantized; add a "
                       "quantization, or leave it out.",
                       backend->name, backend->meaning);
    }
    for (int32_t i = 0; i < o->quantization_key_count; i++) {
        const char *key = o->quantization_keys[i];
        if (key != NULL && strncmp(key, ACTIVATION_KEY, strlen(ACTIVATION_KEY)) == 0 &&
            strcmp(key, WEIGHT_ONLY_KEY) != 0) {
            return OZ_FAIL(err, OZ_ERR_ARG,
                           "--linear-backend %s means %s, but the request says %.100s; leave one "
                           "of them out.",
                           backend->name, backend->meaning, key);
        }
    }
    return OZ_OK;
}

enum oz_status oz_api_read_request(struct oz_request **out, const struct oz_engine_options *o,
                                   struct oz_error *err)
{
    *out = NULL;
    if (o->quantization_key_count < 0 || o->ignored_layer_count < 0) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "A count of quantization keys or ignored layers is negative.");
    }
    const struct oz_linear_backend *backend;
    OZ_TRY(oz_linear_backend_find(&backend, o->linear_backend, "--linear-backend", err));
    struct oz_request_text text = {.quantization = o->quantization,
                                   .config = o->quantization_config,
                                   .keys = o->quantization_keys,
                                   .key_count = o->quantization_key_count,
                                   .ignored_layers = o->ignored_layers,
                                   .ignored_count = o->ignored_layer_count};
    if (!backend->weight_only) {
        return oz_request_create(out, &text, err);
    }
    OZ_TRY(check_weight_only(o, backend, err));
    const char **keys =
        oz_alloc(((size_t)o->quantization_key_count + 1) * sizeof *o->quantization_keys);
    if (keys == NULL) {
        return OZ_FAIL_NOMEM(err, "the keys of a quantization");
    }
    for (int32_t i = 0; i < o->quantization_key_count; i++) {
        keys[i] = o->quantization_keys[i];
    }
    keys[text.key_count++] = WEIGHT_ONLY_KEY;
    text.keys = keys;
    enum oz_status status = oz_request_create(out, &text, err);
    oz_free(keys);
    return status;
}

enum oz_status oz_api_device_flags(uint32_t *flags, const struct oz_linear_backend **backend,
                                   const struct oz_engine_options *o, struct oz_error *err)
{
    OZ_TRY(oz_linear_backend_find(backend, o->linear_backend, "--linear-backend", err));
    *flags = (*backend)->flags | (o->precision == OZ_PRECISION_F32 ? (uint32_t)OZ_DEVICE_F32 : 0);
    return OZ_OK;
}

enum oz_status oz_api_check_moe(const struct oz_pipeline *p, const struct oz_engine_options *o,
                                struct oz_error *err)
{
    const struct oz_linear_backend *backend;
    if (o->moe_backend == NULL || o->moe_backend[0] == '\0') {
        return OZ_OK;
    }
    OZ_TRY(oz_linear_backend_find(&backend, o->moe_backend, "--moe-backend", err));
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_layer_table *t = &p->components[i].table;
        for (int32_t r = 0; r < t->count; r++) {
            if (t->rows[r].kind == OZ_LAYER_EXPERTS) {
                return OZ_OK;
            }
        }
    }
    return OZ_FAIL(err, OZ_ERR_ARG,
                   "--moe-backend %.100s: %s has no experts, so there is nothing to choose; leave "
                   "it out (--linear-backend is for its linear layers).",
                   o->moe_backend, p->name);
}

static const struct oz_method_options method_defaults = {.struct_size = sizeof method_defaults};

void oz_method_options_init(struct oz_method_options *options, size_t struct_size)
{
    oz_api_fill(options, struct_size, &method_defaults, sizeof method_defaults);
}

/* The mode of that name: the names of plans. */
static enum oz_status find_mode(const char *name, enum oz_act_mode *out, struct oz_error *err)
{
    for (int mode = 0; mode < OZ_ACT_MODE_COUNT; mode++) {
        if (strcmp(oz_act_mode_name((enum oz_act_mode)mode), name) == 0) {
            *out = (enum oz_act_mode)mode;
            return OZ_OK;
        }
    }
    return OZ_FAIL(err, OZ_ERR_ARG,
                   "There are no activations \"%.100s\"; there are none, fp8_per_token, "
                   "fp8_per_block, int8_per_token, mxfp8, mxfp4, mxfp4_dualscale, nvfp4, "
                   "nvfp4_per_token.",
                   name);
}

enum oz_status oz_method_register(const struct oz_method_options *options, struct oz_error *err)
{
    struct oz_method_options o = method_defaults;
    OZ_TRY(oz_api_copy_options(&o, sizeof o, options, "method options", err));
    struct oz_method m = {.name = o.name,
                          .linear = o.linear,
                          .experts = o.experts,
                          .bf16_fallback = o.num_bf16_fallback_layers,
                          .act_set = o.activation != NULL,
                          .note = o.about};
    if (o.activation != NULL) {
        OZ_TRY(find_mode(o.activation, &m.act, err));
    }
    return oz_method_add(&m, err);
}
