/*
 * ounce/service.h: many callers, one model. Not stable yet: programs define OZ_UNSTABLE and include
 * <ounce/ounce.h>, which includes this file; its rules hold here too.
 *
 * A service owns a thread that denoises the pictures of many callers together. They join and leave
 * between steps, of mixed sizes, step counts and guidance. A picture's bytes are those that
 * oz_image_generate gives for the same request, whoever else is served.
 *
 *     struct oz_service_options options;
 *     struct oz_service *service;
 *     uint64_t id;
 *
 *     oz_service_options_default(&options);
 *     oz_service_open(&service, engine, &options, &err);
 *     oz_service_submit(service, &request, 1, NULL, &id, &err);    // from any thread
 *     oz_service_wait(service, id, -1, &err);
 *     oz_service_take(service, id, &image, &err);
 *     oz_service_close(&service);
 *
 * All functions but open and close may be called from any thread at any time; close when no other call
 * is under way.
 */
#ifndef OUNCE_SERVICE_H
#define OUNCE_SERVICE_H

#include <ounce/ounce.h>

#ifdef __cplusplus
extern "C" {
#endif

struct oz_service;

enum oz_job_state {
    OZ_JOB_QUEUED = 1, /* waits; oz_job_status.position says how long the queue before it is */
    OZ_JOB_TEXT,       /* its prompts are being encoded */
    OZ_JOB_STEPS,      /* is being denoised */
    OZ_JOB_DECODE,     /* its picture is being decoded */
    OZ_JOB_DONE,       /* oz_service_take gives the picture */
    OZ_JOB_FAILED,     /* oz_service_take gives the error */
    OZ_JOB_CANCELLED,  /* oz_service_take gives OZ_ERR_CANCELLED */
};

struct oz_service_options {
    size_t struct_size;
    int32_t
        max_num_seqs; /* pictures denoised together at most, 1 to 1024; 0: the engine's max_batch */
    int32_t max_queue;  /* pictures that wait at most, beyond those that run; 0: 64 */
    int32_t max_ended;  /* ended jobs that are kept; then the oldest is forgotten; 0: 64 */
    int64_t max_pixels; /* width x height of a picture at most; 0: 1,048,576 */

    /* Bytes for running, beyond the weights and the pictures that wait to be taken; 0: what is
     * available on the device when the service opens. A picture joins when what it needs (step, plan,
     * its own, measured for those that run with it) fits; one that could not even run alone is refused
     * at once. */
    int64_t max_memory_bytes;

    /* Told of every change of a job's state, step or preview: from the service's thread, or from within
     * the call that made it (submit, cancel, close). Must return soon, must not call the service, and
     * may be called from several threads at once. By then the job may have gone on. NULL: none. */
    void (*changed)(void *ctx, uint64_t job);
    void *changed_ctx;
};
OZ_API void oz_service_options_init(struct oz_service_options *options, size_t struct_size);
#define oz_service_options_default(options) oz_service_options_init((options), sizeof *(options))

/*
 * Starts serving. The engine is the service's until it is closed, and must outlive it: meanwhile
 * oz_image_generate and a second service are refused with OZ_ERR_BUSY, and its progress callback is
 * not called. `options` may be NULL.
 * OZ_ERR_ARG, OZ_ERR_BUSY, OZ_ERR_NOMEM (also: no thread could be started).
 */
OZ_API OZ_MUST_USE enum oz_status oz_service_open(struct oz_service **out, struct oz_engine *engine,
                                                  const struct oz_service_options *options,
                                                  struct oz_error *err);
/* Cancels what waits and runs (calls of oz_service_wait return first), and frees what was not taken.
 * oz_engine_stats then counts what was served. */
OZ_API void oz_service_close(struct oz_service **service);

struct oz_job_options {
    size_t struct_size;
    const char *client;     /* clients are served in turn, jobs of one client in order; NULL: "" */
    int32_t preview_every;  /* steps between previews; 0: none */
    double timeout_seconds; /* from now until it is done; then it fails with OZ_ERR_CANCELLED. 0:
                               never */
};
OZ_API void oz_job_options_init(struct oz_job_options *options, size_t struct_size);
#define oz_job_options_default(options) oz_job_options_init((options), sizeof *(options))

/*
 * Checks `count` requests as oz_image_check does, and queues each as a job of its own: all of them or
 * none. ids[0 .. count) name them; never 0. `options` may be NULL.
 * OZ_ERR_ARG: a request is wrong, or has more than max_pixels; OZ_ERR_NOMEM: one could never run here
 * (says what it takes and what there is); OZ_ERR_BUSY: the queue has no room for all of them (says how
 * long it is).
 */
OZ_API OZ_MUST_USE enum oz_status oz_service_submit(struct oz_service *service,
                                                    const struct oz_image_request *requests,
                                                    int32_t count,
                                                    const struct oz_job_options *options,
                                                    uint64_t *ids, struct oz_error *err);

struct oz_job_status {
    size_t struct_size; /* set before the call */
    enum oz_job_state state;
    int32_t position;       /* in the queue, from 1: next; 0: does not wait */
    int32_t step, steps;    /* done, and all */
    int32_t preview;        /* number of the newest preview, from 1; 0: none */
    int32_t width, height;  /* of the picture */
    uint64_t seed;          /* of the request */
    double queued_seconds;  /* that it has waited */
    double running_seconds; /* since it began, until now or its end */
    double seconds_left;    /* estimate until it is done, from measured steps; < 0: unknown */
};
/* OZ_ERR_ARG: no such job (never was, was taken, or is forgotten). */
OZ_API OZ_MUST_USE enum oz_status oz_service_status(struct oz_service *service, uint64_t id,
                                                    struct oz_job_status *status,
                                                    struct oz_error *err);

/* Ends a job wherever it is: its state is OZ_JOB_CANCELLED at once. Work on it stops at the next
 * operator when it is alone (within 0.1 s, or one operator if that takes longer), else with the step.
 * One that has ended stays as it is. OZ_ERR_ARG: no such job. */
OZ_API OZ_MUST_USE enum oz_status oz_service_cancel(struct oz_service *service, uint64_t id,
                                                    struct oz_error *err);

/* Waits until the job has ended or so many seconds have passed (negative: no limit), which is no error:
 * oz_service_status tells. OZ_ERR_ARG: no such job, or it went while it was waited for. */
OZ_API OZ_MUST_USE enum oz_status oz_service_wait(struct oz_service *service, uint64_t id,
                                                  double seconds, struct oz_error *err);

/* The picture of a job that has ended (yours), or its error. The job is forgotten then.
 * OZ_ERR_ARG: no such job; OZ_ERR_BUSY: it has not ended; OZ_ERR_CANCELLED: it was cancelled, or took
 * longer than its timeout; else why it failed. */
OZ_API OZ_MUST_USE enum oz_status oz_service_take(struct oz_service *service, uint64_t id,
                                                  struct oz_image **out, struct oz_error *err);

/* A rough picture of a job under way (yours): its latents as they are, averaged to at most 16 cells a
 * side, decoded. *out NULL with OZ_OK: none yet, or it has been taken with the job. *number: as
 * oz_job_status.preview. OZ_ERR_ARG: no such job; OZ_ERR_NOMEM. */
OZ_API OZ_MUST_USE enum oz_status oz_service_preview(struct oz_service *service, uint64_t id,
                                                     struct oz_image **out, int32_t *number,
                                                     struct oz_error *err);

/* Of the histogram of step times. The last one has no upper bound. */
#define OZ_SERVICE_BUCKETS 16

struct oz_service_stats {
    size_t struct_size; /* set before the call */
    /* Pictures: let in; and of these how they ended; and not let in, for the queue or for memory. */
    int64_t submitted, done, failed, cancelled, refused;
    int32_t queued, running, max_num_seqs, max_queue;
    int64_t steps; /* of the batch */
    int64_t
        step_pictures; /* pictures in them, summed: the fill is step_pictures / (steps x max_num_seqs) */
    double step_seconds, text_seconds, decode_seconds, preview_seconds;
    /* Bytes: what is held now, the most that was held, and what may be. Plan: the modulation table and
     * the composition. */
    int64_t step_bytes, plan_bytes, sequence_bytes;
    int64_t peak_bytes, limit_bytes; /* limit 0: unknown */
    double
        step_bound[OZ_SERVICE_BUCKETS]; /* seconds; upper bounds, inclusive; the last is infinite */
    int64_t step_count[OZ_SERVICE_BUCKETS]; /* steps in each, not cumulative */
};
OZ_API OZ_MUST_USE enum oz_status oz_service_stats_read(struct oz_service *service,
                                                        struct oz_service_stats *stats,
                                                        struct oz_error *err);

/* ---- pictures as files in memory ---- */

enum oz_image_format { OZ_IMAGE_PNG = 1, OZ_IMAGE_JPEG, OZ_IMAGE_WEBP };

struct oz_encode_options {
    size_t struct_size;
    enum oz_image_format format; /* default OZ_IMAGE_PNG */
    int32_t quality; /* 1 to 100; 0: 90 for JPEG, 85 for WebP. Not for PNG, which loses nothing */

    /* Nonzero: the request that made it (oz_image_metadata) is left out. Else PNG has it as the text
     * "ounce", JPEG as a comment (unless it is longer than the 65,533 bytes of one). WebP never has it. */
    int32_t no_metadata;
};
OZ_API void oz_encode_options_init(struct oz_encode_options *options, size_t struct_size);
#define oz_encode_options_default(options) oz_encode_options_init((options), sizeof *(options))

/*
 * Writes a picture as a file through `write`, in one or more pieces. `options` may be NULL.
 * OZ_ERR_ARG: a bad format or quality, or a side that the format does not have (JPEG 65,500, WebP
 * 16,383); OZ_ERR_UNSUPPORTED: this build lacks the format (says which package it was configured
 * without); OZ_ERR_IO: `write` stopped; OZ_ERR_NOMEM.
 */
OZ_API OZ_MUST_USE enum oz_status oz_image_encode(const struct oz_image *image,
                                                  const struct oz_encode_options *options,
                                                  oz_write_fn write, void *ctx,
                                                  struct oz_error *err);

#ifdef __cplusplus
}
#endif
#endif
