/* oz_model_plan: opens what an engine would, on a device that only plans, and prints the plan. */
#include <ounce/ounce.h>

#include "api/engine.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "dev/linear_backend.h"
#include "pipe/find.h"
#include "pipe/quantize.h"
#include "plan/describe.h"
#include "plan/fit.h"
#include "study/fit_by.h"

#define MAX_TEXT_BYTES ((size_t)512 << 20)
#define MAX_PICTURES 100000

/* A prompt as people write them, where none is given. */
static const char *const prompt =
    "a small red fox that sits on a mossy stone in the morning light, a lake and blue mountains "
    "far behind it, oil on canvas";

struct job {
    const struct oz_engine_options *engine;
    const struct oz_plan_options *options;
    struct oz_pool *pool;
    struct oz_device *dev;
    const struct oz_linear_backend *linear_backend;
    const struct oz_load_format *load_format;
    struct oz_task *tasks;
    int32_t task_count;
    char *path;
    struct oz_request *request;
    struct oz_pipeline *pipeline;
    struct oz_plan plan;
    struct oz_plan_fit fit;
};

void oz_plan_options_init(struct oz_plan_options *options, size_t struct_size)
{
    const struct oz_plan_options none = {0};
    oz_api_fill(options, struct_size, &none, sizeof none);
}

/* ---- before anything is opened ---- */

static bool has(const char *text)
{
    return text != NULL && text[0] != '\0';
}

static enum oz_status check_fit(const struct oz_engine_options *engine,
                                const struct oz_plan_options *o, struct oz_error *err)
{
    struct oz_engine_options copy = {0};
    const struct oz_engine_options *e = &copy;
    enum oz_keep keep;
    if (o->fit_bytes < 0) {
        return OZ_FAIL(err, OZ_ERR_ARG, "fit_bytes is %lld; it must not be negative.",
                       (long long)o->fit_bytes);
    }
    if (o->fit_bytes == 0 && o->fit_by != NULL && o->fit_by[0] != '\0') {
        return OZ_FAIL(
            err, OZ_ERR_ARG,
            "A sensitivity result (fit_by) chooses what gives way to fit into a number of "
            "bytes; give that number (fit_bytes), too.");
    }
    if (o->fit_bytes == 0) {
        return OZ_OK;
    }
    OZ_TRY(oz_api_copy_options(&copy, sizeof copy, engine, "engine options", err));
    OZ_TRY(oz_keep_parse(&keep, e->keep, err));
    if (has(e->quantization) || has(e->quantization_config) || e->quantization_key_count > 0 ||
        e->ignored_layer_count > 0 || keep != OZ_KEEP_STANDARD || e->allow_unmatched != 0) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "A plan that is to fit chooses the quantization itself; leave out the "
                       "quantization, its config, keep-list and patterns.");
    }
    return OZ_OK;
}

static enum oz_status read_tasks(struct job *job, struct oz_error *err)
{
    const struct oz_plan_options *o = job->options;
    if (o->request_count < 0 || o->request_count > MAX_PICTURES ||
        (o->request_count > 0 && o->requests == NULL)) {
        return OZ_FAIL(err, OZ_ERR_ARG, "The number of requests is %d; it must lie in 0 to %d.",
                       (int)o->request_count, MAX_PICTURES);
    }
    job->task_count = o->request_count > 0 ? o->request_count : 1;
    job->tasks = oz_alloc_zero((size_t)job->task_count, sizeof *job->tasks);
    if (job->tasks == NULL) {
        return OZ_FAIL_NOMEM(err, "the plan");
    }
    for (int32_t i = 0; i < o->request_count; i++) {
        OZ_TRY(oz_api_read_task(o->requests, i, &job->tasks[i], err));
    }
    for (int32_t i = 0; i < job->task_count; i++) {
        job->tasks[i].prompt = job->tasks[i].prompt != NULL ? job->tasks[i].prompt : prompt;
    }
    return OZ_OK;
}

/* ---- the plan ---- */

static enum oz_status plan_request(struct job *job, const struct oz_pipeline_options *how,
                                   struct oz_error *err)
{
    const struct oz_engine_options *e = job->engine;
    enum oz_keep keep;
    OZ_TRY(oz_keep_parse(&keep, e->keep, err));
    OZ_TRY(oz_pipeline_open(&job->pipeline, job->path, how, err));
    OZ_TRY(oz_api_check_moe(job->pipeline, e, err));
    OZ_TRY(oz_pipeline_assign(job->pipeline, job->dev, job->request, keep, e->allow_unmatched != 0,
                              err));
    const struct oz_plan_args args = {.pipeline = job->pipeline,
                                      .dev = job->dev,
                                      .request = job->request,
                                      .tasks = job->tasks,
                                      .task_count = job->task_count,
                                      .max_batch = e->max_batch};
    return oz_plan_make(&job->plan, &args, err);
}

static enum oz_status make(struct job *job, struct oz_error *err)
{
    const struct oz_engine_options *e = job->engine;
    OZ_TRY(read_tasks(job, err));
    OZ_TRY(oz_api_read_request(&job->request, e, err));
    OZ_TRY(oz_pool_create(&job->pool, e->threads, err));
    uint32_t flags;
    OZ_TRY(oz_api_device_flags(&flags, &job->linear_backend, e, err));
    flags |= OZ_DEVICE_PLAN_ONLY;
    OZ_TRY(oz_device_open(&job->dev, e->device != NULL ? e->device : "cpu", flags, job->pool, err));
    OZ_TRY(oz_model_find(e->model, &job->path, err));
    struct oz_pipeline_options how;
    OZ_TRY(oz_api_pipeline_options(&how, &job->load_format, e, err));
    if (job->options->fit_bytes == 0) {
        return plan_request(job, &how, err);
    }
    const struct oz_plan_fit_args args = {.folder = job->path,
                                          .how = &how,
                                          .dev = job->dev,
                                          .tasks = job->tasks,
                                          .task_count = job->task_count,
                                          .max_batch = e->max_batch,
                                          .limit = job->options->fit_bytes};
    const char *by = job->options->fit_by;
    OZ_TRY(by != NULL && by[0] != '\0' ? oz_plan_make_fit_by(&job->plan, &job->fit, &job->pipeline,
                                                             &job->request, by, &args, err)
                                       : oz_plan_make_fit(&job->plan, &job->fit, &job->pipeline,
                                                          &job->request, &args, err));
    return oz_api_check_moe(job->pipeline, e, err);
}

static enum oz_status print(const struct job *job, oz_write_fn write, void *ctx,
                            struct oz_error *err)
{
    const struct oz_plan_fit *fit = job->options->fit_bytes > 0 ? &job->fit : NULL;
    struct oz_buf b;
    enum oz_status status = OZ_OK;
    oz_buf_init(&b, MAX_TEXT_BYTES);
    if (job->options->json) {
        oz_plan_json(&job->plan, fit, &b);
    } else {
        oz_plan_print(&job->plan, fit, job->options->tensors != 0, &b);
        oz_api_replace_controls(&b);
    }
    if (b.status != OZ_OK) {
        status = OZ_FAIL(err, b.status, "The plan of %s is too large.", job->path);
    } else if (write(ctx, b.data, b.bytes) != 0) {
        status = OZ_FAIL(err, OZ_ERR_IO, "The plan could not be written.");
    }
    oz_buf_deinit(&b);
    return status;
}

enum oz_status oz_model_plan(const struct oz_engine_options *engine,
                             const struct oz_plan_options *options, oz_write_fn write, void *ctx,
                             struct oz_error *err)
{
    struct oz_engine_options e;
    struct oz_plan_options o = {0};
    if (options != NULL) {
        OZ_TRY(oz_api_copy_options(&o, sizeof o, options, "plan options", err));
    }
    OZ_TRY(check_fit(engine, &o, err));
    OZ_TRY(oz_api_engine_options(&e, engine, err));
    struct job job = {.engine = &e, .options = &o};
    uint64_t log = e.log != NULL ? oz_log_set(e.log, e.log_ctx) : 0;
    enum oz_status status = make(&job, err);
    if (status == OZ_OK) {
        job.plan.linear_backend = job.linear_backend;
        job.plan.load_format = job.load_format;
        status = print(&job, write, ctx, err);
    }
    oz_plan_deinit(&job.plan);
    oz_plan_fit_deinit(&job.fit);
    oz_pipeline_close(&job.pipeline);
    oz_request_destroy(&job.request);
    oz_device_close(&job.dev);
    oz_pool_destroy(&job.pool);
    oz_free(job.tasks);
    oz_free(job.path);
    if (e.log != NULL) {
        oz_log_unset(log);
    }
    return status;
}
