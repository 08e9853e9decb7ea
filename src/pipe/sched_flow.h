/*
 * pipe/sched_flow.h: the noise schedule of rectified-flow models, diffusers'
 * FlowMatchEulerDiscreteScheduler. Owns the schedule's numbers; the step itself
 * (x += (sigma[i + 1] - sigma[i]) v) is the operator sched_step.
 *
 * Arithmetic is numpy's of the reference: uniform points in f64, then everything in f32 with each
 * constant rounded to f32 first.
 */
#ifndef OZ_PIPE_SCHED_FLOW_H
#define OZ_PIPE_SCHED_FLOW_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

struct oz_json;

enum oz_time_shift {
    OZ_TIME_SHIFT_EXPONENTIAL, /* s = e^mu / (e^mu + 1/s - 1) */
    OZ_TIME_SHIFT_LINEAR,      /* s = mu / (mu + 1/s - 1) */
};

struct oz_sched_flow_config {
    int32_t num_train_timesteps;
    bool use_dynamic_shifting; /* shift by mu, which grows with the picture; else by `shift` */
    enum oz_time_shift time_shift;
    double shift; /* s = shift s / (1 + (shift - 1) s) */
    double base_shift, max_shift;
    int32_t base_image_seq_len, max_image_seq_len;
    double shift_terminal; /* stretched so that the last sigma before 0 is this; 0: not */
};

/*
 * Reads a scheduler_config.json (`name` is its path, for messages). OZ_ERR_FORMAT: wrong types or
 * values. OZ_ERR_UNSUPPORTED: another class, or a key that changes the schedule and is not
 * implemented (the message names it). Unknown keys are logged. Null and false mean that a key is not in use.
 */
OZ_MUST_USE enum oz_status oz_sched_flow_config_read(struct oz_sched_flow_config *c,
                                                     const struct oz_json *root, const char *name,
                                                     struct oz_error *err);

/*
 * Lays the members of an object over a config that has been read. As strict as reading and more so,
 * for these members are a user's: a key that is not known is OZ_ERR_ARG with the nearest one, and so
 * is an object without members; null switches shift_terminal off and is refused elsewhere.
 */
OZ_MUST_USE enum oz_status oz_sched_flow_config_override(struct oz_sched_flow_config *c,
                                                         const struct oz_json *root,
                                                         const char *name, struct oz_error *err);

/* The few-step recipe of the Lightning adapters: constant shift 3, no terminal stretch. */
void oz_sched_flow_set_lightning(struct oz_sched_flow_config *c);

/* The shift for a picture of so many tokens: linear between the two anchors and beyond them. */
double oz_sched_flow_mu(const struct oz_sched_flow_config *c, int64_t image_tokens);

/*
 * sigmas[0 .. steps], falling from 1, the last one 0. One step gives [1, 0]. image_tokens counts
 * the noise picture only, no reference pictures. OZ_ERR_ARG: steps < 1, image_tokens < 1, or a
 * schedule that does not fall (f32 cannot hold so strong a shift).
 */
OZ_MUST_USE enum oz_status oz_sched_flow_sigmas(const struct oz_sched_flow_config *c,
                                                int64_t image_tokens, int32_t steps, float *sigmas,
                                                struct oz_error *err);

/* The timestep that belongs to a sigma, as the reference lists it. */
static inline float oz_sched_flow_timestep(const struct oz_sched_flow_config *c, float sigma)
{
    return sigma * (float)c->num_train_timesteps;
}

/* What the transformer is told: the timestep over 1000, whatever the scheduler counts to. */
static inline float oz_sched_flow_model_time(const struct oz_sched_flow_config *c, float sigma)
{
    return sigma * ((float)c->num_train_timesteps / 1000.0F);
}

#endif
