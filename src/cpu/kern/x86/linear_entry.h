/*
 * cpu/kern/x86/linear_entry.h: list entries of linear and conv over one micro-kernel. A unit defines
 * its struct oz_gemm_kernel and expands OZ_GEMM_ENTRY once for each operator.
 */
#ifndef OZ_CPU_KERN_X86_LINEAR_ENTRY_H
#define OZ_CPU_KERN_X86_LINEAR_ENTRY_H

#include "cpu/gemm.h"

/* The object's name, the kernel's name as a string, operator, its driver functions, tier, where it
 * has been proven, micro-kernel. The three adapters are static to the unit. */
#define OZ_GEMM_ENTRY(object, text, id, args, scratch_fn, reject_fn, run_fn, tier_, proven_, \
                      micro)                                                                 \
    extern const struct oz_cpu_kernel object; /* lists leave out tiers that are not built */ \
    static size_t object##_scratch(const struct oz_device *dev, const void *a)               \
    {                                                                                        \
        return scratch_fn(dev, (const args *)a, &object);                                    \
    }                                                                                        \
    static const char *object##_reject(const struct oz_device *dev, const void *a)           \
    {                                                                                        \
        (void)dev;                                                                           \
        return reject_fn((const args *)a, &object);                                          \
    }                                                                                        \
    static enum oz_status object##_run(const struct oz_op_ctx *ctx, const void *a)           \
    {                                                                                        \
        return run_fn(ctx, (const args *)a, &object);                                        \
    }                                                                                        \
    const struct oz_cpu_kernel object = {.name = (text),                                     \
                                         .op = (id),                                         \
                                         .tier = (tier_),                                    \
                                         .proven = (proven_),                                \
                                         .reject = object##_reject,                          \
                                         .scratch = object##_scratch,                        \
                                         .run = object##_run,                                \
                                         .gemm = &(micro)};

#define OZ_LINEAR_ENTRY(object, text, tier, proven, micro)                                   \
    OZ_GEMM_ENTRY(object, text, OZ_OP_LINEAR, struct oz_linear_args, oz_gemm_linear_scratch, \
                  oz_gemm_linear_reject, oz_gemm_linear, tier, proven, micro)
#define OZ_CONV_ENTRY(object, text, tier, proven, micro)                               \
    OZ_GEMM_ENTRY(object, text, OZ_OP_CONV, struct oz_conv_args, oz_gemm_conv_scratch, \
                  oz_gemm_conv_reject, oz_gemm_conv, tier, proven, micro)

#endif
