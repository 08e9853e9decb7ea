/* compare.c: pictures compared, as a table, as JSON, and judged. */
#define OZ_UNSTABLE
#include <math.h>
#include <ounce/ounce.h>
#include <string.h>

#include "api/engine.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "study/compare.h"

#define MAX_TEXT_BYTES ((size_t)512 << 20)

static const struct oz_compare_options defaults = {
    .struct_size = sizeof defaults, .min_psnr_db = -1, .min_ssim = -1};

void oz_compare_options_init(struct oz_compare_options *options, size_t struct_size)
{
    oz_api_fill(options, struct_size, &defaults, sizeof defaults);
}

enum oz_status oz_pictures_compare(struct oz_comparison **out, const char *reference,
                                   const char *const *candidates, int32_t count,
                                   struct oz_error *err)
{
    *out = NULL;
    if (reference == NULL || count < 1 || candidates == NULL) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "A comparison needs a reference and at least one candidate.");
    }
    return oz_comparison_open(out, reference, candidates, count, err);
}

void oz_comparison_close(struct oz_comparison **comparison)
{
    if (comparison != NULL) {
        oz_comparison_free(comparison);
    }
}

static enum oz_status read_options(struct oz_compare_options *o, struct oz_thresholds *t,
                                   const struct oz_compare_options *options, struct oz_error *err)
{
    *o = defaults;
    if (options != NULL) {
        OZ_TRY(oz_api_copy_options(o, sizeof *o, options, "compare options", err));
    }
    if (isnan(o->min_psnr_db) || isnan(o->min_ssim)) {
        return OZ_FAIL(err, OZ_ERR_ARG, "A threshold is NaN; a negative one is none.");
    }
    *t = (struct oz_thresholds){.min_psnr_db = o->min_psnr_db, .min_ssim = o->min_ssim};
    return OZ_OK;
}

enum oz_status oz_comparison_describe(const struct oz_comparison *comparison,
                                      const struct oz_compare_options *options, oz_write_fn write,
                                      void *ctx, struct oz_error *err)
{
    struct oz_compare_options o;
    struct oz_thresholds t;
    struct oz_buf b;
    enum oz_status status = OZ_OK;
    OZ_TRY(read_options(&o, &t, options, err));
    oz_buf_init(&b, MAX_TEXT_BYTES);
    if (o.json) {
        oz_comparison_print_json(comparison, &t, &b);
    } else {
        oz_comparison_print(comparison, &t, &b);
        oz_api_replace_controls(&b);
    }
    if (b.status != OZ_OK) {
        status =
            OZ_FAIL(err, b.status, "The comparison with %s is too large.", comparison->reference);
    } else if (write(ctx, b.data, b.bytes) != 0) {
        status = OZ_FAIL(err, OZ_ERR_IO, "The comparison could not be written.");
    }
    oz_buf_deinit(&b);
    return status == OZ_OK ? oz_comparison_judge(comparison, &t, err) : status;
}

enum oz_status oz_comparison_save(const struct oz_comparison *comparison, const char *path,
                                  const struct oz_compare_options *options, struct oz_error *err)
{
    struct oz_compare_options o;
    struct oz_thresholds t;
    struct oz_buf b;
    OZ_TRY(read_options(&o, &t, options, err));
    oz_buf_init(&b, MAX_TEXT_BYTES);
    oz_comparison_print_json(comparison, &t, &b);
    enum oz_status status =
        b.status == OZ_OK
            ? oz_file_write(path, b.data, b.bytes, err)
            : OZ_FAIL(err, b.status, "The comparison with %s is too large.", comparison->reference);
    oz_buf_deinit(&b);
    return status;
}

/* ---- all pictures on one ---- */

static enum oz_status read_image(const char *path, struct oz_image **out, struct oz_error *err)
{
    struct oz_png png = {0};
    OZ_TRY(oz_picture_read(path, &png, err));
    enum oz_status status =
        oz_api_image_create(out, (int32_t)png.width, (int32_t)png.height, NULL, "", err);
    if (status == OZ_OK) {
        memcpy((*out)->pixels, png.rgb, (size_t)png.width * png.height * 3);
    }
    oz_png_deinit(&png);
    return status;
}

/* images: [pictures][1 + candidates] */
static enum oz_status read_images(const void *ctx, struct oz_image **images, struct oz_error *err)
{
    const struct oz_comparison *c = ctx;
    for (int32_t j = 0; j < c->pictures; j++) {
        OZ_TRY(read_image(c->candidates[0].pictures[j].reference, images++, err));
        for (int32_t i = 0; i < c->count; i++) {
            OZ_TRY(read_image(c->candidates[i].pictures[j].candidate, images++, err));
        }
    }
    return OZ_OK;
}

enum oz_status oz_comparison_sheet(const struct oz_comparison *comparison, struct oz_image **out,
                                   struct oz_error *err)
{
    return oz_api_sheet(out, comparison->pictures, comparison->count + 1, read_images, comparison,
                        err);
}
