/*
 * ops/trace.h: OUNCE_TRACE=file.json: every operator with its place and time, in the trace-event
 * format that browsers' trace viewers open. Events go into a buffer that is taken at the start; when
 * it is full, later ones are counted and left out.
 */
#ifndef OZ_OPS_TRACE_H
#define OZ_OPS_TRACE_H

#include <ounce/status.h>

#include "dev/ops.h"

struct oz_trace;

/* A trace that will go to `path`, which is written once, empty, to see that it can be. OZ_ERR_NOMEM,
 * OZ_ERR_IO. */
OZ_MUST_USE enum oz_status oz_trace_create(struct oz_trace **out, const char *path,
                                           struct oz_error *err);
/* Adds an event; times in seconds of base/clock.h. The label is copied (its end, when long). */
void oz_trace_add(struct oz_trace *t, enum oz_op op, const char *label, int64_t rows, int64_t cols,
                  double begin, double end);
/* Writes the file and frees the trace. NULL is fine. */
OZ_MUST_USE enum oz_status oz_trace_finish(struct oz_trace **trace, struct oz_error *err);

#endif
