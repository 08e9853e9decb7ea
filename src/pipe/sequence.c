#include "pipe/sequence.h"

#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "num/randn.h"
#include "text/template.h"

static const struct oz_prompt_template *const template = &oz_template_qwen_image;

/* Ids of one prompt; warns about words that were cut. */
static enum oz_status tokenise(struct oz_sequence *s, const struct oz_pipeline *p, int branch,
                               const char *prompt, struct oz_error *err)
{
    struct oz_token_list *list = &s->tokens[branch];
    struct oz_buf lost;
    size_t bytes = strlen(prompt);
    oz_buf_init(&lost, 3 * bytes + 64);
    /* Room for all of them before they are cut: no token has less than a byte. */
    oz_token_list_init(list, OZ_TOKENIZER_MAX_TEXT_BYTES);
    enum oz_status status = oz_template_encode(p->tokenizer, template, prompt, bytes,
                                               template->default_kept, list, &lost, err);
    if (status == OZ_OK && lost.bytes > 0) {
        oz_log(OZ_LOG_WARN, "text",
               "The %sprompt is longer than %d tokens; these words are lost: \"%s\"",
               branch == OZ_BRANCH_NEGATIVE ? "negative " : "", template->default_kept,
               oz_buf_text(&lost));
    }
    oz_buf_deinit(&lost);
    s->text_rows[branch] = (int64_t)list->count - template->drop;
    return status;
}

enum oz_status oz_sequence_init(struct oz_sequence *s, const struct oz_pipeline *p,
                                const struct oz_task *task, int32_t index, struct oz_error *err)
{
    int32_t patch = p->transformer.config.patch_size;
    int32_t multiple = oz_pipeline_size_multiple(p);
    *s = (struct oz_sequence){.task = *task,
                              .index = index,
                              .branches = oz_task_has_cfg(task) ? 2 : 1,
                              .grid = {1, task->height / multiple, task->width / multiple}};
    s->latent_height = s->grid.height * patch;
    s->latent_width = s->grid.width * patch;
    s->image_rows = (int64_t)s->grid.height * s->grid.width;
    enum oz_status status = tokenise(s, p, OZ_BRANCH_POSITIVE, task->prompt, err);
    if (status == OZ_OK && s->branches == 2) {
        status = tokenise(s, p, OZ_BRANCH_NEGATIVE, task->negative_prompt, err);
    }
    if (status == OZ_OK) {
        size_t steps = (size_t)task->steps;
        s->sigmas = oz_alloc_zero(steps + 1, sizeof *s->sigmas);
        s->mod_rows = oz_alloc_zero(steps, sizeof *s->mod_rows);
        status =
            s->sigmas != NULL && s->mod_rows != NULL
                ? oz_sched_flow_sigmas(&p->scheduler, s->image_rows, task->steps, s->sigmas, err)
                : OZ_FAIL_NOMEM(err, "a schedule");
    }
    if (status != OZ_OK) {
        oz_sequence_deinit(s, NULL);
    }
    return status;
}

void oz_sequence_deinit(struct oz_sequence *s, struct oz_device *dev)
{
    oz_sequence_leave(s, dev);
    for (int i = 0; i < OZ_BRANCH_COUNT; i++) {
        oz_token_list_deinit(&s->tokens[i]);
    }
    oz_free(s->sigmas);
    oz_free(s->mod_rows);
    *s = (struct oz_sequence){0};
}

/* Takes everything of the sequence from `arena`; the same code measures and does. */
static enum oz_status lay_out(struct oz_sequence *s, const struct oz_pipeline *p,
                              struct oz_arena *arena)
{
    const struct oz_qwen_image_config *c = &p->transformer.config;
    int64_t pairs = c->head_dim / 2;
    struct {
        struct oz_act *act;
        int64_t rows, cols;
    } parts[3 + 3 * OZ_BRANCH_COUNT] = {
        {&s->latents, s->image_rows, c->in_channels},
        {&s->image_cos, s->image_rows, pairs},
        {&s->image_sin, s->image_rows, pairs},
    };
    int count = 3;
    for (int i = 0; i < s->branches; i++) {
        parts[count].act = &s->text[i];
        parts[count].cols = c->text_dim;
        parts[count++].rows = s->text_rows[i];
        parts[count].act = &s->text_cos[i];
        parts[count].cols = pairs;
        parts[count++].rows = s->text_rows[i];
        parts[count].act = &s->text_sin[i];
        parts[count].cols = pairs;
        parts[count++].rows = s->text_rows[i];
    }
    for (int i = 0; i < count; i++) {
        void *data;
        OZ_TRY(oz_arena_push(arena, (size_t)parts[i].rows * (size_t)parts[i].cols * sizeof(float),
                             &data));
        *parts[i].act = oz_act_f32(data, parts[i].rows, parts[i].cols);
    }
    return OZ_OK;
}

size_t oz_sequence_bytes(const struct oz_sequence *s, const struct oz_pipeline *p)
{
    struct oz_sequence copy = *s;
    struct oz_arena measure;
    oz_arena_init_measure(&measure, "sequence");
    return lay_out(&copy, p, &measure) == OZ_OK ? measure.used_bytes : SIZE_MAX;
}

/* Host values of an activation to the device. */
static enum oz_status upload(struct oz_device *dev, const struct oz_act *a, const float *host,
                             struct oz_error *err)
{
    size_t bytes = (size_t)a->rows * (size_t)a->cols * sizeof *host;
    OZ_TRY(dev->upload(dev, NULL, a->data, host, bytes, err));
    return dev->wait(dev, NULL, err);
}

/* N(0, 1) of [channels, h, w], packed into tokens: feature c p^2 + dy p + dx of cell (y, x). */
static void draw_latents(const struct oz_sequence *s, const struct oz_pipeline *p, float *noise,
                         float *packed)
{
    const struct oz_qwen_image_config *c = &p->transformer.config;
    int32_t patch = c->patch_size;
    int64_t plane = (int64_t)s->latent_height * s->latent_width;
    oz_randn(s->task.seed, c->out_channels * plane, noise);
    for (int64_t row = 0; row < s->image_rows; row++) {
        int64_t y = row / s->grid.width * patch;
        int64_t x = row % s->grid.width * patch;
        for (int32_t f = 0; f < c->in_channels; f++) {
            int32_t channel = f / (patch * patch);
            int32_t dy = f / patch % patch;
            int32_t dx = f % patch;
            packed[row * c->in_channels + f] =
                noise[channel * plane + (y + dy) * s->latent_width + x + dx];
        }
    }
}

static enum oz_status fill_latents(struct oz_sequence *s, const struct oz_pipeline *p,
                                   struct oz_error *err)
{
    size_t values = (size_t)s->image_rows * (size_t)p->transformer.config.in_channels;
    float *noise = oz_alloc(2 * values * sizeof *noise);
    if (noise == NULL) {
        return OZ_FAIL_NOMEM(err, "the first latents");
    }
    draw_latents(s, p, noise, noise + values);
    enum oz_status status = upload(p->dev, &s->latents, noise + values, err);
    oz_free(noise);
    return status;
}

/* The branches share the picture's positions, and the shorter text's are the beginning of the longer
 * one's: one computation serves both. */
static enum oz_status fill_positions(struct oz_sequence *s, const struct oz_pipeline *p,
                                     struct oz_error *err)
{
    int64_t pairs = p->transformer.config.head_dim / 2;
    int64_t rows = s->text_rows[0] > s->text_rows[1] ? s->text_rows[0] : s->text_rows[1];
    size_t image = (size_t)(s->image_rows * pairs);
    size_t text = (size_t)(rows * pairs);
    float *table = oz_alloc(2 * (image + text) * sizeof *table);
    if (table == NULL) {
        return OZ_FAIL_NOMEM(err, "positions");
    }
    float *text_table = table + 2 * image;
    oz_qwen_image_rope(&p->transformer.config, &s->grid, 1, rows, table, table + image, text_table,
                       text_table + text);
    enum oz_status status = upload(p->dev, &s->image_cos, table, err);
    if (status == OZ_OK) {
        status = upload(p->dev, &s->image_sin, table + image, err);
    }
    for (int i = 0; i < s->branches && status == OZ_OK; i++) {
        status = upload(p->dev, &s->text_cos[i], text_table, err);
        if (status == OZ_OK) {
            status = upload(p->dev, &s->text_sin[i], text_table + text, err);
        }
    }
    oz_free(table);
    return status;
}

enum oz_status oz_sequence_join(struct oz_sequence *s, const struct oz_pipeline *p,
                                struct oz_error *err)
{
    size_t bytes = oz_sequence_bytes(s, p);
    OZ_TRY(p->dev->alloc(p->dev, bytes, &s->memory, err));
    oz_arena_init_view(&s->arena, "sequence", s->memory, bytes, p->dev->host_memory);
    enum oz_status status = lay_out(s, p, &s->arena);
    if (status == OZ_OK) {
        status = fill_latents(s, p, err);
    }
    if (status == OZ_OK) {
        status = fill_positions(s, p, err);
    }
    if (status != OZ_OK) {
        oz_sequence_leave(s, p->dev);
    }
    return status;
}

void oz_sequence_leave(struct oz_sequence *s, struct oz_device *dev)
{
    if (s->memory != NULL) {
        oz_arena_deinit(&s->arena);
        dev->free(dev, s->memory);
        s->memory = NULL;
    }
}
