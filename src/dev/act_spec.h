/* dev/act_spec.h: the formats of activation modes, for backends and for what plans them. */
#ifndef OZ_DEV_ACT_SPEC_H
#define OZ_DEV_ACT_SPEC_H

#include "dev/ops.h"

/*
 * The spec of an activation mode: element type, scale planes, groups (src/quant/scheme.h, num/act.h).
 * rule: of MX exponents; others ignore it. smooth: device f32 [cols] that the rows are divided by
 * first, or NULL. static_scale: device f32 [1], for OZ_ACT_FP8_STATIC only, which needs it.
 */
struct oz_act_spec oz_act_spec_of(enum oz_act_mode mode, enum oz_exponent_rule rule,
                                  const float *smooth, const float *static_scale);

#endif
