/* api/engine.h: what the public handles are inside. Internal to src/api. */
#ifndef OZ_API_ENGINE_H
#define OZ_API_ENGINE_H

#include <ounce/ounce.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/pool.h"
#include "dev/device.h"
#include "ops/trace.h"
#include "pipe/load_format.h"
#include "pipe/pipeline.h"
#include "pipe/task.h"

struct oz_engine {
    struct oz_pool *pool;
    struct oz_device *dev;
    struct oz_pipeline *pipeline;
    struct oz_trace *trace;
    int32_t max_batch;
    char quantization[64]; /* for metadata: the method, "config", or "" */
    char *
        additions; /* for metadata: ,"loras":..,"scheduler_config":..,"load_format":..; "" without any */
    uint64_t log_number; /* of oz_log_set */
    oz_progress_fn progress;
    void *progress_ctx;
    pthread_mutex_t lock; /* of what follows, which other threads may read */
    struct oz_stats stats;
    bool serving; /* it is a service's */
};

struct oz_image {
    int32_t width, height;
    uint8_t *pixels; /* [height, width, 3] */
    float *floats;   /* [3, height, width] */
    char *metadata;  /* JSON; "" for none */
};

/* Copies a caller's versioned struct over one that holds defaults. OZ_ERR_ARG when its struct_size
 * was never set. */
OZ_MUST_USE enum oz_status oz_api_copy_options(void *dst, size_t dst_bytes, const void *src,
                                               const char *what, struct oz_error *err);

struct oz_request;

/* The request for quantization in an engine's options; *out NULL when there is none. */
OZ_MUST_USE enum oz_status oz_api_read_request(struct oz_request **out,
                                               const struct oz_engine_options *o,
                                               struct oz_error *err);

/* How an engine's options ask for a pipeline to be opened; strings are borrowed. */
OZ_MUST_USE enum oz_status oz_api_pipeline_options(struct oz_pipeline_options *how,
                                                   const struct oz_load_format **format,
                                                   const struct oz_engine_options *o,
                                                   struct oz_error *err);

/* An engine's options over their defaults, checked. */
OZ_MUST_USE enum oz_status oz_api_engine_options(struct oz_engine_options *out,
                                                 const struct oz_engine_options *options,
                                                 struct oz_error *err);

/* ---- inspect_file.c ---- */

/* Is that a lone checkpoint by its name: a .safetensors or .gguf file, or an index? */
bool oz_api_is_checkpoint(const char *path);
/* oz_model_inspect of it. */
OZ_MUST_USE enum oz_status oz_api_inspect_file(const char *path,
                                               const struct oz_inspect_options *options,
                                               oz_write_fn write, void *ctx, struct oz_error *err);

struct oz_task;

/* Request i of a caller's array of versioned structs, as it stands: nothing is resolved. */
OZ_MUST_USE enum oz_status oz_api_read_task(const struct oz_image_request *requests, int32_t i,
                                            struct oz_task *task, struct oz_error *err);

/* All requests of a caller's array (at least one) with defaults filled in and bounds checked; tasks may be
 * NULL. */
OZ_MUST_USE enum oz_status oz_api_resolve(const struct oz_engine *engine,
                                          const struct oz_image_request *requests, int32_t count,
                                          struct oz_task *tasks, struct oz_error *err);

/* The image of a finished picture, with its metadata; `picture` is its own after success. */
OZ_MUST_USE enum oz_status oz_api_wrap(struct oz_image **out, const struct oz_engine *engine,
                                       const struct oz_task *task, float *picture,
                                       struct oz_error *err);

/* An engine that serves draws for nobody else: OZ_ERR_BUSY when it does already. */
OZ_MUST_USE enum oz_status oz_api_claim(struct oz_engine *engine, struct oz_error *err);
void oz_api_release(struct oz_engine *engine);
OZ_MUST_USE enum oz_status oz_api_check_free(struct oz_engine *engine, struct oz_error *err);

struct oz_linear_backend;

/* Flags of oz_device_open that an engine's options ask for, and their linear backend. */
OZ_MUST_USE enum oz_status oz_api_device_flags(uint32_t *flags,
                                               const struct oz_linear_backend **backend,
                                               const struct oz_engine_options *o,
                                               struct oz_error *err);

/* OZ_ERR_ARG: a backend for experts is asked for, and the model has none. */
OZ_MUST_USE enum oz_status oz_api_check_moe(const struct oz_pipeline *p,
                                            const struct oz_engine_options *o,
                                            struct oz_error *err);

/* All requests of a caller's array; *tasks is the caller's to oz_free, after failures too. */
OZ_MUST_USE enum oz_status oz_api_read_tasks(const struct oz_image_request *requests, int32_t count,
                                             struct oz_task **tasks, struct oz_error *err);

/* For studies: an engine's options that ask for nothing that variants are about; its pool and device. */
OZ_MUST_USE enum oz_status oz_api_check_study_engine(const struct oz_engine_options *e,
                                                     struct oz_error *err);
OZ_MUST_USE enum oz_status oz_api_open_study_device(const struct oz_engine_options *e,
                                                    struct oz_pool **pool, struct oz_device **dev,
                                                    struct oz_error *err);

/* Names in a file may hold control characters, which a terminal would obey: they become '?'. JSON
 * escapes them. */
struct oz_buf;
void oz_api_replace_controls(struct oz_buf *b);

/* Copies what the caller's struct has room for; its struct_size, set before, stays. OZ_ERR_ARG. */
OZ_MUST_USE enum oz_status oz_api_tell(void *dst, const void *src, size_t src_bytes,
                                       const char *what, struct oz_error *err);

/* Fills as much of a caller's struct as it has room for, with `defaults` and then zeroes. */
void oz_api_fill(void *dst, size_t dst_bytes, const void *defaults, size_t bytes);

/* OZ_ERR_ARG when max_header_bytes is out of range. */
OZ_MUST_USE enum oz_status oz_api_check_header_limit(int64_t bytes, struct oz_error *err);

/* OZ_ERR_ARG: a number of adapters without a list of them. */
OZ_MUST_USE enum oz_status oz_api_check_loras(const char *const *loras, int32_t count,
                                              struct oz_error *err);

/* What fills the pictures of a sheet, row by row: images that are the caller's to destroy, after failures
 * too. */
typedef enum oz_status (*oz_api_images_fn)(const void *ctx, struct oz_image **images,
                                           struct oz_error *err);

/* All of them on one, so many in a row. OZ_ERR_ARG: more than a sheet can hold. */
OZ_MUST_USE enum oz_status oz_api_sheet(struct oz_image **out, int64_t rows, int32_t columns,
                                        oz_api_images_fn read, const void *ctx,
                                        struct oz_error *err);

/* Hands a document over: "The <what> <is> too large." and "The <what> could not be written." are its
 * failures ("results", "are"). */
OZ_MUST_USE enum oz_status oz_api_write(const struct oz_buf *b, const char *what, const char *is,
                                        oz_write_fn write, void *ctx, struct oz_error *err);

/* An image of that size with metadata; takes `floats` (may be NULL: then white). On failure floats
 * stay the caller's. */
OZ_MUST_USE enum oz_status oz_api_image_create(struct oz_image **out, int32_t width, int32_t height,
                                               float *floats, const char *metadata,
                                               struct oz_error *err);

#endif
