/* Many callers, one model: public structs to tickets of the batcher and back. */
#define OZ_UNSTABLE
#include <string.h>

#include "api/engine.h"
#include "base/alloc.h"
#include "base/error.h"
#include "pipe/batcher.h"
#include "pipe/task.h"

#define MAX_NUM_SEQS 1024
#define MAX_KEPT 1000000 /* of max_queue and max_ended */

_Static_assert((int)OZ_JOB_QUEUED == (int)OZ_TICKET_QUEUED &&
                   (int)OZ_JOB_TEXT == (int)OZ_TICKET_TEXT &&
                   (int)OZ_JOB_STEPS == (int)OZ_TICKET_STEPS &&
                   (int)OZ_JOB_DECODE == (int)OZ_TICKET_DECODE &&
                   (int)OZ_JOB_DONE == (int)OZ_TICKET_DONE &&
                   (int)OZ_JOB_FAILED == (int)OZ_TICKET_FAILED &&
                   (int)OZ_JOB_CANCELLED == (int)OZ_TICKET_CANCELLED,
               "the states of a job and of a ticket are the same");
_Static_assert(OZ_SERVICE_BUCKETS == OZ_BATCHER_BUCKETS, "one histogram");

struct oz_service {
    struct oz_engine *engine;
    struct oz_batcher *batcher;
    struct oz_service_options options; /* with all defaults filled in */
};

static const struct oz_service_options service_defaults = {.struct_size = sizeof service_defaults};
static const struct oz_job_options job_defaults = {.struct_size = sizeof job_defaults};

void oz_service_options_init(struct oz_service_options *options, size_t struct_size)
{
    oz_api_fill(options, struct_size, &service_defaults, sizeof service_defaults);
}

void oz_job_options_init(struct oz_job_options *options, size_t struct_size)
{
    oz_api_fill(options, struct_size, &job_defaults, sizeof job_defaults);
}

/* ---- opening ---- */

static enum oz_status check_number(const char *name, int64_t value, int64_t most,
                                   struct oz_error *err)
{
    return value >= 0 && value <= most
               ? OZ_OK
               : OZ_FAIL(err, OZ_ERR_ARG, "%s is %lld; it must lie in 1 to %lld (0: automatic).",
                         name, (long long)value, (long long)most);
}

static enum oz_status read_options(struct oz_service_options *o, const struct oz_engine *engine,
                                   const struct oz_service_options *options, struct oz_error *err)
{
    *o = service_defaults;
    if (options != NULL) {
        OZ_TRY(oz_api_copy_options(o, sizeof *o, options, "service options", err));
    }
    OZ_TRY(check_number("max_num_seqs", o->max_num_seqs, MAX_NUM_SEQS, err));
    OZ_TRY(check_number("max_queue", o->max_queue, MAX_KEPT, err));
    OZ_TRY(check_number("max_ended", o->max_ended, MAX_KEPT, err));
    OZ_TRY(check_number("max_pixels", o->max_pixels, (int64_t)OZ_TASK_MAX_SIDE * OZ_TASK_MAX_SIDE,
                        err));
    OZ_TRY(check_number("max_memory_bytes", o->max_memory_bytes, INT64_MAX, err));
    o->max_num_seqs = o->max_num_seqs > 0 ? o->max_num_seqs : engine->max_batch;
    o->max_queue = o->max_queue > 0 ? o->max_queue : 64;
    o->max_ended = o->max_ended > 0 ? o->max_ended : 64;
    o->max_pixels = o->max_pixels > 0 ? o->max_pixels : (int64_t)1 << 20;
    return OZ_OK;
}

/* A picture that is done, for oz_service_take. */
static enum oz_status finish(void *ctx, const struct oz_task *task, float *picture, void **result,
                             struct oz_error *err)
{
    const struct oz_service *s = ctx;
    struct oz_image *image;
    OZ_TRY(oz_api_wrap(&image, s->engine, task, picture, err));
    *result = image;
    return OZ_OK;
}

static void discard(void *result)
{
    struct oz_image *image = result;
    oz_image_destroy(&image);
}

static enum oz_status open_batcher(struct oz_service *s, struct oz_error *err)
{
    const struct oz_service_options *o = &s->options;
    const struct oz_batcher_options options = {.pipeline = s->engine->pipeline,
                                               .max_num_seqs = o->max_num_seqs,
                                               .max_queue = o->max_queue,
                                               .max_ended = o->max_ended,
                                               .max_pixels = o->max_pixels,
                                               .max_memory_bytes = o->max_memory_bytes,
                                               .trace = s->engine->trace,
                                               .finish = finish,
                                               .discard = discard,
                                               .finish_ctx = s,
                                               .changed = o->changed,
                                               .changed_ctx = o->changed_ctx};
    return oz_batcher_open(&s->batcher, &options, err);
}

enum oz_status oz_service_open(struct oz_service **out, struct oz_engine *engine,
                               const struct oz_service_options *options, struct oz_error *err)
{
    struct oz_service_options o;
    *out = NULL;
    OZ_TRY(read_options(&o, engine, options, err));
    OZ_TRY(oz_api_claim(engine, err));
    struct oz_service *s = oz_alloc_zero(1, sizeof *s);
    enum oz_status status = s != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "a service");
    if (status == OZ_OK) {
        s->engine = engine;
        s->options = o;
        status = open_batcher(s, err);
    }
    if (status != OZ_OK) {
        oz_api_release(engine);
        oz_free(s);
        return status;
    }
    *out = s;
    return OZ_OK;
}

void oz_service_close(struct oz_service **service)
{
    if (service == NULL || *service == NULL) {
        return;
    }
    struct oz_service *s = *service;
    struct oz_batcher_stats stats;
    oz_batcher_stop(s->batcher);
    oz_batcher_stats(s->batcher, &stats);
    oz_batcher_close(&s->batcher);
    pthread_mutex_lock(&s->engine->lock);
    struct oz_stats *e = &s->engine->stats;
    int64_t plan = (int64_t)stats.peak_bytes;
    e->text_s += stats.text_s;
    e->denoise_s += stats.step_s;
    e->decode_s += stats.decode_s;
    e->steps += stats.step_pictures;
    e->pictures += stats.done;
    e->plan_bytes = plan > e->plan_bytes ? plan : e->plan_bytes;
    pthread_mutex_unlock(&s->engine->lock);
    oz_api_release(s->engine);
    oz_free(s);
    *service = NULL;
}

/* ---- jobs ---- */

enum oz_status oz_service_submit(struct oz_service *service,
                                 const struct oz_image_request *requests, int32_t count,
                                 const struct oz_job_options *options, uint64_t *ids,
                                 struct oz_error *err)
{
    struct oz_job_options o = job_defaults;
    if (options != NULL) {
        OZ_TRY(oz_api_copy_options(&o, sizeof o, options, "job options", err));
    }
    if (count < 1 || count > service->options.max_queue + service->options.max_num_seqs) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "%d pictures at once: there must be at least one, and at most the %d that "
                       "this service holds.",
                       count, service->options.max_queue + service->options.max_num_seqs);
    }
    struct oz_task *tasks = oz_alloc_zero((size_t)count, sizeof *tasks);
    if (tasks == NULL) {
        return OZ_FAIL_NOMEM(err, "the requests");
    }
    const struct oz_ticket_options how = {.client = o.client != NULL ? o.client : "",
                                          .preview_every = o.preview_every,
                                          .timeout_seconds = o.timeout_seconds};
    enum oz_status status = oz_api_resolve(service->engine, requests, count, tasks, err);
    if (status == OZ_OK) {
        status = oz_batcher_submit(service->batcher, tasks, count, &how, ids, err);
    }
    oz_free(tasks);
    return status;
}

enum oz_status oz_service_status(struct oz_service *service, uint64_t id,
                                 struct oz_job_status *status, struct oz_error *err)
{
    struct oz_ticket_status t;
    OZ_TRY(oz_batcher_status(service->batcher, id, &t, err));
    const struct oz_job_status full = {.state = (enum oz_job_state)t.state,
                                       .position = t.position,
                                       .step = t.step,
                                       .steps = t.steps,
                                       .preview = t.preview,
                                       .width = t.width,
                                       .height = t.height,
                                       .seed = t.seed,
                                       .queued_seconds = t.queued_seconds,
                                       .running_seconds = t.running_seconds,
                                       .seconds_left = t.seconds_left};
    return oz_api_tell(status, &full, sizeof full, "job status", err);
}

enum oz_status oz_service_cancel(struct oz_service *service, uint64_t id, struct oz_error *err)
{
    return oz_batcher_cancel(service->batcher, id, err);
}

enum oz_status oz_service_wait(struct oz_service *service, uint64_t id, double seconds,
                               struct oz_error *err)
{
    return oz_batcher_wait(service->batcher, id, seconds, err);
}

enum oz_status oz_service_take(struct oz_service *service, uint64_t id, struct oz_image **out,
                               struct oz_error *err)
{
    void *result;
    *out = NULL;
    OZ_TRY(oz_batcher_take(service->batcher, id, &result, err));
    *out = result;
    return OZ_OK;
}

enum oz_status oz_service_preview(struct oz_service *service, uint64_t id, struct oz_image **out,
                                  int32_t *number, struct oz_error *err)
{
    float *picture;
    int32_t width;
    int32_t height;
    *out = NULL;
    OZ_TRY(oz_batcher_preview(service->batcher, id, &picture, &width, &height, number, err));
    if (picture == NULL) {
        return OZ_OK;
    }
    enum oz_status status = oz_api_image_create(out, width, height, picture, "", err);
    if (status != OZ_OK) {
        oz_free(picture);
    }
    return status;
}

enum oz_status oz_service_stats_read(struct oz_service *service, struct oz_service_stats *stats,
                                     struct oz_error *err)
{
    struct oz_batcher_stats b;
    oz_batcher_stats(service->batcher, &b);
    struct oz_service_stats full = {.submitted = b.submitted,
                                    .done = b.done,
                                    .failed = b.failed,
                                    .cancelled = b.cancelled,
                                    .refused = b.refused,
                                    .queued = b.queued,
                                    .running = b.running,
                                    .max_num_seqs = service->options.max_num_seqs,
                                    .max_queue = service->options.max_queue,
                                    .steps = b.steps,
                                    .step_pictures = b.step_pictures,
                                    .step_seconds = b.step_s,
                                    .text_seconds = b.text_s,
                                    .decode_seconds = b.decode_s,
                                    .preview_seconds = b.preview_s,
                                    .step_bytes = (int64_t)b.step_bytes,
                                    .plan_bytes = (int64_t)b.plan_bytes,
                                    .sequence_bytes = (int64_t)b.sequence_bytes,
                                    .peak_bytes = (int64_t)b.peak_bytes,
                                    .limit_bytes = (int64_t)b.limit_bytes};
    memcpy(full.step_bound, oz_batcher_bounds, sizeof full.step_bound);
    memcpy(full.step_count, b.step_counts, sizeof full.step_count);
    return oz_api_tell(stats, &full, sizeof full, "service stats", err);
}
