/* quantize.c: a model with quantized weights, written; and one that is quantized, converted. */
#define OZ_UNSTABLE
#include <ounce/ounce.h>

#include "api/engine.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "pipe/convert.h"
#include "pipe/find.h"
#include "pipe/quantize.h"
#include "pipe/write.h"

static const struct oz_quantize_options defaults = {.struct_size = sizeof defaults};
static const struct oz_convert_options convert_defaults = {.struct_size = sizeof convert_defaults};

void oz_quantize_options_init(struct oz_quantize_options *options, size_t struct_size)
{
    oz_api_fill(options, struct_size, &defaults, sizeof defaults);
}

void oz_convert_options_init(struct oz_convert_options *options, size_t struct_size)
{
    oz_api_fill(options, struct_size, &convert_defaults, sizeof convert_defaults);
}

/* What both do. */
struct work {
    struct oz_quantize_options options;
    bool converts;
    enum oz_convert_to to;
};

struct parts {
    struct oz_pool *pool;
    struct oz_device *dev;
    struct oz_pipeline *pipeline;
    struct oz_request *request;
};

static enum oz_status open_parts(struct parts *p, const struct work *work, struct oz_error *err)
{
    const struct oz_quantize_options *o = &work->options;
    char *path;
    enum oz_keep keep;
    const struct oz_engine_options words = {.quantization = o->quantization,
                                            .quantization_config = o->quantization_config,
                                            .quantization_keys = o->quantization_keys,
                                            .quantization_key_count = o->quantization_key_count,
                                            .ignored_layers = o->ignored_layers,
                                            .ignored_layer_count = o->ignored_layer_count};
    OZ_TRY(oz_keep_parse(&keep, o->keep, err));
    OZ_TRY(oz_api_read_request(&p->request, &words, err));
    OZ_TRY(oz_pool_create(&p->pool, o->threads, err));
    OZ_TRY(oz_device_open(&p->dev, "cpu", 0, p->pool, err));
    OZ_TRY(oz_model_find(o->model, &path, err));
    const struct oz_pipeline_options how = {.max_header_bytes = o->max_header_bytes,
                                            .transformer = o->transformer,
                                            .loras = o->loras,
                                            .lora_count = o->lora_count};
    enum oz_status status = oz_pipeline_open(&p->pipeline, path, &how, err);
    oz_free(path);
    OZ_TRY(status);
    if (work->converts) {
        return oz_pipeline_convert(p->pipeline, p->dev, work->to, err);
    }
    OZ_TRY(oz_pipeline_assign(p->pipeline, p->dev, p->request, keep, o->allow_unmatched != 0, err));
    oz_pipeline_log_assignments(p->pipeline, p->request);
    return OZ_OK;
}

static enum oz_status write_model(const char *folder, const struct work *work, struct oz_error *err)
{
    const struct oz_quantize_options o = work->options;
    struct parts p = {0};
    OZ_TRY(oz_api_check_header_limit(o.max_header_bytes, err));
    OZ_TRY(oz_api_check_loras(o.loras, o.lora_count, err));
    if (folder == NULL || folder[0] == '\0') {
        return OZ_FAIL(err, OZ_ERR_ARG, "A folder to write the model to is missing.");
    }
    if (o.max_shard_bytes < 0) {
        return OZ_FAIL(err, OZ_ERR_ARG, "max_shard_bytes is %lld; it must not be negative.",
                       (long long)o.max_shard_bytes);
    }
    uint64_t log = oz_log_set(o.log, o.log_ctx);
    enum oz_status status = open_parts(&p, work, err);
    if (status == OZ_OK) {
        const struct oz_write_options how = {.output = folder,
                                             .overwrite = o.overwrite != 0,
                                             .max_shard_bytes = o.max_shard_bytes,
                                             .made_by = oz_version(),
                                             .dev = p.dev,
                                             .progress = o.progress,
                                             .progress_ctx = o.progress_ctx};
        status = oz_pipeline_write(p.pipeline, &how, err);
    }
    oz_request_destroy(&p.request);
    oz_pipeline_close(&p.pipeline);
    oz_device_close(&p.dev);
    oz_pool_destroy(&p.pool);
    oz_log_unset(log);
    return status;
}

enum oz_status oz_model_quantize(const char *folder, const struct oz_quantize_options *options,
                                 struct oz_error *err)
{
    struct work work = {.options = defaults};
    if (options != NULL) {
        OZ_TRY(oz_api_copy_options(&work.options, sizeof work.options, options, "quantize options",
                                   err));
    }
    return write_model(folder, &work, err);
}

enum oz_status oz_model_convert(const char *folder, const struct oz_convert_options *options,
                                struct oz_error *err)
{
    struct oz_convert_options o = convert_defaults;
    struct work work = {.options = defaults, .converts = true};
    if (options != NULL) {
        OZ_TRY(oz_api_copy_options(&o, sizeof o, options, "convert options", err));
    }
    OZ_TRY(oz_convert_parse(&work.to, o.to, err));
    work.options.model = o.model;
    work.options.transformer = o.transformer;
    work.options.threads = o.threads;
    work.options.max_header_bytes = o.max_header_bytes;
    work.options.max_shard_bytes = o.max_shard_bytes;
    work.options.overwrite = o.overwrite;
    work.options.log = o.log;
    work.options.log_ctx = o.log_ctx;
    work.options.progress = o.progress;
    work.options.progress_ctx = o.progress_ctx;
    return write_model(folder, &work, err);
}
