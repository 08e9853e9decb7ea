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

#include "num/inline.h"

#define OZ_NOISE_NUMBERS 65536 /* half of them drawn, the others their negatives */

/* How a tensor is filled: N(constant, scale^2). */
struct oz_filling {
    float constant, scale;
};

#define OZ_NOISE_STRIDE UINT64_C(0x9E3779B97F4A7C15) /* of splitmix64 */

/* What splitmix64 makes of a state that has been advanced. */
OZ_INLINE uint64_t oz_noise_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Elements 4 word .. 4 word + 3 of a tensor, the first in the lowest bits. */
OZ_INLINE uint64_t oz_noise_four(const uint16_t *numbers, uint64_t state, uint64_t word)
{
    uint64_t bits = oz_noise_mix(state + (word + 1) * OZ_NOISE_STRIDE);
    return numbers[bits & 0xFFFF] | (uint64_t)numbers[bits >> 16 & 0xFFFF] << 16 |
           (uint64_t)numbers[bits >> 32 & 0xFFFF] << 32 | (uint64_t)numbers[bits >> 48] << 48;
}

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
