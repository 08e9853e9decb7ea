/*
 * pipe/batcher.h: many callers, one pipeline. A thread owns the running batch; sequences join and leave
 * between its steps, clients in turn. A sequence joins when what everything takes then, by MEASURE, fits
 * the memory that there is; what could not even run alone is refused when it is submitted. A picture is
 * that of oz_run_generate, whoever else is served.
 *
 * One job's failure is its own: its text, its memory, its picture. Only a step that fails as a whole
 * ends all that were in it. Jobs end at once when they are cancelled or late; what is under way for them
 * stops at the next operator if nobody else needs it, else with the step.
 */
#ifndef OZ_PIPE_BATCHER_H
#define OZ_PIPE_BATCHER_H

#include <ounce/status.h>
#include <stdint.h>

#include "pipe/pipeline.h"
#include "pipe/task.h"

struct oz_batcher;
struct oz_trace;

/* As enum oz_job_state of ounce/service.h, in its order. */
enum oz_ticket_state {
    OZ_TICKET_QUEUED = 1,
    OZ_TICKET_TEXT,
    OZ_TICKET_STEPS,
    OZ_TICKET_DECODE,
    OZ_TICKET_DONE,
    OZ_TICKET_FAILED,
    OZ_TICKET_CANCELLED,
};

struct oz_batcher_options {
    const struct oz_pipeline *pipeline;         /* loaded */
    int32_t max_num_seqs, max_queue, max_ended; /* each at least 1 */
    int64_t max_pixels;
    int64_t max_memory_bytes; /* 0: what the device has available now */
    struct oz_trace *trace;   /* NULL: none */

    /* Makes of a picture (f32 [3, height, width], oz_free; its own after success) what oz_batcher_take
     * gives; from the batcher's thread. discard frees such a result. */
    enum oz_status (*finish)(void *ctx, const struct oz_task *task, float *picture, void **result,
                             struct oz_error *err);
    void (*discard)(void *result);
    void *finish_ctx;

    void (*changed)(void *ctx, uint64_t id); /* no lock is held. NULL: none */
    void *changed_ctx;
};

OZ_MUST_USE enum oz_status oz_batcher_open(struct oz_batcher **out,
                                           const struct oz_batcher_options *options,
                                           struct oz_error *err);
/* Ends all that waits and runs, and the thread; what has ended can still be looked at. */
void oz_batcher_stop(struct oz_batcher *b);
void oz_batcher_close(struct oz_batcher **batcher); /* stops it first */

struct oz_ticket_options {
    const char *client;
    int32_t preview_every;
    double timeout_seconds;
};

/* Queues resolved tasks, all or none. OZ_ERR_ARG, OZ_ERR_BUSY, OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_batcher_submit(struct oz_batcher *b, const struct oz_task *tasks,
                                             int32_t count, const struct oz_ticket_options *options,
                                             uint64_t *ids, struct oz_error *err);

struct oz_ticket_status {
    enum oz_ticket_state state;
    int32_t position, step, steps, preview, width, height;
    uint64_t seed;
    double queued_seconds, running_seconds, seconds_left;
};
OZ_MUST_USE enum oz_status oz_batcher_status(struct oz_batcher *b, uint64_t id,
                                             struct oz_ticket_status *status, struct oz_error *err);
OZ_MUST_USE enum oz_status oz_batcher_cancel(struct oz_batcher *b, uint64_t id,
                                             struct oz_error *err);
OZ_MUST_USE enum oz_status oz_batcher_wait(struct oz_batcher *b, uint64_t id, double seconds,
                                           struct oz_error *err);
/* What `finish` made; the job is forgotten. OZ_ERR_BUSY: it has not ended. */
OZ_MUST_USE enum oz_status oz_batcher_take(struct oz_batcher *b, uint64_t id, void **result,
                                           struct oz_error *err);
/* The newest preview: *picture fresh memory (oz_free), f32 [3, *height, *width]; NULL: none. */
OZ_MUST_USE enum oz_status oz_batcher_preview(struct oz_batcher *b, uint64_t id, float **picture,
                                              int32_t *width, int32_t *height, int32_t *number,
                                              struct oz_error *err);

#define OZ_BATCHER_BUCKETS 16
extern const double oz_batcher_bounds[OZ_BATCHER_BUCKETS]; /* seconds; the last is infinite */

struct oz_batcher_stats {
    int64_t submitted, done, failed, cancelled, refused;
    int32_t queued, running;
    int64_t steps, step_pictures;
    double step_s, text_s, decode_s, preview_s;
    size_t step_bytes, plan_bytes, sequence_bytes, peak_bytes, limit_bytes;
    int64_t step_counts[OZ_BATCHER_BUCKETS];
    uint64_t
        step_allocs; /* heap allocations of the process during steps: 0 if nobody else makes any */
};
void oz_batcher_stats(struct oz_batcher *b, struct oz_batcher_stats *stats);

#endif
