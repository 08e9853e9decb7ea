/*
 * study/role_errors.h: what encoding loses of a transformer's weights, by the role of its layers. Of each
 * weight that was encoded while loading a band of rows is read again, encoded and decoded by the scheme's
 * codec: quick whatever the model's size, and nothing is drawn. A scale that spans more than the band is
 * the band's own.
 */
#ifndef OZ_STUDY_ROLE_ERRORS_H
#define OZ_STUDY_ROLE_ERRORS_H

#include <ounce/status.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/pool.h"
#include "pipe/pipeline.h"

struct oz_role_error {
    int32_t layers;            /* weights that were looked at */
    int64_t elements;          /* of them */
    double error2, reference2; /* sums of squares: of what is lost, of what was there */
};

struct oz_role_errors {
    struct oz_role_error roles[OZ_ROLE_COUNT];
    /* Weights that are quantized, and those of them in `roles`: a file that holds them quantized does
     * not say what they were; neither does a weight that is stored transposed. */
    int32_t quantized, measured;
};

/* |decoded - stored| / |stored| of a role's weights; NaN: none was measured. */
double oz_role_errors_relative(const struct oz_role_error *role);

/* Of a loaded component, on the pool's threads; the same for any number of them. OZ_ERR_NOMEM,
 * OZ_ERR_IO. */
OZ_MUST_USE enum oz_status oz_role_errors_measure(struct oz_role_errors *out,
                                                  const struct oz_component *c,
                                                  struct oz_pool *pool, struct oz_error *err);

/* {"quantized": .., "measured": .., "roles": [{"role": "attn_qkv", "layers": .., ..}, ..]} */
void oz_role_errors_json(const struct oz_role_errors *e, struct oz_buf *b);
/* What that wrote; zeroes where it is not there. */
void oz_role_errors_read(struct oz_role_errors *e, const struct oz_json *v);

#endif
