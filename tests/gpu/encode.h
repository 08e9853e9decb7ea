/* tests/gpu/encode.h: weights that a device encodes itself, and dummies that it draws. */
#ifndef OZ_TESTS_GPU_ENCODE_H
#define OZ_TESTS_GPU_ENCODE_H

#include <stdbool.h>

#include "dev/device.h"

/* Gets what each case came to. */
typedef void (*gpu_tell_fn)(bool good, const char *name, int variant, const char *text);

/* Every codec that the device encodes, in several shapes and rules, against the codec's own bytes; what is not
 * finite; elements drawn from any place on. */
void gpu_encode_all(struct oz_device *gpu, gpu_tell_fn tell);

#endif
