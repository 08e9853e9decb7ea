#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "model/qwen25_vl/qwen25_vl.h"

/* Bounds on what a config may claim, far above any model of the family; products of two of them
 * fit 63 bits with room. */
#define MAX_HIDDEN (1 << 16)
#define MAX_INTERMEDIATE (1 << 20)
#define MAX_LAYERS 1024
#define MAX_HEADS 1024
#define MAX_VOCAB (1 << 24)
#define MAX_POSITIONS (1 << 24)

/* Where values are read: the object and how messages call it. */
struct section {
    const struct oz_json *v;
    const char *name;
};

static bool is_missing(const struct section *s, const char *key)
{
    return oz_json_type(oz_json_get(s->v, key)) == OZ_JSON_NULL;
}

static enum oz_status required(const struct section *s, const char *key, struct oz_error *err)
{
    if (is_missing(s, key)) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"%s\" is missing.", s->name, key);
    }
    return OZ_OK;
}

static enum oz_status get_count(const struct section *s, const char *key, int64_t max, int32_t *out,
                                struct oz_error *err)
{
    int64_t value;
    OZ_TRY(required(s, key, err));
    OZ_TRY(oz_json_get_integer(s->v, key, 0, 1, max, &value, s->name, err));
    *out = (int32_t)value;
    return OZ_OK;
}

/* A string that must be one of two. */
static enum oz_status expect_string(const struct section *s, const char *key, const char *fallback,
                                    const char *one, const char *other, struct oz_error *err)
{
    const char *value;
    OZ_TRY(oz_json_get_string(s->v, key, fallback, &value, s->name, err));
    if (strcmp(value, one) == 0 || strcmp(value, other) == 0) {
        return OZ_OK;
    }
    return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                   "%s: \"%s\" is \"%s\"; for this model ounce has \"%s\"%s%s%s.", s->name, key,
                   value, one, one == other ? "" : " and \"", one == other ? "" : other,
                   one == other ? "" : "\"");
}

static enum oz_status read_sizes(struct oz_qwen25_vl_config *c, const struct section *s,
                                 struct oz_error *err)
{
    int64_t value;
    OZ_TRY(get_count(s, "hidden_size", MAX_HIDDEN, &c->hidden, err));
    OZ_TRY(get_count(s, "intermediate_size", MAX_INTERMEDIATE, &c->intermediate, err));
    OZ_TRY(get_count(s, "num_hidden_layers", MAX_LAYERS, &c->layers, err));
    OZ_TRY(get_count(s, "vocab_size", MAX_VOCAB, &c->vocab, err));
    OZ_TRY(get_count(s, "num_attention_heads", MAX_HEADS, &c->heads, err));
    OZ_TRY(oz_json_get_integer(s->v, "num_key_value_heads", c->heads, 1, c->heads, &value, s->name,
                               err));
    c->kv_heads = (int32_t)value;
    OZ_TRY(oz_json_get_integer(s->v, "max_position_embeddings", 32768, 1, MAX_POSITIONS, &value,
                               s->name, err));
    c->max_positions = (int32_t)value;
    if (c->heads % c->kv_heads != 0) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: \"num_attention_heads\" %d is no multiple of \"num_key_value_heads\" "
                       "%d.",
                       s->name, c->heads, c->kv_heads);
    }
    c->head_dim = c->hidden / c->heads;
    if (c->hidden % c->heads != 0 || c->head_dim % 2 != 0) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: \"hidden_size\" %d over %d heads does not give heads of an even size.",
                       s->name, c->hidden, c->heads);
    }
    OZ_TRY(oz_json_get_integer(s->v, "head_dim", c->head_dim, 1, MAX_HIDDEN, &value, s->name, err));
    if (value != c->head_dim) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: \"head_dim\" is %d; in this model it is hidden_size / "
                       "num_attention_heads, %d.",
                       s->name, (int)value, c->head_dim);
    }
    return OZ_OK;
}

/* The layers' kinds: all of them attend to everything before. */
static enum oz_status check_attention(const struct oz_qwen25_vl_config *c, const struct section *s,
                                      struct oz_error *err)
{
    const struct oz_json *types = oz_json_get(s->v, "layer_types");
    if (oz_json_type(types) == OZ_JSON_ARRAY) {
        if (oz_json_count(types) != (size_t)c->layers) {
            return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"layer_types\" has %zu entries for %d layers.",
                           s->name, oz_json_count(types), c->layers);
        }
        for (size_t i = 0; i < oz_json_count(types); i++) {
            const char *type = oz_json_string(oz_json_at(types, i), "?");
            if (strcmp(type, "full_attention") != 0) {
                return OZ_FAIL(
                    err, OZ_ERR_UNSUPPORTED,
                    "%s: \"layer_types\" says \"%s\" for layer %zu; for this model ounce "
                    "has \"full_attention\".",
                    s->name, type, i);
            }
        }
        return OZ_OK;
    }
    bool sliding;
    int64_t first;
    OZ_TRY(oz_json_get_bool(s->v, "use_sliding_window", false, &sliding, s->name, err));
    OZ_TRY(oz_json_get_integer(s->v, "max_window_layers", 80, 0, INT32_MAX, &first, s->name, err));
    if (sliding && !is_missing(s, "sliding_window") && first < c->layers) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: \"use_sliding_window\" is true and layers from %d on would slide; for "
                       "this model ounce has full attention.",
                       s->name, (int)first);
    }
    return OZ_OK;
}

static enum oz_status read_sections(struct oz_qwen25_vl_config *c, const struct section *rope,
                                    struct oz_error *err)
{
    const struct oz_json *list = oz_json_get(rope->v, "mrope_section");
    int64_t sum = 0;
    if (oz_json_type(list) != OZ_JSON_ARRAY || oz_json_count(list) != 3) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"mrope_section\" must be a list of 3 integers.",
                       rope->name);
    }
    for (size_t i = 0; i < 3; i++) {
        int64_t pairs = oz_json_integer(oz_json_at(list, i), -1);
        if (pairs < 0 || pairs > c->head_dim / 2) {
            return OZ_FAIL(err, OZ_ERR_FORMAT,
                           "%s: entry %zu of \"mrope_section\" must be an integer from 0 to %d.",
                           rope->name, i, c->head_dim / 2);
        }
        c->mrope_section[i] = (int32_t)pairs;
        sum += pairs;
    }
    if (sum != c->head_dim / 2) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: \"mrope_section\" adds up to %d pairs; a head has %d.", rope->name,
                       (int)sum, c->head_dim / 2);
    }
    return OZ_OK;
}

/* rope_parameters (transformers 5) or rope_scaling with rope_theta beside it (transformers 4). */
static enum oz_status read_rope(struct oz_qwen25_vl_config *c, const struct section *s,
                                struct oz_error *err)
{
    struct section rope = {.v = oz_json_get(s->v, "rope_parameters"), .name = s->name};
    if (oz_json_type(rope.v) != OZ_JSON_OBJECT) {
        rope.v = oz_json_get(s->v, "rope_scaling");
    }
    if (oz_json_type(rope.v) != OZ_JSON_OBJECT) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: neither \"rope_parameters\" nor \"rope_scaling\" is an object; this "
                       "model needs their \"mrope_section\".",
                       s->name);
    }
    OZ_TRY(expect_string(&rope, "rope_type", "default", "default", "mrope", err));
    OZ_TRY(expect_string(&rope, "type", "mrope", "mrope", "default", err));
    bool interleaved;
    double part;
    OZ_TRY(oz_json_get_bool(rope.v, "mrope_interleaved", false, &interleaved, s->name, err));
    OZ_TRY(oz_json_get_number(rope.v, "partial_rotary_factor", 1.0, &part, s->name, err));
    if (interleaved || part != 1.0) {
        return OZ_FAIL(
            err, OZ_ERR_UNSUPPORTED,
            "%s: \"%s\" is set; for this model ounce has chunked mRoPE over whole heads.", s->name,
            interleaved ? "mrope_interleaved" : "partial_rotary_factor");
    }
    const struct section *theta = is_missing(&rope, "rope_theta") ? s : &rope;
    OZ_TRY(required(theta, "rope_theta", err));
    OZ_TRY(oz_json_get_number(theta->v, "rope_theta", 0.0, &c->rope_theta, s->name, err));
    if (!(c->rope_theta >= 1.0 && c->rope_theta <= 1e30)) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"rope_theta\" is %g; it must be at least 1.",
                       s->name, c->rope_theta);
    }
    return read_sections(c, &rope, err);
}

static enum oz_status read_text(struct oz_qwen25_vl_config *c, const struct section *s,
                                struct oz_error *err)
{
    double eps;
    OZ_TRY(required(s, "model_type", err));
    OZ_TRY(expect_string(s, "model_type", "", "qwen2_5_vl", "qwen2_5_vl_text", err));
    OZ_TRY(expect_string(s, "hidden_act", "silu", "silu", "silu", err));
    OZ_TRY(read_sizes(c, s, err));
    OZ_TRY(required(s, "rms_norm_eps", err));
    OZ_TRY(oz_json_get_number(s->v, "rms_norm_eps", 0.0, &eps, s->name, err));
    if (!(eps >= 0.0 && eps < 1.0)) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"rms_norm_eps\" is %g; it must lie in 0 to 1.",
                       s->name, eps);
    }
    c->eps = (float)eps;
    OZ_TRY(check_attention(c, s, err));
    return read_rope(c, s, err);
}

/* Keys that are read, and those that transformers writes and that cannot change a prompt's features. */
#define TEXT_KEYS                                                                                 \
    "attention_dropout", "bos_token_id", "dtype", "eos_token_id", "head_dim", "hidden_act",       \
        "hidden_size", "initializer_range", "intermediate_size", "layer_types",                   \
        "max_position_embeddings", "max_window_layers", "model_type", "num_attention_heads",      \
        "num_hidden_layers", "num_key_value_heads", "pad_token_id", "rms_norm_eps",               \
        "rope_parameters", "rope_scaling", "rope_theta", "sliding_window", "tie_word_embeddings", \
        "torch_dtype", "use_cache", "use_sliding_window", "vocab_size"
#define ROOT_KEYS                                                                       \
    "architectures", "chunk_size_feed_forward", "image_token_id", "is_encoder_decoder", \
        "output_hidden_states", "problem_type", "quantization_config", "return_dict",   \
        "text_config", "transformers_version", "video_token_id", "vision_config",       \
        "vision_end_token_id", "vision_start_token_id", "vision_token_id"

static void name_unknown_keys(const struct oz_json *root, const char *name,
                              const struct section *text)
{
    static const char *const known[] = {TEXT_KEYS, ROOT_KEYS};
    static const char *const rope[] = {"rope_type",         "type",
                                       "rope_theta",        "mrope_section",
                                       "mrope_interleaved", "partial_rotary_factor"};
    static const char *const of_rope[] = {"rope_parameters", "rope_scaling"};
    /* The root may hold all (transformers 4), and so may the text's part ("transformers_version"). */
    oz_json_warn_unknown(root, known, sizeof known / sizeof *known, name);
    if (text->v != root) {
        oz_json_warn_unknown(text->v, known, sizeof known / sizeof *known, text->name);
    }
    for (size_t i = 0; i < sizeof of_rope / sizeof *of_rope; i++) {
        oz_json_warn_unknown(oz_json_get(text->v, of_rope[i]), rope, sizeof rope / sizeof *rope,
                             text->name);
    }
}

enum oz_status oz_qwen25_vl_config_read(struct oz_qwen25_vl_config *c, const struct oz_json *root,
                                        const char *name, struct oz_error *err)
{
    char nested[1024];
    bool inner;
    struct section text = {.v = root, .name = name};
    *c = (struct oz_qwen25_vl_config){0};
    if (oz_json_type(root) != OZ_JSON_OBJECT) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: a config must be an object, not %s.", name,
                       oz_json_type_name(root));
    }
    if (oz_json_type(oz_json_get(root, "text_config")) == OZ_JSON_OBJECT) {
        (void)snprintf(nested, sizeof nested, "%s (text_config)", name);
        text = (struct section){.v = oz_json_get(root, "text_config"), .name = nested};
    }
    OZ_TRY(oz_json_get_bool(text.v, "tie_word_embeddings", false, &inner, text.name, err));
    OZ_TRY(oz_json_get_bool(root, "tie_word_embeddings", inner, &c->tied, name, err));
    OZ_TRY(read_text(c, &text, err));
    name_unknown_keys(root, name, &text);
    return OZ_OK;
}
