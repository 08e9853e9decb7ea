/* text/tokenizer_impl.h: what a tokenizer is made of, and what fills it. Internal to text/. */
#ifndef OZ_TEXT_TOKENIZER_IMPL_H
#define OZ_TEXT_TOKENIZER_IMPL_H

#include "base/json.h"
#include "text/added.h"
#include "text/bpe.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

/* Largest file that is read. */
#define OZ_TOKENIZER_MAX_FILE_BYTES ((size_t)256 << 20)

struct oz_tokenizer {
    struct oz_vocab vocab;
    struct oz_bpe bpe;
    struct oz_added added;
    struct oz_pretokenizer pre;
    bool nfc;
};

/* Both fill a zeroed tokenizer from their files; on failure the caller closes what there is. */
OZ_MUST_USE enum oz_status oz_tokenizer_read_json(struct oz_tokenizer *tok, const char *path,
                                                  struct oz_error *err);
OZ_MUST_USE enum oz_status oz_tokenizer_read_slow(struct oz_tokenizer *tok, const char *folder,
                                                  struct oz_error *err);

/* Fills vocabulary and added tokens from an object {written: id} and a list. `file` is named in
 * errors. */
OZ_MUST_USE enum oz_status oz_tokenizer_build_vocab(struct oz_tokenizer *tok,
                                                    const struct oz_json *entries,
                                                    const struct oz_added_token *added,
                                                    size_t added_count, const char *file,
                                                    struct oz_error *err);

/* One added token from its object {content, lstrip, ...}; `id` comes from elsewhere. The content is
 * borrowed from v. Refuses what is not implemented. */
OZ_MUST_USE enum oz_status oz_tokenizer_read_added(struct oz_added_token *out,
                                                   const struct oz_json *v, int32_t id,
                                                   const char *file, struct oz_error *err);

/* Refuses members of an object that are not in `known` (OZ_ERR_UNSUPPORTED, naming the key). */
OZ_MUST_USE enum oz_status oz_tokenizer_check_keys(const struct oz_json *v,
                                                   const char *const *known, size_t count,
                                                   const char *where, const char *file,
                                                   struct oz_error *err);

#endif
