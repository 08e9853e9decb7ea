#include "dev/act_spec.h"

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
    [OZ_ACT_NVFP4_TOKEN] = {.dtype = OZ_DTYPE_F4,
                            .scale_count = 2,
                            .scale = {{.dtype = OZ_DTYPE_F8_E4M3, .group_cols = 16},
                                      {.dtype = OZ_DTYPE_F32}},
                            .second_by_row = true},
};

_Static_assert(OZ_ACT_MODE_COUNT == OZ_ACT_NVFP4_TOKEN + 1, "each mode has a row above");

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
