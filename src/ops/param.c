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

/* Element type and scale planes of each mode. */
static const struct oz_act_spec mode_specs[OZ_ACT_MODE_COUNT] = {
    [OZ_ACT_NONE] = {.dtype = OZ_DTYPE_F32},
    [OZ_ACT_FP8_TOKEN] = {.dtype = OZ_DTYPE_F8_E4M3,
                          .scale_count = 1,
                          .scale = {{.dtype = OZ_DTYPE_F32}}},
    [OZ_ACT_FP8_GROUP] = {.dtype = OZ_DTYPE_F8_E4M3,
                          .scale_count = 1,
                          .scale = {{.dtype = OZ_DTYPE_F32, .group_cols = 128}}},
    [OZ_ACT_FP8_STATIC] = {.dtype = OZ_DTYPE_F8_E4M3},
    [OZ_ACT_INT8_TOKEN] = {.dtype = OZ_DTYPE_I8,
                           .scale_count = 1,
                           .scale = {{.dtype = OZ_DTYPE_F32}}},
    [OZ_ACT_MXFP8] = {.dtype = OZ_DTYPE_F8_E4M3,
                      .scale_count = 1,
                      .scale = {{.dtype = OZ_DTYPE_F8_E8M0, .group_cols = 32}}},
    [OZ_ACT_MXFP4] = {.dtype = OZ_DTYPE_F4,
                      .scale_count = 1,
                      .scale = {{.dtype = OZ_DTYPE_F8_E8M0, .group_cols = 32}}},
    [OZ_ACT_MXFP4_DUALSCALE] = {.dtype = OZ_DTYPE_F4,
                                .scale_count = 2,
                                .scale = {{.dtype = OZ_DTYPE_F8_E8M0, .group_cols = 32},
                                          {.dtype = OZ_DTYPE_F32, .group_cols = 512}}},
    [OZ_ACT_NVFP4] = {.dtype = OZ_DTYPE_F4,
                      .scale_count = 2,
                      .scale = {{.dtype = OZ_DTYPE_F8_E4M3, .group_cols = 16},
                                {.dtype = OZ_DTYPE_F32}}},
};

struct oz_act_spec oz_act_spec_of(enum oz_act_mode mode, enum oz_exponent_rule rule,
                                  const float *smooth, const float *static_scale)
{
    struct oz_act_spec spec = mode_specs[mode];
    bool mx = spec.scale_count > 0 && spec.scale[0].dtype == OZ_DTYPE_F8_E8M0;
    spec.exponent_rule = mx ? rule : OZ_EXPONENT_DEFAULT;
    spec.smooth = smooth;
    spec.static_scale = mode == OZ_ACT_FP8_STATIC ? static_scale : NULL;
    return spec;
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
