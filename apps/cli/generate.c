/*
 * generate.c: `ounce generate`. Everything that can be wrong about the request is found before the
 * model is opened. Pictures are drawn a few at a time and written as they are done, so memory does
 * not grow with their number.
 */
#include <ounce/ounce.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "command.h"
#include "common/words.h"
#include "interrupt.h"
#include "messages.h"
#include "model.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "prompts.h"
#include "text.h"

enum {
    MOST_TOGETHER = 64,      /* pictures in one call to the library: --max-batch */
    PICTURES_MOST = 1000000, /* of one run */
    SHEET_GAP = 8,           /* pixels between the pictures of a contact sheet */
};

struct job {
    const struct settings *settings;
    struct prompts prompts;
    struct text_list ignored; /* owned texts */
    int64_t pictures, written;
    struct output output, sheet; /* count 0: not wanted */
    struct progress progress;
    struct oz_engine *engine;
    struct oz_image **kept; /* [pictures], for the contact sheet; NULL without one */
    bool verbose;
    double began_s;
};

/* ---- before the work ---- */

static enum oz_status job_check(struct job *job)
{
    const struct settings *s = job->settings;
    if (s->quiet && s->verbose) {
        return cli_fail(OZ_ERR_ARG, "--quiet and --verbose exclude each other.");
    }
    enum oz_status status = cli_prompts_read(&job->prompts, s);
    if (status != OZ_OK) {
        return status;
    }
    job->pictures = (int64_t)job->prompts.list.count * s->num_images;
    if (job->pictures > PICTURES_MOST) {
        return cli_fail(OZ_ERR_ARG,
                        "%zu prompts with %d pictures each are %lld pictures; one run "
                        "draws from 1 to %d.",
                        job->prompts.list.count, s->num_images, (long long)job->pictures,
                        PICTURES_MOST);
    }
    if (s->output != NULL || s->contact_sheet == NULL) {
        status = cli_output_open(&job->output, "--output",
                                 s->output != NULL ? s->output : "ounce.png", job->pictures);
    }
    if (status == OZ_OK && s->contact_sheet != NULL) {
        status = cli_output_open(&job->sheet, "--contact-sheet", s->contact_sheet, 1);
    }
    if (status == OZ_OK && job->output.count > 0 && job->sheet.count > 0 &&
        cli_output_collides(&job->output, &job->sheet)) {
        status = cli_fail(OZ_ERR_ARG,
                          "--contact-sheet %s is also the name of one of the pictures; choose "
                          "another, or leave out --output.",
                          s->contact_sheet);
    }
    return status;
}

/* ---- the work ---- */

static enum oz_status fail_interrupted(const struct job *job)
{
    if (job->written == 0) {
        return cli_fail(OZ_ERR_CANCELLED, "Interrupted; no picture was written.");
    }
    return cli_fail(OZ_ERR_CANCELLED, "Interrupted; %lld of %lld pictures were written.",
                    (long long)job->written, (long long)job->pictures);
}

/* Says what the library reported. */
static enum oz_status fail_library(struct job *job, const struct oz_error *err)
{
    cli_progress_end(&job->progress);
    return err->code == OZ_ERR_CANCELLED ? fail_interrupted(job) : cli_fail_with(err);
}

static void request_fill(struct oz_image_request *request, const struct job *job, int64_t picture)
{
    const struct settings *s = job->settings;
    cli_model_request(request, s);
    request->prompt = job->prompts.list.items[picture / s->num_images];
    request->seed = s->seed + (uint64_t)(picture % s->num_images);
}

static enum oz_status job_open(struct job *job, struct oz_error *err)
{
    const struct settings *s = job->settings;
    struct oz_engine_options options;
    cli_model_options(&options, s, &job->ignored);
    options.log = cli_log;
    options.log_ctx = &job->verbose;
    options.progress = cli_progress;
    options.progress_ctx = &job->progress;
    enum oz_status status = oz_engine_open(&job->engine, &options, err);
    if (status != OZ_OK) {
        return status;
    }
    /* Pictures of one prompt differ in the seed alone: its first stands for all. */
    size_t count = job->prompts.list.count;
    struct oz_image_request *requests = cli_alloc(count, sizeof *requests);
    for (size_t i = 0; i < count; i++) {
        request_fill(&requests[i], job, (int64_t)i * s->num_images);
    }
    status = oz_image_check(job->engine, requests, (int32_t)count, err);
    free(requests);
    return status;
}

static enum oz_status write_image(struct job *job, const struct output *output, int64_t index,
                                  const struct oz_image *image, struct oz_error *err)
{
    struct oz_png_options png;
    oz_png_options_default(&png);
    png.no_metadata = job->settings->no_metadata;
    char *path = cli_output_path(output, index);
    enum oz_status status = oz_image_write_png(image, path, &png, err);
    if (status == OZ_OK) {
        cli_progress_end(&job->progress);
        (void)cli_printf("%s\n", path);
        (void)cli_print_end(); /* a failure is found again at the end; pictures matter more */
    }
    free(path);
    return status;
}

/* Draws pictures first .. first + count and writes them, or keeps them for the sheet. */
static enum oz_status draw_some(struct job *job, int64_t first, int32_t count, struct oz_error *err)
{
    struct oz_image_request requests[MOST_TOGETHER];
    struct oz_image *images[MOST_TOGETHER] = {NULL};
    for (int32_t i = 0; i < count; i++) {
        request_fill(&requests[i], job, first + i);
    }
    cli_progress_begin(&job->progress, first, count, job->pictures);
    enum oz_status status = oz_image_generate(job->engine, requests, count, images, err);
    for (int32_t i = 0; i < count; i++) {
        if (status == OZ_OK && cli_interrupted()) {
            err->code = status = OZ_ERR_CANCELLED;
        }
        if (status == OZ_OK && job->output.count > 0) {
            status = write_image(job, &job->output, first + i, images[i], err);
            job->written += status == OZ_OK;
        }
        if (job->kept != NULL) {
            job->kept[first + i] = images[i];
        } else {
            oz_image_destroy(&images[i]);
        }
    }
    return status;
}

/* Pictures a row: a prompt a row when each has several; else nearly square, with full rows if such a
 * number is near. */
static int32_t sheet_columns(const struct job *job)
{
    if (job->settings->num_images > 1 && job->prompts.list.count > 1) {
        return job->settings->num_images;
    }
    int64_t square = 1;
    while (square * square < job->pictures) {
        square++;
    }
    for (int64_t columns = square; columns * columns <= 4 * job->pictures; columns++) {
        if (job->pictures % columns == 0) {
            return (int32_t)columns;
        }
    }
    return (int32_t)square;
}

static enum oz_status write_sheet(struct job *job, struct oz_error *err)
{
    struct oz_image *sheet;
    enum oz_status status = oz_image_tile(&sheet, job->kept, (int32_t)job->pictures,
                                          sheet_columns(job), SHEET_GAP, err);
    if (status == OZ_OK) {
        status = write_image(job, &job->sheet, 0, sheet, err);
        oz_image_destroy(&sheet);
    }
    return status;
}

static bool is_dummy(const struct settings *s)
{
    return s->load_format != NULL && strcasecmp(s->load_format, "dummy") == 0;
}

/* "8 pictures in 9.8 s: load 0.1 s, text 0.2 s, denoise 8.9 s (160 steps, 18 steps/s), decode 0.6 s;
 * peak memory 96 MiB" */
static enum oz_status say_summary(const struct job *job, struct oz_error *err)
{
    struct oz_stats stats = {.struct_size = sizeof stats};
    enum oz_status status = oz_engine_stats(job->engine, &stats, err);
    if (status != OZ_OK) {
        return status;
    }
    double rate = stats.denoise_s > 0 ? (double)stats.steps / stats.denoise_s : 0;
    char *speed = cli_format(rate < 10 ? "%.2g" : "%.0f", rate);
    const char *dummy = is_dummy(job->settings) ? "; the weights were dummies" : "";
    double mib = (double)stats.peak_resident_bytes / (1024 * 1024);
    char *memory = mib <= 0      ? cli_format("peak memory unknown")
                   : mib < 10240 ? cli_format("peak memory %.0f MiB", mib)
                                 : cli_format("peak memory %.1f GiB", mib / 1024);
    char *uploads = stats.upload_s > 0
                        ? cli_format(" (of all that uploads of weights %.2f s)", stats.upload_s)
                        : cli_format("%s", "");
    cli_say("%lld picture%s in %.1f s: load %.1f s, text %.1f s, denoise %.1f s (%lld steps, %s "
            "steps/s), decode %.1f s%s; %s%s",
            (long long)job->pictures, job->pictures == 1 ? "" : "s", words_seconds() - job->began_s,
            stats.load_s, stats.text_s, stats.denoise_s, (long long)stats.steps, speed,
            stats.decode_s, uploads, memory, dummy);
    free(uploads);
    free(speed);
    free(memory);
    return OZ_OK;
}

static enum oz_status job_run(struct job *job)
{
    struct oz_error err = {0};
    enum oz_status status = job_check(job);
    if (status != OZ_OK) {
        return status;
    }
    if (job->sheet.count > 0) {
        /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers is meant */
        job->kept = cli_alloc((size_t)job->pictures, sizeof *job->kept);
    }
    status = job_open(job, &err);
    int32_t together = job->settings->max_batch;
    for (int64_t first = 0; first < job->pictures && status == OZ_OK; first += together) {
        int64_t rest = job->pictures - first;
        status = draw_some(job, first, rest < together ? (int32_t)rest : together, &err);
    }
    if (status == OZ_OK && job->sheet.count > 0) {
        status = write_sheet(job, &err);
    }
    cli_progress_end(&job->progress);
    if (status == OZ_OK && !job->settings->quiet) {
        status = say_summary(job, &err);
    }
    return status == OZ_OK ? OZ_OK : fail_library(job, &err);
}

static void job_free(struct job *job)
{
    for (int64_t i = 0; job->kept != NULL && i < job->pictures; i++) {
        oz_image_destroy(&job->kept[i]);
    }
    free(job->kept);
    oz_engine_close(&job->engine);
    cli_output_close(&job->output);
    cli_output_close(&job->sheet);
    cli_prompts_free(&job->prompts);
    cli_model_options_free(&job->ignored);
}

enum oz_status cli_generate(const struct settings *s)
{
    struct job job = {.settings = s, .verbose = s->verbose, .began_s = words_seconds()};
    cli_interrupt_catch();
    cli_progress_init(&job.progress, s->quiet);
    enum oz_status status = job_run(&job);
    job_free(&job);
    return status;
}
