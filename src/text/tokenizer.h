/*
 * text/tokenizer.h: byte-level BPE tokenizers, as Hugging Face stores them: text to token ids and
 * back. Equal to the reference id for id; whatever a file asks for that is not implemented here is
 * refused by name.
 *
 * Read from a folder:
 *   tokenizer.json  if it is there. Model BPE; normalizer NFC or none; pre-tokenizer byte-level,
 *                   alone or behind regular expressions that isolate; added tokens with lstrip and
 *                   rstrip, but not single_word or normalized. `truncation` and `padding` are the
 *                   caller's business, as in transformers; `post_processor` may not add tokens.
 *   vocab.json, merges.txt, and where present added_tokens.json, tokenizer_config.json
 *                   otherwise. These do not say how text is normalised and cut: NFC and the Qwen2
 *                   pattern are used, so a tokenizer_class other than Qwen2's is refused. Tokens of
 *                   added_tokens.json that tokenizer_config.json does not describe match plainly.
 *
 * Nothing is ever added to a text: no token for its beginning or end.
 */
#ifndef OZ_TEXT_TOKENIZER_H
#define OZ_TEXT_TOKENIZER_H

#include <ounce/status.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Longest text that is encoded in one call. */
#define OZ_TOKENIZER_MAX_TEXT_BYTES ((size_t)64 << 20)

/* Token ids with a stated maximum. One owner; ids is NULL until the first push. */
struct oz_token_list {
    int32_t *ids;
    size_t count, capacity, max_count;
};

void oz_token_list_init(struct oz_token_list *list, size_t max_count);
void oz_token_list_deinit(struct oz_token_list *list);
/* OZ_ERR_ARG beyond max_count, OZ_ERR_NOMEM; the list is then as before. */
OZ_MUST_USE enum oz_status oz_token_list_push(struct oz_token_list *list, int32_t id,
                                              struct oz_error *err);

/* Bytes [begin, end) of a text. */
struct oz_text_span {
    size_t begin, end;
};

/* Immutable once open, but used by one thread at a time. */
struct oz_tokenizer;

/* Opens the tokenizer of a folder; *out is NULL on failure. OZ_ERR_IO (no such file, named),
 * OZ_ERR_FORMAT, OZ_ERR_UNSUPPORTED, OZ_ERR_NOMEM; messages name file and part. */
OZ_MUST_USE enum oz_status oz_tokenizer_open(struct oz_tokenizer **out, const char *folder,
                                             struct oz_error *err);
/* NULL inside is fine; sets it to NULL. */
void oz_tokenizer_close(struct oz_tokenizer **tok);

/* Ids lie in [0, count). There may be holes. */
int32_t oz_tokenizer_count(const struct oz_tokenizer *tok);

/* The id of an added token by content, or of a vocabulary entry by its bytes; -1: none. */
int32_t oz_tokenizer_find(const struct oz_tokenizer *tok, const char *content);

/*
 * Appends the ids of a text to `out` (initialised by the caller; as before on failure).
 *
 * In `exempt` spans, where a user speaks, added tokens do not match: a match shares no byte with a
 * span. Spans ascend and do not overlap; an empty one exempts nothing. They change nothing else: the
 * text between two matches, exempt or not, is normalised, cut and merged as one.
 *
 * OZ_ERR_ARG: not valid UTF-8 (the message has the byte offset), too long, bad spans, or `out` full.
 * OZ_ERR_FORMAT: the tokenizer's own pattern gave up. OZ_ERR_NOMEM.
 */
OZ_MUST_USE enum oz_status oz_tokenizer_encode(const struct oz_tokenizer *tok, const char *text,
                                               size_t bytes, const struct oz_text_span *exempt,
                                               size_t exempt_count, struct oz_token_list *out,
                                               struct oz_error *err);

/* Appends the bytes of ids, added tokens as their content. One id may be part of a character: the
 * result need not be valid UTF-8. OZ_ERR_ARG: no such id, or `out` full. OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_tokenizer_decode(const struct oz_tokenizer *tok, const int32_t *ids,
                                               size_t count, struct oz_buf *out,
                                               struct oz_error *err);

#endif
