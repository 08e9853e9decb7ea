#include "cpu/encode.h"

#include <string.h>

#include "base/error.h"
#include "cpu/kernel.h"

/* Leaves everything to the codec. */
static bool encode_nothing(struct oz_weight *w, int64_t slice, int64_t row0, const void *src,
                           int64_t rows, int64_t stride, struct oz_encode_state *state)
{
    (void)w;
    (void)slice;
    (void)row0;
    (void)src;
    (void)rows;
    (void)stride;
    (void)state;
    return false;
}

const struct oz_cpu_encoder oz_encoder_any_any__scalar = {
    .encoder = {.name = OZ_ENCODER_OF_CODEC, .encode = encode_nothing},
    .tier = OZ_TIER_SCALAR,
    .proven = "everywhere"};

const struct oz_cpu_encoder *const oz_cpu_encoders[] = {
#define OZ_CPU_ENCODER(obj) &obj,
#include "cpu/kern/encode.inc"
#undef OZ_CPU_ENCODER
    NULL};

_Static_assert(sizeof oz_cpu_encoders / sizeof *oz_cpu_encoders <= OZ_CPU_MAX_ENCODERS + 1,
               "a device's list has room for all");

enum oz_status oz_cpu_choose_encoders(struct oz_cpu *cpu, const char *wanted_tier,
                                      const char *forced, struct oz_error *err)
{
    size_t count = 0;
    for (int pass = 0; pass < 2; pass++) { /* forced ones first, then the list's order */
        for (const struct oz_cpu_encoder *const *e = oz_cpu_encoders; *e != NULL; e++) {
            bool force = oz_cpu_is_listed(forced, (*e)->encoder.name);
            bool runs = (cpu->tiers & (1U << (*e)->tier)) != 0;
            bool asked = force || (wanted_tier != NULL &&
                                   strcmp(wanted_tier, oz_tier_name((*e)->tier)) == 0);
            if (force && !runs) {
                return OZ_FAIL(err, OZ_ERR_ARG,
                               "OUNCE_FORCE: %s needs tier %s, which is not available here.",
                               (*e)->encoder.name, oz_tier_name((*e)->tier));
            }
            if (runs && force == (pass == 0) && ((*e)->proven != NULL || asked)) {
                cpu->encoders[count++] = *e;
            }
        }
    }
    cpu->encoders[count] = NULL;
    return OZ_OK;
}

const char *oz_cpu_encoder_unusable(const struct oz_cpu *cpu, const struct oz_cpu_encoder *e)
{
    for (const struct oz_cpu_encoder *const *u = cpu->encoders; *u != NULL; u++) {
        if (*u == e) {
            return NULL;
        }
    }
    return oz_cpu_left_out(cpu, e->tier, false);
}

const struct oz_encoder *oz_cpu_find_encoder(const struct oz_device *dev,
                                             const struct oz_codec *codec, enum oz_dtype stored)
{
    for (const struct oz_cpu_encoder *const *e = oz_cpu_of(dev)->encoders; *e != NULL; e++) {
        if ((*e)->codec == NULL) {
            return NULL;
        }
        if ((*e)->codec == codec && (*e)->stored == stored) {
            return &(*e)->encoder;
        }
    }
    return NULL;
}
