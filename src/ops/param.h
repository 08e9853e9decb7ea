/* ops/param.h: parameters between the layer table, which declares them, and the operators. */
#ifndef OZ_OPS_PARAM_H
#define OZ_OPS_PARAM_H

#include <stdbool.h>

#include "dev/act_spec.h"
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

/*
 * Sets param->acts from a scheme and the side planes (smoothing, static scale) of param->weight:
 * once when it is planned, and again when the planes have data. An unloaded static scale is a
 * pointer that must not be followed. OZ_ERR_UNSUPPORTED: a static mode without a scale in the file.
 */
OZ_MUST_USE enum oz_status oz_param_set_acts(struct oz_param *p, const struct oz_scheme *scheme,
                                             struct oz_error *err);

/* The mode of this weight when the forward runs in `mode`: a weight without a second has one. */
static inline int32_t oz_param_mode(const struct oz_param *p, int32_t mode)
{
    return mode < p->act_count ? mode : 0;
}

static inline const struct oz_param *oz_param_or_null(const struct oz_param *p)
{
    return oz_param_exists(p) ? p : NULL;
}

#endif
