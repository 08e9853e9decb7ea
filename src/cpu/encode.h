/*
 * cpu/encode.h: encoders of weights while they are loaded, faster forms of num/'s (dev/ops.h, struct
 * oz_encoder): one list, kern/encode.inc, best first; the codecs' own code ends it. Chosen as kernels
 * are (cpu/kernel.h): by tier, by where their tests have run, by OUNCE_CPU and OUNCE_FORCE.
 */
#ifndef OZ_CPU_ENCODE_H
#define OZ_CPU_ENCODE_H

#include "cpu/tier.h"
#include "dev/ops.h"

struct oz_cpu_encoder {
    struct oz_encoder encoder;
    const struct oz_codec *codec; /* NULL: any codec and dtype, by the codec's own code */
    enum oz_dtype stored;
    enum oz_tier tier;
    const char *proven; /* where its tests have run; NULL: nowhere yet */
};

#define OZ_CPU_ENCODER(obj) extern const struct oz_cpu_encoder obj;
#include "cpu/kern/encode.inc"
#undef OZ_CPU_ENCODER

/* All of them, best first; NULL ends the list. */
extern const struct oz_cpu_encoder *const oz_cpu_encoders[];

struct oz_cpu;

/* Fills cpu->encoders, after its tiers: those that OUNCE_FORCE (NULL or "": none) names come first.
 * OZ_ERR_ARG: one of them needs a tier that is not there. */
OZ_MUST_USE enum oz_status oz_cpu_choose_encoders(struct oz_cpu *cpu, const char *wanted_tier,
                                                  const char *forced, struct oz_error *err);

/* Why an encoder is not in a device's list, or NULL. */
const char *oz_cpu_encoder_unusable(const struct oz_cpu *cpu, const struct oz_cpu_encoder *e);

/* find_encoder of the operator table: the first of the device's list for that codec and dtype; NULL: the
 * codec's own code. */
const struct oz_encoder *oz_cpu_find_encoder(const struct oz_device *dev,
                                             const struct oz_codec *codec, enum oz_dtype stored);

#endif
