/*
 * study/variant.h: one variant of a model: what is asked for, opened on a device, drawn with, and
 * everything measured on the way: times, memory, bytes, dispatch. One is open at a time, so that
 * memory does not grow with their number.
 */
#ifndef OZ_STUDY_VARIANT_H
#define OZ_STUDY_VARIANT_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "dev/device.h"
#include "pipe/generate.h"
#include "pipe/pipeline.h"
#include "pipe/task.h"
#include "quant/assign.h"
#include "quant/config.h"
#include "study/dispatch.h"

/* What is asked for. All borrowed. */
struct oz_variant {
    const char *label;        /* a file's name may be made of it */
    const char *model;        /* folder, or org/name */
    const char *quantization; /* a name, a JSON object, or a file with one; NULL: as stored */
    const char *const *ignored_layers;
    int32_t ignored_count;
    enum oz_keep keep;
    bool allow_unmatched;
};

/* How all variants of a study are opened and run. */
struct oz_variant_setting {
    struct oz_device *dev;
    int64_t max_header_bytes;
    enum oz_modulation_mode modulation;
    oz_progress_fn progress; /* of loading; NULL: none */
    void *progress_ctx;
};

/* Bytes of a variant. Resident ones: what the parameters hold, in memory or in the files' maps. */
struct oz_variant_bytes {
    int64_t disk;        /* of the components' weight files */
    int64_t resident;    /* of all components */
    int64_t transformer; /* of the transformer */
    int64_t
        transformer_modulation; /* of that: linears whose results a table per schedule replaces */
    int64_t run;                /* arenas of the run, as measured */
    int64_t peak;               /* of the process's resident set, from opening on; 0: unknown */
    bool peak_of_process;       /* the system cannot say it for the variant alone */
};

/* An open variant. Caller's storage. */
struct oz_variant_run {
    struct oz_pipeline *pipeline;
    struct oz_request *request;
    struct oz_dispatch_watch watch;
    char *summary; /* "Quantized 72 layers of types: ..." or NULL */
    double load_s;
    struct oz_variant_bytes bytes;
};

/* Opens and loads. Errors as of oz_engine_open. oz_variant_close after either. */
OZ_MUST_USE enum oz_status oz_variant_open(struct oz_variant_run *v, const struct oz_variant *asked,
                                           const struct oz_variant_setting *how,
                                           struct oz_error *err);
void oz_variant_close(struct oz_variant_run *v); /* zeroes are fine */

/* The peak of its life so far, into v->bytes. */
void oz_variant_read_peak(struct oz_variant_run *v);

/* Values of a trajectory: those of the latents, and how many steps. */
struct oz_trajectory_shape {
    int64_t values; /* tokens times channels */
    int32_t steps;
};
OZ_MUST_USE enum oz_status oz_variant_shape(const struct oz_pipeline *p, const struct oz_task *task,
                                            struct oz_trajectory_shape *shape,
                                            struct oz_error *err);

/* One picture on its way. Memory is the caller's: prediction [values], latents [steps][values]. */
struct oz_drawing {
    struct oz_trajectory_shape shape;
    float *prediction; /* the conditional velocity of the first step */
    float *latents;    /* after each step */
    float *picture;    /* [3, height, width] in 0..1; oz_free */
    double text_s, denoise_s, decode_s;
    oz_exec_watch_fn watch; /* in place of the dispatch's; NULL: that */
    void *watch_ctx;
    /* inside */
    struct oz_device *dev;
    int32_t step_predictions, step_latents;
    enum oz_status status; /* of a download */
    struct oz_error *err;
};

/* Draws a resolved task alone. OZ_ERR_INTERNAL: the latents are
 * not of the drawing's shape; errors of oz_run_generate. */
OZ_MUST_USE enum oz_status oz_variant_draw(struct oz_variant_run *v, const struct oz_task *task,
                                           struct oz_drawing *d, oz_progress_fn progress,
                                           void *progress_ctx, struct oz_error *err);

#endif
