#include <math.h>

#include "model/qwen_image/qwen_image.h"
#include "ops/ops.h"
#include "ops/param.h"

#define EPS 1e-6F

static int64_t width(const struct oz_qwen_image *m)
{
    return (int64_t)m->config.heads * m->config.head_dim;
}

/* ---- modulation ---- */

enum oz_status oz_qwen_image_mod_init(struct oz_qwen_image_mod *mod, const struct oz_qwen_image *m,
                                      int64_t rows, struct oz_act *acts, struct oz_arena *arena)
{
    int32_t layers = m->config.layers;
    int64_t d = width(m);
    *mod = (struct oz_qwen_image_mod){.rows = rows, .image = acts, .text = acts + layers};
    for (int32_t i = 0; i <= 2 * layers; i++) {
        void *data;
        int64_t cols = i < 2 * layers ? 6 * d : 2 * d;
        enum oz_status status =
            oz_arena_push(arena, (size_t)rows * (size_t)cols * sizeof(float), &data);
        if (status != OZ_OK) {
            return status;
        }
        *(i < 2 * layers ? &acts[i] : &mod->final) = oz_act_f32(data, rows, cols);
    }
    return OZ_OK;
}

/* out = w silu(temb), each row a timestep of its own. */
static void modulate(struct oz_exec *x, const char *label, const struct oz_act *silu,
                     const struct oz_linear *w, struct oz_act *out)
{
    size_t mark = oz_exec_mark(x);
    struct oz_act_spec wants = oz_linear_wants(x, w, 0);
    x->label = label;
    struct oz_act input = oz_exec_convert(x, silu, &wants, NULL);
    oz_op_linear(x, &(struct oz_linear_args){.x = &input, .w = w, .out = out});
    oz_exec_reset(x, mark);
}

/* A linear and silu of it, in whatever scheme its weight is. */
static void silu_linear(struct oz_exec *x, const struct oz_act *in, const struct oz_linear *w,
                        struct oz_act *out)
{
    struct oz_act_spec wants = oz_linear_wants(x, w, 0);
    struct oz_act input = oz_exec_convert(x, in, &wants, NULL);
    oz_op_linear(x, &(struct oz_linear_args){.x = &input, .w = w, .fn = OZ_FN_SILU, .out = out});
}

/* silu(temb) of each timestep: one operator, or linears where a user has had them quantized. */
static void embed_times(struct oz_exec *x, const struct oz_qwen_image *m, int64_t rows,
                        const float *timesteps, struct oz_act *silu)
{
    struct oz_time_embed_args a = {
        .t = timesteps, .rows = rows, .dim = OZ_QWEN_IMAGE_TIME_DIM, .scale = 1000.0F};
    size_t mark = oz_exec_mark(x);
    x->label = "time_text_embed";
    if (m->time_1.w.act_count == 0 && m->time_2.w.act_count == 0) {
        a.linear_1 = &m->time_1;
        a.linear_2 = &m->time_2;
        a.silu_out = silu;
        oz_op_time_embed(x, &a);
        return;
    }
    struct oz_act phi = oz_exec_act(x, rows, OZ_QWEN_IMAGE_TIME_DIM);
    struct oz_act hidden = oz_exec_act(x, rows, width(m));
    a.out = &phi;
    oz_op_time_embed(x, &a);
    silu_linear(x, &phi, &m->time_1, &hidden);
    silu_linear(x, &hidden, &m->time_2, silu);
    oz_exec_reset(x, mark);
}

void oz_qwen_image_mod_fill_part(struct oz_exec *x, const struct oz_qwen_image *m,
                                 const struct oz_qwen_image_mod *mod, const float *timesteps,
                                 int32_t first, int32_t count)
{
    size_t mark = oz_exec_mark(x);
    struct oz_act silu = oz_exec_act(x, mod->rows, width(m));
    embed_times(x, m, mod->rows, timesteps, &silu);
    for (int32_t i = first; i < first + count && i < m->config.layers; i++) {
        const struct oz_qwen_image_block *b = &m->blocks[i];
        oz_exec_block(x, i);
        modulate(x, b->label_image, &silu, &b->image.mod, &mod->image[i]);
        modulate(x, b->label_text, &silu, &b->text.mod, &mod->text[i]);
    }
    if (first + count > m->config.layers) {
        struct oz_act final = mod->final;
        modulate(x, "norm_out", &silu, &m->norm_out, &final);
    }
    oz_exec_reset(x, mark);
}

void oz_qwen_image_mod_fill(struct oz_exec *x, const struct oz_qwen_image *m,
                            const struct oz_qwen_image_mod *mod, const float *timesteps)
{
    oz_qwen_image_mod_fill_part(x, m, mod, timesteps, 0, oz_qwen_image_mod_parts(m));
}

/* ---- one stream of one block ---- */

/* What the two streams of a block have each of: rows, weights, modulation. */
struct stream {
    const struct oz_qwen_image_stream *w;
    struct oz_act *h; /* residual stream [rows, D] */
    const struct oz_act *mod;
    const int32_t *mod_index;
    const struct oz_ragged *rows;
    const struct oz_act *cosine, *sine;
    const char *label;
    int32_t mode;
    struct oz_act q, k, v, o;
};

/* LN(h) (1 + scale) + shift, in the format that `consumer` wants. */
static struct oz_act modulated(struct oz_exec *x, struct stream *s, int half,
                               const struct oz_act_spec *spec)
{
    int64_t d = s->h->cols;
    struct oz_act a = oz_exec_act_as(x, s->h->rows, d, spec);
    oz_op_norm_mod(x, &(struct oz_norm_mod_args){.x = s->h,
                                                 .norm = OZ_NORM_LAYER,
                                                 .eps = EPS,
                                                 .shift = {s->mod, (3 * half + 0) * d},
                                                 .scale = {s->mod, (3 * half + 1) * d},
                                                 .mod_index = s->mod_index,
                                                 .out = &a,
                                                 .sequences = s->rows});
    return a;
}

/* QK-norm, then rotation, in place. */
static void rotate(struct oz_exec *x, const struct oz_qwen_image_config *c, const struct stream *s,
                   struct oz_act *a, const struct oz_param *weight)
{
    oz_op_qk_norm_rope(x, &(struct oz_qk_norm_rope_args){.x = a,
                                                         .heads = c->heads,
                                                         .head_dim = c->head_dim,
                                                         .weight = weight,
                                                         .eps = EPS,
                                                         .rope = OZ_ROPE_PAIRS,
                                                         .cosine = s->cosine,
                                                         .sine = s->sine});
}

/* q, k, v of a stream, ready for attention; no q where nothing asks. Inputs are shared by those
 * projections that want the same format. */
static void project(struct oz_exec *x, const struct oz_qwen_image_config *c, struct stream *s,
                    bool with_q)
{
    const struct oz_linear *const weights[3] = {&s->w->q, &s->w->k, &s->w->v};
    struct oz_act *const outs[3] = {&s->q, &s->k, &s->v};
    struct oz_act input = {0};
    int64_t d = s->h->cols;
    x->label = s->label;
    for (int i = with_q ? 0 : 1; i < 3; i++) {
        /* q and k are rounded once, behind norm and rotation: twice costs the pictures 2 to 8 dB */
        *outs[i] = i < 2 ? oz_exec_act(x, s->h->rows, d) : oz_exec_act_half(x, s->h->rows, d);
    }
    struct oz_act_spec out_wants = oz_linear_wants(x, &s->w->out, s->mode);
    s->o = with_q ? oz_exec_act_as(x, s->h->rows, d, &out_wants) : (struct oz_act){0};
    size_t mark = oz_exec_mark(x);
    for (int i = with_q ? 0 : 1; i < 3; i++) {
        struct oz_act_spec wants = oz_linear_wants(x, weights[i], s->mode);
        if (input.rows == 0 || !oz_act_spec_equal(&wants, &input.spec)) {
            input = modulated(x, s, 0, &wants);
        }
        oz_op_linear(x, &(struct oz_linear_args){.x = &input,
                                                 .w = weights[i],
                                                 .mode = oz_param_mode(&weights[i]->w, s->mode),
                                                 .out = outs[i],
                                                 .sequences = s->rows});
    }
    oz_exec_reset(x, mark);
    if (with_q) {
        rotate(x, c, s, &s->q, &s->w->norm_q);
    }
    rotate(x, c, s, &s->k, &s->w->norm_k);
}

/* h += gate1 out(o); h += gate2 mlp(modulated h). */
static void finish(struct oz_exec *x, struct stream *s)
{
    int64_t d = s->h->cols;
    x->label = s->label;
    oz_op_linear(x, &(struct oz_linear_args){.x = &s->o,
                                             .w = &s->w->out,
                                             .mode = oz_param_mode(&s->w->out.w, s->mode),
                                             .gate = {s->mod, 2 * d},
                                             .mod_index = s->mod_index,
                                             .residual = s->h,
                                             .sequences = s->rows});
    size_t mark = oz_exec_mark(x);
    struct oz_act_spec up_wants = oz_linear_wants(x, &s->w->up, s->mode);
    struct oz_act_spec down_wants = oz_linear_wants(x, &s->w->down, s->mode);
    struct oz_act hidden = oz_exec_act_as(x, s->h->rows, 4 * d, &down_wants);
    struct oz_act input = modulated(x, s, 1, &up_wants);
    oz_op_linear(x, &(struct oz_linear_args){.x = &input,
                                             .w = &s->w->up,
                                             .mode = oz_param_mode(&s->w->up.w, s->mode),
                                             .fn = OZ_FN_GELU_TANH,
                                             .out = &hidden,
                                             .sequences = s->rows});
    oz_op_linear(x, &(struct oz_linear_args){.x = &hidden,
                                             .w = &s->w->down,
                                             .mode = oz_param_mode(&s->w->down.w, s->mode),
                                             .gate = {s->mod, 5 * d},
                                             .mod_index = s->mod_index,
                                             .residual = s->h,
                                             .sequences = s->rows});
    oz_exec_reset(x, mark);
}

/* Joint attention: text first, then image. In the last block the text asks nothing. */
static void attend(struct oz_exec *x, const struct oz_qwen_image_config *c, struct stream *text,
                   struct stream *image, bool text_asks)
{
    struct oz_attention_args a = {.segment_count = 2,
                                  .heads = c->heads,
                                  .kv_heads = c->heads,
                                  .head_dim = c->head_dim,
                                  .scale = 1.0F / sqrtf((float)c->head_dim)};
    struct stream *const streams[2] = {text, image};
    for (int i = 0; i < 2; i++) {
        bool asks = i == 1 || text_asks;
        a.segments[i].q = asks ? &streams[i]->q : NULL;
        a.segments[i].out = asks ? &streams[i]->o : NULL;
        a.segments[i].k = &streams[i]->k;
        a.segments[i].v = &streams[i]->v;
        a.segments[i].rows = streams[i]->rows;
    }
    oz_op_attention(x, &a);
}

static void block(struct oz_exec *x, const struct oz_qwen_image *m,
                  const struct oz_qwen_image_batch *b, int32_t index, struct oz_act *image_h,
                  struct oz_act *text_h)
{
    const struct oz_qwen_image_block *w = &m->blocks[index];
    bool last = index == m->config.layers - 1; /* its text update is never read */
    size_t mark = oz_exec_mark(x);
    struct stream image = {.w = &w->image,
                           .h = image_h,
                           .mod = &b->mod->image[index],
                           .mod_index = b->image_mod,
                           .rows = &b->image,
                           .cosine = b->image_cos,
                           .sine = b->image_sin,
                           .label = w->label_image,
                           .mode = b->mode};
    struct stream text = {.w = &w->text,
                          .h = text_h,
                          .mod = &b->mod->text[index],
                          .mod_index = b->text_mod,
                          .rows = &b->text,
                          .cosine = b->text_cos,
                          .sine = b->text_sin,
                          .label = w->label_text,
                          .mode = b->mode};
    project(x, &m->config, &text, !last);
    project(x, &m->config, &image, true);
    x->label = w->label_attn;
    attend(x, &m->config, &text, &image, !last);
    finish(x, &image);
    if (!last) {
        finish(x, &text);
    }
    oz_exec_reset(x, mark);
}

/* ---- the whole ---- */

/* txt_in(RMS(E)) */
static void embed_text(struct oz_exec *x, const struct oz_qwen_image *m,
                       const struct oz_qwen_image_batch *b, struct oz_act *text_h)
{
    size_t mark = oz_exec_mark(x);
    struct oz_act states = *b->text_states;
    struct oz_act_spec wants = oz_linear_wants(x, &m->txt_in, b->mode);
    struct oz_act normed = oz_exec_act_as(x, states.rows, states.cols, &wants);
    x->label = "txt_in";
    oz_op_norm_mod(x, &(struct oz_norm_mod_args){.x = &states,
                                                 .norm = OZ_NORM_RMS,
                                                 .eps = EPS,
                                                 .weight = &m->txt_norm,
                                                 .out = &normed,
                                                 .sequences = &b->text});
    oz_op_linear(x, &(struct oz_linear_args){.x = &normed,
                                             .w = &m->txt_in,
                                             .mode = oz_param_mode(&m->txt_in.w, b->mode),
                                             .out = text_h,
                                             .sequences = &b->text});
    oz_exec_reset(x, mark);
}

/* img_in(x) */
static void embed_image(struct oz_exec *x, const struct oz_qwen_image *m,
                        const struct oz_qwen_image_batch *b, struct oz_act *image_h)
{
    size_t mark = oz_exec_mark(x);
    struct oz_act_spec wants = oz_linear_wants(x, &m->img_in, b->mode);
    x->label = "img_in";
    struct oz_act input = oz_exec_convert(x, b->latents, &wants, &b->image);
    oz_op_linear(x, &(struct oz_linear_args){.x = &input,
                                             .w = &m->img_in,
                                             .mode = oz_param_mode(&m->img_in.w, b->mode),
                                             .out = image_h,
                                             .sequences = &b->image});
    oz_exec_reset(x, mark);
}

void oz_qwen_image_forward(struct oz_exec *x, const struct oz_qwen_image *m,
                           const struct oz_qwen_image_batch *b, struct oz_act *out)
{
    int64_t d = width(m);
    size_t mark = oz_exec_mark(x);
    struct oz_act image_h = oz_exec_act(x, b->latents->rows, d);
    struct oz_act text_h = oz_exec_act(x, b->text_states->rows, d);
    embed_image(x, m, b, &image_h);
    embed_text(x, m, b, &text_h);
    for (int32_t i = 0; i < m->config.layers; i++) {
        oz_exec_block(x, i);
        block(x, m, b, i, &image_h, &text_h);
    }
    struct oz_act_spec wants = oz_linear_wants(x, &m->proj_out, b->mode);
    struct oz_act normed = oz_exec_act_as(x, image_h.rows, d, &wants);
    x->label = "norm_out";
    oz_op_norm_mod(x, &(struct oz_norm_mod_args){.x = &image_h,
                                                 .norm = OZ_NORM_LAYER,
                                                 .eps = EPS,
                                                 .scale = {&b->mod->final, 0}, /* scale first */
                                                 .shift = {&b->mod->final, d},
                                                 .mod_index = b->image_mod,
                                                 .out = &normed,
                                                 .sequences = &b->image});
    x->label = "proj_out";
    oz_op_linear(x, &(struct oz_linear_args){.x = &normed,
                                             .w = &m->proj_out,
                                             .mode = oz_param_mode(&m->proj_out.w, b->mode),
                                             .out = out,
                                             .sequences = &b->image});
    oz_exec_reset(x, mark);
}
