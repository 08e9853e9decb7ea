/*
 * num/group.h: how a group of numbers becomes codes under one scale. Weights (codec_*.c) and
 * activations (act.c) share these; nothing else computes a scale or a code.
 *
 * Scales multiply: value = code * scale. Products and quotients are f32, each rounded once.
 *
 * What is not finite. Callers that refuse it ask oz_group_bad first. Where it is let through, it
 * takes no part in a scale, and makes a NaN of the smallest thing that can hold one: its own code
 * in e4m3; else the group's scale (so the group decodes to NaN).
 */
#ifndef OZ_NUM_GROUP_H
#define OZ_NUM_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "num/codec.h"
#include "num/float4.h"
#include "num/float8.h"
#include "num/integer.h"

/* Compiled for a device too, by units that include group.c itself. */
#if defined(__CUDACC__)
#define OZ_GROUP_FN static __host__ __device__
#else
#define OZ_GROUP_FN
#endif

/* Index of the first NaN or infinity in x[n]; -1 without. */
OZ_GROUP_FN int64_t oz_group_bad(const float *x, int64_t n);

/* Largest finite |x|, 0 without one. *bad (never cleared) is set when a NaN or infinity is met. */
OZ_GROUP_FN float oz_group_amax(const float *x, int64_t n, bool *bad);

/* ---- FP8 (e4m3) under an f32 scale ---- */

/* amax / 448, at least the smallest f32 when amax is not zero. vLLM, fp8 per tensor. */
OZ_GROUP_FN float oz_fp8_tensor_scale(float amax);
/* max(amax / 448, 1 / (448 * 512)). vLLM, weights per channel and activations per token. */
OZ_GROUP_FN float oz_fp8_channel_scale(float amax);
/* max(amax, 1e-4) / 448. vLLM, weights per 128x128. */
OZ_GROUP_FN float oz_fp8_block_scale(float amax);
/* max(amax, 1e-10) / 448. vLLM, activations per 1x128. */
OZ_GROUP_FN float oz_fp8_group_scale(float amax);

/* codes[i] = e4m3(x[i] * (1 / scale)); zeros where scale is 0; x / scale where the inverse
 * overflows. A NaN or infinity becomes the NaN code. */
OZ_GROUP_FN void oz_fp8_multiply(const float *x, int64_t n, float scale, uint8_t *codes);
/* codes[i] = e4m3(x[i] / scale), scale > 0. */
OZ_GROUP_FN void oz_fp8_divide(const float *x, int64_t n, float scale, uint8_t *codes);

/* ---- INT8, symmetric, under an f32 scale ---- */

/* The scale amax / 127 (NaN if bad), and codes[i] = s8(x[i] * (127 / amax)); a zero group has
 * scale 0 and zero codes. vLLM's native kernel and vLLM-Omni's int8. */
OZ_GROUP_FN float oz_int8_encode(const float *x, int64_t n, int8_t *codes);
/* One of those codes, from the group's amax. */
OZ_GROUP_FN int8_t oz_int8_code(float x, float amax);

/* The same in bf16 arithmetic: scale = bf16(amax / 127), codes = s8(bf16(x / scale)), x rounded to
 * bf16 first. vLLM's int8_per_channel_weight_only. */
OZ_GROUP_FN float oz_int8_bf16_encode(const float *x, int64_t n, int8_t *codes);

/* ---- MX: e4m3 or e2m1 under a power of two ---- */

/*
 * Whether the rule is defined for elements of that dtype (F8_E4M3, F4). DEFAULT is CEIL for e4m3
 * and EVEN for e2m1; ALG2 is defined for e2m1 alone.
 */
OZ_GROUP_FN bool oz_mx_rule_known(enum oz_dtype element, enum oz_exponent_rule rule);

/*
 * The e8m0 code of a group's scale from amax = m 2^e, 1 <= m < 2, with emax 8 for e4m3 and 2 for
 * e2m1. Exponent before the clamp to [-127, 127]:
 *   CEIL   ceil(log2(amax / largest)) = e - emax, + 1 if m > 1.75 (e4m3), 1.5 (e2m1)
 *   EVEN   amax rounded to the element's mantissa, half up: e - emax, + 1 if m >= 1.9375 (e4m3),
 *          1.75 (e2m1)
 *   FLOOR  e - emax
 *   ALG2   ceil(log2(amax / 7.25)) = e - 2, + 1 if m > 1.8125
 * Exact: decided on the bits, no logarithm is taken. amax 0 gives code 0.
 */
OZ_GROUP_FN uint8_t oz_mx_scale(enum oz_dtype element, enum oz_exponent_rule rule, float amax);

/* Elements of a group under e8m0 code `scale` (not NaN): x * 2^(127 - scale), rounded, saturating.
 * The e2m1 form packs nibbles from the start of a byte; n may be odd, then the last high nibble is
 * 0. */
OZ_GROUP_FN void oz_mxfp8_elements(const float *x, int64_t n, uint8_t scale, uint8_t *codes);
OZ_GROUP_FN void oz_mxfp4_elements(const float *x, int64_t n, uint8_t scale, uint8_t *codes);

/* A whole group: returns the scale's code. */
OZ_GROUP_FN uint8_t oz_mxfp8_encode(const float *x, int64_t n, enum oz_exponent_rule rule,
                                    uint8_t *codes);
OZ_GROUP_FN uint8_t oz_mxfp4_encode(const float *x, int64_t n, enum oz_exponent_rule rule,
                                    uint8_t *codes);

/* ---- dual scale: MXFP4 groups of 32 under an f32 of 512 ---- */

/* amax / 6, 1 for zeros. */
OZ_GROUP_FN float oz_dual_scale(float amax);

/* The group's part of what follows: the code of its scale, from its amax. */
OZ_GROUP_FN uint8_t oz_dual_group_scale(float amax, float dual);

/*
 * A group of 32 under `dual`: t = (amax / 6) / dual, scale exponent ceil(log2 t), elements
 * e2m1((x / dual) * 2^-exponent). t <= 1 where dual comes from a group that holds x: the largest
 * element is 6 whatever the rounding of x / dual.
 */
OZ_GROUP_FN uint8_t oz_dual_encode(const float *x, int64_t n, float dual, uint8_t *codes);

/* ---- NVFP4: e2m1 under e4m3 of 16 under f32 ---- */

/* The global factor 2688 / max(amax, 1e-8); the stored second scale is 1 / it. */
OZ_GROUP_FN float oz_nvfp4_global(float amax);

/* A factor whose reciprocal is that second scale (finite, positive, normal), for makers that store the
 * factor: the one nearest to 1 / scale2. 0 where there is none; there always is for what
 * oz_nvfp4_global made. */
OZ_GROUP_FN float oz_nvfp4_global_of(float scale2);

/*
 * A group of 16 (or fewer) under the global factor g: S = e4m3(g * (amax / 6)), elements
 * e2m1(x * (1 / (S * (1 / g)))), zeros (signs kept) where S is 0. Returns S's code. vLLM's formula
 * with exact division where its kernel takes approximate reciprocals.
 */
OZ_GROUP_FN uint8_t oz_nvfp4_encode(const float *x, int64_t n, float g, uint8_t *codes);

#endif
