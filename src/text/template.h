/*
 * text/template.h: the text that an image model's encoder gets around a user's prompt, as data, and
 * its encoding: in the user's words no added token matches, and what is too long is cut as the
 * reference cuts it.
 */
#ifndef OZ_TEXT_TEMPLATE_H
#define OZ_TEXT_TEMPLATE_H

#include <ounce/status.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "text/tokenizer.h"

struct oz_prompt_template {
    const char *prefix, *suffix; /* the suffix begins with an added token */
    int32_t drop;         /* hidden states of so many first tokens are thrown away, always: */
                          /* also when a prompt's first bytes merge with the prefix's last */
    int32_t truncation;   /* the tokenizer keeps at most so many tokens */
    int32_t max_kept;     /* largest max_sequence_length */
    int32_t default_kept; /* max_sequence_length unless the request says otherwise */
};

/* Qwen-Image, text to image. */
extern const struct oz_prompt_template oz_template_qwen_image;

/*
 * Encodes prefix, prompt, suffix: into `tokens` (emptied first) go at most
 * drop + max_sequence_length ids, template included. The encoder is causal, so cutting ids is
 * cutting hidden states, which is what the reference does. The caller drops the first t->drop rows.
 *
 * `lost` (initialised by the caller, emptied first) gets the words of the prompt that were cut
 * away, valid UTF-8 in normal form C; nothing when none were. Closing tokens of the template that
 * were cut are not words. A character that was cut in the middle shows as U+FFFD. Give it room for
 * three times the prompt.
 *
 * OZ_ERR_ARG: max_sequence_length outside [1, t->max_kept], the prompt is not valid UTF-8 (offset in
 * the prompt) or too long. OZ_ERR_UNSUPPORTED: this tokenizer leaves nothing behind the drop.
 */
OZ_MUST_USE enum oz_status
oz_template_encode(const struct oz_tokenizer *tok, const struct oz_prompt_template *t,
                   const char *prompt, size_t prompt_bytes, int32_t max_sequence_length,
                   struct oz_token_list *tokens, struct oz_buf *lost, struct oz_error *err);

#endif
