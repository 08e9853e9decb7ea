/*
 * num/noise.h: normally distributed weights from a seed, each element by its place alone: any band of a
 * tensor can be made by itself, by any thread, and is the same.
 *
 * N(0, 1) are 32768 draws of num/randn.h and their negatives: exact, symmetric, up to 4.3. Element i of
 * a tensor is number (w >> 16 (i % 4)) & 0xFFFF of them, where w is the (i / 4)-th word of a splitmix64
 * sequence whose state comes from the seed and the tensor's name; times a scale, plus a constant, as
 * bf16.
 */
#ifndef OZ_NUM_NOISE_H
#define OZ_NUM_NOISE_H

#include <stdint.h>

#define OZ_NOISE_NUMBERS 65536 /* half of them drawn, the others their negatives */

/* How a tensor is filled: N(constant, scale^2). */
struct oz_filling {
    float constant, scale;
};

/* The state of a tensor's sequence: FNV-1a of its name, mixed with the seed. */
uint64_t oz_noise_state(uint64_t seed, const char *name);

/* All numbers as they stand in tensors of one filling. */
struct oz_noise_table {
    struct oz_filling filling;
    uint16_t *values; /* [OZ_NOISE_NUMBERS] */
};

/* Tables, each made when it is first asked for. Zeroes are none. */
struct oz_noise {
    float *numbers;
    struct oz_noise_table *tables;
    int32_t count, capacity;
};

/* The table of a filling, valid until oz_noise_deinit; NULL without memory. One thread at a time. */
const uint16_t *oz_noise_table(struct oz_noise *noise, struct oz_filling filling);
/* Gives back what only new tables need. */
void oz_noise_trim(struct oz_noise *noise);
void oz_noise_deinit(struct oz_noise *noise);

/* Elements [first, first + count) of a tensor as bf16, which need not be aligned; first >= 0. Any
 * thread. */
void oz_noise_fill(const uint16_t *table, uint64_t state, int64_t first, int64_t count, void *out);

#endif
