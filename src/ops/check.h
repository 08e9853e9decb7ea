/*
 * ops/check.h: the shapes that each operator asks for. Each function returns what is wrong, as a
 * phrase, or NULL. They look at shapes only, so that they hold while measuring. Internal to src/ops.
 */
#ifndef OZ_OPS_CHECK_H
#define OZ_OPS_CHECK_H

#include "dev/ops.h"

const char *oz_check_embed(const struct oz_embed_args *a);
const char *oz_check_linear(const struct oz_linear_args *a);
const char *oz_check_route(const struct oz_route_args *a);
const char *oz_check_experts(const struct oz_experts_args *a);
const char *oz_check_attention(const struct oz_attention_args *a);
const char *oz_check_norm_mod(const struct oz_norm_mod_args *a);
const char *oz_check_qk_norm_rope(const struct oz_qk_norm_rope_args *a);
const char *oz_check_act_quant(const struct oz_act_quant_args *a);
const char *oz_check_conv(const struct oz_conv_args *a);
const char *oz_check_resample(const struct oz_resample_args *a);
const char *oz_check_time_embed(const struct oz_time_embed_args *a);
const char *oz_check_patch(const struct oz_patch_args *a);
const char *oz_check_unpatch(const struct oz_unpatch_args *a);
const char *oz_check_cfg_combine(const struct oz_cfg_combine_args *a);
const char *oz_check_sched_step(const struct oz_sched_step_args *a);
const char *oz_check_sample(const struct oz_sample_args *a);

#endif
