/*
 * plan/fit.h: the least that has to be given up for a model to fit into a number of bytes. Gives way in
 * a fixed order, one rung after the other, each on top of those before it:
 *   weights as they are stored;
 *   8 bits (int8; experts fp8_per_channel) for the main model's linears, keep-list conservative;
 *   the same, keep-list standard;
 *   8 bits for the text encoders;
 *   4 bits (nvfp4; experts mxfp4) for the main model, role by role: attn_qkv, expert_up, mlp_up,
 *   attn_out, expert_down, mlp_down;
 *   4 bits for the text encoders.
 * A layer whose shape a scheme does not take stays on the rung before. Rungs that change nothing are
 * left out.
 */
#ifndef OZ_PLAN_FIT_H
#define OZ_PLAN_FIT_H

#include <ounce/status.h>
#include <stdint.h>

#include "plan/plan.h"

#define OZ_PLAN_MAX_RUNGS 16

struct oz_plan_rung {
    char gives[160];   /* what this one gives up */
    int64_t need;      /* oz_plan_need with it */
    int64_t load, run; /* peaks, as in struct oz_plan_memory */
};

struct oz_plan_fit {
    int64_t limit;
    struct oz_plan_rung rungs[OZ_PLAN_MAX_RUNGS]; /* the last one fits */
    int32_t count;
    char *config; /* the quantization_config (oz_free); NULL: none is needed */
};

struct oz_plan_fit_args {
    const char *folder;
    const struct oz_pipeline_options *how;
    struct oz_device *dev; /* may be plan-only */
    const struct oz_task *tasks;
    int32_t task_count, max_batch;
    int64_t process_bytes; /* as in struct oz_plan_args */
    int64_t limit;         /* bytes for everything that oz_plan_need counts */
};

/*
 * Finds the first rung that fits. *pipeline and *request are those of the plan and the caller's to close
 * after it (oz_pipeline_close, oz_request_destroy), whatever is returned. OZ_ERR_THRESHOLD: no rung fits; the message
 * says the least that would. Errors of opening, assigning and oz_plan_make.
 */
OZ_MUST_USE enum oz_status oz_plan_make_fit(struct oz_plan *plan, struct oz_plan_fit *fit,
                                            struct oz_pipeline **pipeline,
                                            struct oz_request **request,
                                            const struct oz_plan_fit_args *args,
                                            struct oz_error *err);
void oz_plan_fit_deinit(struct oz_plan_fit *fit);

/* ---- for whoever chooses otherwise (study/fit_by.h) ---- */

/* One more rung: opens the model anew, assigned by the config, plans it, and notes what it needs. `config`
 * (oz_free; NULL: as stored) becomes fit->config. The plan, pipeline and request before go.
 * OZ_ERR_THRESHOLD: there have been OZ_PLAN_MAX_RUNGS. */
OZ_MUST_USE enum oz_status oz_plan_fit_try(struct oz_plan *plan, struct oz_plan_fit *fit,
                                           struct oz_pipeline **pipeline,
                                           struct oz_request **request, char *config,
                                           const char *gives, const struct oz_plan_fit_args *args,
                                           struct oz_error *err);
/* The text encoders' linears in 8 or 4 bits as members of a config: "text_encoder": {"targets": ...};
 * nothing where no layer takes them. OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_plan_fit_put_text(struct oz_buf *b, const struct oz_pipeline *p,
                                                int32_t bits, struct oz_error *err);
/* OZ_ERR_THRESHOLD: the least of all rungs is too much; says it. */
OZ_MUST_USE enum oz_status oz_plan_fit_fail(const struct oz_plan_fit *fit, struct oz_error *err);

#endif
