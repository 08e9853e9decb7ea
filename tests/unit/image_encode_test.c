/*
 * Pictures as files in memory: what PNG keeps exactly and JPEG and WebP nearly, where the request goes,
 * and what is refused.
 */
#include "test.h"

#define OZ_UNSTABLE
#include <math.h>
#include <ounce/ounce.h>

#include "api/engine.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "media/jpeg.h"
#include "media/png.h"
#include "media/webp.h"

#if OZ_HAVE_JPEG
#include <turbojpeg.h>
#endif
#if OZ_HAVE_WEBP
#include <webp/decode.h>
#endif

enum { WIDTH = 70, HEIGHT = 50 };
#define METADATA "{\"prompt\":\"a \\\"red\\\" \xE7\x8C\xAB\"}"

static struct oz_error err;
static struct oz_image *image;

static void says(enum oz_status got, enum oz_status want, const char *phrase)
{
    if (got != want || strstr(err.message, phrase) == NULL) {
        fail_msg("status %d, \"%s\" instead of %d, \"%s\"", got, err.message, want, phrase);
    }
}

static int start(void **state)
{
    if (oz_api_image_create(&image, WIDTH, HEIGHT, NULL, METADATA, &err) != OZ_OK) {
        return 1;
    }
    for (int i = 0; i < WIDTH * HEIGHT; i++) { /* smooth, as pictures are */
        image->pixels[3 * i] = (uint8_t)(i % WIDTH * 3);
        image->pixels[3 * i + 1] = (uint8_t)(i / WIDTH * 5);
        image->pixels[3 * i + 2] = (uint8_t)(128 + 100 * sin(i % WIDTH * 0.1));
    }
    return 0;
}

static int stop(void **state)
{
    oz_image_destroy(&image);
    return 0;
}

static int keep(void *ctx, const char *data, size_t bytes)
{
    oz_buf_append(ctx, data, bytes);
    return 0;
}

static int refuse(void *ctx, const char *data, size_t bytes)
{
    (void)ctx;
    (void)data;
    (void)bytes;
    return 1;
}

static struct oz_buf encode(enum oz_image_format format, int32_t quality, int32_t no_metadata)
{
    struct oz_buf b;
    struct oz_encode_options o;
    oz_encode_options_default(&o);
    o.format = format;
    o.quality = quality;
    o.no_metadata = no_metadata;
    oz_buf_init(&b, 1 << 20);
    if (oz_image_encode(image, &o, keep, &b, &err) != OZ_OK) {
        fail_msg("%s", err.message);
    }
    return b;
}

/* Decibels. */
static double psnr(const uint8_t *rgb)
{
    double sum = 0;
    for (int i = 0; i < 3 * WIDTH * HEIGHT; i++) {
        double d = (double)rgb[i] - image->pixels[i];
        sum += d * d;
    }
    return 10 * log10(255.0 * 255.0 * 3 * WIDTH * HEIGHT / sum);
}

static int holds(const struct oz_buf *b, const char *text)
{
    return memmem(b->data, b->bytes, text, strlen(text)) != NULL;
}

static void png(void **state)
{
    struct oz_png p;
    struct oz_encode_options o;
    memset(&o, 0xFF, sizeof o);
    oz_encode_options_default(&o);
    assert_true(o.struct_size == sizeof o && o.format == OZ_IMAGE_PNG && o.quality == 0);
    for (int32_t bare = 0; bare < 2; bare++) {
        struct oz_buf b = encode(OZ_IMAGE_PNG, 0, bare);
        assert_int_equal(oz_png_decode(b.data, b.bytes, 1 << 20, &p, &err), OZ_OK);
        assert_true(p.width == WIDTH && p.height == HEIGHT);
        assert_memory_equal(p.rgb, image->pixels, 3 * WIDTH * HEIGHT);
        const char *text = oz_png_find_text(&p, OZ_PNG_KEYWORD);
        assert_true(bare ? text == NULL : strcmp(text, METADATA) == 0);
        oz_png_deinit(&p);
        oz_buf_deinit(&b);
    }
    struct oz_buf all;
    oz_buf_init(&all, 1 << 20);
    assert_int_equal(oz_image_encode(image, NULL, keep, &all, &err), OZ_OK);
    assert_memory_equal(all.data, "\x89PNG", 4);
    oz_buf_deinit(&all);
}

static void jpeg(void **state)
{
#if OZ_HAVE_JPEG
    static uint8_t rgb[3 * WIDTH * HEIGHT];
    double last = 0;
    for (int32_t quality = 30; quality <= 100; quality += 35) {
        struct oz_buf b = encode(OZ_IMAGE_JPEG, quality, 0);
        tjhandle tj = tjInitDecompress();
        int width;
        int height;
        int colours;
        int space;
        assert_int_equal(tjDecompressHeader3(tj, (const uint8_t *)b.data, b.bytes, &width, &height,
                                             &colours, &space),
                         0);
        assert_true(width == WIDTH && height == HEIGHT);
        assert_int_equal(colours, quality >= 90 ? TJSAMP_444 : TJSAMP_420);
        assert_int_equal(tjDecompress2(tj, (const uint8_t *)b.data, b.bytes, rgb, WIDTH, 0, HEIGHT,
                                       TJPF_RGB, TJFLAG_ACCURATEDCT),
                         0);
        assert_true(psnr(rgb) > last && psnr(rgb) > 25);
        last = psnr(rgb);
        assert_true(holds(&b, METADATA));
        (void)tjDestroy(tj);
        oz_buf_deinit(&b);
    }
    struct oz_buf bare = encode(OZ_IMAGE_JPEG, 0, 1);
    struct oz_buf same = encode(OZ_IMAGE_JPEG, 90, 1);
    assert_false(holds(&bare, "prompt"));
    assert_true(bare.bytes == same.bytes && memcmp(bare.data, same.data, same.bytes) == 0);
    oz_buf_deinit(&bare);
    /* A request that is longer than a comment can be stays away, and the picture is whole. */
    char *kept = image->metadata;
    image->metadata = oz_alloc_zero(OZ_JPEG_MAX_COMMENT_BYTES + 2, 1);
    memset(image->metadata, 'x', OZ_JPEG_MAX_COMMENT_BYTES);
    struct oz_buf fits = encode(OZ_IMAGE_JPEG, 90, 0);
    assert_int_equal(fits.bytes, same.bytes + 4 + OZ_JPEG_MAX_COMMENT_BYTES);
    image->metadata[OZ_JPEG_MAX_COMMENT_BYTES] = 'x';
    struct oz_buf without = encode(OZ_IMAGE_JPEG, 90, 0);
    assert_int_equal(without.bytes, same.bytes);
    oz_buf_deinit(&fits);
    oz_buf_deinit(&without);
    oz_buf_deinit(&same);
    oz_free(image->metadata);
    image->metadata = kept;
    struct oz_buf out;
    oz_buf_init(&out, 100);
    says(oz_jpeg_encode(image->pixels, 65501, 1, 90, "", &out, &err), OZ_ERR_ARG, "1 to 65500");
    says(oz_jpeg_encode(image->pixels, WIDTH, HEIGHT, 90, "", &out, &err), OZ_ERR_ARG, "no room");
    oz_buf_deinit(&out);
#else
    struct oz_encode_options o;
    oz_encode_options_default(&o);
    o.format = OZ_IMAGE_JPEG;
    says(oz_image_encode(image, &o, keep, NULL, &err), OZ_ERR_UNSUPPORTED, "libturbojpeg0-dev");
#endif
}

static void webp(void **state)
{
#if OZ_HAVE_WEBP
    double last = 0;
    for (int32_t quality = 10; quality <= 100; quality += 45) {
        struct oz_buf b = encode(OZ_IMAGE_WEBP, quality, 0);
        int width;
        int height;
        uint8_t *rgb = WebPDecodeRGB((const uint8_t *)b.data, b.bytes, &width, &height);
        assert_true(rgb != NULL && width == WIDTH && height == HEIGHT);
        assert_true(psnr(rgb) > last && psnr(rgb) > 25);
        last = psnr(rgb);
        assert_false(holds(&b, "prompt"));
        WebPFree(rgb);
        oz_buf_deinit(&b);
    }
    struct oz_buf standard = encode(OZ_IMAGE_WEBP, 0, 0);
    struct oz_buf same = encode(OZ_IMAGE_WEBP, 85, 1);
    assert_true(standard.bytes == same.bytes && memcmp(standard.data, same.data, same.bytes) == 0);
    oz_buf_deinit(&standard);
    oz_buf_deinit(&same);
    struct oz_buf out;
    oz_buf_init(&out, 100);
    says(oz_webp_encode(image->pixels, 1, 16384, 90, &out, &err), OZ_ERR_ARG, "1 to 16383");
    says(oz_webp_encode(image->pixels, WIDTH, HEIGHT, 90, &out, &err), OZ_ERR_ARG, "no room");
    oz_buf_deinit(&out);
#else
    struct oz_encode_options o;
    oz_encode_options_default(&o);
    o.format = OZ_IMAGE_WEBP;
    says(oz_image_encode(image, &o, keep, NULL, &err), OZ_ERR_UNSUPPORTED, "libwebp-dev");
#endif
}

static void refusals(void **state)
{
    struct oz_encode_options o;
    oz_encode_options_default(&o);
    o.quality = 101;
    says(oz_image_encode(image, &o, keep, NULL, &err), OZ_ERR_ARG, "The quality is 101");
    o.quality = 0;
    o.format = (enum oz_image_format)4;
    says(oz_image_encode(image, &o, keep, NULL, &err), OZ_ERR_ARG, "format 4 does not exist");
    o.format = OZ_IMAGE_PNG;
    says(oz_image_encode(image, &o, refuse, NULL, &err), OZ_ERR_IO, "was stopped");
    o.struct_size = 0;
    says(oz_image_encode(image, &o, keep, NULL, &err), OZ_ERR_ARG, "struct_size");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(png),
        cmocka_unit_test(jpeg),
        cmocka_unit_test(webp),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
