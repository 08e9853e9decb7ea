#include "ops/param.h"

#include <string.h>

_Static_assert(OZ_LAYER_MAX_RANK == OZ_PARAM_MAX_RANK, "a row's shape is its parameter's");

void oz_params_describe(const struct oz_layer_table *t)
{
    for (int32_t i = 0; i < t->count; i++) {
        const struct oz_layer *row = &t->rows[i];
        if (row->bind == NULL || row->bind_row_stride != 0) {
            continue;
        }
        row->bind->name = row->name;
        row->bind->rank = row->rank;
        memcpy(row->bind->shape, row->shape, sizeof row->bind->shape);
    }
}
