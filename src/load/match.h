/*
 * load/match.h: a layer table against a checkpoint, headers only: which tensor feeds which row,
 * which is ignored by which rule, and what is left over on either side. Nothing is silent: a load
 * checks the match, inspect and plan print it.
 */
#ifndef OZ_LOAD_MATCH_H
#define OZ_LOAD_MATCH_H

#include <ounce/status.h>
#include <stdint.h>

#include "ckpt/table.h"
#include "quant/dialect/dialect.h"
#include "quant/layer.h"

struct oz_match {
    const struct oz_ckpt *ckpt;           /* borrowed */
    const struct oz_layer_table *table;   /* borrowed */
    int64_t *row_tensor;                  /* [rows]: tensor index, or -1 */
    int32_t *tensor_row;                  /* [tensors]: first row that consumes it, or -1 */
    const struct oz_ignore **tensor_rule; /* [tensors]: rule that ignores it, or NULL */
    const struct oz_stored *stored;       /* borrowed; NULL: the checkpoint is plain */
};

/* Matches; finding nothing is no failure. `stored` is what the checkpoint holds quantized (borrowed;
 * NULL: nothing): the row of such a weight is fed by the tensor of its codes, and consumes those of its
 * other planes. OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_match_create(struct oz_match **out, const struct oz_ckpt *ckpt,
                                           const struct oz_layer_table *table,
                                           const struct oz_stored *stored, struct oz_error *err);
void oz_match_destroy(struct oz_match **match);

/* The planes of a row that the file holds quantized; NULL: it is plain. */
const struct oz_stored_weight *oz_match_stored(const struct oz_match *m, int32_t row);

/* Bytes of all tensors that feed a row; 0 without. */
int64_t oz_match_row_bytes(const struct oz_match *m, int32_t row);

/* Does the file's tensor have the shape that the row asks for? */
bool oz_match_shape_ok(const struct oz_layer *row, const struct oz_tensor_view *t);

/* Fails with OZ_ERR_FORMAT naming every missing and every unexpected tensor and every wrong shape;
 * `where` (a path) begins the message. Lists too long for it go to the log, topic "load". */
OZ_MUST_USE enum oz_status oz_match_check(const struct oz_match *m, const char *where,
                                          struct oz_error *err);

#endif
