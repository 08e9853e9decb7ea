/*
 * num/randn.h: normally distributed numbers from a seed, the same bits as PyTorch's CPU generator
 * gives on x86 builds with AVX2: torch.randn(n, generator=torch.Generator().manual_seed(seed)).
 *
 * The bits are the same on every CPU and tier: scalar code, every fused multiply-add by fmaf().
 */
#ifndef OZ_NUM_RANDN_H
#define OZ_NUM_RANDN_H

#include <stdint.h>

/*
 * Fills out[0 .. n) with N(0, 1). Only the low 32 bits of the seed count. The numbers of a shorter
 * n are no prefix of those of a longer one (the two algorithms, below and from 16, differ, and the
 * last 16 are drawn again unless n is a multiple of 16). n <= 0 writes nothing. Does not allocate.
 */
void oz_randn(uint64_t seed, int64_t n, float *out);

#endif
