/*
 * text/bpe.h: byte-pair merges over a vocabulary: the pieces of a pre-tokenizer to ids. Internal to
 * text/. A piece of n bytes costs n log n, whatever is in it.
 */
#ifndef OZ_TEXT_BPE_H
#define OZ_TEXT_BPE_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

struct oz_bpe {
    struct oz_pair_map merges; /* two ids -> rank, id of the result */
    uint32_t rank_count;
    bool ignore_merges; /* a piece that is a token stays whole, merges or not */
};

/* Room for `merges` merges. */
OZ_MUST_USE enum oz_status oz_bpe_init(struct oz_bpe *bpe, size_t merges, struct oz_error *err);
void oz_bpe_deinit(struct oz_bpe *bpe); /* zeroed storage is fine */

/*
 * Adds the next merge in order of rank, as the file writes its halves. A pair that comes twice
 * counts where it comes last, as in the reference. OZ_ERR_FORMAT, with file and number of the
 * merge, when a half or the result is not in the vocabulary.
 */
OZ_MUST_USE enum oz_status oz_bpe_add(struct oz_bpe *bpe, const struct oz_vocab *v,
                                      const char *left, size_t left_bytes, const char *right,
                                      size_t right_bytes, const char *file, struct oz_error *err);

/* Working memory, kept from piece to piece; starts zeroed. */
struct oz_bpe_scratch {
    struct oz_bpe_symbol *symbols;
    size_t symbol_capacity;
    struct oz_bpe_candidate *heap;
    size_t heap_count, heap_capacity;
};
void oz_bpe_scratch_deinit(struct oz_bpe_scratch *s);

/* Appends the ids of one piece (less than 2 GiB). OZ_ERR_ARG when a byte has no token or the list
 * is full. */
OZ_MUST_USE enum oz_status oz_bpe_encode(const struct oz_bpe *bpe, const struct oz_vocab *v,
                                         const char *piece, size_t bytes, struct oz_bpe_scratch *s,
                                         struct oz_token_list *out, struct oz_error *err);

#endif
