/* study/assignment_text.h: an assignment of schemes to layers as the quantization_config that asks for
 * it, short enough to paste. */
#ifndef OZ_STUDY_ASSIGNMENT_TEXT_H
#define OZ_STUDY_ASSIGNMENT_TEXT_H

#include <ounce/status.h>

#include "base/buf.h"
#include "quant/layer.h"

/*
 * {"targets": {"re:transformer_blocks[.](0|3)[.](attn[.]to_q|...)$": <value>, ...}}: a pattern for all
 * types of layers that have one value in the same blocks. values[i] is the JSON value of the table's row
 * i ("\"int8\"", or an object), compared as a text; NULL: the row stays as stored. OZ_ERR_NOMEM;
 * OZ_ERR_ARG: no row has a value.
 */
OZ_MUST_USE enum oz_status oz_assignment_text(struct oz_buf *b, const struct oz_layer_table *table,
                                              const char *const *values, struct oz_error *err);

#endif
