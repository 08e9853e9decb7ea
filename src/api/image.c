#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "api/engine.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "media/png.h"
#include "media/rgb.h"
#include "pipe/generate.h"

#define MAX_METADATA_BYTES (8U << 20)
#define MAX_PNG_BYTES ((size_t)INT32_MAX)

/* ---- images ---- */

enum oz_status oz_api_image_create(struct oz_image **out, int32_t width, int32_t height,
                                   float *floats, const char *metadata, struct oz_error *err)
{
    size_t count = (size_t)width * (size_t)height;
    *out = NULL;
    struct oz_image *image = oz_alloc_zero(1, sizeof *image);
    if (image == NULL) {
        return OZ_FAIL_NOMEM(err, "a picture");
    }
    image->width = width;
    image->height = height;
    image->pixels = oz_alloc(3 * count);
    image->metadata = oz_strdup(metadata);
    if (image->pixels == NULL || image->metadata == NULL) {
        oz_image_destroy(&image);
        return OZ_FAIL_NOMEM(err, "a picture");
    }
    image->floats = floats;
    memset(image->pixels, 255, 3 * count);
    if (floats != NULL) {
        oz_rgb_from_planes(floats, count, image->pixels);
    }
    *out = image;
    return OZ_OK;
}

void oz_image_destroy(struct oz_image **image)
{
    if (image == NULL || *image == NULL) {
        return;
    }
    oz_free((*image)->pixels);
    oz_free((*image)->floats);
    oz_free((*image)->metadata);
    oz_free(*image);
    *image = NULL;
}

int32_t oz_image_width(const struct oz_image *image)
{
    return image->width;
}

int32_t oz_image_height(const struct oz_image *image)
{
    return image->height;
}

const uint8_t *oz_image_pixels(const struct oz_image *image)
{
    return image->pixels;
}

const float *oz_image_floats(const struct oz_image *image)
{
    return image->floats;
}

const char *oz_image_metadata(const struct oz_image *image)
{
    return image->metadata;
}

enum oz_status oz_image_write_png(const struct oz_image *image, const char *path,
                                  const struct oz_png_options *options, struct oz_error *err)
{
    struct oz_png_options o = {0};
    struct oz_buf png;
    if (options != NULL) {
        OZ_TRY(oz_api_copy_options(&o, sizeof o, options, "PNG options", err));
    }
    const struct oz_png_text text = {OZ_PNG_KEYWORD, image->metadata};
    size_t texts = !o.no_metadata && image->metadata[0] != '\0';
    oz_buf_init(&png, MAX_PNG_BYTES);
    enum oz_status status = oz_png_encode(image->pixels, (uint32_t)image->width,
                                          (uint32_t)image->height, &text, texts, &png, err);
    if (status == OZ_OK) {
        status = oz_file_write(path, png.data, png.bytes, err);
    }
    oz_buf_deinit(&png);
    return status;
}

static void paste(struct oz_image *sheet, const struct oz_image *image, int32_t left, int32_t top)
{
    for (int32_t y = 0; y < image->height; y++) {
        size_t to = ((size_t)(top + y) * (size_t)sheet->width + (size_t)left) * 3;
        size_t from = (size_t)y * (size_t)image->width * 3;
        memcpy(sheet->pixels + to, image->pixels + from, (size_t)image->width * 3);
    }
}

enum oz_status oz_image_tile(struct oz_image **out, struct oz_image *const *images, int32_t count,
                             int32_t columns, int32_t gap, struct oz_error *err)
{
    int32_t cell_width = 0;
    int32_t cell_height = 0;
    *out = NULL;
    if (count < 1 || columns < 1 || gap < 0 || gap > 1024) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "%d pictures in %d columns with gaps of %d: there must be at least one of "
                       "each, and gaps of 0 to 1024.",
                       count, columns, gap);
    }
    for (int32_t i = 0; i < count; i++) {
        cell_width = images[i]->width > cell_width ? images[i]->width : cell_width;
        cell_height = images[i]->height > cell_height ? images[i]->height : cell_height;
    }
    if (columns > count) {
        columns = count;
    }
    int64_t rows = ((int64_t)count + columns - 1) / columns;
    int64_t width = columns * ((int64_t)cell_width + gap) + gap;
    int64_t height = rows * ((int64_t)cell_height + gap) + gap;
    if (width > 1000000 || height > 1000000 || width * height > INT32_MAX) {
        return OZ_FAIL(err, OZ_ERR_ARG, "A sheet of %lld x %lld pixels is too large.",
                       (long long)width, (long long)height);
    }
    struct oz_image *sheet;
    OZ_TRY(oz_api_image_create(&sheet, (int32_t)width, (int32_t)height, NULL, "", err));
    for (int32_t i = 0; i < count; i++) {
        paste(sheet, images[i], gap + i % columns * (cell_width + gap),
              gap + i / columns * (cell_height + gap));
    }
    *out = sheet;
    return OZ_OK;
}

/* ---- generating ---- */

enum oz_status oz_api_read_task(const struct oz_image_request *requests, int32_t i,
                                struct oz_task *task, struct oz_error *err)
{
    struct oz_image_request request = {0};
    size_t stride;
    memcpy(&stride, requests, sizeof stride);
    const char *at = (const char *)requests + (size_t)i * stride;
    OZ_TRY(oz_api_copy_options(&request, sizeof request, at, "image requests", err));
    *task = (struct oz_task){.prompt = request.prompt,
                             .negative_prompt = request.negative_prompt,
                             .width = request.width,
                             .height = request.height,
                             .steps = request.num_inference_steps,
                             .scale = request.true_cfg_scale,
                             .seed = request.seed};
    return OZ_OK;
}

enum oz_status oz_api_resolve(const struct oz_engine *engine,
                              const struct oz_image_request *requests, int32_t count,
                              struct oz_task *tasks, struct oz_error *err)
{
    if (count < 1) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%d requests: there must be at least one.", count);
    }
    for (int32_t i = 0; i < count; i++) {
        struct oz_task task;
        OZ_TRY(oz_api_read_task(requests, i, &task, err));
        OZ_TRY(oz_task_resolve(&task, engine->pipeline, count > 1 ? i + 1 : 0, err));
        if (tasks != NULL) {
            tasks[i] = task;
        }
    }
    return OZ_OK;
}

enum oz_status oz_image_check(const struct oz_engine *engine,
                              const struct oz_image_request *requests, int32_t count,
                              struct oz_error *err)
{
    return oz_api_resolve(engine, requests, count, NULL, err);
}

/* A seed as readers of JSON can hold it: beyond 2^53 its low 32 bits, which give the same picture. */
static unsigned long long told_seed(uint64_t seed)
{
    return seed <= UINT64_C(1) << 53 ? seed : seed & UINT32_MAX;
}

/* The task as a JSON object. */
static char *describe(const struct oz_engine *engine, const struct oz_task *t)
{
    struct oz_buf b;
    oz_buf_init(&b, MAX_METADATA_BYTES);
    oz_buf_puts(&b, "{\"prompt\":");
    oz_buf_json(&b, t->prompt);
    if (oz_task_has_cfg(t)) {
        oz_buf_puts(&b, ",\"negative_prompt\":");
        oz_buf_json(&b, t->negative_prompt);
    }
    oz_buf_printf(&b, ",\"width\":%d,\"height\":%d,\"num_inference_steps\":%d,\"true_cfg_scale\":",
                  t->width, t->height, t->steps);
    oz_buf_number(&b, t->scale);
    oz_buf_printf(&b, ",\"seed\":%llu,\"model\":", told_seed(t->seed));
    oz_buf_json(&b, engine->pipeline->name);
    if (engine->quantization[0] != '\0') {
        oz_buf_puts(&b, ",\"quantization\":");
        oz_buf_json(&b, engine->quantization);
    }
    oz_buf_puts(&b, engine->additions);
    oz_buf_printf(&b, ",\"precision\":\"%s\",\"version\":\"%s\"}",
                  engine->dev->f32_math ? "f32" : "bf16", oz_version());
    return oz_buf_take(&b);
}

enum oz_status oz_api_wrap(struct oz_image **out, const struct oz_engine *engine,
                           const struct oz_task *task, float *picture, struct oz_error *err)
{
    char *metadata = describe(engine, task);
    if (metadata == NULL) {
        return OZ_FAIL(err, OZ_ERR_NOMEM, "Out of memory for a picture's metadata.");
    }
    enum oz_status status =
        oz_api_image_create(out, task->width, task->height, picture, metadata, err);
    oz_free(metadata);
    return status;
}

/* Pictures (taken one by one) to images; all or none. */
static enum oz_status wrap(const struct oz_engine *engine, const struct oz_task *tasks,
                           int32_t count, float **pictures, struct oz_image **images,
                           struct oz_error *err)
{
    for (int32_t i = 0; i < count; i++) {
        OZ_TRY(oz_api_wrap(&images[i], engine, &tasks[i], pictures[i], err));
        pictures[i] = NULL;
    }
    return OZ_OK;
}

static void add_stats(struct oz_engine *e, const struct oz_run_stats *s)
{
    int64_t plan =
        (int64_t)(s->measured.step + s->measured.plan + s->measured.sequences + s->measured.table);
    pthread_mutex_lock(&e->lock);
    e->stats.text_s += s->text_s;
    e->stats.upload_s += s->upload_s;
    e->stats.denoise_s += s->denoise_s;
    e->stats.decode_s += s->decode_s;
    e->stats.steps += s->steps;
    e->stats.pictures += s->pictures;
    e->stats.plan_bytes = plan > e->stats.plan_bytes ? plan : e->stats.plan_bytes;
    pthread_mutex_unlock(&e->lock);
}

static enum oz_status generate(struct oz_engine *e, const struct oz_image_request *requests,
                               int32_t count, struct oz_task *tasks, float **pictures,
                               struct oz_image **images, struct oz_error *err)
{
    struct oz_run_stats stats;
    struct oz_run run = {.pipeline = e->pipeline,
                         .max_batch = e->max_batch,
                         .progress = e->progress,
                         .progress_ctx = e->progress_ctx,
                         .trace = e->trace};
    OZ_TRY(oz_api_check_free(e, err));
    OZ_TRY(oz_api_resolve(e, requests, count, tasks, err));
    OZ_TRY(oz_run_generate(&run, tasks, count, pictures, &stats, err));
    add_stats(e, &stats);
    return wrap(e, tasks, count, pictures, images, err);
}

enum oz_status oz_image_generate(struct oz_engine *engine, const struct oz_image_request *requests,
                                 int32_t count, struct oz_image **images, struct oz_error *err)
{
    size_t n = count > 0 ? (size_t)count : 0;
    memset((void *)images, 0, n * sizeof *images);
    struct oz_task *tasks = oz_alloc_zero(n, sizeof *tasks);
    float **pictures = oz_alloc_zero(n, sizeof *pictures);
    enum oz_status status = tasks != NULL && pictures != NULL
                                ? generate(engine, requests, count, tasks, pictures, images, err)
                                : OZ_FAIL_NOMEM(err, "the requests");
    for (size_t i = 0; i < n && status != OZ_OK; i++) {
        oz_image_destroy(&images[i]);
        if (pictures != NULL) {
            oz_free(pictures[i]);
        }
    }
    oz_free((void *)pictures);
    oz_free(tasks);
    return status;
}

#define SHEET_GAP 8

enum oz_status oz_api_sheet(struct oz_image **out, int64_t rows, int32_t columns,
                            oz_api_images_fn read, const void *ctx, struct oz_error *err)
{
    int64_t count = rows * columns;
    *out = NULL;
    if (count > INT32_MAX) {
        return OZ_FAIL(err, OZ_ERR_ARG, "A sheet of %lld pictures is too large.", (long long)count);
    }
    struct oz_image **images = oz_alloc_zero((size_t)count, sizeof *images);
    if (images == NULL) {
        return OZ_FAIL_NOMEM(err, "a sheet of pictures");
    }
    enum oz_status status = read(ctx, images, err);
    if (status == OZ_OK) {
        status = oz_image_tile(out, images, (int32_t)count, columns, SHEET_GAP, err);
    }
    for (int64_t i = 0; i < count; i++) {
        oz_image_destroy(&images[i]);
    }
    oz_free((void *)images);
    return status;
}
