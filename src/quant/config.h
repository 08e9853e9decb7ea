/*
 * quant/config.h: CONTRACT. A request for quantization, as a user writes it, read into one form:
 * for each component of a model a method, slots, patterns and settings. Knows no model: which layers
 * that means, and what of it is impossible there, is oz_assign's (quant/assign.h).
 *
 * Three shapes of one option, told apart in this order (docs/quantization/configuration.md): an
 * object with any of linear, moe, ignore, targets is an online config; one with method or
 * quant_method is flat; anything else names components.
 */
#ifndef OZ_QUANT_CONFIG_H
#define OZ_QUANT_CONFIG_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "quant/method.h"
#include "quant/scheme.h"

#define OZ_CONFIG_MAX_BYTES (1U << 20) /* of a config's text or file */
#define OZ_CONFIG_MAX_ITEMS 4096       /* of one list */
#define OZ_CONFIG_MAX_DEPTH 32

/* Something worth listing in the plan: a pattern that matched nothing, an option without effect. */
struct oz_note {
    const char *what; /* "ignored_layers entry \"img_mod\"" */
    const char *why;  /* "matches no layer of the transformer" */
};

/* What is asked of one kind of layer. Each field is inherited by itself. */
struct oz_slot {
    bool given;      /* the user wrote the slot; else it comes from the method alone */
    bool weight_set; /* weight NULL then means: leave these layers alone */
    const struct oz_scheme_info *weight;
    bool act_set; /* act NONE then means: weight-only */
    enum oz_act_mode act;
    const char *name; /* of the weight, as it was asked for: "fp8_per_block_static" */
};

struct oz_target {
    const char *pattern;
    const char *name; /* of the method, as it was asked for */
    struct oz_slot linear, moe;
};

struct oz_strings {
    const char *const *items;
    int32_t count;
};

struct oz_component_request {
    const char *component; /* key of the request; NULL: the whole model. "default": by_default */
    bool by_default;
    bool leave;                     /* null or "none": stays as stored */
    const struct oz_method *method; /* NULL: slots or targets alone */
    const char *asked;              /* the method's name as the user wrote it, or NULL */
    bool online;                    /* an online config: slots, ignore, targets */
    struct oz_slot linear, moe;     /* as inherited */
    struct oz_strings ignore;       /* patterns, each matched as vllm-online 3 */
    const struct oz_target *targets;
    int32_t target_count;
    /* Patterns by whole dotted segments (decisions.md 4); which key they came from. */
    struct oz_strings ignored_layers;
    const char *ignored_key;
    bool ignored_substring;             /* ignored_layers_match "substring" */
    int32_t num_bf16_fallback_layers;   /* with the method's default */
    const int32_t *w4a8_fallback_steps; /* sorted, unique */
    int32_t w4a8_fallback_step_count;
    struct oz_strings w4a8_fallback_layers;  /* exact names; sorted, unique */
    bool fallback_given;                     /* one of the two lists has an entry */
    enum oz_exponent_rule exponent_rule;     /* of weights; DEFAULT: the scheme's */
    enum oz_exponent_rule act_exponent_rule; /* of MXFP4 activations; DEFAULT: the mode's */
    enum oz_scale_scope scope;
    bool serialized;      /* an is_checkpoint_..._serialized flag says that the file is quantized */
    bool static_acts;     /* activation_scheme "static": scales come from the file */
    bool smooth_required; /* require_smooth_scale */
};

/* Owns its memory. Read-only once made: any number of threads may read it. */
struct oz_request {
    struct oz_arena arena;
    struct oz_component_request *components;
    int32_t count;
    struct oz_note *notes; /* overwritten keys, words without effect */
    int32_t note_count;
};

/* What a user gives, from a command line or a program. All optional; NULL and "" are nothing. */
struct oz_request_text {
    const char *quantization; /* a name, or a JSON object */
    const char *config;       /* a JSON object, or the path of a JSON or YAML file */
    const char *const *keys;  /* "linear.activation=mxfp8", in order, over config */
    int32_t key_count;
    const char *const *ignored_layers; /* patterns, besides those of the config */
    int32_t ignored_count;
};

/*
 * Reads a request. *out is NULL when nothing is asked for. OZ_ERR_ARG: what is wrong, what would be
 * valid and the nearest name; OZ_ERR_FORMAT, OZ_ERR_IO: the file; OZ_ERR_UNSUPPORTED: YAML in a build
 * without; OZ_ERR_NOMEM. Whether a method needs a quantized checkpoint is not looked at here.
 */
OZ_MUST_USE enum oz_status oz_request_create(struct oz_request **out,
                                             const struct oz_request_text *text,
                                             struct oz_error *err);
void oz_request_destroy(struct oz_request **request); /* NULL is fine */

/* OZ_ERR_ARG when the request names a component that is none of these (lists them, and the nearest).
 */
OZ_MUST_USE enum oz_status oz_request_check_components(const struct oz_request *r,
                                                       const char *const *names, int32_t count,
                                                       struct oz_error *err);

/*
 * What is asked of a component: its own entry, else "default"; a request for the whole model is for
 * `main` components (the transformers, the language model) alone. NULL: nothing; it stays as stored.
 */
const struct oz_component_request *oz_request_for(const struct oz_request *r, const char *component,
                                                  bool main);

#endif
