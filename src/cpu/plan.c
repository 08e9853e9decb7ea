/* Planning of parameters: the reference kernels read the planes as they are. */
#include "cpu/plan.h"

#include "base/error.h"

static const struct oz_param_plan reference = {.kernel = "oz_linear_f32_any_f32__scalar"};

enum oz_status oz_cpu_plan_param(struct oz_device *dev, const struct oz_param *param, int32_t mode,
                                 const struct oz_param_plan **plan, size_t *packed_bytes,
                                 struct oz_act_spec *wants,
                                 void (*report)(void *ctx, const char *kernel, const char *reason),
                                 void *report_ctx, struct oz_error *err)
{
    (void)dev;
    (void)report; /* nothing better exists, so nothing has declined */
    (void)report_ctx;
    *plan = NULL;
    *packed_bytes = 0;
    *wants = (struct oz_act_spec){.dtype = OZ_DTYPE_F32};
    const char *name = param->name != NULL ? param->name : "(unnamed)";
    if (mode != 0) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: activation mode %d; the reference kernels have mode 0 only.", name,
                       (int)mode);
    }
    if (param->weight.codec == NULL) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%s: it has no codec yet, so no kernel can be chosen.",
                       name);
    }
    for (int plane = OZ_PLANE_FIRST_SIDE; plane < OZ_PLANE_COUNT; plane++) {
        if (param->weight.planes[plane].present) {
            return OZ_FAIL(
                err, OZ_ERR_UNSUPPORTED,
                "%s (%s): side plane %d (smoothing, static scales, rotation or low rank) "
                "is not applied by the reference kernels.",
                name, param->weight.codec->name, plane);
        }
    }
    *plan = &reference;
    return OZ_OK;
}

enum oz_status oz_cpu_pack_band(struct oz_device *dev, struct oz_queue *queue,
                                struct oz_param *param, int64_t slice, int64_t row0, int64_t rows,
                                const struct oz_weight *band, struct oz_error *err)
{
    (void)dev;
    (void)queue;
    (void)slice;
    (void)row0;
    (void)rows;
    (void)band;
    return OZ_FAIL(err, OZ_ERR_INTERNAL,
                   "%s: a weight without packed bytes was given to be packed; its kernel reads the "
                   "planes.",
                   param->name != NULL ? param->name : "(unnamed)");
}
