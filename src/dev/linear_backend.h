/*
 * dev/linear_backend.h: the words of --linear-backend and --moe-backend: ours, and those of vLLM that
 * say something here.
 */
#ifndef OZ_DEV_LINEAR_BACKEND_H
#define OZ_DEV_LINEAR_BACKEND_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

struct oz_linear_backend {
    const char *name;
    uint32_t flags;      /* of oz_device_open: whose kernels multiply */
    bool weight_only;    /* quantized weights meet activations that are not */
    const char *meaning; /* for the plan; NULL: the device chooses, there is nothing to say */
};

/* The row of a name (case does not matter, '-' is '_'); NULL or "" is auto. `option` names the option
 * for messages ("--linear-backend"). OZ_ERR_ARG: unknown, with all names; or vLLM's for kernels that
 * have no counterpart. */
OZ_MUST_USE enum oz_status oz_linear_backend_find(const struct oz_linear_backend **out,
                                                  const char *name, const char *option,
                                                  struct oz_error *err);

#endif
