/* media/webp.h: the door to libwebp, which is optional: pictures in memory to (lossy) WebP bytes. */
#ifndef OZ_MEDIA_WEBP_H
#define OZ_MEDIA_WEBP_H

#include <ounce/status.h>
#include <stdint.h>

#include "base/buf.h"

#define OZ_WEBP_MAX_SIDE 16383

/*
 * Appends a WebP to `out`. rgb: height rows of width * 3 bytes without gaps; quality 1 to 100. On failure
 * `out` holds what it held, or has failed.
 * OZ_ERR_ARG: a side above OZ_WEBP_MAX_SIDE, `out` full; OZ_ERR_UNSUPPORTED in a build without the
 * library; OZ_ERR_NOMEM.
 */
OZ_MUST_USE enum oz_status oz_webp_encode(const uint8_t *rgb, int32_t width, int32_t height,
                                          int32_t quality, struct oz_buf *out,
                                          struct oz_error *err);

#endif
