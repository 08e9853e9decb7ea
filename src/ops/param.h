/* ops/param.h: parameters between the layer table, which declares them, and the operators. */
#ifndef OZ_OPS_PARAM_H
#define OZ_OPS_PARAM_H

#include <stdbool.h>

#include "dev/ops.h"
#include "quant/layer.h"

/* Sets name, rank and shape of every parameter that the table binds as a whole, so that forwards
 * can be measured before anything is loaded. Builders call it after oz_layer_table_finish. */
void oz_params_describe(const struct oz_layer_table *t);

/* Is the parameter part of the model (declared, and not absent as an optional one)? */
static inline bool oz_param_exists(const struct oz_param *p)
{
    return p != NULL && p->name != NULL;
}

static inline const struct oz_param *oz_param_or_null(const struct oz_param *p)
{
    return oz_param_exists(p) ? p : NULL;
}

#endif
