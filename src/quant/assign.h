/*
 * quant/assign.h: CONTRACT. The assignment: for each row of a layer table its scheme and the rule that
 * chose it. Made from the request, the checkpoint's own quantization and the family's keep-lists,
 * before any weight is read. Loader, plan, inspect and reports read it; nothing decides again.
 */
#ifndef OZ_QUANT_ASSIGN_H
#define OZ_QUANT_ASSIGN_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "quant/config.h"
#include "quant/layer.h"
#include "quant/scheme.h"

/* Where a row's scheme comes from; the name is what plans write. */
#define OZ_SOURCE_MAP(X)                                                               \
    X(OZ_SOURCE_STORED, "stored")          /* nothing asks: not a linear, not named */ \
    X(OZ_SOURCE_METHOD, "method")          /* a method for the whole component */      \
    X(OZ_SOURCE_LINEAR, "linear")          /* the linear slot of an online config */   \
    X(OZ_SOURCE_MOE, "moe")                /* the moe slot */                          \
    X(OZ_SOURCE_TARGETS, "targets")        /* a pattern of targets */                  \
    X(OZ_SOURCE_IGNORE, "ignore")          /* a pattern of ignore or ignored_layers */ \
    X(OZ_SOURCE_KEEP, "keep")              /* the keep-list */                         \
    X(OZ_SOURCE_FALLBACK, "bf16_fallback") /* num_bf16_fallback_layers */              \
    X(OZ_SOURCE_CHECKPOINT, "checkpoint")  /* the file holds it quantized */

enum oz_source {
#define OZ_SOURCE_ENUM(id, name) id,
    OZ_SOURCE_MAP(OZ_SOURCE_ENUM)
#undef OZ_SOURCE_ENUM
        OZ_SOURCE_COUNT
};

const char *oz_source_name(enum oz_source source); /* "?" outside the enum */

/* Roles that online schemes leave alone unless a pattern of targets names them (decisions.md 13). A
 * checkpoint that is quantized already is not touched by it. */
#define OZ_KEEP_MAP(X)                                                                            \
    X(OZ_KEEP_STANDARD, "standard") /* embedders, modulation, final, routers, lm_head, refiner */ \
    X(OZ_KEEP_NONE, "none")                                                                       \
    X(OZ_KEEP_CONSERVATIVE, "conservative") /* standard, attention output, MLP down */

enum oz_keep {
#define OZ_KEEP_ENUM(id, name) id,
    OZ_KEEP_MAP(OZ_KEEP_ENUM)
#undef OZ_KEEP_ENUM
        OZ_KEEP_COUNT
};

const char *oz_keep_name(enum oz_keep keep); /* "?" outside the enum */
/* Case-insensitive. OZ_ERR_ARG lists the names. NULL is standard. */
OZ_MUST_USE enum oz_status oz_keep_parse(enum oz_keep *out, const char *name, struct oz_error *err);
bool oz_keep_has(enum oz_keep keep, enum oz_role role);

/* What a family knows of its layers' sensitivity: a run of whole dotted segments, and a sentence.
 * It becomes a note where such a layer is quantized by one of the schemes. */
struct oz_advice {
    const char *layers;  /* "img_mlp" */
    const char *schemes; /* prefix of scheme names: "mxfp4"; NULL: all */
    const char *text;    /* "the first to keep if quality regresses" */
};

/* The decision for one row. Strings live in the assignment's arena or are static. */
struct oz_choice {
    struct oz_scheme scheme;
    enum oz_source source;
    const char
        *rule; /* the pattern or name that decided, as the user wrote it: "*.to_q", "standard:
                         modulation"; never NULL */
};

/*
 * choices[i] belongs to table->rows[i]; every row has one. Rows that are not LINEAR or EXPERTS are
 * STORED, or CHECKPOINT where the file holds them quantized. A shape that a scheme does not take is
 * never passed over: oz_assign fails. Memory is the arena's.
 */
struct oz_assignment {
    const struct oz_layer_table *table; /* borrowed */
    struct oz_choice *choices;          /* [table->count] */
    int32_t quantized;                  /* rows whose scheme has a codec that we encode */
    struct oz_note *notes;
    int32_t note_count, note_capacity;
    /* Steps (0-based) of the denoising loop that run in mode 1; sorted, unique. */
    const int32_t *fallback_steps;
    int32_t fallback_step_count;
};

struct oz_assign_input {
    const struct oz_layer_table *table;
    /* What is asked of this component (oz_request_for); NULL: nothing. */
    const struct oz_component_request *request;
    /* What the file holds quantized, for each row: codec NULL for plain rows. NULL: all are plain. */
    const struct oz_scheme *stored; /* [table->count] */
    /* The method that the checkpoint's own config declares, canonical ("compressed_tensors",
     * "modelopt"); NULL: it declares none. */
    const char *checkpoint_method;
    struct oz_act_support acts; /* of the device */
    enum oz_keep keep;
    bool allow_unmatched; /* a user's pattern that matches nothing is a note, not an error */
    const struct oz_advice *advice; /* the family's */
    int32_t advice_count;
};

/*
 * Decides for every row of a finished table. The arena bounds what it can hold: about
 * oz_assign_bytes. Errors name the layer, the pattern and the remedy.
 * OZ_ERR_ARG: contradictory rules, patterns that match nothing (nearest names), slots for experts on
 * a model without, a request that quantizes nothing, one that the checkpoint contradicts;
 * OZ_ERR_UNSUPPORTED: the scheme's codec, its shape or an activation mode; OZ_ERR_NOMEM.
 */
OZ_MUST_USE enum oz_status oz_assign(struct oz_assignment *out, const struct oz_assign_input *in,
                                     struct oz_arena *arena, struct oz_error *err);

/* OZ_ERR_UNSUPPORTED: the scheme's codec does not take the layer's input features. */
OZ_MUST_USE enum oz_status oz_scheme_check_shape(const struct oz_scheme *s,
                                                 const struct oz_layer *layer,
                                                 struct oz_error *err);

/* Room in bytes that an assignment of such a table takes in its arena at most. */
size_t oz_assign_bytes(const struct oz_layer_table *table,
                       const struct oz_component_request *request);

/* One line in the form of vllm-online 4.1: "Quantized 60 layers of types: attn.to_q: 6 (from linear:
 * fp8_per_channel); ..." in the arena. */
OZ_MUST_USE enum oz_status oz_assignment_summary(const struct oz_assignment *a,
                                                 struct oz_arena *arena, const char **line,
                                                 struct oz_error *err);

#endif
