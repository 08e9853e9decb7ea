/* vae/config.json: what is read, what is skipped, and what is refused by name. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/names.h"
#include "model/qwen_vae/qwen_vae.h"

#define MAX_BASE_DIM 4096
#define MAX_MULT 64
#define MAX_RES_BLOCKS 64
#define MAX_WIDTH 65536

// clang-format off
static const struct oz_qwen_vae_config published = {
    .base_dim = 96,
    .z_dim = 16,
    .num_res_blocks = 2,
    .input_channels = 3,
    .levels = 4,
    .dim_mult = {1, 2, 4, 4},
    .temperal_downsample = {false, true, true},
    .latents_mean = {-0.7571F, -0.7089F, -0.9113F,  0.1075F, -0.1745F,  0.9653F, -0.1517F,  1.5508F,
                      0.4134F, -0.0715F,  0.5517F, -0.3632F, -0.1922F, -0.9497F,  0.2503F, -0.2921F},
    .latents_std =  { 2.8184F,  1.4541F,  2.3275F,  2.6558F,  1.2196F,  1.7708F,  2.6052F,  2.0743F,
                      3.2687F,  2.1526F,  2.8652F,  1.5579F,  1.6382F,  1.1253F,  2.8251F,  1.9160F},
};
// clang-format on

static const char *const known_keys[] = {
    "base_dim",
    "z_dim",
    "dim_mult",
    "num_res_blocks",
    "attn_scales",
    "input_channels",
    "dropout",
    "latents_mean",
    "latents_std",
    "temperal_downsample",
    "is_residual",
    "in_channels",
    "out_channels",
    "patch_size",
    "decoder_base_dim",
    "scale_factor_spatial",
    "scale_factor_temporal",
};

/* What is being read, for messages. */
struct source {
    const struct oz_json *json;
    const char *name;
    struct oz_error *err;
};

static enum oz_status read_int(const struct source *s, const char *key, int64_t min, int64_t max,
                               int32_t *value)
{
    int64_t wide;
    OZ_TRY(oz_json_get_integer(s->json, key, *value, min, max, &wide, s->name, s->err));
    *value = (int32_t)wide;
    return OZ_OK;
}

/* The list under a key; *list is NULL when the key is absent or null. */
static enum oz_status find_list(const struct source *s, const char *key, size_t min, size_t max,
                                const struct oz_json **list)
{
    *list = oz_json_get(s->json, key);
    if (oz_json_type(*list) == OZ_JSON_NULL) {
        *list = NULL;
        return OZ_OK;
    }
    if (oz_json_type(*list) != OZ_JSON_ARRAY) {
        return OZ_FAIL(s->err, OZ_ERR_FORMAT, "%s: \"%s\" must be a list, not %s.", s->name, key,
                       oz_json_type_name(*list));
    }
    size_t count = oz_json_count(*list);
    if (count < min || count > max) {
        return OZ_FAIL(s->err, OZ_ERR_FORMAT,
                       "%s: \"%s\" has %zu entries; it must have %zu to %zu.", s->name, key, count,
                       min, max);
    }
    return OZ_OK;
}

static enum oz_status read_dim_mult(const struct source *s, struct oz_qwen_vae_config *c)
{
    const struct oz_json *list;
    OZ_TRY(find_list(s, "dim_mult", 1, OZ_QWEN_VAE_MAX_LEVELS, &list));
    if (list != NULL) {
        c->levels = (int32_t)oz_json_count(list);
    }
    for (int32_t i = 0; i < c->levels; i++) {
        if (list != NULL) {
            const struct oz_json *v = oz_json_at(list, (size_t)i);
            int64_t mult = oz_json_integer(v, 0);
            if (mult < 1 || mult > MAX_MULT) {
                return OZ_FAIL(s->err, OZ_ERR_FORMAT,
                               "%s: \"dim_mult\" entry %d must be an integer in 1 to %d.", s->name,
                               i, MAX_MULT);
            }
            c->dim_mult[i] = (int32_t)mult;
        }
        int64_t width = (int64_t)c->base_dim * c->dim_mult[i];
        if (width > MAX_WIDTH) {
            return OZ_FAIL(
                s->err, OZ_ERR_FORMAT,
                "%s: \"base_dim\" %d times \"dim_mult\" %d gives %lld channels; at most %d.",
                s->name, c->base_dim, c->dim_mult[i], (long long)width, MAX_WIDTH);
        }
        if (i > 0 && width % 2 != 0) {
            return OZ_FAIL(s->err, OZ_ERR_FORMAT,
                           "%s: level %d has %lld channels (\"base_dim\" times \"dim_mult\"); its "
                           "upsampler halves them, so the number must be even.",
                           s->name, i, (long long)width);
        }
    }
    return OZ_OK;
}

static enum oz_status read_temporal(const struct source *s, struct oz_qwen_vae_config *c)
{
    const struct oz_json *list;
    OZ_TRY(find_list(s, "temperal_downsample", 0, OZ_QWEN_VAE_MAX_LEVELS, &list));
    int32_t count = list != NULL ? (int32_t)oz_json_count(list) : published.levels - 1;
    if (count != c->levels - 1) {
        return OZ_FAIL(s->err, OZ_ERR_FORMAT,
                       "%s: \"temperal_downsample\" has %d entries%s; \"dim_mult\" has %d, so %d "
                       "are needed.",
                       s->name, count, list == NULL ? " by default" : "", c->levels, c->levels - 1);
    }
    for (int32_t i = 0; list != NULL && i < count; i++) {
        const struct oz_json *v = oz_json_at(list, (size_t)i);
        if (oz_json_type(v) != OZ_JSON_BOOL) {
            return OZ_FAIL(s->err, OZ_ERR_FORMAT,
                           "%s: \"temperal_downsample\" entry %d must be true or false, not %s.",
                           s->name, i, oz_json_type_name(v));
        }
        c->temperal_downsample[i] = oz_json_bool(v, false);
    }
    return OZ_OK;
}

/* latents_mean and latents_std: one finite number for each latent channel. */
static enum oz_status read_latents(const struct source *s, const struct oz_qwen_vae_config *c,
                                   const char *key, bool positive, float *values)
{
    const struct oz_json *list;
    OZ_TRY(find_list(s, key, 0, SIZE_MAX, &list));
    int64_t count = list != NULL ? (int64_t)oz_json_count(list) : published.z_dim;
    if (count != c->z_dim) {
        return OZ_FAIL(s->err, OZ_ERR_FORMAT, "%s: \"%s\" has %lld numbers%s; \"z_dim\" is %d.",
                       s->name, key, (long long)count, list == NULL ? " by default" : "", c->z_dim);
    }
    for (int32_t i = 0; list != NULL && i < c->z_dim; i++) {
        const struct oz_json *v = oz_json_at(list, (size_t)i);
        double number = oz_json_number(v, NAN);
        values[i] = (float)number;
        if (!isfinite(number) || !isfinite(values[i]) || (positive && !(values[i] > 0))) {
            return OZ_FAIL(s->err, OZ_ERR_FORMAT, "%s: \"%s\" entry %d must be a finite%s number.",
                           s->name, key, i, positive ? " positive" : "");
        }
    }
    return OZ_OK;
}

/* Settings of related autoencoders that would change the computation: only the value that says
 * "as here" is accepted. */
static enum oz_status expect_int(const struct source *s, const char *key, int64_t value)
{
    const struct oz_json *v = oz_json_get(s->json, key);
    if (oz_json_type(v) == OZ_JSON_NULL ||
        (oz_json_type(v) == OZ_JSON_INTEGER && oz_json_integer(v, 0) == value)) {
        return OZ_OK;
    }
    if (oz_json_type(v) != OZ_JSON_INTEGER) {
        return OZ_FAIL(s->err, OZ_ERR_UNSUPPORTED, "%s: \"%s\" is %s; only %lld is supported here.",
                       s->name, key, oz_json_type_name(v), (long long)value);
    }
    return OZ_FAIL(s->err, OZ_ERR_UNSUPPORTED, "%s: \"%s\" is %lld; only %lld is supported here.",
                   s->name, key, (long long)oz_json_integer(v, 0), (long long)value);
}

static enum oz_status expect_class(const struct source *s)
{
    static const char here[] = "AutoencoderKLQwenImage";
    const char *name;
    OZ_TRY(oz_json_get_string(s->json, "_class_name", here, &name, s->name, s->err));
    return strcmp(name, here) == 0
               ? OZ_OK
               : OZ_FAIL(s->err, OZ_ERR_UNSUPPORTED, "%s: the class is %s; this version runs %s.",
                         s->name, name, here);
}

static enum oz_status refuse_unsupported(const struct source *s, const struct oz_qwen_vae_config *c)
{
    OZ_TRY(expect_class(s));
    const struct oz_json *scales = oz_json_get(s->json, "attn_scales");
    if (oz_json_type(scales) != OZ_JSON_NULL && oz_json_type(scales) != OZ_JSON_ARRAY) {
        return OZ_FAIL(s->err, OZ_ERR_FORMAT, "%s: \"attn_scales\" must be a list, not %s.",
                       s->name, oz_json_type_name(scales));
    }
    if (oz_json_count(scales) != 0) {
        return OZ_FAIL(s->err, OZ_ERR_UNSUPPORTED,
                       "%s: \"attn_scales\" has %zu entries; attention outside the middle block is "
                       "not supported, the list must be empty.",
                       s->name, oz_json_count(scales));
    }
    bool residual;
    OZ_TRY(oz_json_get_bool(s->json, "is_residual", false, &residual, s->name, s->err));
    if (residual) {
        return OZ_FAIL(s->err, OZ_ERR_UNSUPPORTED,
                       "%s: \"is_residual\" is true; that is the Wan 2.2 autoencoder, which this "
                       "family does not compute.",
                       s->name);
    }
    if (oz_json_type(oz_json_get(s->json, "patch_size")) != OZ_JSON_NULL) {
        return OZ_FAIL(s->err, OZ_ERR_UNSUPPORTED,
                       "%s: \"patch_size\" is set; patches of pixels are not supported here.",
                       s->name);
    }
    int64_t temporal = 1;
    for (int32_t i = 0; i < c->levels - 1; i++) {
        temporal <<= c->temperal_downsample[i] ? 1 : 0;
    }
    OZ_TRY(expect_int(s, "input_channels", 3));
    OZ_TRY(expect_int(s, "in_channels", 3));
    OZ_TRY(expect_int(s, "out_channels", 3));
    OZ_TRY(expect_int(s, "decoder_base_dim", c->base_dim));
    OZ_TRY(expect_int(s, "scale_factor_spatial", INT64_C(1) << (c->levels - 1)));
    return expect_int(s, "scale_factor_temporal", temporal);
}

enum oz_status oz_qwen_vae_config_read(struct oz_qwen_vae_config *c, const struct oz_json *json,
                                       const char *name, struct oz_error *err)
{
    const struct source s = {json, name, err};
    *c = published;
    OZ_TRY(read_int(&s, "base_dim", 1, MAX_BASE_DIM, &c->base_dim));
    OZ_TRY(read_int(&s, "z_dim", 1, OZ_QWEN_VAE_MAX_Z, &c->z_dim));
    OZ_TRY(read_int(&s, "num_res_blocks", 1, MAX_RES_BLOCKS, &c->num_res_blocks));
    OZ_TRY(read_dim_mult(&s, c));
    OZ_TRY(read_temporal(&s, c));
    OZ_TRY(refuse_unsupported(&s, c));
    OZ_TRY(read_latents(&s, c, "latents_mean", false, c->latents_mean));
    OZ_TRY(read_latents(&s, c, "latents_std", true, c->latents_std));
    /* What would change the computation was refused above, by name. */
    oz_json_warn_unknown(json, known_keys, sizeof known_keys / sizeof known_keys[0], name);
    return OZ_OK;
}
