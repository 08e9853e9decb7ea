/*
 * text/vocab.h: the tokens of a byte-level vocabulary: id to bytes, and back. Internal to text/.
 *
 * Vocabulary files write bytes in an alphabet of 256 printable characters (space is U+0120); we keep
 * the bytes. An entry that is not written in that alphabet, and every added token, is kept as it is
 * written, apart from the others: no text can merge into it.
 */
#ifndef OZ_TEXT_VOCAB_H
#define OZ_TEXT_VOCAB_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"

/* Largest id that a file may name: far above any model's, and a bound on memory. */
#define OZ_VOCAB_MAX_ID ((1 << 24) - 1)

struct oz_vocab_token {
    uint32_t begin, bytes; /* in the pool */
    bool known, added;
};

struct oz_vocab {
    struct oz_vocab_token *tokens; /* by id; holes are not known */
    int32_t count;                 /* highest id + 1 */
    char *pool;
    size_t pool_bytes, pool_capacity;
    struct oz_string_map by_bytes;   /* entries of the alphabet, by their bytes */
    struct oz_string_map by_content; /* all others, as written */
    int32_t byte_id[256];            /* -1: none; set by oz_vocab_seal */
};

/* What is to come: the highest id, how many entries, and their written bytes together. */
struct oz_vocab_need {
    int64_t max_id;
    size_t entries, bytes;
};

/* Checks an id from `file` and counts an entry in. OZ_ERR_FORMAT, naming entry and id. */
OZ_MUST_USE enum oz_status oz_vocab_count(struct oz_vocab_need *need, const char *written,
                                          int64_t id, const char *file, struct oz_error *err);

OZ_MUST_USE enum oz_status oz_vocab_init(struct oz_vocab *v, const struct oz_vocab_need *need,
                                         struct oz_error *err);
void oz_vocab_deinit(struct oz_vocab *v); /* zeroed storage is fine */

/* Adds what was counted in. OZ_ERR_FORMAT: the id is taken, or an added token contradicts the
 * vocabulary; the message names file, entry and ids. */
OZ_MUST_USE enum oz_status oz_vocab_add(struct oz_vocab *v, const char *written, int32_t id,
                                        const char *file, struct oz_error *err);
OZ_MUST_USE enum oz_status oz_vocab_add_added(struct oz_vocab *v, const char *content, int32_t id,
                                              const char *file, struct oz_error *err);

/* Fills byte_id. OZ_ERR_FORMAT when a byte that UTF-8 can contain has no token. */
OZ_MUST_USE enum oz_status oz_vocab_seal(struct oz_vocab *v, const char *file,
                                         struct oz_error *err);

/* The id of an entry as a file writes it, or -1. `spare` has room for `bytes` bytes. */
int32_t oz_vocab_find_written(const struct oz_vocab *v, const char *written, size_t bytes,
                              char *spare);

#endif
