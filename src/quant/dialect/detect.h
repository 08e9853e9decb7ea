/* quant/dialect/detect.h: which toolchain quantized a component, and what says so. */
#ifndef OZ_QUANT_DIALECT_DETECT_H
#define OZ_QUANT_DIALECT_DETECT_H

#include "quant/dialect/dialect.h"

/* What was found. `q` is borrowed from the config, or from one of `owned`. */
struct oz_detected {
    const struct oz_json *q; /* NULL: the tensors alone speak */
    const char *path;        /* where it stands, for messages */
    struct oz_json *owned[2];
    char *paths[2];
};

/* Sets out->method (static; NULL: nothing is quantized) and notes what it was seen by. The result is the
 * caller's to deinit, after failures too. Errors as oz_stored_read. */
OZ_MUST_USE enum oz_status oz_detect(struct oz_detected *found, struct oz_stored *out,
                                     const struct oz_stored_input *in, struct oz_error *err);
void oz_detected_deinit(struct oz_detected *found);

#endif
