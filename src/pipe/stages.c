#include "pipe/stages.h"

#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "ops/ops.h"

enum oz_status oz_latent_scale_init(struct oz_latent_scale *l, const struct oz_pipeline *p,
                                    struct oz_arena *arena)
{
    void *memory[2];
    size_t channels = (size_t)p->vae.config.z_dim * sizeof(float);
    OZ_TRY(oz_arena_push(arena, channels, &memory[0]));
    OZ_TRY(oz_arena_push(arena, channels, &memory[1]));
    l->scale = memory[0];
    l->shift = memory[1];
    return OZ_OK;
}

void oz_latent_scale_fill(struct oz_exec *x, const struct oz_latent_scale *l,
                          const struct oz_pipeline *p)
{
    const struct oz_qwen_vae_config *vae = &p->vae.config;
    size_t channels = (size_t)vae->z_dim * sizeof(float);
    oz_exec_upload(x, l->scale, vae->latents_std, channels);
    oz_exec_upload(x, l->shift, vae->latents_mean, channels);
}

enum oz_status oz_stage_finish(struct oz_exec *x)
{
    if (x->status == OZ_OK && x->mode == OZ_EXEC_RUN) {
        x->status = x->dev->wait(x->dev, x->queue, x->err);
    }
    return x->status;
}

/* ---- text ---- */

void oz_stage_text(struct oz_exec *x, const struct oz_pipeline *p, struct oz_sequence *s,
                   int branch, void *host)
{
    const struct oz_qwen25_vl *m = &p->text_encoder;
    int32_t rows = (int32_t)s->tokens[branch].count;
    int64_t pairs = m->config.head_dim / 2;
    int32_t drop = (int32_t)(rows - s->text_rows[branch]);
    size_t mark = oz_exec_mark(x);
    oz_offload_need(p, OZ_COMPONENT_TEXT_ENCODER, x);
    int32_t *ids = oz_exec_push(x, (size_t)rows * sizeof *ids);
    int32_t *device_offsets = oz_exec_push(x, 2 * sizeof *device_offsets);
    struct oz_act cosine = oz_exec_act(x, rows, pairs);
    struct oz_act sine = oz_exec_act(x, rows, pairs);
    struct oz_act out = oz_exec_act(x, rows, m->config.hidden);
    const int32_t offsets[2] = {0, rows};
    struct oz_ragged sequences = {.count = 1, .offsets = offsets, .device_offsets = device_offsets};
    if (x->mode == OZ_EXEC_RUN) {
        float *cos_host = host;
        float *sin_host = cos_host + rows * pairs;
        int32_t *positions = (int32_t *)(void *)(sin_host + rows * pairs);
        oz_qwen25_vl_text_positions(&sequences, positions);
        oz_qwen25_vl_rope(&m->config, positions, rows, cos_host, sin_host);
        oz_exec_upload(x, ids, s->tokens[branch].ids, (size_t)rows * sizeof *ids);
        oz_exec_upload(x, device_offsets, offsets, sizeof offsets);
        oz_exec_upload(x, cosine.data, cos_host, (size_t)(rows * pairs) * sizeof(float));
        oz_exec_upload(x, sine.data, sin_host, (size_t)(rows * pairs) * sizeof(float));
    }
    oz_qwen25_vl_forward(
        x, m,
        &(struct oz_qwen25_vl_batch){
            .rows = rows, .ids = ids, .sequences = &sequences, .cosine = &cosine, .sine = &sine},
        &out);
    struct oz_act kept = oz_act_rows(&out, drop, rows - drop);
    x->label = "prompt_embeds";
    oz_op_act_quant(
        x, &(struct oz_act_quant_args){.x = &kept, .out = &s->text[branch], .rows = rows - drop});
    oz_exec_reset(x, mark);
}

size_t oz_stage_text_host_bytes(const struct oz_sequence *s, const struct oz_pipeline *p)
{
    size_t rows = 0;
    for (int j = 0; j < s->branches; j++) {
        rows = s->tokens[j].count > rows ? s->tokens[j].count : rows;
    }
    size_t pairs = (size_t)p->text_encoder.config.head_dim / 2;
    return rows * (2 * pairs * sizeof(float) + 3 * sizeof(int32_t));
}

/* ---- decoding ---- */

void oz_stage_decode(struct oz_exec *x, const struct oz_pipeline *p, const struct oz_sequence *s,
                     const struct oz_latent_scale *scale, struct oz_act *pixels)
{
    const struct oz_qwen_image_config *c = &p->transformer.config;
    size_t mark = oz_exec_mark(x);
    struct oz_act latent =
        oz_exec_act(x, (int64_t)s->latent_height * s->latent_width, c->out_channels);
    x->label = "decode";
    oz_offload_need(p, OZ_COMPONENT_VAE, x);
    oz_op_unpatch(x, &(struct oz_unpatch_args){.tokens = &s->latents,
                                               .order = OZ_PATCH_CYX,
                                               .channels = c->out_channels,
                                               .frames = 1,
                                               .height = s->latent_height,
                                               .width = s->latent_width,
                                               .patch = c->patch_size,
                                               .channel_scale = scale->scale,
                                               .channel_shift = scale->shift,
                                               .out = &latent,
                                               .channel_last = true});
    oz_qwen_vae_decode(x, &p->vae, &latent, 1, s->latent_height, s->latent_width, pixels);
    oz_exec_reset(x, mark);
}

/* [-1, 1] channel-last to 0..1 channel-first. Returns how many values are no numbers; they become
 * 0. */
int64_t oz_stage_to_picture(const float *pixels, int64_t count, float *picture)
{
    int64_t lost = 0;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t c = 0; c < 3; c++) {
            lost += isnan(pixels[3 * i + c]);
            float v = fminf(fmaxf(pixels[3 * i + c], -1.0F), 1.0F);
            v = v * 0.5F + 0.5F;
            picture[c * count + i] = fminf(fmaxf(v, 0.0F), 1.0F);
        }
    }
    return lost;
}

/* The picture of a sequence from its pixels; a spoilt one is not passed off as black. */
static void finish_picture(const struct oz_sequence *s, const float *pixels, float *picture)
{
    int64_t values = 3 * (int64_t)s->task.width * s->task.height;
    int64_t lost = oz_stage_to_picture(pixels, values / 3, picture);
    if (lost > 0) {
        oz_log(OZ_LOG_WARN, "decode",
               "%lld of the %lld values of picture %d (seed %llu) are no numbers and were made "
               "black: the weights or the guidance scale %g are too much for the arithmetic.",
               (long long)lost, (long long)values, s->index + 1, (unsigned long long)s->task.seed,
               s->task.scale);
    }
}

/* Shapes of a sequence that has not joined yet, for measuring: addresses that are not followed. */
void oz_stage_sketch(struct oz_sequence *s, const struct oz_pipeline *p)
{
    const struct oz_qwen_image_config *c = &p->transformer.config;
    int64_t pairs = c->head_dim / 2;
    s->latents = oz_act_f32(NULL, s->image_rows, c->in_channels);
    s->image_cos = s->image_sin = oz_act_f32(NULL, s->image_rows, pairs);
    for (int j = 0; j < s->branches; j++) {
        s->text[j] = oz_act_f32(NULL, s->text_rows[j], c->text_dim);
        s->text_cos[j] = s->text_sin[j] = oz_act_f32(NULL, s->text_rows[j], pairs);
    }
}

/* A finished picture, f32. */
size_t oz_stage_picture_bytes(const struct oz_task *t)
{
    return 3 * (size_t)t->width * (size_t)t->height * sizeof(float);
}

enum oz_status oz_stage_draw(struct oz_exec *x, const struct oz_pipeline *p,
                             const struct oz_sequence *s, const struct oz_latent_scale *scale,
                             float **picture)
{
    int64_t count = (int64_t)s->task.width * s->task.height;
    size_t bytes = oz_stage_picture_bytes(&s->task);
    float *host = oz_alloc(bytes);
    float *out = oz_alloc(bytes);
    enum oz_status status = OZ_OK;
    *picture = NULL;
    if (host == NULL || out == NULL) {
        status = OZ_FAIL_NOMEM(x->err, "a picture");
    } else {
        size_t mark = oz_exec_mark(x);
        struct oz_act pixels = oz_exec_act(x, count, 3);
        oz_stage_decode(x, p, s, scale, &pixels);
        if (oz_exec_ok(x)) {
            x->status = x->dev->download(x->dev, x->queue, host, pixels.data, bytes, x->err);
        }
        status = oz_stage_finish(x);
        oz_exec_reset(x, mark);
    }
    if (status == OZ_OK) {
        finish_picture(s, host, out);
        *picture = out;
        out = NULL;
    }
    oz_free(host);
    oz_free(out);
    return status;
}

/* ---- previews ---- */

#define PREVIEW_CELLS 16 /* a side */

void oz_stage_preview_size(const struct oz_sequence *s, int32_t *height, int32_t *width)
{
    int32_t side = s->latent_height > s->latent_width ? s->latent_height : s->latent_width;
    int32_t by = (side + PREVIEW_CELLS - 1) / PREVIEW_CELLS;
    *height = (s->latent_height + by - 1) / by;
    *width = (s->latent_width + by - 1) / by;
}

/* Decodes cells [height * width, channels] at `host` (RUN) to pixels in the step arena. */
static struct oz_act decode_cells(struct oz_exec *x, const struct oz_pipeline *p, int32_t height,
                                  int32_t width, const float *host)
{
    int64_t cells = (int64_t)height * width;
    int64_t channels = p->vae.config.z_dim;
    int64_t scale = oz_pipeline_size_multiple(p) / p->transformer.config.patch_size;
    struct oz_act pixels = oz_exec_act(x, cells * scale * scale, 3);
    struct oz_act latent = oz_exec_act(x, cells, channels);
    oz_exec_upload(x, latent.data, host, (size_t)(cells * channels) * sizeof *host);
    x->label = "preview";
    oz_offload_need(p, OZ_COMPONENT_VAE, x);
    oz_qwen_vae_decode(x, &p->vae, &latent, 1, height, width, &pixels);
    return pixels;
}

void oz_stage_measure_preview(struct oz_exec *x, const struct oz_pipeline *p,
                              const struct oz_sequence *s)
{
    int32_t height;
    int32_t width;
    size_t mark = oz_exec_mark(x);
    oz_stage_preview_size(s, &height, &width);
    (void)decode_cells(x, p, height, width, NULL);
    oz_exec_reset(x, mark);
}

/* Averages of packed latents over the boxes of a coarser grid, as the VAE takes them. */
static void average(const struct oz_pipeline *p, const struct oz_sequence *s, const float *tokens,
                    int32_t height, int32_t width, float *cells)
{
    const struct oz_qwen_image_config *c = &p->transformer.config;
    int32_t patch = c->patch_size;
    for (int32_t i = 0; i < height * width; i++) {
        int32_t top = i / width * s->latent_height / height;
        int32_t bottom = (i / width + 1) * s->latent_height / height;
        int32_t left = i % width * s->latent_width / width;
        int32_t right = (i % width + 1) * s->latent_width / width;
        for (int32_t k = 0; k < c->out_channels; k++) {
            double sum = 0;
            for (int32_t y = top; y < bottom; y++) {
                for (int32_t x = left; x < right; x++) {
                    int64_t token = (int64_t)(y / patch) * s->grid.width + x / patch;
                    int64_t feature = (k * patch + y % patch) * patch + x % patch;
                    sum += tokens[token * c->in_channels + feature];
                }
            }
            double mean = sum / ((double)(bottom - top) * (right - left));
            cells[(int64_t)i * c->out_channels + k] =
                (float)mean * p->vae.config.latents_std[k] + p->vae.config.latents_mean[k];
        }
    }
}

enum oz_status oz_stage_preview(struct oz_exec *x, const struct oz_pipeline *p,
                                const struct oz_sequence *s, float **picture, int32_t *height,
                                int32_t *width)
{
    int32_t rows;
    int32_t cols;
    int64_t channels = p->vae.config.z_dim;
    int64_t scale = oz_pipeline_size_multiple(p) / p->transformer.config.patch_size;
    oz_stage_preview_size(s, &rows, &cols);
    int64_t count = scale * rows * scale * cols;
    size_t tokens = (size_t)s->latents.rows * (size_t)s->latents.cols;
    size_t cells = (size_t)rows * (size_t)cols * (size_t)channels;
    size_t mark = oz_exec_mark(x);
    *height = (int32_t)scale * rows;
    *width = (int32_t)scale * cols;
    *picture = oz_alloc(3 * (size_t)count * sizeof **picture);
    float *host = oz_alloc((tokens + cells + 3 * (size_t)count) * sizeof *host);
    if (*picture == NULL || host == NULL) {
        x->status = OZ_FAIL_NOMEM(x->err, "a preview");
    } else {
        float *pixels = host + tokens + cells;
        x->status = x->dev->download(x->dev, x->queue, host, s->latents.data, tokens * sizeof *host,
                                     x->err);
        if (oz_stage_finish(x) == OZ_OK) {
            average(p, s, host, rows, cols, host + tokens);
        }
        struct oz_act out = decode_cells(x, p, rows, cols, host + tokens);
        if (oz_exec_ok(x)) {
            x->status = x->dev->download(x->dev, x->queue, pixels, out.data,
                                         3 * (size_t)count * sizeof *host, x->err);
        }
        if (oz_stage_finish(x) == OZ_OK) {
            (void)oz_stage_to_picture(pixels, count, *picture); /* a preview may be spoilt */
        }
    }
    oz_exec_reset(x, mark);
    oz_free(host);
    if (x->status != OZ_OK) {
        oz_free(*picture);
        *picture = NULL;
    }
    return x->status;
}
