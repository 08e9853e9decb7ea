/*
 * ckpt/drawn.h: a checkpoint without files, whose tensors are drawn from a seed when they are read:
 * what a real one of the same names and shapes would be, as far as planning, loading and encoding are
 * concerned. Nothing of it is kept, so there is no map: oz_tensor_view.data is NULL, and oz_ckpt_read
 * is the way to its bytes, from any thread, the same for any piece.
 */
#ifndef OZ_CKPT_DRAWN_H
#define OZ_CKPT_DRAWN_H

#include <ounce/status.h>
#include <stdint.h>

#include "ckpt/table.h"
#include "ckpt/writer.h"
#include "num/noise.h"

struct oz_ckpt_drawing {
    const struct oz_ckpt_spec *specs; /* [count], BF16 */
    const struct oz_filling *fillings;
    int32_t count;
    uint64_t seed;
    const char *name; /* stands for the file in messages and schedules: "dummy weights of <name>" */
};

/* All is copied. It has one file, without descriptor and map. OZ_ERR_NOMEM; OZ_ERR_INTERNAL: a dtype
 * that is not drawn, a name twice. *out is the caller's to close; NULL after a failure. */
OZ_MUST_USE enum oz_status oz_ckpt_draw(struct oz_ckpt **out, const struct oz_ckpt_drawing *drawing,
                                        struct oz_error *err);

/* What oz_noise_fill needs for a tensor that is drawn. */
void oz_ckpt_drawn_source(const struct oz_ckpt *ckpt, const struct oz_tensor_view *tensor,
                          const uint16_t **table, uint64_t *state);

/* Was it made so? */
bool oz_ckpt_is_drawn(const struct oz_ckpt *ckpt);

#endif
