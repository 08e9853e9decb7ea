/*
 * study/fit_by.h: plan/fit.h with a result of a sensitivity study: the main model's layers give way in
 * the order that costs least error for a byte, as measured, in the schemes that were measured; the text
 * encoders' linears go to 8 and then to 4 bits only where no assignment of the main model is enough.
 */
#ifndef OZ_STUDY_FIT_BY_H
#define OZ_STUDY_FIT_BY_H

#include <ounce/status.h>

#include "plan/fit.h"

/*
 * As oz_plan_make_fit; `path` is the file of a result (`ounce compare --sensitivity --output-json`).
 * OZ_ERR_FORMAT: it is none, is not complete, or is about a model of other layers; OZ_ERR_THRESHOLD.
 */
OZ_MUST_USE enum oz_status oz_plan_make_fit_by(struct oz_plan *plan, struct oz_plan_fit *fit,
                                               struct oz_pipeline **pipeline,
                                               struct oz_request **request, const char *path,
                                               const struct oz_plan_fit_args *args,
                                               struct oz_error *err);

#endif
