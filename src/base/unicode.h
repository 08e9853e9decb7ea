/* base/unicode.h: the door to the Unicode library: validity and normal form. */
#ifndef OZ_BASE_UNICODE_H
#define OZ_BASE_UNICODE_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Is the text valid UTF-8 (no overlong forms, no surrogates)? If not, *at is the first bad byte. */
bool oz_utf8_valid(const char *text, size_t bytes, size_t *at);

/* Bytes of the longest part of a text's beginning that ends between two characters: what can be shown
 * while the rest is still coming. Only the last character may be incomplete; what is behind a byte that
 * cannot begin or continue one counts as complete. */
size_t oz_utf8_whole(const char *text, size_t bytes);

/* Writes a code point as UTF-8 into out[4]; returns the bytes used, 0 for no code point. */
size_t oz_utf8_encode(uint32_t code_point, char out[4]);

/* Reads the code point at text (bytes > 0, valid UTF-8) and sets *used. */
uint32_t oz_utf8_decode(const char *text, size_t bytes, size_t *used);

/* Normal form C of valid UTF-8 into fresh memory (oz_free), zero-terminated behind *out_bytes.
 * OZ_ERR_FORMAT: not valid UTF-8; OZ_ERR_ARG: more than 2 GiB; OZ_ERR_NOMEM. Linear in the length,
 * whatever the marks. */
OZ_MUST_USE enum oz_status oz_unicode_nfc(const char *text, size_t bytes, char **out,
                                          size_t *out_bytes, struct oz_error *err);

#endif
