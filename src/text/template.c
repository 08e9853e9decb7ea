#include "text/template.h"

#include <string.h>

#include "base/error.h"
#include "base/unicode.h"

const struct oz_prompt_template oz_template_qwen_image = {
    .prefix =
        "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, "
        "quantity, text, spatial relationships of the objects and background:<|im_end|>\n"
        "<|im_start|>user\n",
    .suffix = "<|im_end|>\n<|im_start|>assistant\n",
    .drop = 34,
    .truncation = 1024 + 34,
    .max_kept = 1024,
    .default_kept = 512,
};

/* Appends text with what is not valid UTF-8 as U+FFFD. */
static void append_valid(struct oz_buf *out, const char *text, size_t bytes)
{
    size_t at;
    while (!oz_utf8_valid(text, bytes, &at)) {
        oz_buf_append(out, text, at);
        oz_buf_puts(out, "\xEF\xBF\xBD");
        do {
            at++;
        } while (at < bytes && ((unsigned char)text[at] & 0xC0) == 0x80);
        text += at;
        bytes -= at;
    }
    oz_buf_append(out, text, bytes);
}

/* Decodes the ids of words that were cut away into `lost`. */
static enum oz_status tell_lost(const struct oz_tokenizer *tok, const int32_t *ids, size_t count,
                                struct oz_buf *lost, struct oz_error *err)
{
    struct oz_buf bytes;
    oz_buf_init(&bytes, SIZE_MAX / 2);
    enum oz_status status = oz_tokenizer_decode(tok, ids, count, &bytes, err);
    if (status == OZ_OK) {
        append_valid(lost, oz_buf_text(&bytes), bytes.bytes);
        status = lost->status;
    }
    oz_buf_deinit(&bytes);
    if (lost->status != OZ_OK) {
        return OZ_FAIL(err, lost->status, "The words that a prompt lost do not fit in memory.");
    }
    return status;
}

/* All ids, and how many of them are the suffix's. */
static enum oz_status encode_whole(const struct oz_tokenizer *tok,
                                   const struct oz_prompt_template *t, const char *prompt,
                                   size_t prompt_bytes, struct oz_token_list *tokens,
                                   size_t *closing, struct oz_error *err)
{
    struct oz_buf text;
    struct oz_token_list suffix;
    struct oz_text_span user = {.begin = strlen(t->prefix)};
    user.end = user.begin + prompt_bytes;
    oz_buf_init(&text, OZ_TOKENIZER_MAX_TEXT_BYTES);
    oz_token_list_init(&suffix, OZ_TOKENIZER_MAX_TEXT_BYTES);
    oz_buf_puts(&text, t->prefix);
    oz_buf_append(&text, prompt, prompt_bytes);
    oz_buf_puts(&text, t->suffix);
    enum oz_status status = text.status;
    if (status == OZ_ERR_NOMEM) {
        (void)OZ_FAIL_NOMEM(err, "a prompt");
    } else if (status != OZ_OK) {
        (void)OZ_FAIL(err, status, "A prompt of %zu bytes is too long.", prompt_bytes);
    } else {
        status = oz_tokenizer_encode(tok, oz_buf_text(&text), text.bytes, &user, 1, tokens, err);
    }
    if (status == OZ_OK) {
        status = oz_tokenizer_encode(tok, t->suffix, strlen(t->suffix), NULL, 0, &suffix, err);
    }
    *closing = suffix.count;
    tokens->count = status == OZ_OK ? tokens->count : 0;
    oz_token_list_deinit(&suffix);
    oz_buf_deinit(&text);
    return status;
}

enum oz_status oz_template_encode(const struct oz_tokenizer *tok,
                                  const struct oz_prompt_template *t, const char *prompt,
                                  size_t prompt_bytes, int32_t max_sequence_length,
                                  struct oz_token_list *tokens, struct oz_buf *lost,
                                  struct oz_error *err)
{
    size_t at;
    size_t closing;
    tokens->count = 0;
    oz_buf_deinit(lost);
    if (max_sequence_length < 1 || max_sequence_length > t->max_kept) {
        return OZ_FAIL(err, OZ_ERR_ARG, "max_sequence_length is %d; it must lie in 1 to %d.",
                       max_sequence_length, t->max_kept);
    }
    if (!oz_utf8_valid(prompt, prompt_bytes, &at)) {
        return OZ_FAIL(err, OZ_ERR_ARG, "The prompt is not valid UTF-8 at byte %zu (0x%02X).", at,
                       (unsigned char)prompt[at]);
    }
    OZ_TRY(encode_whole(tok, t, prompt, prompt_bytes, tokens, &closing, err));
    size_t all = tokens->count;
    if (all <= (size_t)t->drop) {
        tokens->count = 0;
        return OZ_FAIL(
            err, OZ_ERR_UNSUPPORTED,
            "The tokenizer makes %zu tokens of prompt and template, but the first %d are "
            "dropped. It is not the tokenizer that this template was made for.",
            all, t->drop);
    }
    size_t limit = (size_t)t->drop + (size_t)max_sequence_length;
    limit = limit < (size_t)t->truncation ? limit : (size_t)t->truncation;
    size_t words_end = all > closing ? all - closing : 0;
    enum oz_status status = OZ_OK;
    if (words_end > limit) {
        status = tell_lost(tok, tokens->ids + limit, words_end - limit, lost, err);
    }
    tokens->count = status != OZ_OK ? 0 : all < limit ? all : limit;
    return status;
}
