/* plan/describe.h: a plan for people and for programs. */
#ifndef OZ_PLAN_DESCRIBE_H
#define OZ_PLAN_DESCRIBE_H

#include <stdbool.h>

#include "base/buf.h"
#include "plan/fit.h"
#include "plan/plan.h"

/* A table. Layers that differ in the number of their block alone are one line, unless `tensors`;
 * fit NULL: nothing was fitted. */
void oz_plan_print(const struct oz_plan *plan, const struct oz_plan_fit *fit, bool tensors,
                   struct oz_buf *out);

/* One JSON document with every layer and the whole read schedule. */
void oz_plan_json(const struct oz_plan *plan, const struct oz_plan_fit *fit, struct oz_buf *out);

/* "mxfp8", "mxfp4, mxfp8 in some steps"; "none" where the weight is as stored. In both forms. */
void oz_plan_acts(const struct oz_plan_layer *layer, struct oz_buf *out);

#endif
