/*
 * study/models.h: variants of a model against a reference: each draws the same pictures from the same
 * first latents, by the same scheduler, in the same execution mode; what differs is measured on
 * predictions, latents and pictures, beside times, memory and bytes. Variants are loaded one after the
 * other, and what is compared with lies in a scratch file: memory does not grow with their number.
 */
#ifndef OZ_STUDY_MODELS_H
#define OZ_STUDY_MODELS_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "study/compare.h"
#include "study/metrics.h"
#include "study/role_errors.h"
#include "study/scratch.h"
#include "study/variant.h"

/* What a picture is against the reference's. Of the reference itself only times and hashes are set. */
struct oz_model_picture {
    bool done;
    struct oz_distance bytes;  /* 8-bit RGB; data range 255 */
    struct oz_distance floats; /* before rounding; data range 1 */
    double ssim, ssim_uniform, ssim_float;
    struct oz_distance prediction; /* the first step's conditional velocity */
    struct oz_distance early;      /* latents after five steps (or after all, if they are fewer) */
    struct oz_distance latents;    /* after the last step */
    struct oz_distance trajectory; /* after all steps together */
    double *step_relative_l2;      /* [steps]; borrowed from the result */
    uint64_t trajectory_hash, picture_hash;
    double text_s, denoise_s, decode_s; /* medians over the measured runs */
};

/* A variant's results. */
struct oz_model_result {
    struct oz_variant asked; /* borrowed */
    uint64_t fingerprint;    /* of all that its results depend on */
    enum oz_status status;   /* why it failed; OZ_OK otherwise */
    char *error;             /* the message */
    bool opened;             /* what follows is known */
    char *summary;
    double load_s;
    struct oz_variant_bytes bytes;
    struct oz_dispatch dispatch;
    bool dispatched;                   /* `dispatch` is known */
    struct oz_role_errors roles;       /* of the transformer's weights */
    struct oz_model_picture *pictures; /* [tasks] */
    double *steps;                     /* [tasks][steps] */
    int32_t done;                      /* pictures */
    bool resumed;                      /* some are from an earlier run */
    /* sums over those that are done */
    struct oz_figures all, mean; /* of bytes, as in a comparison of files */
    struct oz_metrics floats, prediction, early, latents, trajectory;
    double ssim_float;
    int32_t identical, worst;
    double text_s, denoise_s, decode_s, total_s; /* medians over pictures, in seconds a picture */
};

/* Least values and largest ratios that are asked; negative: none. */
struct oz_model_limits {
    double min_psnr_db, min_ssim, min_cosine; /* means over a candidate's pictures */
    double max_memory_ratio, max_time_ratio;  /* over the reference's */
    bool different;                           /* no candidate may equal the reference */
};

struct oz_model_args {
    struct oz_variant_setting how;
    struct oz_variant reference;
    const struct oz_variant *candidates;
    int32_t count;
    const struct oz_task
        *tasks; /* as asked: nothing is resolved; all of one size and step number */
    int32_t task_count;
    int32_t warmup_runs, measure_runs;
    const char *output_json; /* NULL: none. Partial results are kept in it, and taken from it */
    const char *save_folder; /* pictures: <folder>/<label>/image_<i>.png; NULL: none */
    bool keep_pictures;      /* in the scratch file, for reports and sheets */
    struct oz_model_limits limits;
    oz_progress_fn progress;
    void *progress_ctx;
    const char *version;
};

/* The whole. Owned; oz_model_comparison_close. */
struct oz_model_comparison {
    const struct oz_model_args *args; /* borrowed */
    char *model_name;
    struct oz_task *tasks; /* resolved; texts are owned */
    struct oz_trajectory_shape shape;
    const char *tier; /* of the device */
    bool f32_math;
    int32_t threads;
    uint64_t fingerprint; /* of what all variants share */
    struct oz_model_result reference, *candidates;
    bool complete;
    struct oz_scratch scratch;
    struct oz_dispatch_idle idle; /* layers that the reference did not need */
    /* inside */
    int64_t steps_done, steps_total;
    double saved_s;
};

/*
 * Runs it. A candidate that fails is recorded and the others go on; *out is whole then, and the return
 * value is OZ_OK: oz_model_comparison_judge says what failed. After OZ_ERR_CANCELLED, and after errors of
 * the outputs (OZ_ERR_IO), what was finished is in args->output_json, marked "complete": false, and the
 * same call goes on from there; *out is NULL. Errors of the reference are the caller's.
 */
OZ_MUST_USE enum oz_status oz_model_comparison_run(struct oz_model_comparison **out,
                                                   const struct oz_model_args *args,
                                                   struct oz_error *err);
void oz_model_comparison_close(struct oz_model_comparison **c);

/* OZ_OK, or the first failure of a candidate, else OZ_ERR_THRESHOLD: who misses what, layers that did
 * not run as planned included. */
OZ_MUST_USE enum oz_status oz_model_comparison_judge(const struct oz_model_comparison *c,
                                                     struct oz_error *err);
/* What a candidate misses, appended as sentences; false: nothing. */
bool oz_model_misses(const struct oz_model_comparison *c, const struct oz_model_result *r,
                     struct oz_buf *why);

void oz_model_comparison_print(const struct oz_model_comparison *c, struct oz_buf *b);
void oz_model_comparison_json(const struct oz_model_comparison *c, struct oz_buf *b);

/* The picture of a task as bytes [height, width, 3], from the scratch file; variant -1: the reference. */
OZ_MUST_USE enum oz_status oz_model_comparison_picture(const struct oz_model_comparison *c,
                                                       int32_t variant, int32_t task, uint8_t *rgb,
                                                       struct oz_error *err);

/* ---- between the files of this folder ---- */

/* The fingerprints of all variants; tasks are resolved. */
void oz_model_comparison_stamp(struct oz_model_comparison *c);
/* Sums of what is done. */
void oz_model_result_sum(struct oz_model_result *r, int32_t tasks);
/* Takes over what an earlier document of the same fingerprints holds; a file that is not there or is
 * another's changes nothing (the log says so). OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_model_comparison_resume(struct oz_model_comparison *c,
                                                      struct oz_error *err);
/* "<folder>/<label>/image_<i>.png" (oz_free), or NULL without memory. */
char *oz_model_picture_path(const struct oz_model_comparison *c, const struct oz_model_result *r,
                            int32_t task);

#endif
