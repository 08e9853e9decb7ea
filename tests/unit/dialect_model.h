/*
 * A component that a toolchain has quantized, for tests: a folder with its weights and config, and a file
 * of what its layers are worth, whose tensors are the rows of the layer table: "x.weight" [N, K] a linear
 * layer, "x.bias" [N] a vector. Opening reads headers; loading goes through the loader to a device whose
 * operators read planes.
 */
#ifndef OZ_TESTS_UNIT_DIALECT_MODEL_H
#define OZ_TESTS_UNIT_DIALECT_MODEL_H

#include <ounce/status.h>
#include <stdbool.h>

#include "dev/ops.h"
#include "load/load.h"
#include "quant/dialect/dialect.h"

#define DIALECT_MAX_ROWS 24

struct dialect_model {
    struct oz_ckpt *ckpt, *expected;
    struct oz_arena host, stored_memory, model;
    struct oz_layer_table table;
    struct oz_param params[DIALECT_MAX_ROWS];
    struct oz_stored stored;
    struct oz_match *match;
    struct oz_pool *pool;
    struct oz_device *dev;
    int64_t staging_bytes; /* that the load predicted */
};

/* The weights at `weights` (a folder, or a file, which then has no config), and what they are worth.
 * The model is the caller's to close, after failures too. */
OZ_MUST_USE enum oz_status dialect_open(struct dialect_model *m, const char *weights,
                                        const char *expected, struct oz_error *err);
OZ_MUST_USE enum oz_status dialect_load(struct dialect_model *m, struct oz_error *err);
void dialect_close(struct dialect_model *m);

/* The same in two steps, for one who opens many weights against one expectation: what they are worth, and
 * its rows; then weights, which are closed before the next. Loading uses m->dev where it is there. */
OZ_MUST_USE enum oz_status dialect_expect(struct dialect_model *m, const char *expected,
                                          struct oz_error *err);
OZ_MUST_USE enum oz_status dialect_open_weights(struct dialect_model *m, const char *weights,
                                                struct oz_error *err);
void dialect_close_weights(struct dialect_model *m);
/* m->dev: one that reads planes. */
OZ_MUST_USE enum oz_status dialect_open_device(struct dialect_model *m, struct oz_error *err);

/* Compares all rows: in units of the last place of the dtype of the expected tensor, as many as its
 * metadata allow ("units"). Returns the first row that differs, NULL: none; `worst` (may be NULL) in
 * units. */
const char *dialect_compare(const struct dialect_model *m, double *worst);

#endif
