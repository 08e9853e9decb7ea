/* sensitivity.c: which layers bear which scheme. */
#define OZ_UNSTABLE
#include <ounce/ounce.h>
#include <string.h>

#include "api/engine.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "study/label.h"
#include "study/report.h"
#include "study/sensitivity.h"

#define MAX_TEXT_BYTES ((size_t)256 << 20)

static const struct oz_sensitivity_options defaults = {.struct_size = sizeof defaults,
                                                       .verify_offset = 1000};

static const char *const default_schemes[] = {
    "int8", "fp8_w8a16={\"method\": \"fp8_per_channel\", \"activation\": null}", "nvfp4"};
enum { DEFAULT_SCHEMES = sizeof default_schemes / sizeof *default_schemes };

void oz_sensitivity_options_init(struct oz_sensitivity_options *options, size_t struct_size)
{
    oz_api_fill(options, struct_size, &defaults, sizeof defaults);
}

/* One call. */
struct job {
    struct oz_sensitivity_options options;
    struct oz_engine_options engine;
    struct oz_pool *pool;
    struct oz_device *dev;
    struct oz_task *tasks;
    struct oz_variant schemes[OZ_SENSITIVITY_SCHEMES];
    char labels[OZ_SENSITIVITY_SCHEMES][OZ_LABEL_BYTES];
    struct oz_sensitivity_args args;
    struct oz_sensitivity *result;
};

static enum oz_status read_schemes(struct job *job, struct oz_error *err)
{
    const struct oz_sensitivity_options *o = &job->options;
    const char *const *texts = o->scheme_count > 0 ? o->schemes : default_schemes;
    int32_t count = o->scheme_count > 0 ? o->scheme_count : DEFAULT_SCHEMES;
    if (o->scheme_count < 0 || count > OZ_SENSITIVITY_SCHEMES || texts == NULL) {
        return OZ_FAIL(err, OZ_ERR_ARG, "A search has 1 to %d schemes, not %d.",
                       OZ_SENSITIVITY_SCHEMES, count);
    }
    for (int32_t i = 0; i < count; i++) {
        const char *request;
        OZ_TRY(oz_label_split(texts[i], job->labels[i], &request, err));
        for (int32_t k = 0; k < i; k++) {
            if (strcmp(job->labels[i], job->labels[k]) == 0) {
                return OZ_FAIL(err, OZ_ERR_ARG,
                               "Two schemes are called \"%s\"; put a label before one: "
                               "\"other=%.200s\".",
                               job->labels[i], request);
            }
        }
        job->schemes[i] = (struct oz_variant){
            .label = job->labels[i], .model = job->engine.model, .quantization = request};
    }
    job->args.scheme_count = count;
    return OZ_OK;
}

static enum oz_status read_job(struct job *job, struct oz_error *err)
{
    const struct oz_sensitivity_options *o = &job->options;
    struct oz_sensitivity_args *a = &job->args;
    OZ_TRY(oz_api_check_study_engine(&job->engine, err));
    if (job->engine.ignored_layer_count > 0) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "ignored_layers have no effect on a search, which decides for each layer.");
    }
    OZ_TRY(oz_budget_parse(&a->budget, o->budget, err));
    if (o->report != NULL && a->budget.kind == OZ_BUDGET_NONE) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "A report of a search shows its proposal: it needs a budget.");
    }
    OZ_TRY(read_schemes(job, err));
    OZ_TRY(oz_api_read_tasks(o->requests, o->request_count, &job->tasks, err));
    OZ_TRY(oz_api_open_study_device(&job->engine, &job->pool, &job->dev, err));
    a->how = (struct oz_variant_setting){.dev = job->dev,
                                         .max_header_bytes = job->engine.max_header_bytes};
    OZ_TRY(oz_modulation_parse(&a->how.modulation, job->engine.modulation, err));
    a->model = job->engine.model;
    a->schemes = job->schemes;
    a->tasks = job->tasks;
    a->task_count = o->request_count;
    a->verify_offset = o->verify_offset;
    a->full = o->full != 0;
    a->output_json = o->output_json;
    a->keep_pictures = o->report != NULL;
    a->progress = job->engine.progress;
    a->progress_ctx = job->engine.progress_ctx;
    a->version = oz_version();
    return OZ_OK;
}

static enum oz_status print(const struct job *job, oz_write_fn write, void *ctx,
                            struct oz_error *err)
{
    struct oz_buf b;
    oz_buf_init(&b, MAX_TEXT_BYTES);
    if (job->options.json) {
        oz_sensitivity_json(job->result, &b);
    } else {
        oz_sensitivity_print(job->result, &b);
        oz_api_replace_controls(&b);
    }
    enum oz_status status = oz_api_write(&b, "result", "is", write, ctx, err);
    oz_buf_deinit(&b);
    return status;
}

static enum oz_status run(struct job *job, oz_write_fn write, void *ctx, struct oz_error *err)
{
    OZ_TRY(read_job(job, err));
    enum oz_status searched = oz_sensitivity_run(&job->result, &job->args, err);
    if (job->result == NULL) {
        return searched;
    }
    struct oz_error later;
    enum oz_status status = OZ_OK;
    if (job->options.report != NULL && job->result->proof != NULL) {
        const struct oz_report_section section = {oz_sensitivity_section, job->result};
        status = oz_model_report_write(job->result->proof, &section, job->options.report, &later);
    }
    if (status == OZ_OK) {
        status = print(job, write, ctx, &later);
    }
    if (status != OZ_OK && err != NULL) {
        *err = later;
    }
    return status != OZ_OK ? status : searched;
}

enum oz_status oz_model_sensitivity(const struct oz_sensitivity_options *options, oz_write_fn write,
                                    void *ctx, struct oz_error *err)
{
    struct job job = {.options = defaults};
    OZ_TRY(
        oz_api_copy_options(&job.options, sizeof job.options, options, "sensitivity options", err));
    if (job.options.engine == NULL) {
        return OZ_FAIL(err, OZ_ERR_ARG, "The engine options are missing.");
    }
    OZ_TRY(oz_api_engine_options(&job.engine, job.options.engine, err));
    uint64_t log = oz_log_set(job.engine.log, job.engine.log_ctx);
    enum oz_status status = run(&job, write, ctx, err);
    oz_sensitivity_close(&job.result);
    oz_device_close(&job.dev);
    oz_pool_destroy(&job.pool);
    oz_free(job.tasks);
    oz_log_unset(log);
    return status;
}
