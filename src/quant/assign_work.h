/* assign_work.h: an assignment being made; internal to src/quant. */
#ifndef OZ_QUANT_ASSIGN_WORK_H
#define OZ_QUANT_ASSIGN_WORK_H

#include "quant/assign.h"
#include "quant/rules.h"

struct oz_assign_work {
    const struct oz_assign_input *in;
    struct oz_assignment *out;
    struct oz_arena *arena;
    struct oz_error *err;
    struct oz_rule_units units;
    struct oz_rules ignore, targets, ignored, w4a8;
    const char **target_names; /* what each pattern of targets asks for */
    const char *keep_rules[OZ_ROLE_COUNT];
    const char *fallback_rule;
    const char *asked, *slot_names[2]; /* copies; slots: linear, moe */
    bool quantized_file;               /* the checkpoint is quantized, or says so */
    bool adopted;                      /* the request's method is the checkpoint's own */
    bool act_noted;     /* that default activations are impossible here has been noted */
    int32_t overridden; /* rows of the checkpoint whose activations were asked for */
};

/* A string in the arena; NULL when it is full. */
const char *oz_assign_printf(struct oz_assign_work *w, const char *format, ...) OZ_PRINTF(2, 3);

/* "standard: modulation"; NULL when the arena is full. */
const char *oz_assign_keep_rule(struct oz_assign_work *w, enum oz_role role);

/* OZ_ERR_UNSUPPORTED unless the device can take such activations for a layer. */
OZ_MUST_USE enum oz_status oz_assign_check_act(struct oz_assign_work *w, enum oz_act_mode act,
                                               const char *layer);

/* The scheme of a row under the request's settings, shape checked. w4a8: the row is one of
 * w4a8_fallback_layers. */
OZ_MUST_USE enum oz_status oz_assign_scheme(struct oz_assign_work *w, const struct oz_slot *slot,
                                            int32_t row, bool w4a8);

/* What a request that adopts a checkpoint says of a stored row's activations beyond their mode: the
 * policy of the caller goes before that of the file. */
OZ_MUST_USE enum oz_status oz_assign_stored_policy(struct oz_assign_work *w,
                                                   const struct oz_slot *slot, int32_t row,
                                                   bool w4a8);

/* OZ_ERR_ARG: a pattern of targets matched a layer that is never quantized online. */
enum oz_status oz_assign_fail_kind(const struct oz_assign_work *w, int32_t target, const char *name,
                                   enum oz_layer_kind kind);

OZ_MUST_USE enum oz_status oz_assign_begin_notes(struct oz_assign_work *w);
void oz_assign_note(struct oz_assign_work *w, const char *what, const char *why);
/* Patterns that matched nothing: an error, or notes. */
OZ_MUST_USE enum oz_status oz_assign_check_patterns(struct oz_assign_work *w);
/* OZ_ERR_ARG: the request changes nothing. */
OZ_MUST_USE enum oz_status oz_assign_check_effect(struct oz_assign_work *w);
/* Advice of the family, steps. */
OZ_MUST_USE enum oz_status oz_assign_end_notes(struct oz_assign_work *w);

#endif
