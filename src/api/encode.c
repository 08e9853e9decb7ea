/* Pictures as files in memory. */
#define OZ_UNSTABLE
#include <string.h>

#include "api/engine.h"
#include "base/buf.h"
#include "base/error.h"
#include "media/jpeg.h"
#include "media/png.h"
#include "media/webp.h"

#define JPEG_QUALITY 90
#define WEBP_QUALITY 85
#define MAX_BYTES ((size_t)INT32_MAX)

static const struct oz_encode_options encode_defaults = {.struct_size = sizeof encode_defaults,
                                                         .format = OZ_IMAGE_PNG};

void oz_encode_options_init(struct oz_encode_options *options, size_t struct_size)
{
    oz_api_fill(options, struct_size, &encode_defaults, sizeof encode_defaults);
}

static enum oz_status encode(const struct oz_image *image, const struct oz_encode_options *o,
                             struct oz_buf *out, struct oz_error *err)
{
    const char *metadata = o->no_metadata ? "" : image->metadata;
    uint32_t width = (uint32_t)image->width;
    uint32_t height = (uint32_t)image->height;
    switch (o->format) {
    case OZ_IMAGE_PNG: {
        const struct oz_png_text text = {OZ_PNG_KEYWORD, metadata};
        return oz_png_encode(image->pixels, width, height, &text, metadata[0] != '\0', out, err);
    }
    case OZ_IMAGE_JPEG:
        return oz_jpeg_encode(image->pixels, image->width, image->height,
                              o->quality > 0 ? o->quality : JPEG_QUALITY, metadata, out, err);
    case OZ_IMAGE_WEBP:
        return oz_webp_encode(image->pixels, image->width, image->height,
                              o->quality > 0 ? o->quality : WEBP_QUALITY, out, err);
    }
    return OZ_FAIL(err, OZ_ERR_ARG,
                   "Picture format %d does not exist; there are PNG (%d), JPEG (%d) and WebP (%d).",
                   (int)o->format, (int)OZ_IMAGE_PNG, (int)OZ_IMAGE_JPEG, (int)OZ_IMAGE_WEBP);
}

enum oz_status oz_image_encode(const struct oz_image *image,
                               const struct oz_encode_options *options, oz_write_fn write,
                               void *ctx, struct oz_error *err)
{
    struct oz_encode_options o = encode_defaults;
    struct oz_buf out;
    if (options != NULL) {
        OZ_TRY(oz_api_copy_options(&o, sizeof o, options, "encode options", err));
    }
    if (o.quality < 0 || o.quality > 100) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "The quality is %d; it must lie in 1 to 100 (0: the format's default).",
                       o.quality);
    }
    oz_buf_init(&out, MAX_BYTES);
    enum oz_status status = encode(image, &o, &out, err);
    if (status == OZ_OK && write(ctx, out.data, out.bytes) != 0) {
        status = OZ_FAIL(err, OZ_ERR_IO, "Writing a picture was stopped.");
    }
    oz_buf_deinit(&out);
    return status;
}
