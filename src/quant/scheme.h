/*
 * quant/scheme.h: CONTRACT. Schemes: what "fp8_per_channel" means for a layer.
 *
 * A scheme says how a weight is stored (codec, scale scope, exponent rule) and which formats its
 * activations may take (modes). The schemes that weights are encoded to while loading are rows of
 * scheme.inc; weights that a file holds quantized bring a scheme of their own, made by the dialect.
 * Names that a user writes are methods (quant/method.h): a method names a scheme for each kind of
 * layer.
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
    X(OZ_ACT_NVFP4, "nvfp4") /* e2m1, e4m3 for 1 x 16 under f32 for each sequence */  \
    X(OZ_ACT_NVFP4_TOKEN, "nvfp4_per_token") /* the same under f32 for each row */

enum oz_act_mode {
#define OZ_ACT_MODE_ENUM(id, name) id,
    OZ_ACT_MODE_MAP(OZ_ACT_MODE_ENUM)
#undef OZ_ACT_MODE_ENUM
        OZ_ACT_MODE_COUNT
};

const char *oz_act_mode_name(enum oz_act_mode mode); /* "?" outside the enum */

#define OZ_ACT_BIT(mode) (1U << (unsigned)(mode)) /* in masks of modes */

/*
 * What a device says of activation modes. `native`: it has units for them (block-scaled products),
 * so they are the default where a scheme offers them. `possible`: it has a kernel, the slow
 * reference included. NONE is always possible.
 */
struct oz_act_support {
    uint32_t native, possible; /* masks of OZ_ACT_BIT */
};

/* What one scale of a per-tensor scheme spans. */
enum oz_scale_scope {
    OZ_SCOPE_OWN = 0, /* the checkpoint's own linear */
    OZ_SCOPE_FUSED,   /* all linears of its fused group (vLLM's one scale for q, k, v) */
};

#define OZ_SCHEME_MODES 2 /* activation modes of a weight: its own, and that of chosen steps */

/* Plain data, copied by assignment, compared with oz_scheme_equal. codec NULL: the layer stays as the
 * checkpoint stores it; then the rest is zero but for the name. */
struct oz_scheme {
    const char *name; /* canonical, static: "fp8_per_channel", "as stored" */
    const struct oz_codec *codec;
    enum oz_exponent_rule exponent_rule; /* of the weight; DEFAULT: the codec's own */
    /* Of activations in MXFP4 and MXFP4_DUALSCALE; DEFAULT: the mode's own. MXFP8 activations are
     * always CEIL. */
    enum oz_exponent_rule act_exponent_rule;
    enum oz_scale_scope scope;
    int32_t mode_count; /* 1 or 2 */
    /* [0] unless the step is one of the assignment's fallback_steps; then [1] */
    enum oz_act_mode acts[OZ_SCHEME_MODES];
};

bool oz_scheme_equal(const struct oz_scheme *a, const struct oz_scheme *b);

struct oz_scheme oz_scheme_as_stored(void);

/* A row of scheme.inc: a scheme that weights are encoded to. */
struct oz_scheme_info {
    const char *name;
    const char *codec;           /* oz_codec_find's name for it */
    bool linear, experts;        /* kinds of layer that it is defined for */
    enum oz_act_mode act;        /* of activations by default */
    enum oz_act_mode native_act; /* by default where the device's units take it, instead of act */
    uint32_t acts;               /* that may be asked for: a mask of OZ_ACT_BIT */
    enum oz_exponent_rule rule;  /* of the weight, by default; DEFAULT: it has none */
    const char *about;           /* "e4m3, one f32 scale for each output row" */
};

/* The row of that name, or NULL; the rows in order, NULL behind the last. */
const struct oz_scheme_info *oz_scheme_find(const char *name);
const struct oz_scheme_info *oz_scheme_at(int32_t index);

/* The scheme with its default activations on a device. OZ_ERR_UNSUPPORTED: this build lacks the
 * codec. */
OZ_MUST_USE enum oz_status oz_scheme_make(struct oz_scheme *out, const struct oz_scheme_info *info,
                                          const struct oz_act_support *support,
                                          struct oz_error *err);

/* Activation modes that a scheme's weight can be multiplied with: a mask of OZ_ACT_BIT; 0 for a name
 * that is no row. FP8_STATIC only where the file has the scale. */
uint32_t oz_scheme_allowed_acts(const char *scheme);

#endif
