/* cpu/plan.h: what the CPU backend decides about a parameter. */
#ifndef OZ_CPU_PLAN_H
#define OZ_CPU_PLAN_H

#include "dev/ops.h"

/* act_support, plan_param and pack_band of the operator table. */
struct oz_act_support oz_cpu_act_support(const struct oz_device *dev);
OZ_MUST_USE enum oz_status oz_cpu_plan_param(struct oz_device *dev, const struct oz_param *param,
                                             const struct oz_plan_request *request,
                                             struct oz_plan_answer *answer, struct oz_error *err);
OZ_MUST_USE enum oz_status oz_cpu_pack_band(struct oz_device *dev, struct oz_queue *queue,
                                            struct oz_param *param, int64_t slice, int64_t row0,
                                            int64_t rows, const struct oz_weight *band,
                                            struct oz_error *err);

#endif
