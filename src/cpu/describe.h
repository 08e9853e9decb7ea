/* cpu/describe.h: the CPU device's reports about its kernels. */
#ifndef OZ_CPU_DESCRIBE_H
#define OZ_CPU_DESCRIBE_H

#include "dev/device.h"
#include "dev/report.h"

/* Member `describe` of struct oz_device: tiers, then every operator's list, then the encoders of
 * weights as those of "encode". */
void oz_cpu_describe(struct oz_device *dev, const struct oz_kernel_report *report);

#endif
