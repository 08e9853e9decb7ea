/*
 * quant/method.h: CONTRACT. Methods: the names that a user writes ("fp8", "mxfp4_dualscale",
 * "modelopt"). For each kind of layer a method names a scheme (quant/scheme.h), and it says which
 * parameters it takes. All names of vLLM and vLLM-Omni are known: those that need a checkpoint which
 * is quantized already, or that do not exist here, say so. Rows stand in method.inc; programs add
 * their own. Names are case-insensitive, and '-' is '_'.
 */
#ifndef OZ_QUANT_METHOD_H
#define OZ_QUANT_METHOD_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "quant/scheme.h"

enum oz_method_kind {
    OZ_METHOD_ONLINE,     /* quantizes a plain checkpoint while loading */
    OZ_METHOD_CONFIG,     /* "online": everything comes from the config */
    OZ_METHOD_NONE,       /* "none": stays as stored */
    OZ_METHOD_CHECKPOINT, /* describes a checkpoint that is quantized already; cannot make one */
    OZ_METHOD_ABSENT,     /* a known name of something that is not here; `note` says what instead */
};

/* What a parameter's value must be. */
enum oz_method_param_type {
    OZ_MPT_BOOL,
    OZ_MPT_COUNT,    /* an integer >= 0 */
    OZ_MPT_CHOICE,   /* one of `values`, "a, b" */
    OZ_MPT_NUMBER,   /* an integer, one of `values` */
    OZ_MPT_STEPS,    /* a list of integers >= 0 */
    OZ_MPT_NAMES,    /* a list of exact layer names */
    OZ_MPT_PATTERNS, /* a list of patterns (quant/rules.h) */
    OZ_MPT_REFUSED,  /* known, and refused with the sentence in `values` */
};

/* Parameters of methods, rows of param.inc; their numbers make masks. */
enum oz_method_param {
#define OZ_METHOD_PARAM(id, ...) id,
#include "quant/param.inc"
#undef OZ_METHOD_PARAM
    OZ_METHOD_PARAM_COUNT
};

#define OZ_METHOD_PARAM_BIT(id) (UINT64_C(1) << (unsigned)(id))

struct oz_method_param_info {
    const char *name; /* "ignored_layers" */
    enum oz_method_param_type type;
    const char *values;  /* choices or sentence; NULL */
    const char *initial; /* the default in words */
};

const struct oz_method_param_info *oz_method_param_at(enum oz_method_param param);
/* The parameter of that name among those of a mask, or OZ_METHOD_PARAM_COUNT. */
enum oz_method_param oz_method_param_find(uint64_t params, const char *name);

/* Plain data; rows live for ever. */
struct oz_method {
    const char *name; /* canonical: lower case with '_' */
    enum oz_method_kind kind;
    const char *linear;  /* scheme of LINEAR layers; NULL: they stay as stored */
    const char *experts; /* scheme of EXPERTS layers, likewise */
    uint64_t params;     /* mask of OZ_METHOD_PARAM_BIT */
    /* Methods of checkpoints that a request of this name also reads, blanks between; its own name is
     * always one of them where it is a checkpoint's too (serialized). */
    const char *adopts;
    bool serialized;       /* also the name of a checkpoint's method */
    int32_t bf16_fallback; /* default of num_bf16_fallback_layers */
    bool act_set;          /* `act` replaces the schemes' default activations */
    enum oz_act_mode act;
    const char *note; /* CHECKPOINT and ABSENT: sentence of the refusal; else what it is */
};

/* The method of that name or alias, or NULL. */
const struct oz_method *oz_method_find(const char *name);

/* Rows of one kind in order, those added by programs last; NULL behind the last. */
const struct oz_method *oz_method_at(enum oz_method_kind kind, int32_t index);

/* Alias `index` of the list and the name that it stands for; NULL behind the last. */
const char *oz_method_alias(int32_t index, const char **stands_for);

/* The method of that name. OZ_ERR_ARG: there is none (the methods that quantize while loading, and
 * the nearest of all names). */
OZ_MUST_USE enum oz_status oz_method_get(const struct oz_method **out, const char *name,
                                         struct oz_error *err);

/* OZ_ERR_UNSUPPORTED with the method's sentence unless it quantizes a plain checkpoint. */
OZ_MUST_USE enum oz_status oz_method_check_online(const struct oz_method *m, struct oz_error *err);

/* Does a request of this method read a checkpoint that declares `checkpoint`? */
bool oz_method_adopts(const struct oz_method *m, const char *checkpoint);

/*
 * Adds a method (copied, strings too) of kind ONLINE: name, linear, experts, act_set, act,
 * bf16_fallback and note are read; it takes the parameters that all online methods take. From any
 * thread, before the engines that use it open. OZ_ERR_ARG: the name is taken or no name (letters,
 * digits, '_', '-'), no scheme, an unknown one, one not defined for that kind of layer, or an
 * activation that a scheme does not take; OZ_ERR_NOMEM: 64 methods have been added.
 */
OZ_MUST_USE enum oz_status oz_method_add(const struct oz_method *method, struct oz_error *err);

#endif
