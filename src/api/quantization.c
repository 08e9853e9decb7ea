/* quantization.c: the public words for quantization, as the library's own. */
#define OZ_UNSTABLE
#include <ounce/ounce.h>
#include <string.h>

#include "api/engine.h"
#include "base/error.h"
#include "quant/config.h"
#include "quant/method.h"

enum oz_status oz_api_read_request(struct oz_request **out, const struct oz_engine_options *o,
                                   struct oz_error *err)
{
    *out = NULL;
    if (o->quantization_key_count < 0 || o->ignored_layer_count < 0) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "A count of quantization keys or ignored layers is negative.");
    }
    const struct oz_request_text text = {.quantization = o->quantization,
                                         .config = o->quantization_config,
                                         .keys = o->quantization_keys,
                                         .key_count = o->quantization_key_count,
                                         .ignored_layers = o->ignored_layers,
                                         .ignored_count = o->ignored_layer_count};
    return oz_request_create(out, &text, err);
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
