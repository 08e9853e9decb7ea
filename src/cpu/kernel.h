/*
 * cpu/kernel.h: the registry of CPU kernels. For each operator there is one list, kern/<op>.inc:
 * best first, the scalar reference last. Header, registry, tests, bench and `ounce kernels` expand
 * the same lists.
 */
#ifndef OZ_CPU_KERNEL_H
#define OZ_CPU_KERNEL_H

#include <stdbool.h>

#include "cpu/tier.h"
#include "dev/device.h"
#include "dev/ops.h"

/*
 * One kernel. The name is its address: oz_<op>_<act>[_<wgt>]_<out>__<tier>[_<tile>].
 * reject says why it declines these arguments (a phrase), or NULL; the member NULL: it never does.
 * Only shapes and formats may count, never a batch's total number of rows. For operators whose
 * weights are packed (linear, conv) the parameter's plan decides (cpu/plan.h).
 * codes says why its rows do not go to the quantized format of these arguments at once, or NULL: then
 * it takes them as they are, and writes what act_quant would make of its f32 rows. The member NULL: it
 * writes plain rows only (cpu/stage.h).
 * proven: where the kernel's own tests have run; NULL: nowhere yet, and the kernel is taken only when
 * OUNCE_FORCE or OUNCE_CPU names it.
 */
struct oz_cpu_kernel {
    const char *name;
    enum oz_op op;
    enum oz_tier tier;
    const char *proven;
    const char *(*reject)(const struct oz_device *dev, const void *args);
    const char *(*codes)(const void *args);
    size_t (*scratch)(const struct oz_device *dev, const void *args);
    OZ_MUST_USE enum oz_status (*run)(const struct oz_op_ctx *ctx, const void *args);
    const struct oz_gemm_kernel *gemm; /* linear, conv: its micro-kernel (cpu/gemm.h); else NULL */
    const struct oz_qgemm_kernel *q;   /* linear of panels of codes (cpu/qgemm.h); else NULL */
};

/* All kernels, by operator, best first. */
#define OZ_KERNEL(obj) extern const struct oz_cpu_kernel obj;
#include "cpu/kern/all.inc"
#undef OZ_KERNEL

#define OZ_CPU_MAX_KERNELS 24  /* an operator's list */
#define OZ_CPU_MAX_ENCODERS 64 /* cpu/encode.h */

struct oz_cpu_encoder;

/* The CPU device: what the backend adds to struct oz_device (its `impl`). */
struct oz_cpu {
    struct oz_device dev;
    bool linear_ref;    /* OZ_DEVICE_LINEAR_REF */
    bool slow_bf16;     /* oz_tier_slow_bf16: AVX512-BF16 kernels are taken only when asked for */
    uint32_t tiers;     /* mask, after OUNCE_CPU */
    uint32_t processor; /* mask, of all that this processor runs */
    const struct oz_cpu_kernel *usable[OZ_OP_COUNT][OZ_CPU_MAX_KERNELS + 1]; /* NULL ends a list */
    const struct oz_cpu_encoder *encoders[OZ_CPU_MAX_ENCODERS + 1]; /* usable; NULL ends it */
};

static inline const struct oz_cpu *oz_cpu_of(const struct oz_device *dev)
{
    return dev->impl;
}

/* All kernels of an operator, best first, usable or not; NULL ends the list. */
const struct oz_cpu_kernel *const *oz_cpu_kernels(enum oz_op op);

/* Why a kernel is not in a device's list ("the processor lacks avx512bf16"), or NULL. */
const char *oz_cpu_unusable(const struct oz_cpu *cpu, const struct oz_cpu_kernel *k);

/* Why a kernel or encoder of a tier is left out: the processor, OUNCE_CPU, its speed here (proven ones are
 * left out for nothing else), or that its tests have never run. */
const char *oz_cpu_left_out(const struct oz_cpu *cpu, enum oz_tier tier, bool proven);

/* Is `name` one of the comma-separated words of `list`? NULL has none. */
bool oz_cpu_is_listed(const char *list, const char *name);

/* "linear" */
const char *oz_cpu_op_name(enum oz_op op);

/* The operator that reads parameters of a use. */
static inline enum oz_op oz_cpu_use_op(enum oz_param_use use)
{
    static const enum oz_op ops[] = {[OZ_USE_LINEAR] = OZ_OP_LINEAR,
                                     [OZ_USE_CONV] = OZ_OP_CONV,
                                     [OZ_USE_EXPERTS] = OZ_OP_EXPERTS,
                                     [OZ_USE_EMBED] = OZ_OP_EMBED,
                                     [OZ_USE_VECTOR] = OZ_OP_NORM_MOD};
    return ops[use];
}

/* Fills cpu->usable and cpu->encoders from its tiers (which it first keeps as cpu->processor), OUNCE_CPU
 * and OUNCE_FORCE. OZ_ERR_ARG: an unknown kernel or encoder, or one that cannot run here. */
OZ_MUST_USE enum oz_status oz_cpu_choose(struct oz_cpu *cpu, const char *wanted_tier,
                                         const char *forced, struct oz_error *err);

/* Opens the device with a tier and kernels in place of OUNCE_CPU and OUNCE_FORCE (either may be
 * NULL). */
OZ_MUST_USE enum oz_status oz_cpu_open(struct oz_device **out, uint32_t flags, struct oz_pool *pool,
                                       const char *tier, const char *forced, struct oz_error *err);

/* The kernel that runs these arguments: the first of the list that does not decline. Never NULL: the
 * reference accepts everything. */
const struct oz_cpu_kernel *oz_cpu_pick(const struct oz_device *dev, enum oz_op op,
                                        const void *args);

#endif
