/*
 * The dispatch point. Every operator of every forward passes here: shapes are checked, scratch is
 * taken and given back, MEASURE stops and RUN goes to the device, time is kept, and what was
 * written is traced and dumped.
 */
#include "ops/ops.h"

#include <string.h>

#include "base/clock.h"
#include "ops/check.h"
#include "ops/param.h"
#include "ops/trace.h"

#define OP_NAME(id, name, args) #name,
static const char *const op_names[] = {OZ_OP_MAP(OP_NAME)};

const char *oz_op_name(enum oz_op op)
{
    return (unsigned)op < OZ_OP_COUNT ? op_names[op] : "?";
}

/* One call, between begin() and end(). */
struct call {
    enum oz_op op;
    size_t mark;
    double start;
    struct oz_op_ctx ctx;
};

/* Checks, takes scratch; true when the operator is to run. */
static bool begin(struct oz_exec *x, enum oz_op op, const void *args, const char *problem,
                  struct call *c)
{
    if (x->status != OZ_OK) {
        return false;
    }
    if (problem != NULL) {
        oz_exec_fail(x, OZ_ERR_INTERNAL, "Operator %s at %s: %s.", oz_op_name(op), x->label,
                     problem);
        return false;
    }
    size_t bytes = x->dev->ops->scratch_bytes(x->dev, op, args);
    if (bytes == SIZE_MAX) {
        oz_exec_fail(x, OZ_ERR_NOMEM, "Operator %s at %s: its scratch memory overflows.",
                     oz_op_name(op), x->label);
        return false;
    }
    *c = (struct call){.op = op, .mark = oz_exec_mark(x)};
    void *scratch = bytes > 0 ? oz_exec_push(x, bytes) : NULL;
    if (x->status != OZ_OK || x->mode == OZ_EXEC_MEASURE) {
        oz_exec_reset(x, c->mark);
        return false;
    }
    if (x->stop != NULL && x->stop(x->stop_ctx)) {
        oz_exec_reset(x, c->mark);
        oz_exec_fail(x, OZ_ERR_CANCELLED, "Interrupted; nothing was written.");
        return false;
    }
    c->ctx = (struct oz_op_ctx){
        .dev = x->dev, .queue = x->queue, .scratch = scratch, .scratch_bytes = bytes};
    c->start = oz_clock_seconds();
    return true;
}

/* Gives scratch back, keeps time, and shows what was written (`out` may be NULL). */
static void end(struct oz_exec *x, const struct call *c, enum oz_status status, const void *args,
                const struct oz_act *out)
{
    double now = oz_clock_seconds();
    oz_exec_reset(x, c->mark);
    if (status != OZ_OK) {
        oz_exec_fail(
            x, status, "Operator %s at %s: %s on device %s (%s).", oz_op_name(c->op), x->label,
            status == OZ_ERR_UNSUPPORTED ? "no kernel for these formats" : oz_status_text(status),
            x->dev->name, x->dev->tier);
        return;
    }
    if (x->trace != NULL) {
        oz_trace_add(x->trace, c->op, x->label, out != NULL ? out->rows : 0,
                     out != NULL ? out->cols : 0, c->start, now);
    }
    if (x->dump != NULL && out != NULL) {
        x->dump(x->dump_ctx, c->op, x->label, out);
    }
    if (x->watch != NULL) {
        x->watch(x->watch_ctx, c->op, args);
    }
}

/* function name, id, table member, arguments, shape check, what was written. */
#define DISPATCH(function, id, member, type, check, written)        \
    void function(struct oz_exec *x, const type *a)                 \
    {                                                               \
        struct call c;                                              \
        if (begin(x, id, a, check(a), &c)) {                        \
            end(x, &c, x->dev->ops->member(&c.ctx, a), a, written); \
        }                                                           \
    }

DISPATCH(oz_op_embed, OZ_OP_EMBED, embed, struct oz_embed_args, oz_check_embed, a->out)
DISPATCH(oz_op_linear, OZ_OP_LINEAR, linear, struct oz_linear_args, oz_check_linear,
         a->residual != NULL ? a->residual : a->out)
DISPATCH(oz_op_route, OZ_OP_ROUTE, route, struct oz_route_args, oz_check_route, NULL)
DISPATCH(oz_op_experts, OZ_OP_EXPERTS, experts, struct oz_experts_args, oz_check_experts, a->out)
DISPATCH(oz_op_attention, OZ_OP_ATTENTION, attention, struct oz_attention_args, oz_check_attention,
         a->segments[a->segment_count - 1].out)
DISPATCH(oz_op_norm_mod, OZ_OP_NORM_MOD, norm_mod, struct oz_norm_mod_args, oz_check_norm_mod,
         a->out != NULL ? a->out : a->x)
DISPATCH(oz_op_qk_norm_rope, OZ_OP_QK_NORM_ROPE, qk_norm_rope, struct oz_qk_norm_rope_args,
         oz_check_qk_norm_rope, a->out != NULL ? a->out : a->x)
DISPATCH(oz_op_act_quant, OZ_OP_ACT_QUANT, act_quant, struct oz_act_quant_args, oz_check_act_quant,
         a->out)
DISPATCH(oz_op_conv, OZ_OP_CONV, conv, struct oz_conv_args, oz_check_conv, a->out)
DISPATCH(oz_op_resample, OZ_OP_RESAMPLE, resample, struct oz_resample_args, oz_check_resample,
         a->out)
DISPATCH(oz_op_time_embed, OZ_OP_TIME_EMBED, time_embed, struct oz_time_embed_args,
         oz_check_time_embed, a->silu_out != NULL ? a->silu_out : a->out)
DISPATCH(oz_op_patch, OZ_OP_PATCH, patch, struct oz_patch_args, oz_check_patch, a->tokens)
DISPATCH(oz_op_unpatch, OZ_OP_UNPATCH, unpatch, struct oz_unpatch_args, oz_check_unpatch, a->out)
DISPATCH(oz_op_cfg_combine, OZ_OP_CFG_COMBINE, cfg_combine, struct oz_cfg_combine_args,
         oz_check_cfg_combine, a->out)
DISPATCH(oz_op_sched_step, OZ_OP_SCHED_STEP, sched_step, struct oz_sched_step_args,
         oz_check_sched_step, a->x)
DISPATCH(oz_op_sample, OZ_OP_SAMPLE, sample, struct oz_sample_args, oz_check_sample, NULL)

static struct oz_act_spec wants(const struct oz_exec *x, const struct oz_param *w,
                                enum oz_param_use use, int32_t mode)
{
    struct oz_plan_answer answer = {.wants = oz_act_spec_f32()};
    const struct oz_plan_request request = {.use = use, .mode = oz_param_mode(w, mode)};
    if (w->weight.codec != NULL &&
        x->dev->ops->plan_param(x->dev, w, &request, &answer, NULL) != OZ_OK) {
        return oz_act_spec_f32();
    }
    return answer.wants;
}

struct oz_act_spec oz_linear_wants(const struct oz_exec *x, const struct oz_linear *w, int32_t mode)
{
    return wants(x, &w->w, OZ_USE_LINEAR, mode);
}

struct oz_act_spec oz_conv_wants(const struct oz_exec *x, const struct oz_param *w)
{
    return wants(x, w, OZ_USE_CONV, 0);
}

struct oz_act oz_exec_convert(struct oz_exec *x, const struct oz_act *a,
                              const struct oz_act_spec *spec, const struct oz_ragged *sequences)
{
    if (oz_act_spec_equal(&a->spec, spec)) {
        return *a;
    }
    struct oz_act out = oz_exec_act_as(x, a->rows, a->cols, spec);
    oz_op_act_quant(x, &(struct oz_act_quant_args){
                           .x = a, .out = &out, .rows = a->rows, .sequences = sequences});
    return out;
}
