/*
 * pipe/filling.h: what random parameters are filled with, in models that are written (random_model.h)
 * and in those that are opened without weights (--load-format dummy). All are bf16.
 *  - weights of linears and convolutions: N(0, 1) / sqrt(fan-in), where the fan-in of a causal 3-D
 *    convolution leaves its temporal taps out, since a single frame meets only the last one; experts as
 *    linears;
 *  - embeddings: N(0, 1); norm weights (gamma): 1; biases: 0.02 N(0, 1).
 * So activations stay of order one at any width and depth: what a norm or an input of variance one
 * feeds comes out with variance one; silu and gelu make it 0.36 and 0.43; modulation, behind two
 * silus, comes out at about 0.2, so that a gated branch adds a few hundredths to the residual's
 * variance.
 */
#ifndef OZ_PIPE_FILLING_H
#define OZ_PIPE_FILLING_H

#include <ounce/status.h>
#include <stdint.h>

#include "ckpt/table.h"
#include "ckpt/writer.h"
#include "num/noise.h"
#include "quant/layer.h"

#define OZ_FILLING_SEED \
    42 /* of dummy weights, and of `ounce random-model` unless asked otherwise */

struct oz_filling oz_filling_normal(int64_t fan_in);
struct oz_filling oz_filling_bias(void);
struct oz_filling oz_filling_ones(void);

/* The tensor of a row of a layer table, as a file would hold it, and its filling. The name is the row's. */
void oz_filling_of_row(const struct oz_layer *row, struct oz_ckpt_spec *spec,
                       struct oz_filling *filling);

/* A checkpoint without files for a component's table: it has a tensor for each row, drawn when it is
 * read. OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_filling_open(struct oz_ckpt **out, const struct oz_layer_table *table,
                                           const char *component, struct oz_error *err);

#endif
