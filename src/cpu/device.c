/*
 * The CPU device: host memory, transfers that are memcpy, queues that are done before they begin.
 * All work runs on the calling thread and the pool; operators of devices that share a pool must
 * come from one thread at a time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/memory.h"
#include "cpu/bench.h"
#include "cpu/describe.h"
#include "cpu/encode.h"
#include "cpu/kernel.h"
#include "cpu/plan.h"
#include "cpu/stage.h"
#include "dev/backends.h"

/* There is nothing to order: one of each serves everybody. */
struct oz_queue {
    char unused;
};
struct oz_event {
    char unused;
};
static struct oz_queue only_queue;
static struct oz_event only_event;

static enum oz_status need_hardware(const struct oz_device *dev, struct oz_error *err)
{
    if (dev->plan_only) {
        return OZ_FAIL(err, OZ_ERR_DEVICE,
                       "Device %s was opened for planning only; it has no memory and runs nothing.",
                       dev->name);
    }
    return OZ_OK;
}

/* ---- memory ---- */

static enum oz_status device_memory(struct oz_device *dev, int64_t *free_bytes,
                                    int64_t *total_bytes, struct oz_error *err)
{
    OZ_TRY(need_hardware(dev, err));
    oz_memory_read("", free_bytes, total_bytes);
    int64_t page = sysconf(_SC_PAGESIZE);
    if (*total_bytes < 0) {
        *total_bytes = sysconf(_SC_PHYS_PAGES) * page;
    }
    if (*free_bytes < 0) {
        *free_bytes = sysconf(_SC_AVPHYS_PAGES) * page;
    }
    return OZ_OK;
}

static enum oz_status device_alloc(struct oz_device *dev, size_t bytes, void **out,
                                   struct oz_error *err)
{
    *out = NULL;
    OZ_TRY(need_hardware(dev, err));
    if (bytes <= SIZE_MAX - OZ_DEVICE_ALIGN) {
        *out = oz_alloc_large((bytes + OZ_DEVICE_ALIGN - 1) / OZ_DEVICE_ALIGN * OZ_DEVICE_ALIGN,
                              OZ_DEVICE_ALIGN);
    }
    if (*out == NULL) {
        int64_t free_bytes;
        int64_t total_bytes;
        oz_memory_read("", &free_bytes, &total_bytes);
        return OZ_FAIL(err, OZ_ERR_NOMEM,
                       "Out of memory on %s: %zu bytes asked, %lld available of %lld.", dev->name,
                       bytes, (long long)free_bytes, (long long)total_bytes);
    }
    return OZ_OK;
}

static void device_free(struct oz_device *dev, void *memory)
{
    (void)dev;
    oz_free(memory);
}

/* ---- transfers ---- */

static enum oz_status copy_bytes(struct oz_device *dev, struct oz_queue *queue, void *dst,
                                 const void *src, size_t bytes, struct oz_error *err)
{
    (void)queue;
    OZ_TRY(need_hardware(dev, err));
    if (bytes > 0) {
        memcpy(dst, src, bytes);
    }
    return OZ_OK;
}

/* ---- queues ---- */

static enum oz_status queue_create(struct oz_device *dev, struct oz_queue **out,
                                   struct oz_error *err)
{
    *out = NULL;
    OZ_TRY(need_hardware(dev, err));
    *out = &only_queue;
    return OZ_OK;
}

static void queue_destroy(struct oz_device *dev, struct oz_queue *queue)
{
    (void)dev;
    (void)queue;
}

static enum oz_status queue_wait(struct oz_device *dev, struct oz_queue *queue,
                                 struct oz_error *err)
{
    (void)queue;
    return need_hardware(dev, err);
}

static enum oz_status queue_record(struct oz_device *dev, struct oz_queue *queue,
                                   struct oz_event **event, struct oz_error *err)
{
    (void)queue;
    OZ_TRY(need_hardware(dev, err));
    *event = &only_event;
    return OZ_OK;
}

static enum oz_status queue_await(struct oz_device *dev, struct oz_queue *queue,
                                  struct oz_event *event, struct oz_error *err)
{
    (void)queue;
    (void)event;
    return need_hardware(dev, err);
}

static void event_destroy(struct oz_device *dev, struct oz_event *event)
{
    (void)dev;
    (void)event;
}

/* ---- operators ---- */

static size_t scratch_bytes(const struct oz_device *dev, enum oz_op op, const void *args)
{
    return oz_stage_scratch(dev, op, args);
}

static enum oz_status run_any(const struct oz_op_ctx *ctx, enum oz_op op, const void *args)
{
    if (ctx->dev->plan_only) {
        return OZ_ERR_DEVICE;
    }
    return oz_stage_run(ctx, op, args);
}

#define RUN(function, id, type)                                                   \
    static enum oz_status function(const struct oz_op_ctx *ctx, const type *args) \
    {                                                                             \
        return run_any(ctx, id, args);                                            \
    }
RUN(run_embed, OZ_OP_EMBED, struct oz_embed_args)
RUN(run_linear, OZ_OP_LINEAR, struct oz_linear_args)
RUN(run_route, OZ_OP_ROUTE, struct oz_route_args)
RUN(run_experts, OZ_OP_EXPERTS, struct oz_experts_args)
RUN(run_attention, OZ_OP_ATTENTION, struct oz_attention_args)
RUN(run_norm_mod, OZ_OP_NORM_MOD, struct oz_norm_mod_args)
RUN(run_qk_norm_rope, OZ_OP_QK_NORM_ROPE, struct oz_qk_norm_rope_args)
RUN(run_act_quant, OZ_OP_ACT_QUANT, struct oz_act_quant_args)
RUN(run_conv, OZ_OP_CONV, struct oz_conv_args)
RUN(run_resample, OZ_OP_RESAMPLE, struct oz_resample_args)
RUN(run_time_embed, OZ_OP_TIME_EMBED, struct oz_time_embed_args)
RUN(run_patch, OZ_OP_PATCH, struct oz_patch_args)
RUN(run_unpatch, OZ_OP_UNPATCH, struct oz_unpatch_args)
RUN(run_cfg_combine, OZ_OP_CFG_COMBINE, struct oz_cfg_combine_args)
RUN(run_sched_step, OZ_OP_SCHED_STEP, struct oz_sched_step_args)
RUN(run_sample, OZ_OP_SAMPLE, struct oz_sample_args)

static const struct oz_op_table operators = {
    .scratch_bytes = scratch_bytes,
    .plan_param = oz_cpu_plan_param,
    .act_support = oz_cpu_act_support,
    .pack_band = oz_cpu_pack_band,
    .find_encoder = oz_cpu_find_encoder,
    .embed = run_embed,
    .linear = run_linear,
    .route = run_route,
    .experts = run_experts,
    .attention = run_attention,
    .norm_mod = run_norm_mod,
    .qk_norm_rope = run_qk_norm_rope,
    .act_quant = run_act_quant,
    .conv = run_conv,
    .resample = run_resample,
    .time_embed = run_time_embed,
    .patch = run_patch,
    .unpatch = run_unpatch,
    .cfg_combine = run_cfg_combine,
    .sched_step = run_sched_step,
    .sample = run_sample,
};

/* ---- the device ---- */

static void device_close(struct oz_device *dev)
{
    oz_free(dev->impl);
}

enum oz_status oz_cpu_open(struct oz_device **out, uint32_t flags, struct oz_pool *pool,
                           const char *tier, const char *forced, struct oz_error *err)
{
    *out = NULL;
    struct oz_cpuid id;
    if (flags & (OZ_DEVICE_LINEAR_VENDOR | OZ_DEVICE_LINEAR_OWN)) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "Linear backend \"%s\" is of CUDA devices; device cpu has \"auto\", \"cpu\" "
                       "and \"ref\".",
                       flags & OZ_DEVICE_LINEAR_VENDOR ? "cublaslt" : "own");
    }
    struct oz_cpu *cpu = oz_alloc_zero(1, sizeof *cpu);
    if (cpu == NULL) {
        return OZ_FAIL_NOMEM(err, "the CPU device");
    }
    oz_cpuid_read(&id);
    cpu->tiers = oz_tier_mask(&id);
    cpu->slow_bf16 = oz_tier_slow_bf16(&id);
    cpu->linear_ref = (flags & OZ_DEVICE_LINEAR_REF) != 0;
    enum oz_status status = oz_cpu_choose(cpu, tier, forced, err);
    if (status != OZ_OK) {
        oz_free(cpu);
        return status;
    }
    struct oz_device *dev = &cpu->dev;
    *dev = (struct oz_device){
        .name = "cpu",
        .tier = oz_tier_name(oz_tier_highest(cpu->tiers)),
        .host_memory = true,
        .plan_only = (flags & OZ_DEVICE_PLAN_ONLY) != 0,
        .f32_math = (flags & OZ_DEVICE_F32) != 0,
        .impl = cpu,
        .pool = pool,
        .ops = &operators,
        .alloc = device_alloc,
        .free = device_free,
        .alloc_host = device_alloc,
        .free_host = device_free,
        .memory = device_memory,
        .upload = copy_bytes,
        .download = copy_bytes,
        .copy = copy_bytes,
        .queue_create = queue_create,
        .queue_destroy = queue_destroy,
        .wait = queue_wait,
        .record = queue_record,
        .await = queue_await,
        .event_destroy = event_destroy,
        .describe = oz_cpu_describe,
        .bench = oz_cpu_bench,
        .close = device_close,
    };
    *out = dev;
    return OZ_OK;
}

static enum oz_status device_open(struct oz_device **out, int32_t index, uint32_t flags,
                                  struct oz_pool *pool, struct oz_error *err)
{
    *out = NULL;
    if (index != 0) {
        return OZ_FAIL(err, OZ_ERR_DEVICE, "Device cpu:%d does not exist; there is one, \"cpu\".",
                       (int)index);
    }
    return oz_cpu_open(out, flags, pool, getenv("OUNCE_CPU"), getenv("OUNCE_FORCE"), err);
}

const struct oz_backend oz_cpu_backend = {
    .abi = OZ_BACKEND_ABI,
    .name = "cpu",
    .open = device_open,
};
