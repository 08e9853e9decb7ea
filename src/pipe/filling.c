#include "pipe/filling.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "ckpt/drawn.h"

#define BIAS_SCALE 0.02F

struct oz_filling oz_filling_normal(int64_t fan_in)
{
    return (struct oz_filling){.scale = 1.0F / sqrtf((float)fan_in)};
}

struct oz_filling oz_filling_bias(void)
{
    return (struct oz_filling){.scale = BIAS_SCALE};
}

struct oz_filling oz_filling_ones(void)
{
    return (struct oz_filling){.constant = 1};
}

/* Numbers that meet in one sum. */
static int64_t fan_in(const struct oz_ckpt_spec *s, int32_t first)
{
    int64_t n = 1;
    for (int32_t i = first; i < s->rank; i++) {
        n *= s->rank == 5 && i == 2 ? 1 : s->shape[i]; /* time */
    }
    return n;
}

void oz_filling_of_row(const struct oz_layer *row, struct oz_ckpt_spec *s, struct oz_filling *f)
{
    *s = (struct oz_ckpt_spec){.name = row->name,
                               .dtype = OZ_DTYPE_BF16,
                               .rank = row->file_rank > 0 ? row->file_rank : row->rank};
    memcpy(s->shape, row->file_rank > 0 ? row->file_shape : row->shape,
           (size_t)s->rank * sizeof *s->shape);
    switch (row->kind) {
    case OZ_LAYER_LINEAR:
    case OZ_LAYER_CONV: *f = oz_filling_normal(fan_in(s, 1)); break;
    case OZ_LAYER_EXPERTS: *f = oz_filling_normal(fan_in(s, s->rank > 2 ? 2 : 1)); break;
    case OZ_LAYER_EMBED: *f = (struct oz_filling){.scale = 1}; break;
    case OZ_LAYER_NORM: *f = oz_filling_ones(); break;
    case OZ_LAYER_VECTOR: *f = oz_filling_bias(); break;
    }
}

enum oz_status oz_filling_open(struct oz_ckpt **out, const struct oz_layer_table *table,
                               const char *component, struct oz_error *err)
{
    size_t n = (size_t)table->count;
    struct oz_ckpt_spec *specs = oz_alloc(n * sizeof *specs);
    struct oz_filling *fillings = oz_alloc(n * sizeof *fillings);
    enum oz_status status =
        specs != NULL && fillings != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, component);
    *out = NULL;
    for (size_t i = 0; i < n && status == OZ_OK; i++) {
        oz_filling_of_row(&table->rows[i], &specs[i], &fillings[i]);
    }
    if (status == OZ_OK) {
        const struct oz_ckpt_drawing d = {.specs = specs,
                                          .fillings = fillings,
                                          .count = table->count,
                                          .seed = OZ_FILLING_SEED,
                                          .name = component};
        status = oz_ckpt_draw(out, &d, err);
    }
    oz_free(specs);
    oz_free(fillings);
    return status;
}
