#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "model/qwen_image/qwen_image.h"

/* Switches of later members of the family: refused by name where they are on. */
static enum oz_status refuse_switches(const struct oz_json *json, const char *name,
                                      struct oz_error *err)
{
    static const struct {
        const char *key, *what;
    } switches[] = {
        {"zero_cond_t", "Qwen-Image-Edit-2511's second modulation"},
        {"use_additional_t_cond", "Qwen-Image-Layered's condition id"},
        {"use_layer3d_rope", "Qwen-Image-Layered's rope"},
        {"guidance_embeds", "a distilled guidance input"},
    };
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        bool on;
        OZ_TRY(oz_json_get_bool(json, switches[i].key, false, &on, name, err));
        if (on) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "%s: \"%s\" is true (%s); this version does not run such models.", name,
                           switches[i].key, switches[i].what);
        }
    }
    return OZ_OK;
}

static void name_unknown_keys(const struct oz_json *json, const char *name)
{
    static const char *const known[] = {
        "patch_size",
        "in_channels",
        "out_channels",
        "num_layers",
        "attention_head_dim",
        "num_attention_heads",
        "joint_attention_dim",
        "axes_dims_rope",
        "zero_cond_t",
        "use_layer3d_rope",
        "guidance_embeds",
        "use_additional_t_cond",
        "pooled_projection_dim", /* dead in the reference too */
        "quantization_config",   /* quant/dialect reads it */
    };
    oz_json_warn_unknown(json, known, sizeof known / sizeof *known, name);
}

static enum oz_status read_rope(struct oz_qwen_image_config *c, const struct oz_json *json,
                                const char *name, struct oz_error *err)
{
    const struct oz_json *axes = oz_json_get(json, "axes_dims_rope");
    int32_t sum = 0;
    if (oz_json_count(axes) != 3) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"axes_dims_rope\" must be a list of 3 integers.",
                       name);
    }
    for (size_t i = 0; i < 3; i++) {
        int64_t v = oz_json_integer(oz_json_at(axes, i), -1);
        if (v < 2 || v > 1024 || v % 2 != 0) {
            return OZ_FAIL(err, OZ_ERR_FORMAT,
                           "%s: \"axes_dims_rope\" must hold even numbers from 2 to 1024.", name);
        }
        c->rope_dims[i] = (int32_t)v;
        sum += c->rope_dims[i];
    }
    if (sum != c->head_dim) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: \"axes_dims_rope\" add up to %d, but attention_head_dim is %d.", name,
                       sum, c->head_dim);
    }
    return OZ_OK;
}

enum oz_status oz_qwen_image_config_read(struct oz_qwen_image_config *c, const struct oz_json *json,
                                         const char *name, struct oz_error *err)
{
    static const struct {
        const char *key;
        int64_t fallback, max;
        size_t offset;
    } sizes[] = {
        {"patch_size", 2, 16, offsetof(struct oz_qwen_image_config, patch_size)},
        {"in_channels", 64, 65536, offsetof(struct oz_qwen_image_config, in_channels)},
        {"out_channels", 16, 65536, offsetof(struct oz_qwen_image_config, out_channels)},
        {"num_layers", 60, 4096, offsetof(struct oz_qwen_image_config, layers)},
        {"num_attention_heads", 24, 4096, offsetof(struct oz_qwen_image_config, heads)},
        {"attention_head_dim", 128, 4096, offsetof(struct oz_qwen_image_config, head_dim)},
        {"joint_attention_dim", 3584, 1 << 20, offsetof(struct oz_qwen_image_config, text_dim)},
    };
    *c = (struct oz_qwen_image_config){0};
    const char *class_name;
    OZ_TRY(oz_json_get_string(json, "_class_name", "QwenImageTransformer2DModel", &class_name, name,
                              err));
    if (strcmp(class_name, "QwenImageTransformer2DModel") != 0) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: the class is %s; this version runs QwenImageTransformer2DModel.", name,
                       class_name);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t v;
        OZ_TRY(oz_json_get_integer(json, sizes[i].key, sizes[i].fallback, 1, sizes[i].max, &v, name,
                                   err));
        int32_t narrow = (int32_t)v;
        memcpy((char *)c + sizes[i].offset, &narrow, sizeof narrow);
    }
    if (c->in_channels != c->patch_size * c->patch_size * c->out_channels) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: in_channels is %d, but %d x %d patches of %d channels have %d.", name,
                       c->in_channels, c->patch_size, c->patch_size, c->out_channels,
                       c->patch_size * c->patch_size * c->out_channels);
    }
    OZ_TRY(refuse_switches(json, name, err));
    name_unknown_keys(json, name);
    return read_rope(c, json, name, err);
}
