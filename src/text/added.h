/*
 * text/added.h: finds added tokens in a text: the leftmost match, of those the longest. Internal to
 * text/.
 */
#ifndef OZ_TEXT_ADDED_H
#define OZ_TEXT_ADDED_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"

struct oz_added_token {
    const char *content; /* zero-terminated, not empty, valid UTF-8 */
    int32_t id;
    bool lstrip, rstrip; /* takes the white space before, behind it along */
};

/* A trie; the nodes are numbers, the root 0. */
struct oz_added {
    struct oz_pair_map edges;     /* node, byte -> next node */
    struct oz_pair_map terminals; /* node, 0 -> id, flags */
    uint32_t nodes;
    bool first[256]; /* can a token begin with this byte? */
};

/* OZ_ERR_NOMEM; deinit it then too. Keeps nothing of `tokens`. */
OZ_MUST_USE enum oz_status oz_added_init(struct oz_added *a, const struct oz_added_token *tokens,
                                         size_t count, struct oz_error *err);
void oz_added_deinit(struct oz_added *a); /* zeroed storage is fine */

struct oz_added_match {
    size_t begin, end; /* with the white space that was taken along */
    int32_t id;
};

/* The first match that begins at or after `from` and lies within text[0, bytes). Taking white space
 * along stops at `from` and at `bytes`. */
bool oz_added_find(const struct oz_added *a, const char *text, size_t from, size_t bytes,
                   struct oz_added_match *match);

#endif
