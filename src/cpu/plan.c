/* Planning of parameters: which kernel will read a weight, and packing for it. */
#include "cpu/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cpu/gemm.h"
#include "cpu/int8.h"
#include "cpu/qgemm.h"
#include "cpu/stage.h"
#include "dev/act_spec.h"

static const struct oz_param_plan reference[] = {
    [OZ_USE_LINEAR] = {.kernel = &oz_kernel_linear__scalar},
    [OZ_USE_CONV] = {.kernel = &oz_kernel_conv__scalar},
    [OZ_USE_EXPERTS] = {.kernel = &oz_kernel_experts__scalar},
    [OZ_USE_EMBED] = {.kernel = &oz_kernel_embed__scalar},
    [OZ_USE_VECTOR] = {.kernel = &oz_kernel_norm_mod__scalar},
};

/* Plans of packing kernels, by the kernel's place in its list. */
#define PACKED(obj)                                                                      \
    {.kernel = &obj, .stored = OZ_DTYPE_F32}, {.kernel = &obj, .stored = OZ_DTYPE_BF16}, \
        {.kernel = &obj, .stored = OZ_DTYPE_F32, .decodes = true},                       \
        {.kernel = &obj, .stored = OZ_DTYPE_F32, .panels = true},
#define OZ_KERNEL(obj) PACKED(obj)
static const struct oz_param_plan linear_plans[] = {
#include "cpu/kern/linear.inc"
};
static const struct oz_param_plan conv_plans[] = {
#include "cpu/kern/conv.inc"
};
#undef OZ_KERNEL

/* How a packing kernel would read a weight. */
struct reading {
    enum oz_dtype stored;
    bool decodes, panels;
};

static const struct oz_param_plan *find_plan(enum oz_param_use use, const struct oz_cpu_kernel *k,
                                             struct reading how)
{
    const struct oz_param_plan *plans = use == OZ_USE_LINEAR ? linear_plans : conv_plans;
    size_t count = use == OZ_USE_LINEAR ? sizeof linear_plans / sizeof *linear_plans
                                        : sizeof conv_plans / sizeof *conv_plans;
    for (size_t i = 0; i < count; i++) {
        if (plans[i].kernel == k && plans[i].stored == how.stored &&
            plans[i].decodes == how.decodes && plans[i].panels == how.panels) {
            return &plans[i];
        }
    }
    return NULL;
}

/* What the weight's scheme wants of its input; F32 rows without a scheme. */
static struct oz_act_spec wanted(const struct oz_param *param, int32_t mode)
{
    return param->act_count > 0 ? param->acts[mode] : (struct oz_act_spec){.dtype = OZ_DTYPE_F32};
}

static bool is_plain(const struct oz_weight *w)
{
    return oz_codec_plain(w->planes[OZ_PLANE_CODES].dtype) == w->codec;
}

/* Why a kernel declines to decode a weight as it goes, or NULL. All modes of a weight share a kernel. */
static const char *decline_to_decode(const struct oz_cpu_kernel *k, const struct oz_param *param,
                                     enum oz_param_use use)
{
    if (use != OZ_USE_LINEAR) {
        return "it reads plain weights only";
    }
    if (k->gemm->a_dtype != OZ_DTYPE_F32) {
        return "it multiplies bf16, and rounding decoded weights would be silent";
    }
    for (int32_t i = 0; i < param->act_count; i++) {
        if (oz_int8_product(&param->acts[i], &param->weight) &&
            param->weight.cols > OZ_INT8_EXACT_DEPTH) {
            return "its f32 sums of int8 products would not be exact";
        }
    }
    return NULL;
}

/* Why a packing kernel declines a weight, or NULL. */
static const char *decline(const struct oz_device *dev, const struct oz_cpu_kernel *k,
                           const struct oz_param *param, enum oz_param_use use, struct reading *how)
{
    const struct oz_weight *w = &param->weight;
    bool bf16 = is_plain(w) && w->planes[OZ_PLANE_CODES].dtype == OZ_DTYPE_BF16;
    *how = (struct reading){.stored = OZ_DTYPE_F32};
    if (!is_plain(w) || param->act_count > 0) {
        how->decodes = true;
        return decline_to_decode(k, param, use);
    }
    if (k->gemm->a_dtype == OZ_DTYPE_BF16) {
        how->stored = OZ_DTYPE_BF16;
        return dev->f32_math ? "f32 arithmetic was asked for"
               : bf16        ? NULL
                             : "the weight is not stored in bf16, and rounding it would be silent";
    }
    how->stored = bf16 ? OZ_DTYPE_BF16 : OZ_DTYPE_F32;
    return NULL;
}

/* Rows of a mode as a kernel of panels takes them: plain ones in bf16 where it multiplies bf16. */
static struct oz_act_spec panel_rows(const struct oz_cpu_kernel *k, const struct oz_param *param,
                                     int32_t mode)
{
    struct oz_act_spec spec = wanted(param, mode);
    if (spec.dtype == OZ_DTYPE_F32 &&
        (k->q->rows == OZ_QROWS_BF16 || k->q->rows == OZ_QROWS_FOLDED)) {
        spec.dtype = OZ_DTYPE_BF16;
    }
    return spec;
}

/* Why a kernel declines a mode of a weight in panels, or NULL. */
static const char *decline_mode(const struct oz_device *dev, const struct oz_cpu_kernel *k,
                                const struct oz_param *param, int32_t mode,
                                const struct oz_qlayout *l)
{
    struct oz_act_spec spec = panel_rows(k, param, mode);
    return spec.dtype == OZ_DTYPE_BF16 && dev->f32_math ? "f32 arithmetic was asked for"
                                                        : oz_qgemm_decline(k->q, &spec, l);
}

/* Is there a kernel of panels for every mode? They are packed once. */
static bool has_panels(struct oz_device *dev, const struct oz_param *param,
                       const struct oz_qlayout *l)
{
    for (int32_t mode = 0; mode < (param->act_count > 0 ? param->act_count : 1); mode++) {
        bool found = false;
        for (const struct oz_cpu_kernel *const *k = oz_cpu_of(dev)->usable[OZ_OP_LINEAR];
             *k != NULL; k++) {
            found = found || ((*k)->q != NULL && decline_mode(dev, *k, param, mode, l) == NULL);
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

/* Why a kernel of panels declines a weight, or NULL. */
static const char *decline_panels(struct oz_device *dev, const struct oz_cpu_kernel *k,
                                  const struct oz_param *param,
                                  const struct oz_plan_request *request)
{
    struct oz_qlayout l;
    if (!oz_qlayout_of(&param->weight, &l)) {
        return oz_qlayout_reject(&param->weight);
    }
    const char *reason = decline_mode(dev, k, param, request->mode, &l);
    return reason != NULL                ? reason
           : !has_panels(dev, param, &l) ? "another mode of the weight has no such kernel"
                                         : NULL;
}

/* The first kernel of the operator's list that packs this weight; NULL: the reference reads it. */
static const struct oz_param_plan *choose(struct oz_device *dev, const struct oz_param *param,
                                          const struct oz_plan_request *request)
{
    enum oz_op op = request->use == OZ_USE_LINEAR ? OZ_OP_LINEAR : OZ_OP_CONV;
    for (const struct oz_cpu_kernel *const *k = oz_cpu_of(dev)->usable[op]; *k != NULL; k++) {
        struct reading how = {.stored = OZ_DTYPE_F32, .panels = (*k)->q != NULL};
        if ((*k)->gemm == NULL && (*k)->q == NULL) {
            return NULL;
        }
        if (how.panels && is_plain(&param->weight)) {
            continue;
        }
        const char *reason = how.panels ? decline_panels(dev, *k, param, request)
                                        : decline(dev, *k, param, request->use, &how);
        if (reason == NULL) {
            return find_plan(request->use, *k, how);
        }
        if (request->report != NULL) {
            request->report(request->report_ctx, (*k)->name, reason);
        }
    }
    return NULL;
}

/* Why not even the reference kernels read a weight in a mode, or NULL. Every kernel declines then: the
 * others read less. */
static const char *decline_all(const struct oz_param *param, const struct oz_plan_request *request)
{
    static const enum oz_plane not_applied[] = {OZ_PLANE_INPUT_OFFSET, OZ_PLANE_ROTATE_L,
                                                OZ_PLANE_ROTATE_R, OZ_PLANE_LOW_RANK_A,
                                                OZ_PLANE_LOW_RANK_B};
    const struct oz_weight *w = &param->weight;
    for (size_t i = 0; i < sizeof not_applied / sizeof *not_applied; i++) {
        if (w->planes[not_applied[i]].present) {
            return "rotations, low-rank branches and zero points of activations are not applied";
        }
    }
    if (param->act_count == 0) {
        return w->planes[OZ_PLANE_SMOOTH].present || w->planes[OZ_PLANE_INPUT_SCALE].present
                   ? "its smoothing vector or static scale belongs to no activation mode"
                   : NULL;
    }
    if (request->use != OZ_USE_LINEAR && request->use != OZ_USE_EXPERTS) {
        return "this operator takes plain rows only";
    }
    return oz_stage_reject(&param->acts[request->mode]);
}

/* The processor has no block-scaled units. What the reference's kernels read is possible: they end every
 * list. */
struct oz_act_support oz_cpu_act_support(const struct oz_device *dev)
{
    static const float given = 1; /* a static scale, which is in the file */
    struct oz_act_support support = {.possible = OZ_ACT_BIT(OZ_ACT_NONE)};
    (void)dev;
    for (int mode = 0; mode < OZ_ACT_MODE_COUNT; mode++) {
        struct oz_act_spec spec =
            oz_act_spec_of((enum oz_act_mode)mode, OZ_EXPONENT_DEFAULT, NULL, &given);
        support.possible |= oz_stage_reject(&spec) == NULL ? OZ_ACT_BIT(mode) : 0;
    }
    return support;
}

/* The names of an operator's kernels, for a message: those that fit, and how many more there are. */
static void list_kernels(const struct oz_device *dev, enum oz_op op, char *text, size_t size)
{
    static const char rest[] = " and 1000 more";
    const struct oz_cpu_kernel *const *k = oz_cpu_of(dev)->usable[op];
    size_t length = 0;
    text[0] = '\0';
    for (; *k != NULL && length + strlen((*k)->name) + 2 + sizeof rest <= size; k++) {
        length += (size_t)snprintf(text + length, size - length, "%s%s", length > 0 ? ", " : "",
                                   (*k)->name);
    }
    int more = 0;
    for (; *k != NULL; k++) {
        more++;
    }
    if (more > 0) {
        (void)snprintf(text + length, size - length, " and %d more", more);
    }
}

/* Refuses what no kernel reads, and says which layer, scheme, mode and kernels. */
static enum oz_status check_supported(const struct oz_device *dev, const struct oz_param *param,
                                      const struct oz_plan_request *request, const char *name,
                                      struct oz_error *err)
{
    char kernels[512];
    const char *reason;
    if (request->mode != 0 && request->mode >= param->act_count) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s (%s): activation mode %d was asked for; it has %d.", name,
                       param->weight.codec->name, (int)request->mode,
                       param->act_count > 0 ? (int)param->act_count : 1);
    }
    reason = decline_all(param, request);
    if (reason == NULL) {
        return OZ_OK;
    }
    enum oz_op op = oz_cpu_use_op(request->use);
    list_kernels(dev, op, kernels, sizeof kernels);
    return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                   "%s: no kernel of %s multiplies %s weights by activations in mode %d (%s): %s. "
                   "Declined: %s.",
                   name, oz_cpu_op_name(op), param->weight.codec->name, (int)request->mode,
                   oz_dtype_name(wanted(param, request->mode).dtype), reason, kernels);
}

enum oz_status oz_cpu_plan_param(struct oz_device *dev, const struct oz_param *param,
                                 const struct oz_plan_request *request,
                                 struct oz_plan_answer *answer, struct oz_error *err)
{
    const char *name = param->name != NULL ? param->name : "(unnamed)";
    *answer = (struct oz_plan_answer){.wants = {.dtype = OZ_DTYPE_F32}};
    if (param->weight.codec == NULL) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%s: it has no codec yet, so no kernel can be chosen.",
                       name);
    }
    OZ_TRY(check_supported(dev, param, request, name, err));
    const struct oz_param_plan *plan = NULL;
    if (request->use == OZ_USE_LINEAR || request->use == OZ_USE_CONV) {
        plan = choose(dev, param, request);
    }
    if (plan == NULL) {
        plan = &reference[request->use];
    }
    answer->plan = plan;
    answer->kernel = plan->kernel->name;
    answer->wants = wanted(param, request->mode);
    if (plan->panels) {
        struct oz_qlayout l;
        bool known = oz_qlayout_of(&param->weight, &l);
        answer->packed_bytes = known ? oz_qlayout_bytes(&l) : SIZE_MAX;
        answer->band_rows = OZ_Q_NR;
        answer->wants = panel_rows(plan->kernel, param, request->mode);
        return answer->packed_bytes != SIZE_MAX
                   ? OZ_OK
                   : OZ_FAIL(err, OZ_ERR_NOMEM, "%s: its packed size overflows.", name);
    }
    if (plan->kernel->gemm == NULL || plan->decodes) {
        return OZ_OK;
    }
    answer->packed_bytes = oz_gemm_packed_bytes(plan->kernel->gemm, plan->stored,
                                                param->weight.rows, param->weight.cols);
    answer->band_rows = plan->kernel->gemm->nr;
    if (answer->packed_bytes == SIZE_MAX) {
        return OZ_FAIL(err, OZ_ERR_NOMEM, "%s: its packed size overflows.", name);
    }
    if (request->use == OZ_USE_LINEAR) {
        answer->wants.dtype = plan->kernel->gemm->a_dtype;
    }
    return OZ_OK;
}

enum oz_status oz_cpu_pack_band(struct oz_device *dev, struct oz_queue *queue,
                                struct oz_param *param, int64_t slice, int64_t row0, int64_t rows,
                                const struct oz_weight *band, struct oz_error *err)
{
    (void)queue;
    struct oz_qlayout l;
    if (param->plan != NULL && param->plan->panels && param->packed != NULL &&
        oz_qlayout_of(band, &l)) {
        oz_qgemm_pack(dev->pool, &l, band, row0, rows, param->packed);
        return OZ_OK;
    }
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
