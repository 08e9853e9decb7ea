/* models.c: variants of a model compared. */
#define OZ_UNSTABLE
#include <math.h>
#include <ounce/ounce.h>
#include <string.h>

#include "api/engine.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "study/label.h"
#include "study/models.h"
#include "study/report.h"

#define MAX_TEXT_BYTES ((size_t)512 << 20)
#define MAX_CANDIDATES 256

static const struct oz_models_options defaults = {.struct_size = sizeof defaults,
                                                  .warmup_runs = 1,
                                                  .measure_runs = 1,
                                                  .min_psnr_db = -1,
                                                  .min_ssim = -1,
                                                  .min_cosine = -1,
                                                  .max_memory_ratio = -1,
                                                  .max_time_ratio = -1};

void oz_models_options_init(struct oz_models_options *options, size_t struct_size)
{
    oz_api_fill(options, struct_size, &defaults, sizeof defaults);
}

/* One call. */
struct job {
    struct oz_models_options options;
    struct oz_engine_options engine;
    struct oz_pool *pool;
    struct oz_device *dev;
    struct oz_task *tasks;
    struct oz_variant *candidates;
    char (*labels)[OZ_LABEL_BYTES];
    struct oz_model_args args;
    struct oz_model_comparison *comparison;
};

/* ---- what is asked ---- */

static enum oz_status check_limits(const struct oz_models_options *o, struct oz_error *err)
{
    if (isnan(o->min_psnr_db) || isnan(o->min_ssim) || isnan(o->min_cosine) ||
        isnan(o->max_memory_ratio) || isnan(o->max_time_ratio)) {
        return OZ_FAIL(err, OZ_ERR_ARG, "A threshold is NaN; a negative one is none.");
    }
    if (o->warmup_runs < 0 || o->measure_runs < 1 || o->measure_runs > 1000) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "%d warm-up runs and %d measured runs: there must be at least 0 and 1.",
                       o->warmup_runs, o->measure_runs);
    }
    return OZ_OK;
}

enum oz_status oz_api_check_study_engine(const struct oz_engine_options *e, struct oz_error *err)
{
    bool asks = (e->quantization != NULL && e->quantization[0] != '\0') ||
                (e->quantization_config != NULL && e->quantization_config[0] != '\0') ||
                e->quantization_key_count > 0;
    bool other = e->lora_count > 0 || (e->transformer != NULL && e->transformer[0] != '\0') ||
                 (e->scheduler_config != NULL && e->scheduler_config[0] != '\0');
    if (asks || other) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "A study's engine options %s: candidates say what is quantized, and all "
                       "variants have the model's own weights and scheduler.",
                       asks ? "ask for quantization"
                            : "name a LoRA, a transformer or a scheduler config");
    }
    enum oz_offload_mode offload;
    const struct oz_load_format *format;
    OZ_TRY(oz_offload_parse(&offload, e->offload, err));
    if (offload != OZ_OFFLOAD_NONE) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "A study looks at all weights, which stay; leave out offload "
                       "\"%s\".",
                       e->offload);
    }
    OZ_TRY(oz_load_format_find(&format, e->load_format, err));
    return format->dummy ? OZ_FAIL(err, OZ_ERR_ARG,
                                   "A study of dummy weights says nothing about a model; leave out "
                                   "load format dummy.")
                         : OZ_OK;
}

static enum oz_status add_candidate(struct job *job, const char *text, bool is_model,
                                    struct oz_error *err)
{
    const struct oz_engine_options *e = &job->engine;
    int32_t n = job->args.count;
    const char *request;
    if (text == NULL) {
        return OZ_FAIL(err, OZ_ERR_ARG, "A candidate is NULL.");
    }
    OZ_TRY(oz_label_split(text, job->labels[n], &request, err));
    for (int32_t i = 0; i < n || i == 0; i++) {
        const char *other = i < n ? job->labels[i] : "reference";
        if (strcmp(job->labels[n], other) == 0 || strcmp(job->labels[n], "reference") == 0) {
            return OZ_FAIL(
                err, OZ_ERR_ARG,
                "Two variants are called \"%s\"; put a label before one: \"other=%.200s\".",
                job->labels[n], request);
        }
    }
    struct oz_variant *v = &job->candidates[n];
    *v = (struct oz_variant){.label = job->labels[n], .model = is_model ? request : e->model};
    if (!is_model) {
        v->quantization = request;
        v->ignored_layers = e->ignored_layers;
        v->ignored_count = e->ignored_layer_count;
        v->allow_unmatched = e->allow_unmatched != 0;
        OZ_TRY(oz_keep_parse(&v->keep, e->keep, err));
    }
    job->args.count++;
    return OZ_OK;
}

static enum oz_status read_candidates(struct job *job, struct oz_error *err)
{
    const struct oz_models_options *o = &job->options;
    int64_t count = (int64_t)o->candidate_quantization_count + o->candidate_model_count;
    if (o->candidate_quantization_count < 0 || o->candidate_model_count < 0 || count < 1 ||
        count > MAX_CANDIDATES) {
        return OZ_FAIL(err, OZ_ERR_ARG, "There are %lld candidates; there must be 1 to %d.",
                       (long long)count, MAX_CANDIDATES);
    }
    job->candidates = oz_alloc_zero((size_t)count, sizeof *job->candidates);
    job->labels = oz_alloc_zero((size_t)count, sizeof *job->labels);
    if (job->candidates == NULL || job->labels == NULL) {
        return OZ_FAIL_NOMEM(err, "the candidates");
    }
    for (int32_t i = 0; i < o->candidate_quantization_count; i++) {
        OZ_TRY(add_candidate(job, o->candidate_quantizations[i], false, err));
    }
    for (int32_t i = 0; i < o->candidate_model_count; i++) {
        OZ_TRY(add_candidate(job, o->candidate_models[i], true, err));
    }
    return OZ_OK;
}

enum oz_status oz_api_read_tasks(const struct oz_image_request *requests, int32_t count,
                                 struct oz_task **tasks, struct oz_error *err)
{
    if (count < 1 || requests == NULL) {
        return OZ_FAIL(err, OZ_ERR_ARG, "There is no request of what to draw.");
    }
    *tasks = oz_alloc_zero((size_t)count, sizeof **tasks);
    if (*tasks == NULL) {
        return OZ_FAIL_NOMEM(err, "the requests");
    }
    for (int32_t i = 0; i < count; i++) {
        OZ_TRY(oz_api_read_task(requests, i, &(*tasks)[i], err));
    }
    return OZ_OK;
}

enum oz_status oz_api_open_study_device(const struct oz_engine_options *e, struct oz_pool **pool,
                                        struct oz_device **dev, struct oz_error *err)
{
    uint32_t flags;
    const struct oz_linear_backend *backend;
    OZ_TRY(oz_api_device_flags(&flags, &backend, e, err));
    OZ_TRY(oz_pool_create(pool, e->threads, err));
    return oz_device_open(dev, e->device != NULL ? e->device : "cpu", flags, *pool, err);
}

static enum oz_status read_job(struct job *job, struct oz_error *err)
{
    const struct oz_models_options *o = &job->options;
    OZ_TRY(check_limits(o, err));
    OZ_TRY(oz_api_check_study_engine(&job->engine, err));
    OZ_TRY(read_candidates(job, err));
    OZ_TRY(oz_api_read_tasks(o->requests, o->request_count, &job->tasks, err));
    OZ_TRY(oz_api_open_study_device(&job->engine, &job->pool, &job->dev, err));
    struct oz_model_args *a = &job->args;
    a->how = (struct oz_variant_setting){.dev = job->dev,
                                         .max_header_bytes = job->engine.max_header_bytes};
    OZ_TRY(oz_modulation_parse(&a->how.modulation, job->engine.modulation, err));
    a->reference = (struct oz_variant){.label = "reference",
                                       .model = o->reference_model != NULL ? o->reference_model
                                                                           : job->engine.model};
    a->candidates = job->candidates;
    a->tasks = job->tasks;
    a->task_count = o->request_count;
    a->warmup_runs = o->warmup_runs;
    a->measure_runs = o->measure_runs;
    a->output_json = o->output_json;
    a->save_folder = o->save_output_dir;
    a->keep_pictures = o->report != NULL || o->contact_sheet != NULL;
    a->limits = (struct oz_model_limits){.min_psnr_db = o->min_psnr_db,
                                         .min_ssim = o->min_ssim,
                                         .min_cosine = o->min_cosine,
                                         .max_memory_ratio = o->max_memory_ratio,
                                         .max_time_ratio = o->max_time_ratio,
                                         .different = o->assert_different != 0};
    a->progress = job->engine.progress;
    a->progress_ctx = job->engine.progress_ctx;
    a->version = oz_version();
    return OZ_OK;
}

/* ---- what comes out ---- */

static enum oz_status print(const struct job *job, oz_write_fn write, void *ctx,
                            struct oz_error *err)
{
    struct oz_buf b;
    oz_buf_init(&b, MAX_TEXT_BYTES);
    if (job->options.json) {
        oz_model_comparison_json(job->comparison, &b);
    } else {
        oz_model_comparison_print(job->comparison, &b);
        oz_api_replace_controls(&b);
    }
    enum oz_status status = oz_api_write(&b, "comparison", "is", write, ctx, err);
    oz_buf_deinit(&b);
    return status;
}

/* Pictures of candidates that failed stay white. images: [tasks][1 + candidates] */
static enum oz_status read_images(const void *ctx, struct oz_image **images, struct oz_error *err)
{
    const struct oz_model_comparison *c = ctx;
    for (int32_t i = 0; i < c->args->task_count; i++) {
        for (int32_t v = -1; v < c->args->count; v++, images++) {
            const struct oz_task *t = &c->tasks[i];
            const struct oz_model_result *r = v < 0 ? &c->reference : &c->candidates[v];
            OZ_TRY(oz_api_image_create(images, t->width, t->height, NULL, "", err));
            if (r->pictures[i].done) {
                OZ_TRY(oz_model_comparison_picture(c, v, i, (*images)->pixels, err));
            }
        }
    }
    return OZ_OK;
}

static enum oz_status write_sheet(const struct job *job, struct oz_error *err)
{
    const struct oz_model_comparison *c = job->comparison;
    struct oz_image *sheet;
    OZ_TRY(oz_api_sheet(&sheet, c->args->task_count, 1 + c->args->count, read_images, c, err));
    enum oz_status status = oz_image_write_png(sheet, job->options.contact_sheet, NULL, err);
    oz_image_destroy(&sheet);
    return status;
}

/* Files first: they are there when a threshold is missed. */
static enum oz_status run(struct job *job, oz_write_fn write, void *ctx, struct oz_error *err)
{
    OZ_TRY(read_job(job, err));
    OZ_TRY(oz_model_comparison_run(&job->comparison, &job->args, err));
    if (job->options.contact_sheet != NULL) {
        OZ_TRY(write_sheet(job, err));
    }
    if (job->options.report != NULL) {
        OZ_TRY(oz_model_report_write(job->comparison, NULL, job->options.report, err));
    }
    OZ_TRY(print(job, write, ctx, err));
    return oz_model_comparison_judge(job->comparison, err);
}

enum oz_status oz_models_compare(const struct oz_models_options *options, oz_write_fn write,
                                 void *ctx, struct oz_error *err)
{
    struct job job = {.options = defaults};
    OZ_TRY(oz_api_copy_options(&job.options, sizeof job.options, options, "models options", err));
    if (job.options.engine == NULL) {
        return OZ_FAIL(err, OZ_ERR_ARG, "The engine options are missing.");
    }
    struct oz_engine_options asked = {0};
    OZ_TRY(oz_api_copy_options(&asked, sizeof asked, job.options.engine, "engine options", err));
    /* they are the candidates', who do ask for quantization */
    const char *keep = asked.keep;
    int32_t allow_unmatched = asked.allow_unmatched;
    asked.keep = NULL;
    asked.allow_unmatched = 0;
    OZ_TRY(oz_api_engine_options(&job.engine, &asked, err));
    job.engine.keep = keep;
    job.engine.allow_unmatched = allow_unmatched;
    uint64_t log = oz_log_set(job.engine.log, job.engine.log_ctx);
    enum oz_status status = run(&job, write, ctx, err);
    oz_model_comparison_close(&job.comparison);
    oz_device_close(&job.dev);
    oz_pool_destroy(&job.pool);
    oz_free(job.tasks);
    oz_free(job.candidates);
    oz_free(job.labels);
    oz_log_unset(log);
    return status;
}
