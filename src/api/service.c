/* Many callers, one model. */
#define OZ_UNSTABLE
#include "api/engine.h"
#include "base/error.h"

void oz_service_options_init(struct oz_service_options *options, size_t struct_size)
{
    const struct oz_service_options none = {0};
    oz_api_fill(options, struct_size, &none, sizeof none);
}

void oz_job_options_init(struct oz_job_options *options, size_t struct_size)
{
    const struct oz_job_options none = {0};
    oz_api_fill(options, struct_size, &none, sizeof none);
}

static enum oz_status not_yet(struct oz_error *err)
{
    return OZ_FAIL(err, OZ_ERR_UNSUPPORTED, "Serving does not work yet.");
}

enum oz_status oz_service_open(struct oz_service **out, struct oz_engine *engine,
                               const struct oz_service_options *options, struct oz_error *err)
{
    (void)engine;
    (void)options;
    *out = NULL;
    return not_yet(err);
}

void oz_service_close(struct oz_service **service)
{
    (void)service;
}

enum oz_status oz_service_submit(struct oz_service *service,
                                 const struct oz_image_request *requests, int32_t count,
                                 const struct oz_job_options *options, uint64_t *ids,
                                 struct oz_error *err)
{
    (void)service;
    (void)requests;
    (void)count;
    (void)options;
    (void)ids;
    return not_yet(err);
}

enum oz_status oz_service_status(struct oz_service *service, uint64_t id,
                                 struct oz_job_status *status, struct oz_error *err)
{
    (void)service;
    (void)id;
    (void)status;
    return not_yet(err);
}

enum oz_status oz_service_cancel(struct oz_service *service, uint64_t id, struct oz_error *err)
{
    (void)service;
    (void)id;
    return not_yet(err);
}

enum oz_status oz_service_wait(struct oz_service *service, uint64_t id, double seconds,
                               struct oz_error *err)
{
    (void)service;
    (void)id;
    (void)seconds;
    return not_yet(err);
}

enum oz_status oz_service_take(struct oz_service *service, uint64_t id, struct oz_image **out,
                               struct oz_error *err)
{
    (void)service;
    (void)id;
    *out = NULL;
    return not_yet(err);
}

enum oz_status oz_service_preview(struct oz_service *service, uint64_t id, struct oz_image **out,
                                  int32_t *number, struct oz_error *err)
{
    (void)service;
    (void)id;
    *out = NULL;
    *number = 0;
    return not_yet(err);
}

enum oz_status oz_service_stats_read(struct oz_service *service, struct oz_service_stats *stats,
                                     struct oz_error *err)
{
    (void)service;
    (void)stats;
    return not_yet(err);
}
