#include "cpu/kernel.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/names.h"
#include "cpu/encode.h"

#define OZ_KERNEL(obj) &obj,
static const struct oz_cpu_kernel *const all[] = {
#include "cpu/kern/all.inc"
};
static const struct oz_cpu_kernel *const embed_list[] = {
#include "cpu/kern/embed.inc"
    NULL};
static const struct oz_cpu_kernel *const linear_list[] = {
#include "cpu/kern/linear.inc"
    NULL};
static const struct oz_cpu_kernel *const route_list[] = {
#include "cpu/kern/route.inc"
    NULL};
static const struct oz_cpu_kernel *const experts_list[] = {
#include "cpu/kern/experts.inc"
    NULL};
static const struct oz_cpu_kernel *const attention_list[] = {
#include "cpu/kern/attention.inc"
    NULL};
static const struct oz_cpu_kernel *const norm_mod_list[] = {
#include "cpu/kern/norm_mod.inc"
    NULL};
static const struct oz_cpu_kernel *const qk_norm_rope_list[] = {
#include "cpu/kern/qk_norm_rope.inc"
    NULL};
static const struct oz_cpu_kernel *const act_quant_list[] = {
#include "cpu/kern/act_quant.inc"
    NULL};
static const struct oz_cpu_kernel *const conv_list[] = {
#include "cpu/kern/conv.inc"
    NULL};
static const struct oz_cpu_kernel *const resample_list[] = {
#include "cpu/kern/resample.inc"
    NULL};
static const struct oz_cpu_kernel *const time_embed_list[] = {
#include "cpu/kern/time_embed.inc"
    NULL};
static const struct oz_cpu_kernel *const patch_list[] = {
#include "cpu/kern/patch.inc"
    NULL};
static const struct oz_cpu_kernel *const unpatch_list[] = {
#include "cpu/kern/unpatch.inc"
    NULL};
static const struct oz_cpu_kernel *const cfg_combine_list[] = {
#include "cpu/kern/cfg_combine.inc"
    NULL};
static const struct oz_cpu_kernel *const sched_step_list[] = {
#include "cpu/kern/sched_step.inc"
    NULL};
static const struct oz_cpu_kernel *const sample_list[] = {
#include "cpu/kern/sample.inc"
    NULL};
#undef OZ_KERNEL

static const struct oz_cpu_kernel *const *const lists[OZ_OP_COUNT] = {
    [OZ_OP_EMBED] = embed_list,
    [OZ_OP_LINEAR] = linear_list,
    [OZ_OP_ROUTE] = route_list,
    [OZ_OP_EXPERTS] = experts_list,
    [OZ_OP_ATTENTION] = attention_list,
    [OZ_OP_NORM_MOD] = norm_mod_list,
    [OZ_OP_QK_NORM_ROPE] = qk_norm_rope_list,
    [OZ_OP_ACT_QUANT] = act_quant_list,
    [OZ_OP_CONV] = conv_list,
    [OZ_OP_RESAMPLE] = resample_list,
    [OZ_OP_TIME_EMBED] = time_embed_list,
    [OZ_OP_PATCH] = patch_list,
    [OZ_OP_UNPATCH] = unpatch_list,
    [OZ_OP_CFG_COMBINE] = cfg_combine_list,
    [OZ_OP_SCHED_STEP] = sched_step_list,
    [OZ_OP_SAMPLE] = sample_list,
};

#define KERNEL_COUNT (sizeof all / sizeof *all)

const struct oz_cpu_kernel *const *oz_cpu_kernels(enum oz_op op)
{
    return lists[op];
}

#define LACKS(id, name, what) "the processor lacks " name,
static const char *const lacks[] = {OZ_TIER_MAP(LACKS)};

#define OP_NAME(id, name, args) #name,
static const char *const op_names[] = {OZ_OP_MAP(OP_NAME)};

const char *oz_cpu_op_name(enum oz_op op)
{
    return op_names[op];
}

const char *oz_cpu_unusable(const struct oz_cpu *cpu, const struct oz_cpu_kernel *k)
{
    for (const struct oz_cpu_kernel *const *u = cpu->usable[k->op]; *u != NULL; u++) {
        if (*u == k) {
            return NULL;
        }
    }
    return oz_cpu_left_out(cpu, k->tier, k->proven != NULL);
}

const char *oz_cpu_left_out(const struct oz_cpu *cpu, enum oz_tier tier, bool proven)
{
    if (!(cpu->processor & (1U << tier))) {
        return lacks[tier];
    }
    if (!(cpu->tiers & (1U << tier))) {
        return "OUNCE_CPU leaves its tier out";
    }
    return proven ? "this processor multiplies f32 faster: opt in with OUNCE_FORCE"
                  : "never run: opt in with OUNCE_FORCE";
}

bool oz_cpu_is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; p != NULL && *p != '\0';) {
        size_t word = strcspn(p, ",");
        if (word == n && strncmp(p, name, n) == 0) {
            return true;
        }
        p += word + (p[word] == ',');
    }
    return false;
}

/* Every word of OUNCE_FORCE must be a kernel or an encoder. */
static enum oz_status check_forced(const char *forced, struct oz_error *err)
{
    const char *names[KERNEL_COUNT + OZ_CPU_MAX_ENCODERS];
    size_t count = 0;
    for (size_t i = 0; i < KERNEL_COUNT; i++) {
        names[count++] = all[i]->name;
    }
    for (const struct oz_cpu_encoder *const *e = oz_cpu_encoders; *e != NULL; e++) {
        names[count++] = (*e)->encoder.name;
    }
    for (const char *p = forced; *p != '\0';) {
        char word[128];
        size_t n = strcspn(p, ",");
        bool found = false;
        (void)snprintf(word, sizeof word, "%.*s", (int)n, p);
        for (size_t i = 0; i < count; i++) {
            found = found || strcmp(names[i], word) == 0;
        }
        if (!found) {
            const char *near = oz_names_nearest(word, names, count);
            return OZ_FAIL(err, OZ_ERR_ARG,
                           "OUNCE_FORCE: there is no kernel %s%s%s%s \"ounce kernels\" lists them.",
                           word, near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                           near != NULL ? "?" : ".");
        }
        p += n + (p[n] == ',');
    }
    return OZ_OK;
}

/* Is a kernel taken without being asked for: proven, and not known to be slow here? */
static bool wanted(const struct oz_cpu *cpu, const struct oz_cpu_kernel *k)
{
    return k->proven != NULL && !(cpu->slow_bf16 && k->tier == OZ_TIER_AVX512BF16);
}

enum oz_status oz_cpu_choose(struct oz_cpu *cpu, const char *wanted_tier, const char *forced,
                             struct oz_error *err)
{
    forced = forced != NULL ? forced : "";
    cpu->processor = cpu->tiers;
    OZ_TRY(oz_tier_limit(cpu->tiers, wanted_tier, &cpu->tiers, err));
    OZ_TRY(check_forced(forced, err));
    for (int op = 0; op < OZ_OP_COUNT; op++) {
        size_t count = 0;
        for (int pass = 0; pass < 2; pass++) { /* forced ones first, then the list's order */
            for (const struct oz_cpu_kernel *const *k = oz_cpu_kernels((enum oz_op)op); *k != NULL;
                 k++) {
                bool force = oz_cpu_is_listed(forced, (*k)->name);
                bool asked = force || (wanted_tier != NULL &&
                                       strcmp(wanted_tier, oz_tier_name((*k)->tier)) == 0);
                bool runs = (cpu->tiers & (1U << (*k)->tier)) != 0;
                if (force && !runs) {
                    return OZ_FAIL(err, OZ_ERR_ARG,
                                   "OUNCE_FORCE: %s needs tier %s, which is not available here.",
                                   (*k)->name, oz_tier_name((*k)->tier));
                }
                if (runs && force == (pass == 0) && (wanted(cpu, *k) || asked) &&
                    count < OZ_CPU_MAX_KERNELS) {
                    cpu->usable[op][count++] = *k;
                }
            }
        }
        cpu->usable[op][count] = NULL;
    }
    return oz_cpu_choose_encoders(cpu, wanted_tier, forced, err);
}

const struct oz_cpu_kernel *oz_cpu_pick(const struct oz_device *dev, enum oz_op op,
                                        const void *args)
{
    const struct oz_cpu *cpu = oz_cpu_of(dev);
    const struct oz_cpu_kernel *k = NULL;
    for (const struct oz_cpu_kernel *const *u = cpu->usable[op]; *u != NULL; u++) {
        k = *u;
        if (k->reject == NULL || k->reject(dev, args) == NULL) {
            return k;
        }
    }
    return k;
}
