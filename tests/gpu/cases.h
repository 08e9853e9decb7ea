/* tests/gpu/cases.h: operators on random data, each with what it writes and how near it must come. */
#ifndef OZ_TESTS_GPU_CASES_H
#define OZ_TESTS_GPU_CASES_H

#include <string.h>

#include "twin.h"

struct gpu_case {
    enum oz_op op;
    const void *args;
    const struct oz_act *out; /* of the side that was built */
    double bound;             /* on the relative L2 distance from the CPU, in default precision */
};

struct gpu_family {
    const char *name;
    struct gpu_case (*build)(struct twin *t, int variant);
    int count;
};

extern const struct gpu_family gpu_families[]; /* ends with a NULL name */

#endif
