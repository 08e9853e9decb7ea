/*
 * Values for tests that need no file: a hash fills every parameter of a layer table and every
 * input, so that tiny models of any family can be compared with figures that the field's own code
 * gave for the same values.
 *
 * val(i, j): x = i * 0x9E3779B9 + j * 0x85EBCA6B + 0xC2B2AE35 in 32 bits; x ^= x >> 15;
 * x *= 0x2C1B3C6D; x ^= x >> 12; x *= 0x297A2D39; x ^= x >> 15; x / 2^32 - 0.5.
 * Parameter i is the index in the byte-sorted list of all tensor names that a checkpoint would hold;
 * element j counts row-major in the file's shape. Norm weights (names that end in norm_q.weight,
 * norm_k.weight, norm_added_q.weight, norm_added_k.weight, txt_norm.weight, norm2.weight or gamma)
 * are 1 + 0.2 val; else with two dims or more 2 val / sqrt(product of dims 1..); else 0.1 val.
 */
#ifndef OZ_TESTS_FILL_H
#define OZ_TESTS_FILL_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "quant/layer.h"

double fill_value(uint32_t i, uint32_t j);

/* Input number m: 2 val(1000 + m, j). */
void fill_input(float *dst, int64_t count, uint32_t m);

/* Bytes that fill_table pushes, at most. */
size_t fill_bytes(const struct oz_layer_table *t);

/*
 * Gives every bound parameter its values as f32 planes on `memory` (host), in the layout that
 * operators read (dev/ops.h), through the rows' transforms. `extra` are the names of tensors that
 * the checkpoint would hold without a row; they count when parameters are numbered. Rows that are
 * tied to another share its planes and do not count. A parameter that rows bind in parts must have
 * its rank and shape set. Fails the running test when something does not fit.
 */
void fill_table(const struct oz_layer_table *t, const char *const *extra, size_t extra_count,
                struct oz_arena *memory);

#endif
