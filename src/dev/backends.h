/* dev/backends.h: the backends that this build knows, as registry.c lists them. */
#ifndef OZ_DEV_BACKENDS_H
#define OZ_DEV_BACKENDS_H

#include "dev/device.h"

extern const struct oz_backend oz_cpu_backend; /* src/cpu/device.c */

#endif
