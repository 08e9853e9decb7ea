#include "ops/param.h"

#include <string.h>

#include "base/error.h"

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

/* A side plane's data, or an address that is not followed while there is none; NULL: no plane. */
static const float *side_plane(const struct oz_param *p, enum oz_plane plane)
{
    static const float unloaded = 0;
    const struct oz_plane_view *v = &p->weight.planes[plane];
    return !v->present ? NULL : v->data != NULL ? v->data : &unloaded;
}

enum oz_status oz_param_set_acts(struct oz_param *p, const struct oz_scheme *scheme,
                                 struct oz_error *err)
{
    const float *scale = side_plane(p, OZ_PLANE_INPUT_SCALE);
    p->act_count = 0;
    for (int32_t i = 0; i < scheme->mode_count; i++) {
        if (scheme->acts[i] == OZ_ACT_FP8_STATIC && scale == NULL) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "%s: %s asks for static activation scales, and the checkpoint has no "
                           "input_scale for it; choose fp8_per_token.",
                           p->name, scheme->name);
        }
        p->acts[i] = oz_act_spec_of(scheme->acts[i], scheme->act_exponent_rule,
                                    side_plane(p, OZ_PLANE_SMOOTH), scale);
    }
    p->act_count = scheme->codec != NULL ? scheme->mode_count : 0;
    return OZ_OK;
}
