/*
 * cpu/qgemm_tiles.h: products of quantized weights over tiles (cpu/tiles.h). s8 rows by s8 weights are
 * summed as integers. Everything else is multiplied in bf16: codes, and codes times such scales of groups as
 * keep them exact in bf16: e8m0, powers of two; e4m3 over e2m1, at most six bits. Groups with other scales
 * (128 of K that share an f32, 512 of the dual scale) have partial sums, c = fma(partial x_scale, w_scale,
 * c) in the order of K. What spans the whole row or column comes at the end.
 */
#ifndef OZ_CPU_QGEMM_TILES_H
#define OZ_CPU_QGEMM_TILES_H

#include "cpu/qgemm.h"
#include "cpu/tiles.h"

/* Of K that share scales which are not folded into codes; 0: none; -1: rows and weight disagree. */
int64_t oz_qtiles_group(const struct oz_act_spec *x, const struct oz_qlayout *l);

/* The level of a row's scales that is not folded and spans groups, or -1. */
int oz_qtiles_row_level(const struct oz_act_spec *x);

/* As oz_qgemm_decline, for kernels over tiles. */
const char *oz_qtiles_decline(const struct oz_qgemm_kernel *k, const struct oz_act_spec *x,
                              const struct oz_qlayout *l);

/* As those of cpu/qgemm.h, which pass on to them. */
size_t oz_qtiles_scratch(const struct oz_device *dev, const struct oz_linear_args *a,
                         const struct oz_cpu_kernel *k);
void oz_qtiles_run(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                   const struct oz_cpu_kernel *k);

#endif
