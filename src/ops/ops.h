/*
 * ops/ops.h: the operators that forwards call. One function for each operator of dev/ops.h, all
 * through one dispatch point (ops.c): it checks shapes, takes scratch, measures or runs, keeps time,
 * traces and dumps. Errors are sticky in the exec. The arguments' meaning is dev/ops.h's.
 */
#ifndef OZ_OPS_OPS_H
#define OZ_OPS_OPS_H

#include "dev/ops.h"
#include "ops/exec.h"

void oz_op_embed(struct oz_exec *x, const struct oz_embed_args *a);
void oz_op_linear(struct oz_exec *x, const struct oz_linear_args *a);
void oz_op_route(struct oz_exec *x, const struct oz_route_args *a);
void oz_op_experts(struct oz_exec *x, const struct oz_experts_args *a);
void oz_op_attention(struct oz_exec *x, const struct oz_attention_args *a);
void oz_op_norm_mod(struct oz_exec *x, const struct oz_norm_mod_args *a);
void oz_op_qk_norm_rope(struct oz_exec *x, const struct oz_qk_norm_rope_args *a);
void oz_op_act_quant(struct oz_exec *x, const struct oz_act_quant_args *a);
void oz_op_conv(struct oz_exec *x, const struct oz_conv_args *a);
void oz_op_resample(struct oz_exec *x, const struct oz_resample_args *a);
void oz_op_time_embed(struct oz_exec *x, const struct oz_time_embed_args *a);
void oz_op_patch(struct oz_exec *x, const struct oz_patch_args *a);
void oz_op_unpatch(struct oz_exec *x, const struct oz_unpatch_args *a);
void oz_op_cfg_combine(struct oz_exec *x, const struct oz_cfg_combine_args *a);
void oz_op_sched_step(struct oz_exec *x, const struct oz_sched_step_args *a);
void oz_op_sample(struct oz_exec *x, const struct oz_sample_args *a);

/* "linear"; "?" outside the enum. */
const char *oz_op_name(enum oz_op op);

/* What a linear wants of its input in a mode (a weight without a second mode has one); f32 when the device has no plan for it yet. */
struct oz_act_spec oz_linear_wants(const struct oz_exec *x, const struct oz_linear *w,
                                   int32_t mode);
/* The same of a convolution, which rounds rows to that format anyway. */
struct oz_act_spec oz_conv_wants(const struct oz_exec *x, const struct oz_param *w);

#endif
