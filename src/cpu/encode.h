/*
 * cpu/encode.h: encoders of weights while they are loaded, faster forms of num/'s (dev/ops.h, struct
 * oz_encoder): one list, kern/encode.inc, best first; without an entry the codec's own code runs.
 */
#ifndef OZ_CPU_ENCODE_H
#define OZ_CPU_ENCODE_H

#include "cpu/tier.h"
#include "dev/ops.h"

struct oz_cpu_encoder {
    struct oz_encoder encoder;
    const struct oz_codec *codec;
    enum oz_dtype stored;
    enum oz_tier tier;
    const char *proven; /* where its tests have run */
};

#define OZ_CPU_ENCODER(obj) extern const struct oz_cpu_encoder obj;
#include "cpu/kern/encode.inc"
#undef OZ_CPU_ENCODER

/* All of them, best first; NULL ends the list. */
extern const struct oz_cpu_encoder *const oz_cpu_encoders[];

/* find_encoder of the operator table: the first of the list whose tier the device has. */
const struct oz_encoder *oz_cpu_find_encoder(const struct oz_device *dev,
                                             const struct oz_codec *codec, enum oz_dtype stored);

#endif
