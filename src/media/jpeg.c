#include "media/jpeg.h"

#include "base/error.h"

#if OZ_HAVE_JPEG

#include <string.h>
#include <turbojpeg.h>

#include "base/alloc.h"

#define FULL_COLOUR_QUALITY 90
#define HEAD_BYTES 4 /* SOI, and the marker of the first segment */

/* `jpeg` with a comment behind its first segment, which says that it is JFIF. */
static enum oz_status append(struct oz_buf *out, const uint8_t *jpeg, size_t bytes,
                             const char *comment, struct oz_error *err)
{
    size_t first = HEAD_BYTES + ((size_t)jpeg[HEAD_BYTES] << 8) + jpeg[HEAD_BYTES + 1];
    size_t length = strlen(comment);
    oz_buf_append(out, jpeg, first);
    if (length > 0 && length <= OZ_JPEG_MAX_COMMENT_BYTES) {
        const uint8_t head[4] = {0xFF, 0xFE, (uint8_t)((length + 2) >> 8), (uint8_t)(length + 2)};
        oz_buf_append(out, head, sizeof head);
        oz_buf_append(out, comment, length);
    }
    oz_buf_append(out, jpeg + first, bytes - first);
    return out->status == OZ_OK
               ? OZ_OK
               : OZ_FAIL(err, out->status, "A JPEG of %zu bytes has no room.", bytes);
}

static enum oz_status compress(tjhandle tj, const uint8_t *rgb, int32_t width, int32_t height,
                               int32_t quality, const char *comment, struct oz_buf *out,
                               struct oz_error *err)
{
    int colours = quality >= FULL_COLOUR_QUALITY ? TJSAMP_444 : TJSAMP_420;
    unsigned long bytes = tjBufSize(width, height, colours);
    unsigned char *jpeg = oz_alloc(bytes);
    if (jpeg == NULL) {
        return OZ_FAIL_NOMEM(err, "a JPEG");
    }
    enum oz_status status =
        tjCompress2(tj, rgb, width, 0, height, TJPF_RGB, &jpeg, &bytes, colours, quality,
                    TJFLAG_NOREALLOC | TJFLAG_ACCURATEDCT) == 0
            ? append(out, jpeg, bytes, comment, err)
            : OZ_FAIL(err, OZ_ERR_INTERNAL, "A JPEG of %d x %d pixels cannot be written: %s.",
                      width, height, tjGetErrorStr2(tj));
    oz_free(jpeg);
    return status;
}

enum oz_status oz_jpeg_encode(const uint8_t *rgb, int32_t width, int32_t height, int32_t quality,
                              const char *comment, struct oz_buf *out, struct oz_error *err)
{
    if (width < 1 || height < 1 || width > OZ_JPEG_MAX_SIDE || height > OZ_JPEG_MAX_SIDE) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "A JPEG of %d x %d pixels cannot be written; sides are 1 to %d.", width,
                       height, OZ_JPEG_MAX_SIDE);
    }
    tjhandle tj = tjInitCompress();
    if (tj == NULL) {
        return OZ_FAIL_NOMEM(err, "a JPEG");
    }
    enum oz_status status = compress(tj, rgb, width, height, quality, comment, out, err);
    (void)tjDestroy(tj);
    return status;
}

#else

enum oz_status oz_jpeg_encode(const uint8_t *rgb, int32_t width, int32_t height, int32_t quality,
                              const char *comment, struct oz_buf *out, struct oz_error *err)
{
    (void)rgb;
    (void)width;
    (void)height;
    (void)quality;
    (void)comment;
    (void)out;
    return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                   "This build writes no JPEG (libturbojpeg0-dev was not found when it was "
                   "configured); ask for PNG.");
}

#endif
