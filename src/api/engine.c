#include "api/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/names.h"
#include "dev/linear_backend.h"
#include "pipe/find.h"
#include "pipe/quantize.h"

#define MAX_METADATA_BYTES (1U << 20)

#define STRING(x) #x
#define VERSION(a, b, c) STRING(a) "." STRING(b) "." STRING(c)

const char *oz_version(void)
{
    return VERSION(OZ_VERSION_MAJOR, OZ_VERSION_MINOR, OZ_VERSION_PATCH);
}

enum oz_status oz_api_copy_options(void *dst, size_t dst_bytes, const void *src, const char *what,
                                   struct oz_error *err)
{
    size_t bytes;
    memcpy(&bytes, src, sizeof bytes);
    if (bytes < sizeof bytes) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "The %s have no struct_size: fill them with their _default macro first.",
                       what);
    }
    memcpy(dst, src, bytes < dst_bytes ? bytes : dst_bytes);
    return OZ_OK;
}

void oz_api_fill(void *dst, size_t dst_bytes, const void *defaults, size_t bytes)
{
    memset(dst, 0, dst_bytes);
    memcpy(dst, defaults, dst_bytes < bytes ? dst_bytes : bytes);
    memcpy(dst, &dst_bytes, sizeof dst_bytes);
}

enum oz_status oz_api_check_header_limit(int64_t bytes, struct oz_error *err)
{
    if (bytes < 0 || bytes > OZ_CKPT_HIGHEST_HEADER_BYTES) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "max_header_bytes is %lld; it must lie in 1 to %lld (0: %lld).",
                       (long long)bytes, (long long)OZ_CKPT_HIGHEST_HEADER_BYTES,
                       (long long)OZ_CKPT_MAX_HEADER_BYTES);
    }
    return OZ_OK;
}

enum oz_status oz_api_check_loras(const char *const *loras, int32_t count, struct oz_error *err)
{
    return count >= 0 && (count == 0 || loras != NULL)
               ? OZ_OK
               : OZ_FAIL(err, OZ_ERR_ARG, "There are %d LoRA, but no list of them.", (int)count);
}

static const struct oz_engine_options engine_defaults = {
    .struct_size = sizeof engine_defaults, .device = "cpu", .precision = OZ_PRECISION_BF16};

void oz_engine_options_init(struct oz_engine_options *options, size_t struct_size)
{
    oz_api_fill(options, struct_size, &engine_defaults, sizeof engine_defaults);
}

void oz_image_request_init(struct oz_image_request *request, size_t struct_size)
{
    const struct oz_image_request none = {0};
    oz_api_fill(request, struct_size, &none, sizeof none);
}

void oz_png_options_init(struct oz_png_options *options, size_t struct_size)
{
    const struct oz_png_options none = {0};
    oz_api_fill(options, struct_size, &none, sizeof none);
}

void oz_inspect_options_init(struct oz_inspect_options *options, size_t struct_size)
{
    const struct oz_inspect_options none = {0};
    oz_api_fill(options, struct_size, &none, sizeof none);
}

enum oz_status oz_api_write(const struct oz_buf *b, const char *what, const char *is,
                            oz_write_fn write, void *ctx, struct oz_error *err)
{
    if (b->status != OZ_OK) {
        return OZ_FAIL(err, b->status, "The %s %s too large.", what, is);
    }
    return write(ctx, b->data, b->bytes) == 0
               ? OZ_OK
               : OZ_FAIL(err, OZ_ERR_IO, "The %s could not be written.", what);
}

/* ---- opening ---- */

enum oz_status oz_api_pipeline_options(struct oz_pipeline_options *how,
                                       const struct oz_load_format **format,
                                       const struct oz_engine_options *o, struct oz_error *err)
{
    *how = (struct oz_pipeline_options){.max_header_bytes = o->max_header_bytes,
                                        .transformer = o->transformer,
                                        .loras = o->loras,
                                        .lora_count = o->lora_count,
                                        .scheduler_config = o->scheduler_config};
    OZ_TRY(oz_modulation_parse(&how->modulation, o->modulation, err));
    OZ_TRY(oz_offload_parse(&how->offload, o->offload, err));
    OZ_TRY(oz_load_format_find(format, o->load_format, err));
    how->dummy = (*format)->dummy;
    return OZ_OK;
}

static enum oz_status check_options(const struct oz_engine_options *o, struct oz_error *err)
{
    if (o->precision != 0 && o->precision != OZ_PRECISION_F32 &&
        o->precision != OZ_PRECISION_BF16) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "Precision %d does not exist; there are f32 (%d) and bf16 (%d).",
                       (int)o->precision, (int)OZ_PRECISION_F32, (int)OZ_PRECISION_BF16);
    }
    enum oz_keep keep;
    OZ_TRY(oz_keep_parse(&keep, o->keep, err));
    if ((o->quantization == NULL || o->quantization[0] == '\0') &&
        (o->quantization_config == NULL || o->quantization_config[0] == '\0') &&
        o->quantization_key_count == 0 && (keep != OZ_KEEP_STANDARD || o->allow_unmatched != 0)) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "A keep-list or unmatched patterns are chosen, but no quantization is asked "
                       "for.");
    }
    struct oz_pipeline_options how;
    const struct oz_load_format *format;
    OZ_TRY(oz_api_pipeline_options(&how, &format, o, err));
    OZ_TRY(oz_api_check_header_limit(o->max_header_bytes, err));
    OZ_TRY(oz_api_check_loras(o->loras, o->lora_count, err));
    if (o->max_batch < 0 || o->max_batch > 1024) {
        return OZ_FAIL(err, OZ_ERR_ARG, "max_batch is %d; it must lie in 1 to 1024 (0: automatic).",
                       o->max_batch);
    }
    return OZ_OK;
}

enum oz_status oz_api_engine_options(struct oz_engine_options *out,
                                     const struct oz_engine_options *options, struct oz_error *err)
{
    *out = engine_defaults;
    OZ_TRY(oz_api_copy_options(out, sizeof *out, options, "engine options", err));
    OZ_TRY(check_options(out, err));
    out->max_batch = out->max_batch > 0 ? out->max_batch : 4;
    return OZ_OK;
}

/* Every layer gets its scheme before a weight is read. */
static enum oz_status assign(struct oz_engine *e, const struct oz_engine_options *o,
                             const struct oz_request *request, struct oz_error *err)
{
    enum oz_keep keep;
    OZ_TRY(oz_keep_parse(&keep, o->keep, err));
    OZ_TRY(oz_pipeline_assign(e->pipeline, e->dev, request, keep, o->allow_unmatched != 0, err));
    oz_pipeline_log_assignments(e->pipeline, request);
    if (oz_pipeline_quantized(e->pipeline) > 0) {
        const struct oz_component_request *c = &request->components[0];
        bool named = c->component == NULL && !c->online && c->method != NULL;
        (void)snprintf(e->quantization, sizeof e->quantization, "%s",
                       named ? c->method->name : "config");
    } else if (e->pipeline->components[OZ_COMPONENT_TRANSFORMER].stored.count > 0) {
        (void)snprintf(e->quantization, sizeof e->quantization, "%s",
                       e->pipeline->components[OZ_COMPONENT_TRANSFORMER].stored.method);
    }
    return OZ_OK;
}

/* What pictures tell of adapters, the scheduler and whose kernels were asked for: as they were given. */
static enum oz_status tell_additions(struct oz_engine *e, const struct oz_engine_options *o,
                                     const struct oz_linear_backend *backend, struct oz_error *err)
{
    struct oz_buf b;
    const struct oz_lora *l = e->pipeline->components[OZ_COMPONENT_TRANSFORMER].lora;
    oz_buf_init(&b, MAX_METADATA_BYTES);
    oz_buf_puts(&b, l != NULL ? ",\"loras\":[" : "");
    for (int32_t i = 0; l != NULL && i < l->file_count; i++) {
        const char *slash = strrchr(l->files[i].path, '/');
        oz_buf_puts(&b, i > 0 ? ",{\"file\":" : "{\"file\":");
        oz_buf_json(&b, slash != NULL ? slash + 1 : l->files[i].path);
        oz_buf_puts(&b, ",\"scale\":");
        oz_buf_number(&b, l->files[i].scale);
        oz_buf_puts(&b, "}");
    }
    oz_buf_puts(&b, l != NULL ? "]" : "");
    if (o->scheduler_config != NULL && o->scheduler_config[0] != '\0') {
        oz_buf_puts(&b, ",\"scheduler_config\":");
        oz_buf_json(&b, o->scheduler_config);
    }
    if (e->pipeline->modulation->mode ==
        OZ_MODULATION_GRID) { /* the other modes are the same picture */
        oz_buf_puts(&b, ",\"modulation\":");
        oz_buf_json(&b, oz_modulation_name(e->pipeline->modulation->mode));
    }
    if (e->pipeline->dummy) {
        oz_buf_puts(&b, ",\"load_format\":\"dummy\"");
    }
    if (backend->meaning != NULL) {
        oz_buf_puts(&b, ",\"linear_backend\":");
        oz_buf_json(&b, backend->name);
    }
    e->additions = b.bytes > 0 ? oz_buf_take(&b) : oz_strdup("");
    oz_buf_deinit(&b);
    return e->additions != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "the pictures' metadata");
}

static enum oz_status open_parts(struct oz_engine *e, const struct oz_engine_options *o,
                                 const struct oz_request *request, struct oz_error *err)
{
    char *path;
    const char *trace = getenv("OUNCE_TRACE");
    OZ_TRY(oz_pool_create(&e->pool, o->threads, err));
    uint32_t flags;
    const struct oz_linear_backend *backend;
    OZ_TRY(oz_api_device_flags(&flags, &backend, o, err));
    OZ_TRY(oz_device_open(&e->dev, o->device != NULL ? o->device : "cpu", flags, e->pool, err));
    OZ_TRY(oz_model_find(o->model, &path, err));
    struct oz_pipeline_options how;
    const struct oz_load_format *format;
    enum oz_status status = oz_api_pipeline_options(&how, &format, o, err);
    if (status == OZ_OK) {
        status = oz_pipeline_open(&e->pipeline, path, &how, err);
    }
    oz_free(path);
    OZ_TRY(status);
    OZ_TRY(oz_api_check_moe(e->pipeline, o, err));
    OZ_TRY(tell_additions(e, o, backend, err));
    OZ_TRY(assign(e, o, request, err));
    OZ_TRY(oz_pipeline_load(e->pipeline, e->dev, o->progress, o->progress_ctx, err));
    if (trace != NULL && trace[0] != '\0') {
        OZ_TRY(oz_trace_create(&e->trace, trace, err));
    }
    return OZ_OK;
}

static void log_opened(const struct oz_engine *e)
{
    const struct oz_pipeline *p = e->pipeline;
    if (p->dummy) {
        oz_log(OZ_LOG_WARN, "load",
               "The weights are dummies, drawn at random: pictures are noise, times and memory are "
               "those of the real model.");
    }
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_component *c = &p->components[i];
        oz_log(OZ_LOG_INFO, "load",
               "%s: %lld tensors, %lld ignored by rule; %lld bytes mapped, %lld bytes moved.",
               c->name, (long long)c->loaded.tensors, (long long)c->loaded.ignored,
               (long long)c->loaded.mapped_bytes, (long long)c->loaded.arena_bytes);
        for (int32_t k = 0; k < oz_ckpt_stray_count(c->ckpt); k++) {
            oz_log(OZ_LOG_WARN, "load", "%s/%s is not part of the model and was not read.",
                   c->folder, oz_ckpt_stray(c->ckpt, k));
        }
    }
}

enum oz_status oz_engine_open(struct oz_engine **out, const struct oz_engine_options *options,
                              struct oz_error *err)
{
    struct oz_engine_options o;
    struct oz_request *request;
    double start = oz_clock_seconds();
    *out = NULL;
    OZ_TRY(oz_api_engine_options(&o, options, err));
    OZ_TRY(oz_api_read_request(&request, &o, err));
    struct oz_engine *e = oz_alloc_zero(1, sizeof *e);
    if (e == NULL) {
        oz_request_destroy(&request);
        return OZ_FAIL_NOMEM(err, "the engine");
    }
    pthread_mutex_init(&e->lock, NULL);
    e->log_number = oz_log_set(o.log, o.log_ctx);
    e->max_batch = o.max_batch;
    e->progress = o.progress;
    e->progress_ctx = o.progress_ctx;
    enum oz_status status = open_parts(e, &o, request, err);
    oz_request_destroy(&request);
    if (status != OZ_OK) {
        oz_engine_close(&e);
        return status;
    }
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_load_stats *l = &e->pipeline->components[i].loaded;
        e->stats.weight_bytes += l->arena_bytes + l->mapped_bytes;
    }
    e->stats.load_s = oz_clock_seconds() - start;
    log_opened(e);
    *out = e;
    return OZ_OK;
}

enum oz_status oz_api_claim(struct oz_engine *engine, struct oz_error *err)
{
    pthread_mutex_lock(&engine->lock);
    bool was = engine->serving;
    engine->serving = true;
    pthread_mutex_unlock(&engine->lock);
    return was ? oz_api_check_free(engine, err) : OZ_OK;
}

void oz_api_release(struct oz_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->serving = false;
    pthread_mutex_unlock(&engine->lock);
}

enum oz_status oz_api_check_free(struct oz_engine *engine, struct oz_error *err)
{
    pthread_mutex_lock(&engine->lock);
    bool serving = engine->serving;
    pthread_mutex_unlock(&engine->lock);
    return serving ? OZ_FAIL(err, OZ_ERR_BUSY,
                             "The engine is a service's; submit to the service, or close it first.")
                   : OZ_OK;
}

void oz_engine_close(struct oz_engine **engine)
{
    if (engine == NULL || *engine == NULL) {
        return;
    }
    struct oz_engine *e = *engine;
    struct oz_error err;
    if (oz_trace_finish(&e->trace, &err) != OZ_OK) {
        oz_log(OZ_LOG_ERROR, "trace", "%s", err.message);
    }
    oz_pipeline_close(&e->pipeline);
    oz_device_close(&e->dev);
    oz_pool_destroy(&e->pool);
    pthread_mutex_destroy(&e->lock);
    oz_free(e->additions);
    oz_log_unset(e->log_number); /* the caller may free it now */
    oz_free(e);
    *engine = NULL;
}

/* ---- telling ---- */

enum oz_status oz_api_tell(void *dst, const void *src, size_t src_bytes, const char *what,
                           struct oz_error *err)
{
    size_t bytes;
    memcpy(&bytes, dst, sizeof bytes);
    if (bytes < sizeof bytes) {
        return OZ_FAIL(err, OZ_ERR_ARG, "Set struct_size of the %s before the call.", what);
    }
    oz_api_fill(dst, bytes, src, src_bytes);
    return OZ_OK;
}

enum oz_status oz_engine_info(const struct oz_engine *engine, struct oz_model_info *info,
                              struct oz_error *err)
{
    const struct oz_pipeline *p = engine->pipeline;
    struct oz_model_info full = {.path = p->path,
                                 .name = p->name,
                                 .pipeline = p->class_name,
                                 .width = p->defaults.width,
                                 .height = p->defaults.height,
                                 .num_inference_steps = p->defaults.num_inference_steps,
                                 .true_cfg_scale = p->defaults.true_cfg_scale,
                                 .negative_prompt = p->defaults.negative_prompt,
                                 .size_multiple = oz_pipeline_size_multiple(p)};
    return oz_api_tell(info, &full, sizeof full, "model info", err);
}

enum oz_status oz_engine_stats(const struct oz_engine *engine, struct oz_stats *stats,
                               struct oz_error *err)
{
    struct oz_engine *e = (struct oz_engine *)(uintptr_t)engine;
    pthread_mutex_lock(&e->lock);
    struct oz_stats full = e->stats;
    pthread_mutex_unlock(&e->lock);
    int64_t peak = oz_memory_peak("");
    full.peak_resident_bytes = peak > 0 ? peak : 0;
    return oz_api_tell(stats, &full, sizeof full, "stats", err);
}
