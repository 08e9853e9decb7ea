/*
 * pipe/convert.h: a pipeline that another toolchain has quantized, or whose files are not in the diffusers
 * layout, is made ready to be written (pipe/write.h) in a form that everybody reads. From headers alone.
 */
#ifndef OZ_PIPE_CONVERT_H
#define OZ_PIPE_CONVERT_H

#include <ounce/status.h>

#include "dev/device.h"
#include "pipe/pipeline.h"

/* What becomes of weights that the files hold quantized. */
enum oz_convert_to {
    OZ_CONVERT_BF16,  /* they are expanded */
    OZ_CONVERT_CODES, /* they keep codes and scales, in the layout that oz_pipeline_write has */
    OZ_CONVERT_COUNT
};

/* NULL: BF16. OZ_ERR_ARG lists the names. */
OZ_MUST_USE enum oz_status oz_convert_parse(enum oz_convert_to *out, const char *name,
                                            struct oz_error *err);

/*
 * Marks the components that need it, and assigns. In place of oz_pipeline_assign, on a pipeline that was
 * opened just now. With CODES, layers that no format of ours holds (integers in groups, GGUF's blocks)
 * or that are expanded while loading anyhow (rotations, low-rank branches) become BF16, too.
 * OZ_ERR_ARG: the model is plain and in the diffusers layout already; OZ_ERR_UNSUPPORTED: with CODES, a
 * layer whose scheme no format of ours holds, by name; else as oz_pipeline_assign.
 */
OZ_MUST_USE enum oz_status oz_pipeline_convert(struct oz_pipeline *p, const struct oz_device *dev,
                                               enum oz_convert_to to, struct oz_error *err);

#endif
