/*
 * media/jpeg.h: the door to libjpeg-turbo, which is optional: pictures in memory to JPEG bytes. Colours
 * are kept at full resolution from quality 90 on, else halved both ways.
 */
#ifndef OZ_MEDIA_JPEG_H
#define OZ_MEDIA_JPEG_H

#include <ounce/status.h>
#include <stdint.h>

#include "base/buf.h"

#define OZ_JPEG_MAX_SIDE 65500
#define OZ_JPEG_MAX_COMMENT_BYTES 65533

/*
 * Appends a JPEG (JFIF) to `out`. rgb: height rows of width * 3 bytes without gaps; quality 1 to 100;
 * comment: UTF-8, "" for none; one that is longer than the format has room for is left out. On failure
 * `out` holds what it held, or has failed.
 * OZ_ERR_ARG: a side above OZ_JPEG_MAX_SIDE, `out` full; OZ_ERR_UNSUPPORTED in a build without the
 * library; OZ_ERR_NOMEM.
 */
OZ_MUST_USE enum oz_status oz_jpeg_encode(const uint8_t *rgb, int32_t width, int32_t height,
                                          int32_t quality, const char *comment, struct oz_buf *out,
                                          struct oz_error *err);

#endif
