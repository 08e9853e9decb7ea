/* Planning of parameters: which kernel will read a weight, and packing for it. */
#include "cpu/plan.h"

#include "base/error.h"
#include "cpu/gemm.h"

static const struct oz_param_plan reference[] = {
    [OZ_USE_LINEAR] = {.kernel = &oz_kernel_linear__scalar},
    [OZ_USE_CONV] = {.kernel = &oz_kernel_conv__scalar},
    [OZ_USE_EXPERTS] = {.kernel = &oz_kernel_experts__scalar},
    [OZ_USE_EMBED] = {.kernel = &oz_kernel_embed__scalar},
    [OZ_USE_VECTOR] = {.kernel = &oz_kernel_norm_mod__scalar},
};

/* Plans of packing kernels, by the kernel's place in its list. */
#define PACKED(obj) \
    {.kernel = &obj, .stored = OZ_DTYPE_F32}, {.kernel = &obj, .stored = OZ_DTYPE_BF16},
#define OZ_KERNEL(obj) PACKED(obj)
static const struct oz_param_plan linear_plans[] = {
#include "cpu/kern/linear.inc"
};
static const struct oz_param_plan conv_plans[] = {
#include "cpu/kern/conv.inc"
};
#undef OZ_KERNEL

static const struct oz_param_plan *find_plan(enum oz_param_use use, const struct oz_cpu_kernel *k,
                                             enum oz_dtype stored)
{
    const struct oz_param_plan *plans = use == OZ_USE_LINEAR ? linear_plans : conv_plans;
    size_t count = use == OZ_USE_LINEAR ? sizeof linear_plans / sizeof *linear_plans
                                        : sizeof conv_plans / sizeof *conv_plans;
    for (size_t i = 0; i < count; i++) {
        if (plans[i].kernel == k && plans[i].stored == stored) {
            return &plans[i];
        }
    }
    return NULL;
}

/* Why a packing kernel declines a weight, or NULL. *stored: the form of its panels. */
static const char *decline(const struct oz_device *dev, const struct oz_cpu_kernel *k,
                           const struct oz_weight *w, enum oz_dtype *stored)
{
    bool plain = oz_codec_plain(w->planes[OZ_PLANE_CODES].dtype) == w->codec;
    bool bf16 = plain && w->planes[OZ_PLANE_CODES].dtype == OZ_DTYPE_BF16;
    if (!plain) {
        return "it reads plain weights only";
    }
    if (k->gemm->a_dtype == OZ_DTYPE_BF16) {
        *stored = OZ_DTYPE_BF16;
        return dev->f32_math ? "f32 arithmetic was asked for"
               : bf16        ? NULL
                             : "the weight is not stored in bf16, and rounding it would be silent";
    }
    *stored = bf16 ? OZ_DTYPE_BF16 : OZ_DTYPE_F32;
    return NULL;
}

/* The first kernel of the operator's list that packs this weight; NULL: the reference reads it. */
static const struct oz_param_plan *choose(struct oz_device *dev, const struct oz_param *param,
                                          const struct oz_plan_request *request)
{
    enum oz_op op = request->use == OZ_USE_LINEAR ? OZ_OP_LINEAR : OZ_OP_CONV;
    for (const struct oz_cpu_kernel *const *k = oz_cpu_of(dev)->usable[op]; *k != NULL; k++) {
        enum oz_dtype stored = OZ_DTYPE_F32;
        if ((*k)->gemm == NULL) {
            return NULL;
        }
        const char *reason = decline(dev, *k, &param->weight, &stored);
        if (reason == NULL) {
            return find_plan(request->use, *k, stored);
        }
        if (request->report != NULL) {
            request->report(request->report_ctx, (*k)->name, reason);
        }
    }
    return NULL;
}

static enum oz_status check_side_planes(const struct oz_param *param, const char *name,
                                        struct oz_error *err)
{
    for (int plane = OZ_PLANE_FIRST_SIDE; plane < OZ_PLANE_COUNT; plane++) {
        if (param->weight.planes[plane].present) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "%s (%s): side plane %d (smoothing, static scales, rotation or low "
                           "rank) is not applied by the CPU kernels.",
                           name, param->weight.codec->name, plane);
        }
    }
    return OZ_OK;
}

enum oz_status oz_cpu_plan_param(struct oz_device *dev, const struct oz_param *param,
                                 const struct oz_plan_request *request,
                                 struct oz_plan_answer *answer, struct oz_error *err)
{
    const char *name = param->name != NULL ? param->name : "(unnamed)";
    *answer = (struct oz_plan_answer){.wants = {.dtype = OZ_DTYPE_F32}};
    if (request->mode != 0) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: activation mode %d; plain weights have mode 0 only.", name,
                       (int)request->mode);
    }
    if (param->weight.codec == NULL) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%s: it has no codec yet, so no kernel can be chosen.",
                       name);
    }
    OZ_TRY(check_side_planes(param, name, err));
    const struct oz_param_plan *plan = NULL;
    if (request->use == OZ_USE_LINEAR || request->use == OZ_USE_CONV) {
        plan = choose(dev, param, request);
    }
    if (plan == NULL) {
        plan = &reference[request->use];
        answer->plan = plan;
        answer->kernel = plan->kernel->name;
        return OZ_OK;
    }
    answer->plan = plan;
    answer->kernel = plan->kernel->name;
    answer->packed_bytes = oz_gemm_packed_bytes(plan->kernel->gemm, plan->stored,
                                                param->weight.rows, param->weight.cols);
    answer->band_rows = plan->kernel->gemm->nr;
    if (answer->packed_bytes == SIZE_MAX) {
        return OZ_FAIL(err, OZ_ERR_NOMEM, "%s: its packed size overflows.", name);
    }
    answer->wants.dtype =
        request->use == OZ_USE_LINEAR ? plan->kernel->gemm->a_dtype : OZ_DTYPE_F32;
    return OZ_OK;
}

enum oz_status oz_cpu_pack_band(struct oz_device *dev, struct oz_queue *queue,
                                struct oz_param *param, int64_t slice, int64_t row0, int64_t rows,
                                const struct oz_weight *band, struct oz_error *err)
{
    (void)queue;
    if (param->plan == NULL || param->plan->kernel->gemm == NULL || param->packed == NULL) {
        return OZ_FAIL(err, OZ_ERR_INTERNAL,
                       "%s: a weight without packed bytes was given to be packed; its kernel reads "
                       "the planes.",
                       param->name != NULL ? param->name : "(unnamed)");
    }
    oz_gemm_pack(dev->pool, param->plan->kernel->gemm, param->plan->stored, band, slice, row0, rows,
                 param->packed);
    return OZ_OK;
}
