/*
 * pipe/quantize.h: a request for quantization meets an opened pipeline: each component gets its
 * assignment (quant/assign.h), from configs and headers alone.
 */
#ifndef OZ_PIPE_QUANTIZE_H
#define OZ_PIPE_QUANTIZE_H

#include <ounce/status.h>
#include <stdbool.h>

#include "pipe/pipeline.h"
#include "quant/assign.h"

/*
 * Decides for every component, with the activations that `dev` (which may be plan-only) has kernels for;
 * it is the device that the pipeline will be planned and loaded on. `request` may be NULL and may go afterwards. The assignments are
 * p->components[i].assignment, in memory of the pipeline. Called once for a pipeline, before it is
 * loaded. Errors of oz_request_check_components and oz_assign; OZ_ERR_ARG when nothing at all would
 * be quantized.
 */
OZ_MUST_USE enum oz_status oz_pipeline_assign(struct oz_pipeline *p, const struct oz_device *dev,
                                              const struct oz_request *request, enum oz_keep keep,
                                              bool allow_unmatched, struct oz_error *err);

/* Rows of all components that the assignments quantize. */
int64_t oz_pipeline_quantized(const struct oz_pipeline *p);

/* Tells the log: a summary line for each component with quantized layers, notes as warnings. */
void oz_pipeline_log_assignments(const struct oz_pipeline *p, const struct oz_request *request);

#endif
