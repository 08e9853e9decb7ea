/*
 * pipe/generate.h: from tasks to pictures: text, denoising in a ragged batch, decoding. First
 * everything is measured, then memory is taken once, then it runs.
 */
#ifndef OZ_PIPE_GENERATE_H
#define OZ_PIPE_GENERATE_H

#include <ounce/status.h>
#include <stdint.h>

#include "pipe/batch.h"
#include "pipe/pipeline.h"
#include "pipe/task.h"

struct oz_trace;

/* What the run needs beyond the model; exact, from MEASURE. */
struct oz_run_bytes {
    size_t step;      /* scratch: the largest of text, modulation, any composition, decoding */
    size_t plan;      /* modulation table and the largest composition */
    size_t sequences; /* the most that is joined at once */
    size_t pictures;  /* host: all finished pictures as f32, and the pixels of one more */
    /* Where modulation weights do not stay (pipe/modulation.h): the table, which stays for later calls,
     * and what making it takes before the rest is taken; else 0. */
    size_t table, making;
};

struct oz_run_stats {
    double text_s, denoise_s, decode_s;
    double upload_s; /* within those: of offloaded weights, stage by stage */
    int64_t steps, pictures;
    struct oz_run_bytes measured, used; /* used: the arenas' peaks */
    uint64_t loop_allocs;               /* heap allocations inside the step loop: 0 */
};

/* For parity tests; all members but ctx may be NULL. */
struct oz_run_hooks {
    struct oz_batch_hooks batch;
    void (*text)(void *ctx, const struct oz_sequence *s, int branch);
    void *ctx;
};

struct oz_run {
    const struct oz_pipeline *pipeline; /* loaded */
    int32_t max_batch;                  /* sequences denoised together, >= 1 */
    oz_progress_fn progress;            /* NULL: none */
    void *progress_ctx;
    struct oz_trace *trace;           /* NULL: none */
    const struct oz_run_hooks *hooks; /* NULL: none */
    oz_exec_dump_fn dump;             /* NULL: none */
    void *dump_ctx;
    oz_exec_watch_fn watch; /* NULL: none */
    void *watch_ctx;
};

/*
 * Draws tasks[0 .. count), all resolved (pipe/task.h). pictures[i] becomes fresh memory (oz_free),
 * f32 [3, height, width] in 0..1; on failure all are NULL. A picture does not depend on the others,
 * nor on max_batch. OZ_ERR_NOMEM says how much was needed; OZ_ERR_CANCELLED.
 */
OZ_MUST_USE enum oz_status oz_run_generate(const struct oz_run *run, const struct oz_task *tasks,
                                           int32_t count, float **pictures,
                                           struct oz_run_stats *stats, struct oz_error *err);

/*
 * What oz_run_generate would take for these tasks, from shapes alone: the pipeline has been planned
 * (oz_pipeline_plan) or loaded, and its device may be plan-only. OZ_ERR_NOMEM, OZ_ERR_ARG.
 */
OZ_MUST_USE enum oz_status oz_run_measure(const struct oz_run *run, const struct oz_task *tasks,
                                          int32_t count, struct oz_run_bytes *bytes,
                                          struct oz_error *err);

#endif
