/*
 * text/pretokenize.h: cuts normalised text into the pieces that merges stay within. Internal to
 * text/.
 *
 * Patterns come from tokenizer files, written for the Oniguruma engine. They are rewritten for ours
 * where the two differ (\s: ours would count U+180E as white space), and refused by name where we
 * do not know them to be equal: what is accepted means the same.
 */
#ifndef OZ_TEXT_PRETOKENIZE_H
#define OZ_TEXT_PRETOKENIZE_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/regex.h"

/* Most stages in one tokenizer; the models we know have one to four. */
#define OZ_PRETOKENIZER_MAX_STAGES 8

/* The Qwen2 split, and the one built into the byte-level pre-tokenizer (GPT-2's). */
extern const char oz_pattern_qwen2[];
extern const char oz_pattern_gpt2[];

/* Each stage cuts the pieces of the one before it: matches and what is between them. */
struct oz_pretokenizer {
    struct oz_regex *stages[OZ_PRETOKENIZER_MAX_STAGES];
    int count; /* 0: the text is one piece */
};

/* Appends a stage. OZ_ERR_UNSUPPORTED or OZ_ERR_FORMAT names file, pattern and the part at fault. */
OZ_MUST_USE enum oz_status oz_pretokenizer_add(struct oz_pretokenizer *p, const char *pattern,
                                               const char *file, struct oz_error *err);
void oz_pretokenizer_deinit(struct oz_pretokenizer *p); /* zeroed storage is fine */

/* Receives the pieces in order; none is empty. What it returns ends the split. */
typedef enum oz_status (*oz_piece_fn)(void *ctx, const char *piece, size_t bytes,
                                      struct oz_error *err);

/* Cuts valid UTF-8. One thread at a time. */
OZ_MUST_USE enum oz_status oz_pretokenizer_split(const struct oz_pretokenizer *p, const char *text,
                                                 size_t bytes, oz_piece_fn piece, void *ctx,
                                                 struct oz_error *err);

#endif
