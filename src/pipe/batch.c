#include "pipe/batch.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "ops/ops.h"

enum oz_status oz_batch_init(struct oz_batch *b, const struct oz_pipeline *p, int32_t capacity,
                             int64_t max_image_rows, int64_t max_text_rows, struct oz_error *err)
{
    size_t branches = (size_t)capacity * OZ_BRANCH_COUNT;
    size_t offsets = branches + 1;
    *b = (struct oz_batch){.pipeline = p,
                           .capacity = capacity,
                           .max_image_rows = max_image_rows,
                           .max_text_rows = max_text_rows};
    b->members = oz_alloc_zero((size_t)capacity, sizeof *b->members);
    b->host =
        oz_alloc_zero(2 * offsets + (size_t)max_image_rows + (size_t)max_text_rows + 4 * branches,
                      sizeof *b->host);
    b->factors = oz_alloc_zero(2 * (size_t)capacity, sizeof *b->factors);
    if (b->members == NULL || b->host == NULL || b->factors == NULL) {
        oz_batch_deinit(b);
        return OZ_FAIL_NOMEM(err, "the batch");
    }
    b->image_offsets = b->host;
    b->text_offsets = b->image_offsets + offsets;
    b->image_mod = b->text_offsets + offsets;
    b->text_mod = b->image_mod + max_image_rows;
    b->part_offsets = b->text_mod + max_text_rows;
    return OZ_OK;
}

void oz_batch_deinit(struct oz_batch *b)
{
    oz_free((void *)b->members);
    oz_free(b->host);
    oz_free(b->factors);
    *b = (struct oz_batch){0};
}

/* Memory of the composition's part of the plan arena. */
static void *push(struct oz_exec *x, struct oz_arena *plan, size_t bytes)
{
    void *memory = NULL;
    if (oz_exec_ok(x) && oz_arena_push(plan, bytes, &memory) != OZ_OK) {
        oz_exec_fail(x, OZ_ERR_NOMEM, "The plan arena is full: %zu bytes more, %zu of %zu used.",
                     bytes, plan->used_bytes, plan->capacity_bytes);
    }
    return memory;
}

static struct oz_act push_act(struct oz_exec *x, struct oz_arena *plan, int64_t rows, int64_t cols)
{
    return oz_act_f32(push(x, plan, (size_t)rows * (size_t)cols * sizeof(float)), rows, cols);
}

/* Copies a sequence's rows to row `first` of a tall matrix. */
static void copy_rows(struct oz_exec *x, const struct oz_act *tall, int64_t first,
                      const struct oz_act *part)
{
    struct oz_act out = oz_act_rows(tall, first, part->rows);
    oz_op_act_quant(x, &(struct oz_act_quant_args){.x = part, .out = &out, .rows = part->rows});
}

/* Where each branch's rows lie: positive, then negative, member after member. */
static void set_offsets(struct oz_batch *b)
{
    int32_t image = 0;
    int32_t text = 0;
    int32_t branch = 0;
    for (int32_t i = 0; i < b->count; i++) {
        const struct oz_sequence *s = b->members[i];
        for (int j = 0; j < s->branches; j++, branch++) {
            b->image_offsets[branch] = image;
            b->text_offsets[branch] = text;
            image += (int32_t)s->image_rows;
            text += (int32_t)s->text_rows[j];
        }
    }
    b->image_offsets[branch] = image;
    b->text_offsets[branch] = text;
    b->forward.image = (struct oz_ragged){.count = branch, .offsets = b->image_offsets};
    b->forward.text = (struct oz_ragged){.count = branch, .offsets = b->text_offsets};
}

/* The device's side of everything that is as tall as the batch. */
static void lay_out(struct oz_exec *x, struct oz_batch *b, struct oz_arena *plan)
{
    const struct oz_qwen_image_config *c = &b->pipeline->transformer.config;
    struct oz_ragged *image = &b->forward.image;
    struct oz_ragged *text = &b->forward.text;
    int64_t pairs = c->head_dim / 2;
    int64_t image_rows = image->offsets[image->count];
    int64_t text_rows = text->offsets[text->count];
    size_t offset_bytes = ((size_t)image->count + 1) * sizeof(int32_t);
    int32_t *image_offsets = push(x, plan, offset_bytes);
    int32_t *text_offsets = push(x, plan, offset_bytes);
    b->device_image_mod = push(x, plan, (size_t)image_rows * sizeof(int32_t));
    b->device_text_mod = push(x, plan, (size_t)text_rows * sizeof(int32_t));
    b->device_factors = push(x, plan, 2 * (size_t)b->count * sizeof(float));
    b->device_part_offsets =
        b->pipeline->fallback_step_count > 0
            ? push(x, plan, 4 * (size_t)image->count * sizeof(*b->device_part_offsets))
            : NULL;
    b->text_states = push_act(x, plan, text_rows, c->text_dim);
    b->image_cos = push_act(x, plan, image_rows, pairs);
    b->image_sin = push_act(x, plan, image_rows, pairs);
    b->text_cos = push_act(x, plan, text_rows, pairs);
    b->text_sin = push_act(x, plan, text_rows, pairs);
    oz_exec_upload(x, image_offsets, b->image_offsets, offset_bytes);
    oz_exec_upload(x, text_offsets, b->text_offsets, offset_bytes);
    image->device_offsets = image_offsets;
    text->device_offsets = text_offsets;
    b->forward.text_states = &b->text_states;
    b->forward.image_cos = &b->image_cos;
    b->forward.image_sin = &b->image_sin;
    b->forward.text_cos = &b->text_cos;
    b->forward.text_sin = &b->text_sin;
    b->forward.image_mod = b->device_image_mod;
    b->forward.text_mod = b->device_text_mod;
    b->forward.mod = b->mod;
}

void oz_batch_compose(struct oz_exec *x, struct oz_batch *b, struct oz_sequence *const *members,
                      int32_t count, struct oz_arena *plan)
{
    if (count > b->capacity) {
        oz_exec_fail(x, OZ_ERR_INTERNAL, "A batch of %d has %d members.", b->capacity, count);
        return;
    }
    memcpy((void *)b->members, (const void *)members, (size_t)count * sizeof *members);
    b->count = count;
    set_offsets(b);
    lay_out(x, b, plan);
    x->label = "compose";
    int32_t branch = 0;
    for (int32_t i = 0; i < count; i++) {
        const struct oz_sequence *s = members[i];
        for (int j = 0; j < s->branches; j++, branch++) {
            int64_t image = b->image_offsets[branch];
            int64_t text = b->text_offsets[branch];
            copy_rows(x, &b->text_states, text, &s->text[j]);
            copy_rows(x, &b->image_cos, image, &s->image_cos);
            copy_rows(x, &b->image_sin, image, &s->image_sin);
            copy_rows(x, &b->text_cos, text, &s->text_cos[j]);
            copy_rows(x, &b->text_sin, text, &s->text_sin[j]);
        }
    }
}

/* This step's numbers: modulation rows of every token, solver factors of every sequence. */
static void upload_step(struct oz_exec *x, struct oz_batch *b)
{
    int32_t branch = 0;
    if (x->mode == OZ_EXEC_MEASURE) {
        return;
    }
    for (int32_t i = 0; i < b->count; i++) {
        const struct oz_sequence *s = b->members[i];
        int32_t row = s->mod_rows[s->step];
        b->factors[2 * i] = 1.0F;
        b->factors[2 * i + 1] = s->sigmas[s->step + 1] - s->sigmas[s->step];
        for (int j = 0; j < s->branches; j++, branch++) {
            for (int32_t r = b->image_offsets[branch]; r < b->image_offsets[branch + 1]; r++) {
                b->image_mod[r] = row;
            }
            for (int32_t r = b->text_offsets[branch]; r < b->text_offsets[branch + 1]; r++) {
                b->text_mod[r] = row;
            }
        }
    }
    oz_exec_upload(x, b->device_image_mod, b->image_mod,
                   (size_t)b->image_offsets[branch] * sizeof(int32_t));
    oz_exec_upload(x, b->device_text_mod, b->text_mod,
                   (size_t)b->text_offsets[branch] * sizeof(int32_t));
    oz_exec_upload(x, b->device_factors, b->factors, 2 * (size_t)b->count * sizeof(float));
}

/* Guidance and the solver for one member whose branches begin at `branch`. */
static void advance(struct oz_exec *x, struct oz_batch *b, int32_t member, int32_t branch,
                    const struct oz_act *velocities)
{
    struct oz_sequence *s = b->members[member];
    struct oz_act v = oz_act_rows(velocities, b->image_offsets[branch], s->image_rows);
    const struct oz_batch_hooks *hooks = x->mode == OZ_EXEC_RUN ? b->hooks : NULL;
    if (hooks != NULL && hooks->prediction != NULL && oz_exec_ok(x)) {
        hooks->prediction(hooks->ctx, s, &v);
    }
    if (s->branches == 2) {
        struct oz_act negative =
            oz_act_rows(velocities, b->image_offsets[branch + 1], s->image_rows);
        oz_op_cfg_combine(x, &(struct oz_cfg_combine_args){.positive = &v,
                                                           .negative = &negative,
                                                           .guidance = (float)s->task.scale,
                                                           .rescale = true,
                                                           .out = &v});
    }
    const float *factors =
        (const float *)((uintptr_t)b->device_factors + 2 * (size_t)member * sizeof(float));
    oz_op_sched_step(
        x, &(struct oz_sched_step_args){
               .x = &s->latents, .keep = true, .count = 1, .factors = factors, .terms = {&v}});
    if (x->mode == OZ_EXEC_RUN && oz_exec_ok(x)) {
        if (hooks != NULL && hooks->latents != NULL) {
            hooks->latents(hooks->ctx, s, &s->latents);
        }
        s->step++;
    }
}

/* ---- parts of the batch, by activation mode ---- */

/* Branches [first, first + count) in one mode. `room`: entries of part_offsets that are taken. */
struct part {
    int32_t first, count, mode, room;
};

static int32_t mode_of(const struct oz_pipeline *p, int32_t step)
{
    for (int32_t i = 0; i < p->fallback_step_count; i++) {
        if (p->fallback_steps[i] == step) {
            return 1;
        }
    }
    return 0;
}

/* A part's offsets, which begin at 0, on both sides. */
static struct oz_ragged part_ragged(struct oz_exec *x, struct oz_batch *b, struct part *part,
                                    const int32_t *offsets)
{
    int32_t *host = b->part_offsets + part->room;
    int32_t *device = b->device_part_offsets + part->room;
    for (int32_t i = 0; i <= part->count; i++) {
        host[i] = offsets[part->first + i] - offsets[part->first];
    }
    part->room += part->count + 1;
    oz_exec_upload(x, device, host, ((size_t)part->count + 1) * sizeof *host);
    return (struct oz_ragged){.count = part->count, .offsets = host, .device_offsets = device};
}

/* The forward of a part. What a sequence gets does not depend on the cut (row independence). */
static void forward_part(struct oz_exec *x, struct oz_batch *b, struct part *part,
                         const struct oz_act *latents, const struct oz_act *velocities)
{
    struct oz_qwen_image_batch f = b->forward;
    int32_t image = b->image_offsets[part->first];
    int32_t text = b->text_offsets[part->first];
    f.mode = part->mode;
    f.image = part_ragged(x, b, part, b->image_offsets);
    f.text = part_ragged(x, b, part, b->text_offsets);
    int64_t image_rows = f.image.offsets[f.image.count];
    int64_t text_rows = f.text.offsets[f.text.count];
    struct oz_act in = oz_act_rows(latents, image, image_rows);
    struct oz_act out = oz_act_rows(velocities, image, image_rows);
    struct oz_act states = oz_act_rows(f.text_states, text, text_rows);
    struct oz_act image_cos = oz_act_rows(f.image_cos, image, image_rows);
    struct oz_act image_sin = oz_act_rows(f.image_sin, image, image_rows);
    struct oz_act text_cos = oz_act_rows(f.text_cos, text, text_rows);
    struct oz_act text_sin = oz_act_rows(f.text_sin, text, text_rows);
    f.latents = &in;
    f.text_states = &states;
    f.image_cos = &image_cos;
    f.image_sin = &image_sin;
    f.text_cos = &text_cos;
    f.text_sin = &text_sin;
    f.image_mod += image;
    f.text_mod += text;
    oz_qwen_image_forward(x, &b->pipeline->transformer, &f, &out);
}

/* Measures every part that some step may cut, in both modes: scratch need not grow with the rows. */
static void measure_parts(struct oz_exec *x, struct oz_batch *b, const struct oz_act *latents,
                          const struct oz_act *velocities)
{
    int32_t first = 0;
    for (int32_t i = 0; i < b->count; i++) {
        int32_t count = 0;
        for (int32_t j = i; j < b->count; j++) {
            count += b->members[j]->branches;
            for (int32_t mode = 0; mode < 2; mode++) {
                struct part part = {.first = first, .count = count, .mode = mode};
                forward_part(x, b, &part, latents, velocities);
            }
        }
        first += b->members[i]->branches;
    }
}

/* Neighbours in the same mode go together. */
static void forward_by_mode(struct oz_exec *x, struct oz_batch *b, const struct oz_act *latents,
                            const struct oz_act *velocities)
{
    struct part part = {0};
    for (int32_t i = 0; i < b->count; i++) {
        int32_t next = i + 1 < b->count ? mode_of(b->pipeline, b->members[i + 1]->step) : -1;
        part.mode = mode_of(b->pipeline, b->members[i]->step);
        part.count += b->members[i]->branches;
        if (next != part.mode) {
            forward_part(x, b, &part, latents, velocities);
            part.first += part.count;
            part.count = 0;
        }
    }
}

static void forward(struct oz_exec *x, struct oz_batch *b, const struct oz_act *latents,
                    struct oz_act *velocities)
{
    if (b->pipeline->fallback_step_count == 0) {
        b->forward.latents = latents;
        oz_qwen_image_forward(x, &b->pipeline->transformer, &b->forward, velocities);
        b->forward.latents = NULL;
    } else if (x->mode == OZ_EXEC_MEASURE) {
        measure_parts(x, b, latents, velocities);
    } else {
        forward_by_mode(x, b, latents, velocities);
    }
}

void oz_batch_step(struct oz_exec *x, struct oz_batch *b)
{
    const struct oz_pipeline *p = b->pipeline;
    int64_t rows = b->image_offsets[b->forward.image.count];
    int64_t channels = p->transformer.config.in_channels;
    size_t mark = oz_exec_mark(x);
    struct oz_act latents = oz_exec_act(x, rows, channels);
    struct oz_act velocities = oz_exec_act(x, rows, channels);
    x->label = "step";
    oz_offload_need(p, OZ_COMPONENT_TRANSFORMER, x);
    upload_step(x, b);
    int32_t branch = 0;
    for (int32_t i = 0; i < b->count; i++) {
        for (int j = 0; j < b->members[i]->branches; j++, branch++) {
            copy_rows(x, &latents, b->image_offsets[branch], &b->members[i]->latents);
        }
    }
    forward(x, b, &latents, &velocities);
    x->label = "step";
    branch = 0;
    for (int32_t i = 0; i < b->count; i++) {
        advance(x, b, i, branch, &velocities);
        branch += b->members[i]->branches;
    }
    oz_exec_reset(x, mark);
}
