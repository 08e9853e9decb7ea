/*
 * cpu/stage.h: outputs in formats that a kernel does not write itself. The kernel writes f32 rows into
 * scratch, and they are quantized from there as act_quant would: a linear's in bands that a cache holds,
 * unless a scale spans more than a row. A kernel that writes codes itself (struct oz_cpu_kernel, codes)
 * is given the real output. So every operator whose output may
 * feed a quantized linear (embed, linear, experts, attention, norm_mod) writes any format on every
 * tier.
 */
#ifndef OZ_CPU_STAGE_H
#define OZ_CPU_STAGE_H

#include "dev/ops.h"

/* Why rows in this format are neither written nor read here, or NULL. */
const char *oz_stage_reject(const struct oz_act_spec *spec);

/* scratch_bytes and the members of the operator table, for any operator. */
size_t oz_stage_scratch(const struct oz_device *dev, enum oz_op op, const void *args);
OZ_MUST_USE enum oz_status oz_stage_run(const struct oz_op_ctx *ctx, enum oz_op op,
                                        const void *args);

#endif
