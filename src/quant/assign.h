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
    X(OZ_SOURCE_SHAPE, "shape")            /* a shape that the scheme does not take */ \
    X(OZ_SOURCE_CHECKPOINT, "checkpoint")  /* the file holds it quantized */

enum oz_source {
#define OZ_SOURCE_ENUM(id, name) id,
    OZ_SOURCE_MAP(OZ_SOURCE_ENUM)
#undef OZ_SOURCE_ENUM
        OZ_SOURCE_COUNT
};

const char *oz_source_name(enum oz_source source); /* "?" outside the enum */

/* The decision for one row. Strings live in the assignment's arena or are static. */
struct oz_choice {
    struct oz_scheme scheme;
    enum oz_source source;
    const char
        *rule; /* the pattern or name that decided, as the user wrote it: "*.to_q", "standard:
                         modulation"; never NULL */
};

/* A pattern that matched nothing, or an option without effect, for the plan to list. */
struct oz_note {
    const char *what; /* "ignored_layers entry \"img_mod\"" */
    const char *why;  /* "matches no layer of the checkpoint's list" */
};

/* choices[i] belongs to table->rows[i]. Memory is the arena's. */
struct oz_assignment {
    const struct oz_layer_table *table; /* borrowed */
    struct oz_choice *choices;          /* [table->count] */
    int32_t quantized;                  /* rows whose scheme has a codec that we encode */
    struct oz_note *notes;
    int32_t note_count;
    /* Steps (0-based) of the denoising loop that run in mode 1; sorted, unique. */
    const int32_t *fallback_steps;
    int32_t fallback_step_count;
};

/* One line in the form of vllm-online 4.1: "Quantized 60 layers of types: attn.to_q: 6 (from linear:
 * fp8_per_channel); ..." in the arena. */
OZ_MUST_USE enum oz_status oz_assignment_summary(const struct oz_assignment *a,
                                                 struct oz_arena *arena, const char **line,
                                                 struct oz_error *err);

#endif
