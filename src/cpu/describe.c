#include "cpu/describe.h"

#include "cpu/encode.h"
#include "cpu/kernel.h"

void oz_cpu_describe(struct oz_device *dev, const struct oz_kernel_report *report)
{
    const struct oz_cpu *cpu = oz_cpu_of(dev);
    for (int t = 0; t < OZ_TIER_COUNT; t++) {
        const struct oz_tier_row row = {.name = oz_tier_name((enum oz_tier)t),
                                        .what = oz_tier_what((enum oz_tier)t),
                                        .present = (cpu->processor & (1U << t)) != 0,
                                        .in_use = (cpu->tiers & (1U << t)) != 0};
        report->tier(report->ctx, &row);
    }
    for (int op = 0; op < OZ_OP_COUNT; op++) {
        const struct oz_cpu_kernel *const *k = oz_cpu_kernels((enum oz_op)op);
        for (; *k != NULL; k++) {
            const struct oz_kernel_row row = {.op = oz_cpu_op_name((enum oz_op)op),
                                              .name = (*k)->name,
                                              .tier = oz_tier_name((*k)->tier),
                                              .proven = (*k)->proven,
                                              .unusable = oz_cpu_unusable(cpu, *k)};
            report->kernel(report->ctx, &row);
        }
    }
    for (const struct oz_cpu_encoder *const *e = oz_cpu_encoders; *e != NULL; e++) {
        const struct oz_kernel_row row = {.op = "encode",
                                          .name = (*e)->encoder.name,
                                          .tier = oz_tier_name((*e)->tier),
                                          .proven = (*e)->proven,
                                          .unusable = oz_cpu_encoder_unusable(cpu, *e)};
        report->kernel(report->ctx, &row);
    }
}
