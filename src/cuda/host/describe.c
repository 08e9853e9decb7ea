/* The lists of kernels: what there is for each operator, and where it has run. */
#include <stdio.h>

#include "cuda/host/cuda.h"
#include "dev/report.h"

static const struct {
    int sm;
    const char *what;
} architectures[] = {{80, "A100"},         {89, "L40S, RTX 40"}, {90, "H100, H200"},
                     {100, "B200, GB200"}, {103, "B300, GB300"}, {120, "RTX 50, RTX PRO 6000"}};

#define ON_H200 "NVIDIA H200 (2026-11-30)"

/* Best first; where a kernel has run: NULL nowhere yet. */
static const struct {
    const char *op, *name, *proven;
} kernels[] = {
    {"embed", "oz_embed_any_any__cuda", ON_H200},
    {"linear", "oz_linear_e4m3_e4m3_f32__cublaslt", ON_H200},
    {"linear", "oz_linear_s8_s8_s32__cublaslt", ON_H200},
    {"linear", "oz_linear_bf16_bf16_f32__cublaslt", ON_H200},
    {"linear", "oz_linear_bf16_codes_f32__cublaslt", ON_H200},
    {"linear", "oz_linear_f32_any_f32__cublaslt", ON_H200},
    {"attention", "oz_attention_bf16__cudnn", NULL},
    {"attention", "oz_attention_bf16__cuda", ON_H200},
    {"attention", "oz_attention_f32__cuda", ON_H200},
    {"norm_mod", "oz_norm_mod_any__cuda", ON_H200},
    {"qk_norm_rope", "oz_qk_norm_rope_any__cuda", ON_H200},
    {"act_quant", "oz_act_quant_any__cuda", ON_H200},
    {"conv", "oz_conv_bf16_bf16_f32__cublaslt", ON_H200},
    {"conv", "oz_conv_f32_any_f32__cublaslt", ON_H200},
    {"resample", "oz_resample_any__cuda", ON_H200},
    {"time_embed", "oz_time_embed_f32_any_f32__cublaslt", ON_H200},
    {"patch", "oz_patch_any__cuda", ON_H200},
    {"unpatch", "oz_unpatch_any__cuda", ON_H200},
    {"cfg_combine", "oz_cfg_combine_any__cuda", ON_H200},
    {"sched_step", "oz_sched_step_any__cuda", ON_H200},
    {"sample", "oz_sample_largest__cuda", NULL},
};

void oz_cuda_describe(struct oz_device *dev, const struct oz_kernel_report *report)
{
    const struct oz_cuda *c = oz_cuda_of(dev);
    bool tried = oz_cuda_is_tried(c->sm);
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        char name[16];
        bool mine = architectures[i].sm == c->sm;
        (void)snprintf(name, sizeof name, "sm_%d", architectures[i].sm);
        const struct oz_tier_row row = {.name = name,
                                        .what = architectures[i].what,
                                        .present = mine,
                                        .in_use = mine && (tried || c->untried)};
        report->tier(report->ctx, &row);
    }
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        bool ran = tried && kernels[i].proven != NULL;
        const struct oz_kernel_row row = {
            .op = kernels[i].op,
            .name = kernels[i].name,
            .tier = c->tier,
            .proven = tried ? kernels[i].proven : NULL,
            .unusable = ran || c->untried ? NULL : "it has never run; OUNCE_UNTRIED asks for it"};
        report->kernel(report->ctx, &row);
    }
}
