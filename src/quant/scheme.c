#include "quant/scheme.h"

#include <string.h>

#include "base/error.h"

#define MODE_NAME(id, name) name,
static const char *const mode_names[] = {OZ_ACT_MODE_MAP(MODE_NAME)};

const char *oz_act_mode_name(enum oz_act_mode mode)
{
    return (unsigned)mode < OZ_ACT_MODE_COUNT ? mode_names[mode] : "?";
}

/* Masks under the names that scheme.inc has for them. */
enum {
    NONE = 1 << OZ_ACT_NONE,
    FP8_TOKEN = 1 << OZ_ACT_FP8_TOKEN,
    FP8_GROUP = 1 << OZ_ACT_FP8_GROUP,
    FP8_STATIC = 1 << OZ_ACT_FP8_STATIC,
    INT8_TOKEN = 1 << OZ_ACT_INT8_TOKEN,
    MXFP8 = 1 << OZ_ACT_MXFP8,
    MXFP4 = 1 << OZ_ACT_MXFP4,
    MXFP4_DUALSCALE = 1 << OZ_ACT_MXFP4_DUALSCALE,
    NVFP4 = 1 << OZ_ACT_NVFP4,
    NVFP4_TOKEN = 1 << OZ_ACT_NVFP4_TOKEN,
};
enum { LINEAR = 1, EXPERTS = 2, BOTH = LINEAR | EXPERTS };

static const struct oz_scheme_info schemes[] = {
#define OZ_SCHEME(name, codec, kinds, act, native, acts, rule, about) \
    {name,                                                            \
     codec,                                                           \
     ((kinds)&LINEAR) != 0,                                           \
     ((kinds)&EXPERTS) != 0,                                          \
     OZ_ACT_##act,                                                    \
     OZ_ACT_##native,                                                 \
     (acts),                                                          \
     OZ_EXPONENT_##rule,                                              \
     about},
#include "quant/scheme.inc"
#undef OZ_SCHEME
};
#define SCHEMES ((int32_t)(sizeof schemes / sizeof *schemes))

const struct oz_scheme_info *oz_scheme_at(int32_t index)
{
    return index >= 0 && index < SCHEMES ? &schemes[index] : NULL;
}

const struct oz_scheme_info *oz_scheme_find(const char *name)
{
    for (int32_t i = 0; i < SCHEMES; i++) {
        if (strcmp(schemes[i].name, name) == 0) {
            return &schemes[i];
        }
    }
    return NULL;
}

uint32_t oz_scheme_allowed_acts(const char *scheme)
{
    const struct oz_scheme_info *info = oz_scheme_find(scheme);
    return info != NULL ? info->acts : 0;
}

struct oz_scheme oz_scheme_as_stored(void)
{
    return (struct oz_scheme){.name = "as stored", .mode_count = 1};
}

enum oz_status oz_scheme_make(struct oz_scheme *out, const struct oz_scheme_info *info,
                              const struct oz_act_support *support, struct oz_error *err)
{
    enum oz_act_mode act = info->act;
    if ((support->native & OZ_ACT_BIT(info->native_act)) != 0) {
        act = info->native_act;
    } else if ((support->possible & OZ_ACT_BIT(act)) == 0) {
        act = OZ_ACT_NONE;
    }
    *out = (struct oz_scheme){.name = info->name,
                              .codec = oz_codec_find(info->codec),
                              .exponent_rule = info->rule,
                              .mode_count = 1,
                              .acts = {act}};
    if (out->codec == NULL) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "The scheme %s needs the codec %s, which this build does not have.",
                       info->name, info->codec);
    }
    return OZ_OK;
}

bool oz_scheme_equal(const struct oz_scheme *a, const struct oz_scheme *b)
{
    bool equal = a->codec == b->codec && strcmp(a->name, b->name) == 0 &&
                 a->exponent_rule == b->exponent_rule &&
                 a->act_exponent_rule == b->act_exponent_rule && a->scope == b->scope &&
                 a->mode_count == b->mode_count;
    for (int32_t i = 0; equal && i < a->mode_count; i++) {
        equal = a->acts[i] == b->acts[i];
    }
    return equal;
}
