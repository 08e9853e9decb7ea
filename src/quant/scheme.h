/*
 * quant/scheme.h: CONTRACT. Schemes and methods: what "fp8_per_channel" means for a layer.
 *
 * A scheme says how a weight is stored (codec, scale scope, exponent rule) and which formats its
 * activations may take (modes). A method is a name that a user writes; for each kind of layer it
 * names a scheme, and it says which parameters it takes. Both are tables: a new method is a row.
 */
#ifndef OZ_QUANT_SCHEME_H
#define OZ_QUANT_SCHEME_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "num/codec.h"

/*
 * Formats of activations (decisions.md 9). The name is what configs and plans write. Formulas are
 * num/act.h's. All scales are dynamic unless the name says static.
 */
#define OZ_ACT_MODE_MAP(X)                                                            \
    X(OZ_ACT_NONE, "none")                       /* plain rows: weight-only */        \
    X(OZ_ACT_FP8_TOKEN, "fp8_per_token")         /* e4m3, f32 for each row */         \
    X(OZ_ACT_FP8_GROUP, "fp8_per_block")         /* e4m3, f32 for 1 x 128 */          \
    X(OZ_ACT_FP8_STATIC, "fp8_static")           /* e4m3, one f32 from the file */    \
    X(OZ_ACT_INT8_TOKEN, "int8_per_token")       /* s8, f32 for each row */           \
    X(OZ_ACT_MXFP8, "mxfp8")                     /* e4m3, e8m0 for 1 x 32 */          \
    X(OZ_ACT_MXFP4, "mxfp4")                     /* e2m1, e8m0 for 1 x 32 */          \
    X(OZ_ACT_MXFP4_DUALSCALE, "mxfp4_dualscale") /* the same under f32 for 1 x 512 */ \
    X(OZ_ACT_NVFP4, "nvfp4") /* e2m1, e4m3 for 1 x 16 under f32 for each sequence */

enum oz_act_mode {
#define OZ_ACT_MODE_ENUM(id, name) id,
    OZ_ACT_MODE_MAP(OZ_ACT_MODE_ENUM)
#undef OZ_ACT_MODE_ENUM
        OZ_ACT_MODE_COUNT
};

const char *oz_act_mode_name(enum oz_act_mode mode); /* "?" outside the enum */

/* What one scale of a per-tensor scheme spans. */
enum oz_scale_scope {
    OZ_SCOPE_OWN = 0, /* the checkpoint's own linear */
    OZ_SCOPE_FUSED,   /* all linears of its fused group (vLLM's one scale for q, k, v) */
};

#define OZ_SCHEME_MODES 2 /* activation modes of a weight: its own, and that of chosen steps */

/* Plain data, copied by assignment, compared with oz_scheme_equal. codec NULL: the layer stays as the
 * checkpoint stores it. */
struct oz_scheme {
    const char *name; /* canonical, static: "fp8_per_channel", "as stored" */
    const struct oz_codec *codec;
    enum oz_exponent_rule exponent_rule; /* of the weight; DEFAULT: the codec's own */
    enum oz_exponent_rule act_exponent_rule;
    enum oz_scale_scope scope;
    int32_t mode_count; /* 1 or 2 */
    enum oz_act_mode acts[OZ_SCHEME_MODES];
};

bool oz_scheme_equal(const struct oz_scheme *a, const struct oz_scheme *b);

/* Activation modes that a scheme's weight can be multiplied with: a mask of 1 << mode. */
uint32_t oz_scheme_allowed_acts(const char *scheme);

#endif
