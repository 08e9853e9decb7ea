#include "cpu/encode.h"

#include "cpu/kernel.h"

const struct oz_cpu_encoder *const oz_cpu_encoders[] = {
#define OZ_CPU_ENCODER(obj) &obj,
#include "cpu/kern/encode.inc"
#undef OZ_CPU_ENCODER
    NULL};

const struct oz_encoder *oz_cpu_find_encoder(const struct oz_device *dev,
                                             const struct oz_codec *codec, enum oz_dtype stored)
{
    for (const struct oz_cpu_encoder *const *e = oz_cpu_encoders; *e != NULL; e++) {
        if ((*e)->codec == codec && (*e)->stored == stored &&
            (oz_cpu_of(dev)->tiers >> (*e)->tier & 1U) != 0) {
            return &(*e)->encoder;
        }
    }
    return NULL;
}
