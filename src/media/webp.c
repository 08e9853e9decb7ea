#include "media/webp.h"

#include "base/error.h"

#if OZ_HAVE_WEBP

#include <webp/encode.h>

static int append(const uint8_t *data, size_t bytes, const WebPPicture *picture)
{
    struct oz_buf *out = picture->custom_ptr;
    oz_buf_append(out, data, bytes);
    return out->status == OZ_OK;
}

static enum oz_status fail(const WebPPicture *picture, const struct oz_buf *out,
                           struct oz_error *err)
{
    if (out->status != OZ_OK) {
        return OZ_FAIL(err, out->status, "A WebP has no room.");
    }
    if (picture->error_code == VP8_ENC_ERROR_OUT_OF_MEMORY ||
        picture->error_code == VP8_ENC_ERROR_BITSTREAM_OUT_OF_MEMORY) {
        return OZ_FAIL_NOMEM(err, "a WebP");
    }
    return OZ_FAIL(err, OZ_ERR_INTERNAL,
                   "A WebP of %d x %d pixels cannot be written (error %d of libwebp).",
                   picture->width, picture->height, (int)picture->error_code);
}

enum oz_status oz_webp_encode(const uint8_t *rgb, int32_t width, int32_t height, int32_t quality,
                              struct oz_buf *out, struct oz_error *err)
{
    WebPConfig config;
    WebPPicture picture;
    if (width < 1 || height < 1 || width > OZ_WEBP_MAX_SIDE || height > OZ_WEBP_MAX_SIDE) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "A WebP of %d x %d pixels cannot be written; sides are 1 to %d.", width,
                       height, OZ_WEBP_MAX_SIDE);
    }
    if (!WebPConfigInit(&config) || !WebPPictureInit(&picture)) {
        return OZ_FAIL(err, OZ_ERR_INTERNAL,
                       "libwebp is not of the version that ounce was built with.");
    }
    config.quality = (float)quality;
    picture.width = width;
    picture.height = height;
    picture.writer = append;
    picture.custom_ptr = out;
    enum oz_status status =
        WebPPictureImportRGB(&picture, rgb, 3 * width) && WebPEncode(&config, &picture)
            ? OZ_OK
            : fail(&picture, out, err);
    WebPPictureFree(&picture);
    return status;
}

#else

enum oz_status oz_webp_encode(const uint8_t *rgb, int32_t width, int32_t height, int32_t quality,
                              struct oz_buf *out, struct oz_error *err)
{
    (void)rgb;
    (void)width;
    (void)height;
    (void)quality;
    (void)out;
    return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                   "This build writes no WebP (libwebp-dev was not found when it was configured); "
                   "ask for PNG.");
}

#endif
