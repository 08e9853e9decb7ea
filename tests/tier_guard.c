/* Linked into tests that run once per tier: with OUNCE_CPU naming a tier that this processor lacks, the
 * test is skipped (77) before main. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu/tier.h"

__attribute__((constructor)) static void skip_without_tier(void)
{
    const char *wanted = getenv("OUNCE_CPU");
    struct oz_cpuid id;
    if (wanted == NULL) {
        return;
    }
    oz_cpuid_read(&id);
    for (int t = 0; t < OZ_TIER_COUNT; t++) {
        if (strcmp(oz_tier_name((enum oz_tier)t), wanted) == 0 &&
            !(oz_tier_mask(&id) & (1U << t))) {
            (void)fprintf(stderr, "skipped: this processor lacks %s\n", wanted);
            _exit(77);
        }
    }
}
