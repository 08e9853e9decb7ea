/*
 * bench.c: `ounce bench`: how long the parts of drawing a picture take, or, with --kernels, what each
 * kernel reaches of what the machine can do.
 */
#include <ounce/ounce.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "interrupt.h"
#include "messages.h"
#include "options.h"
#include "progress.h"
#include "text.h"

enum { REPEATS = 3 };

/* ---- kernels ---- */

static enum oz_status check_kernels(const struct settings *s)
{
    const char *foreign = s->width != 0                       ? "width"
                          : s->height != 0                    ? "height"
                          : s->num_inference_steps != 0       ? "num-inference-steps"
                          : s->true_cfg_scale >= 0            ? "true-cfg-scale"
                          : strcmp(s->precision, "bf16") != 0 ? "precision"
                          : s->transformer != NULL            ? "transformer"
                          : s->loras.count > 0                ? "lora"
                          : s->linear_backend != NULL         ? "linear-backend"
                          : s->moe_backend != NULL            ? "moe-backend"
                                                              : NULL;
    if (foreign != NULL) {
        return cli_fail(OZ_ERR_ARG,
                        "--%s has no effect with --kernels: kernels have shapes of their own.",
                        foreign);
    }
    if (s->max_slowdown >= 0 && s->against == NULL) {
        return cli_fail(OZ_ERR_ARG, "--max-slowdown needs --against FILE.");
    }
    return OZ_OK;
}

static enum oz_status bench_kernels(const struct settings *s, struct progress *progress)
{
    struct oz_bench_options options;
    struct oz_error err;
    enum oz_status status = check_kernels(s);
    if (status != OZ_OK) {
        return status;
    }
    oz_bench_options_default(&options);
    options.device = s->device;
    options.filter = s->model;
    options.threads = s->threads;
    options.samples = s->repeat;
    options.json = s->json;
    options.against = s->against;
    options.max_slowdown_percent = s->max_slowdown;
    options.progress = cli_progress;
    options.progress_ctx = progress;
    cli_progress_begin(progress, 0, 1, 1);
    status = oz_bench_kernels(&options, cli_write, NULL, &err);
    cli_progress_end(progress);
    if (status == OZ_ERR_CANCELLED) {
        return cli_fail(OZ_ERR_CANCELLED, "Interrupted; nothing was written.");
    }
    return cli_print_done(status, &err);
}

/* ---- a model ---- */

enum part { LOAD, TEXT_, STEP, DECODE, TOTAL, PARTS };
static const char *const part_names[PARTS] = {"load", "text", "step", "decode", "total"};

struct job {
    const struct settings *settings;
    struct progress *progress;
    int32_t repeats;
    double *seconds[PARTS]; /* [repeats] */
    bool verbose;
    /* of the last run */
    char *name;
    int32_t width, height, steps;
    double scale;
    int64_t peak_bytes, weight_bytes, plan_bytes;
};

/* Draws one picture with a fresh engine. */
static enum oz_status draw(struct job *job, int32_t index, struct oz_engine *engine, double began_s,
                           struct oz_error *err)
{
    const struct settings *s = job->settings;
    struct oz_image_request request;
    struct oz_image *image;
    struct oz_model_info info = {.struct_size = sizeof info};
    struct oz_stats stats = {.struct_size = sizeof stats};
    oz_image_request_default(&request);
    request.prompt = "red apple";
    request.width = s->width;
    request.height = s->height;
    request.num_inference_steps = s->num_inference_steps;
    request.true_cfg_scale = s->true_cfg_scale < 0   ? 0
                             : s->true_cfg_scale > 1 ? s->true_cfg_scale
                                                     : 1;
    request.seed = 42;
    cli_progress_begin(job->progress, index, 1, job->repeats);
    enum oz_status status = oz_image_generate(engine, &request, 1, &image, err);
    if (status == OZ_OK) {
        job->seconds[TOTAL][index] = cli_seconds() - began_s;
        job->width = oz_image_width(image);
        job->height = oz_image_height(image);
        oz_image_destroy(&image);
        status = oz_engine_stats(engine, &stats, err);
    }
    if (status == OZ_OK) {
        status = oz_engine_info(engine, &info, err);
    }
    if (status != OZ_OK) {
        return status;
    }
    free(job->name);
    job->name = cli_format("%s", info.name);
    job->steps = (int32_t)stats.steps;
    job->scale = request.true_cfg_scale > 0 ? request.true_cfg_scale : info.true_cfg_scale;
    job->seconds[LOAD][index] = stats.load_s;
    job->seconds[TEXT_][index] = stats.text_s;
    job->seconds[STEP][index] = stats.denoise_s / (double)(stats.steps > 0 ? stats.steps : 1);
    job->seconds[DECODE][index] = stats.decode_s;
    job->peak_bytes = stats.peak_resident_bytes;
    job->weight_bytes = stats.weight_bytes;
    job->plan_bytes = stats.plan_bytes;
    return OZ_OK;
}

static enum oz_status run_once(struct job *job, int32_t index, struct oz_error *err)
{
    const struct settings *s = job->settings;
    struct oz_engine_options options;
    struct oz_engine *engine;
    double began_s = cli_seconds();
    oz_engine_options_default(&options);
    options.model = s->model;
    options.device = s->device;
    options.precision = strcmp(s->precision, "f32") == 0 ? OZ_PRECISION_F32 : OZ_PRECISION_BF16;
    options.threads = s->threads;
    options.max_header_bytes = s->max_header_bytes;
    options.transformer = s->transformer;
    options.loras = s->loras.items;
    options.lora_count = (int32_t)s->loras.count;
    options.log = cli_log;
    options.log_ctx = &job->verbose;
    options.progress = cli_progress;
    options.progress_ctx = job->progress;
    enum oz_status status = oz_engine_open(&engine, &options, err);
    if (status == OZ_OK) {
        status = draw(job, index, engine, began_s, err);
        oz_engine_close(&engine);
    }
    return status;
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median(const double *sorted, int32_t count)
{
    return 0.5 * (sorted[(count - 1) / 2] + sorted[count / 2]);
}

/* A text as a JSON string. free() */
static char *quoted(const char *text)
{
    char *out = cli_alloc(6 * strlen(text) + 3, 1);
    char *to = out;
    *to++ = '"';
    for (; *text != '\0'; text++) {
        static const char hex[] = "0123456789abcdef";
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            *to++ = '\\';
            *to++ = (char)c;
        } else if (c < 0x20) {
            memcpy(to, "\\u00", 4);
            to[4] = hex[c >> 4];
            to[5] = hex[c & 15];
            to += 6;
        } else {
            *to++ = (char)c;
        }
    }
    *to = '"';
    return out;
}

static void print_json(const struct job *job)
{
    char *name = quoted(job->name);
    (void)cli_printf("{\"document\":\"ounce bench\",\"version\":\"%s\",\"model\":%s,\"width\":%d,"
                     "\"height\":%d,\"num_inference_steps\":%d,\"true_cfg_scale\":%g,"
                     "\"precision\":\"%s\",\"threads\":%d,\"repeats\":%d",
                     oz_version(), name, job->width, job->height, job->steps, job->scale,
                     job->settings->precision, job->settings->threads, job->repeats);
    for (int i = 0; i < PARTS; i++) {
        (void)cli_printf(",\n\"%s_s\":{\"median\":%.6f,\"min\":%.6f,\"max\":%.6f}", part_names[i],
                         median(job->seconds[i], job->repeats), job->seconds[i][0],
                         job->seconds[i][job->repeats - 1]);
    }
    (void)cli_printf(",\n\"peak_resident_bytes\":%lld,\"weight_bytes\":%lld,\"plan_bytes\":%lld}\n",
                     (long long)job->peak_bytes, (long long)job->weight_bytes,
                     (long long)job->plan_bytes);
    free(name);
}

static void print_table(const struct job *job)
{
    (void)cli_printf("%s: %dx%d, %d steps, true CFG scale %g, %s, %d repeat%s\n%-8s %12s %12s\n",
                     job->name, job->width, job->height, job->steps, job->scale,
                     job->settings->precision, job->repeats, job->repeats == 1 ? "" : "s", "",
                     "median", "min");
    for (int i = 0; i < PARTS; i++) {
        (void)cli_printf("%-8s %10.2f ms %9.2f ms\n", part_names[i],
                         1e3 * median(job->seconds[i], job->repeats), 1e3 * job->seconds[i][0]);
    }
    (void)cli_printf("peak memory %.0f MiB; weights %.1f MiB, arenas %.1f MiB\n",
                     (double)job->peak_bytes / (1024 * 1024),
                     (double)job->weight_bytes / (1024 * 1024),
                     (double)job->plan_bytes / (1024 * 1024));
}

static enum oz_status bench_model(const struct settings *s, struct progress *progress)
{
    struct oz_error err;
    struct job job = {.settings = s, .progress = progress};
    enum oz_status status = OZ_OK;
    if (s->against != NULL || s->max_slowdown >= 0) {
        return cli_fail(OZ_ERR_ARG, "--%s is for --kernels only.",
                        s->against != NULL ? "against" : "max-slowdown");
    }
    job.repeats = s->repeat > 0 ? s->repeat : REPEATS;
    for (int i = 0; i < PARTS; i++) {
        job.seconds[i] = cli_alloc((size_t)job.repeats, sizeof *job.seconds[i]);
    }
    for (int32_t i = 0; i < job.repeats && status == OZ_OK; i++) {
        status = run_once(&job, i, &err);
    }
    cli_progress_end(progress);
    if (status == OZ_ERR_CANCELLED) {
        (void)cli_fail(status, "Interrupted; nothing was written.");
    } else if (status != OZ_OK) {
        (void)cli_fail_with(&err);
    } else {
        for (int i = 0; i < PARTS; i++) {
            qsort(job.seconds[i], (size_t)job.repeats, sizeof *job.seconds[i], ascending);
        }
        if (s->json) {
            print_json(&job);
        } else {
            print_table(&job);
        }
    }
    for (int i = 0; i < PARTS; i++) {
        free(job.seconds[i]);
    }
    free(job.name);
    return status;
}

enum oz_status cli_bench(const struct settings *s)
{
    struct progress progress;
    cli_interrupt_catch();
    cli_progress_init(&progress, s->quiet);
    return s->kernels ? bench_kernels(s, &progress) : bench_model(s, &progress);
}
