/*
 * media/png.h: the door to the PNG library: pictures in memory to PNG bytes and back, with the texts
 * that travel in them. Touches no file, no clock: the same picture and texts give the same bytes
 * (for one version of zlib).
 */
#ifndef OZ_MEDIA_PNG_H
#define OZ_MEDIA_PNG_H

#include <ounce/status.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Longest text in a PNG, written or read. */
#define OZ_PNG_MAX_TEXT_BYTES ((size_t)4 << 20)

/* The keyword under which we write the request (JSON) that made a picture. */
#define OZ_PNG_KEYWORD "ounce"

/* Both zero-terminated. keyword: 1 to 79 printable ASCII characters, no space at the ends, no two
 * together. text: UTF-8. */
struct oz_png_text {
    const char *keyword, *text;
};

/*
 * Appends a PNG to `out`: 8-bit RGB, not interlaced, one tEXt chunk for each text that is ASCII, one
 * iTXt chunk for each other. rgb: height rows of width * 3 bytes without gaps. On failure `out` is
 * as before.
 *
 * OZ_ERR_ARG: no pixels or more than 1,000,000 a side, a bad keyword or text, `out` full.
 * OZ_ERR_NOMEM.
 */
OZ_MUST_USE enum oz_status oz_png_encode(const uint8_t *rgb, uint32_t width, uint32_t height,
                                         const struct oz_png_text *texts, size_t count,
                                         struct oz_buf *out, struct oz_error *err);

/* A decoded picture. One owner; rgb as for oz_png_encode; texts and their strings belong to it. */
struct oz_png {
    uint8_t *rgb;
    uint32_t width, height;
    struct oz_png_text *texts;
    size_t text_count;
};

/*
 * Decodes a whole PNG of at most max_pixels pixels. Every kind becomes 8-bit RGB: palettes and grey
 * are expanded, 16 bits rounded to 8, transparency is dropped (not composed); no colour management.
 * Texts are given in UTF-8, at most 64; a text that is damaged, compressed beyond its limit or not
 * in the encoding that its chunk says is left out: pictures do not fail for what is said about them.
 *
 * OZ_ERR_FORMAT: no PNG, or damaged (the message says how). OZ_ERR_UNSUPPORTED: too many pixels.
 * OZ_ERR_NOMEM. On failure *png is empty.
 */
OZ_MUST_USE enum oz_status oz_png_decode(const void *data, size_t bytes, uint64_t max_pixels,
                                         struct oz_png *png, struct oz_error *err);
void oz_png_deinit(struct oz_png *png); /* zeroed storage is fine */

/* The first text of a keyword, or NULL. */
const char *oz_png_find_text(const struct oz_png *png, const char *keyword);

#endif
