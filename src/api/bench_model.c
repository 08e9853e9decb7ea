/* bench_model.c: how long the parts of drawing pictures take. */
#include "api/bench_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/engine.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "ckpt/table.h"

#define REPEATS 3
#define MOST_REPEATS 1000
#define MOST_REQUESTS 10000
#define BLOCK_BYTES ((int64_t)4 << 20)
#define MAX_OLD_BYTES ((size_t)64 << 20)
#define MAX_TEXT_BYTES ((size_t)16 << 20)

/* Prompts of several lengths, so that batches are ragged. */
static const char *const prompts[] = {
    "red apple", "grinning cat face",          "pizza", "woman astronaut in a white suit",
    "rainbow",   "birthday cake with candles", "dog",   "umbrella with rain drops"};
enum { PROMPTS = sizeof prompts / sizeof *prompts };

static const int32_t concurrencies[OZ_BENCH_POINTS] = {1, 4, 8};

static const struct oz_bench_model_options defaults = {
    .struct_size = sizeof defaults, .requests = 16, .max_slowdown_percent = -1};

void oz_bench_model_options_init(struct oz_bench_model_options *options, size_t struct_size)
{
    oz_api_fill(options, struct_size, &defaults, sizeof defaults);
}

double oz_bench_median(const struct oz_bench_model *m, enum oz_bench_part part)
{
    const double *s = m->seconds[part];
    return 0.5 * (s[(m->repeats - 1) / 2] + s[m->repeats / 2]);
}

/* ---- the first part ---- */

static void request_fill(const struct oz_bench_model *m, struct oz_image_request *r, int32_t index)
{
    *r = m->options.request;
    r->struct_size = sizeof *r;
    if (r->prompt == NULL) {
        r->prompt = prompts[index % PROMPTS];
    }
    r->seed += (uint64_t)index;
}

static enum oz_status take_facts(struct oz_bench_model *m, const struct oz_engine *engine,
                                 struct oz_error *err)
{
    const struct oz_pipeline *p = engine->pipeline;
    if (m->name != NULL) {
        return OZ_OK;
    }
    m->name = oz_strdup(p->name);
    m->path = oz_strdup(p->path);
    m->quantization = oz_strdup(engine->quantization[0] != '\0' ? engine->quantization : "none");
    m->tier = engine->dev->tier;
    m->f32_math = engine->dev->f32_math;
    m->dummy = p->dummy;
    m->threads = oz_pool_threads(engine->pool);
    m->scale = m->options.request.true_cfg_scale > 0 ? m->options.request.true_cfg_scale
                                                     : p->defaults.true_cfg_scale;
    return m->name != NULL && m->path != NULL && m->quantization != NULL
               ? OZ_OK
               : OZ_FAIL_NOMEM(err, "a model's name");
}

/* Reads the weight files whole, as fast as one thread can: what a load that only reads would take. */
static enum oz_status measure_reading(struct oz_bench_model *m, const struct oz_engine *engine,
                                      struct oz_error *err)
{
    char *block = oz_alloc((size_t)BLOCK_BYTES);
    double start = oz_clock_seconds();
    enum oz_status status = block != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "a file's block");
    m->load_bytes = 0;
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_ckpt *ckpt = engine->pipeline->components[i].ckpt;
        for (int32_t k = 0; k < oz_ckpt_file_count(ckpt) && status == OZ_OK; k++) {
            const struct oz_ckpt_file *f = oz_ckpt_file(ckpt, k);
            for (int64_t at = 0; at < f->bytes && status == OZ_OK && !m->dummy; at += BLOCK_BYTES) {
                int64_t bytes = f->bytes - at < BLOCK_BYTES ? f->bytes - at : BLOCK_BYTES;
                if (!oz_file_pread(f->fd, block, bytes, at)) {
                    status = OZ_FAIL(err, OZ_ERR_IO, "Cannot read %s.", f->path);
                }
            }
            m->load_bytes += f->bytes;
        }
    }
    double took = oz_clock_seconds() - start;
    if (m->dummy) {
        oz_free(block);
        return status;
    }
    m->read_s = m->read_s == 0 || took < m->read_s ? took : m->read_s;
    oz_free(block);
    return status;
}

/* One picture with an engine that has just been opened. */
static enum oz_status draw_once(struct oz_bench_model *m, int32_t index, struct oz_engine *engine,
                                double began_s, struct oz_error *err)
{
    struct oz_image_request request;
    struct oz_image *image;
    struct oz_stats stats = {.struct_size = sizeof stats};
    OZ_TRY(take_facts(m, engine, err));
    request_fill(m, &request, 0);
    OZ_TRY(oz_image_generate(engine, &request, 1, &image, err));
    m->seconds[OZ_BENCH_TOTAL][index] = oz_clock_seconds() - began_s;
    m->width = oz_image_width(image);
    m->height = oz_image_height(image);
    oz_image_destroy(&image);
    OZ_TRY(oz_engine_stats(engine, &stats, err));
    m->steps = (int32_t)stats.steps;
    m->seconds[OZ_BENCH_LOAD][index] = stats.load_s;
    m->seconds[OZ_BENCH_TEXT][index] = stats.text_s;
    m->seconds[OZ_BENCH_STEP][index] =
        stats.denoise_s / (double)(stats.steps > 0 ? stats.steps : 1);
    m->seconds[OZ_BENCH_DECODE][index] = stats.decode_s;
    m->peak_bytes = stats.peak_resident_bytes;
    m->weight_bytes = stats.weight_bytes;
    m->plan_bytes = stats.plan_bytes;
    return measure_reading(m, engine, err);
}

static enum oz_status measure_parts(struct oz_bench_model *m, const struct oz_engine_options *o,
                                    struct oz_error *err)
{
    for (int32_t i = 0; i < m->repeats; i++) {
        struct oz_engine *engine;
        m->peak_of_process = !oz_memory_peak_reset("");
        double began_s = oz_clock_seconds();
        OZ_TRY(oz_engine_open(&engine, o, err));
        enum oz_status status = draw_once(m, i, engine, began_s, err);
        oz_engine_close(&engine);
        OZ_TRY(status);
    }
    return OZ_OK;
}

/* ---- the second part ---- */

static enum oz_status draw_many(struct oz_bench_model *m, struct oz_engine *engine,
                                struct oz_bench_point *p, struct oz_error *err)
{
    int32_t count = m->options.requests;
    struct oz_stats stats = {.struct_size = sizeof stats};
    struct oz_image_request *requests = oz_alloc_zero((size_t)count, sizeof *requests);
    struct oz_image **images = oz_alloc_zero((size_t)count, sizeof *images);
    enum oz_status status =
        requests != NULL && images != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "the requests");
    for (int32_t i = 0; i < count && status == OZ_OK; i++) {
        request_fill(m, &requests[i], i);
    }
    if (status == OZ_OK) { /* one to warm up */
        status = oz_image_generate(engine, requests, 1, images, err);
        oz_image_destroy(&images[0]);
    }
    double start = oz_clock_seconds();
    if (status == OZ_OK) {
        status = oz_image_generate(engine, requests, count, images, err);
    }
    p->seconds = oz_clock_seconds() - start;
    p->pictures_s = count / p->seconds;
    for (int32_t i = 0; i < count && images != NULL; i++) {
        oz_image_destroy(&images[i]);
    }
    oz_free(requests);
    oz_free((void *)images);
    OZ_TRY(status);
    OZ_TRY(oz_engine_stats(engine, &stats, err));
    p->peak_bytes = stats.peak_resident_bytes;
    p->plan_bytes = stats.plan_bytes;
    return OZ_OK;
}

static enum oz_status measure_points(struct oz_bench_model *m, const struct oz_engine_options *o,
                                     struct oz_error *err)
{
    for (int32_t i = 0; i < OZ_BENCH_POINTS && m->options.requests > 0; i++) {
        struct oz_engine_options options = *o;
        struct oz_bench_point *p = &m->points[i];
        struct oz_engine *engine;
        p->concurrency = concurrencies[i];
        options.max_batch = concurrencies[i];
        m->peak_of_process = !oz_memory_peak_reset("");
        OZ_TRY(oz_engine_open(&engine, &options, err));
        enum oz_status status = draw_many(m, engine, p, err);
        oz_engine_close(&engine);
        OZ_TRY(status);
        m->point_count++;
    }
    return OZ_OK;
}

/* ---- the whole ---- */

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static enum oz_status check(struct oz_bench_model *m, struct oz_error *err)
{
    const struct oz_bench_model_options *o = &m->options;
    if (o->repeats < 0 || o->repeats > MOST_REPEATS || o->requests < 0 ||
        o->requests > MOST_REQUESTS) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "%d repeats and %d requests: there may be 1 to %d, and 0 to %d.", o->repeats,
                       o->requests, MOST_REPEATS, MOST_REQUESTS);
    }
    m->repeats = o->repeats > 0 ? o->repeats : REPEATS;
    for (int i = 0; i < OZ_BENCH_PARTS; i++) {
        m->seconds[i] = oz_alloc_zero((size_t)m->repeats, sizeof *m->seconds[i]);
        if (m->seconds[i] == NULL) {
            return OZ_FAIL_NOMEM(err, "the times");
        }
    }
    return OZ_OK;
}

static enum oz_status measure(struct oz_bench_model *m, const struct oz_engine_options *o,
                              struct oz_error *err)
{
    struct oz_json *old = NULL;
    const char *against = m->options.against;
    enum oz_status status = OZ_OK;
    if (against != NULL) { /* found before minutes are spent */
        OZ_TRY(oz_json_parse_file(&old, against, MAX_OLD_BYTES, err));
    }
    status = measure_parts(m, o, err);
    for (int i = 0; i < OZ_BENCH_PARTS && status == OZ_OK; i++) {
        qsort(m->seconds[i], (size_t)m->repeats, sizeof *m->seconds[i], ascending);
    }
    if (status == OZ_OK && old != NULL) { /* of something else: said before the rest is measured */
        status = oz_bench_model_compare(m, old, against, err);
    }
    if (status == OZ_OK) {
        status = measure_points(m, o, err);
    }
    if (status == OZ_OK && old != NULL) {
        status = oz_bench_model_compare(m, old, against, err);
    }
    oz_json_free(old);
    return status;
}

static enum oz_status write_report(const struct oz_bench_model *m, struct oz_error *err)
{
    struct oz_buf b;
    oz_buf_init(&b, MAX_TEXT_BYTES);
    oz_bench_model_page(m, &b);
    enum oz_status status = b.status == OZ_OK
                                ? oz_file_write(m->options.report, b.data, b.bytes, err)
                                : OZ_FAIL(err, b.status, "The report is too large.");
    oz_buf_deinit(&b);
    return status;
}

static enum oz_status print(const struct oz_bench_model *m, oz_write_fn write, void *ctx,
                            struct oz_error *err)
{
    struct oz_buf b;
    oz_buf_init(&b, MAX_TEXT_BYTES);
    if (m->options.json) {
        oz_bench_model_json(m, &b);
    } else {
        oz_bench_model_print(m, &b);
        oz_api_replace_controls(&b);
    }
    enum oz_status status = oz_api_write(&b, "results", "are", write, ctx, err);
    oz_buf_deinit(&b);
    return status;
}

static enum oz_status judge(const struct oz_bench_model *m, struct oz_error *err)
{
    double most = m->options.max_slowdown_percent, worst = 0;
    for (int i = 0; i < OZ_BENCH_PARTS + OZ_BENCH_POINTS; i++) {
        double percent = 100 * (m->change[i] - 1);
        worst = m->moved[i] && percent > worst ? percent : worst;
    }
    if (m->options.against == NULL || !(most >= 0) || !(worst > most)) {
        return OZ_OK;
    }
    return OZ_FAIL(
        err, OZ_ERR_THRESHOLD,
        "A part got slower than in %s beyond noise, the worst by %.1f %%; at most %g %% were "
        "allowed.",
        m->options.against, worst, most);
}

enum oz_status oz_bench_model(const struct oz_bench_model_options *options, oz_write_fn write,
                              void *ctx, struct oz_error *err)
{
    struct oz_bench_model m = {.options = defaults};
    struct oz_engine_options engine;
    OZ_TRY(oz_api_copy_options(&m.options, sizeof m.options, options, "bench options", err));
    if (m.options.engine == NULL) {
        return OZ_FAIL(err, OZ_ERR_ARG, "The engine options are missing.");
    }
    OZ_TRY(oz_api_engine_options(&engine, m.options.engine, err));
    engine.struct_size = sizeof engine;
    enum oz_status status = check(&m, err);
    if (status == OZ_OK) {
        status = measure(&m, &engine, err);
    }
    if (status == OZ_OK && m.options.report != NULL) {
        status = write_report(&m, err);
    }
    if (status == OZ_OK) {
        status = print(&m, write, ctx, err);
    }
    if (status == OZ_OK) {
        status = judge(&m, err);
    }
    for (int i = 0; i < OZ_BENCH_PARTS; i++) {
        oz_free(m.seconds[i]);
    }
    oz_free(m.name);
    oz_free(m.quantization);
    oz_free(m.path);
    return status;
}
