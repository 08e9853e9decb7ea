#include <math.h>

#include "model/qwen_image/qwen_image.h"
#include "ops/ops.h"
#include "ops/param.h"
#include "ops/side.h"

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

/* What is still to be added to a residual stream, where the device adds late: h += gate * y. */
struct late {
    struct oz_act y;
    struct oz_mod gate;
    bool waits;
};

/* What goes from block to block. */
struct state {
    struct oz_act image_h, text_h;
    struct late late[2]; /* image, text */
};

/* What the two streams of a block have each of: rows, weights, modulation. */
struct stream {
    const struct oz_qwen_image_stream *w;
    struct oz_act *h; /* residual stream [rows, D] */
    struct late *late;
    const struct oz_act *mod;
    const int32_t *mod_index;
    const struct oz_ragged *rows;
    const struct oz_act *cosine, *sine;
    const char *label;
    int32_t mode;
    struct oz_act q, k, v, o;
};

/* LN(h) (1 + scale) + shift, in the format that `consumer` wants; what waits is added to h first. */
static struct oz_act modulated(struct oz_exec *x, struct stream *s, int half,
                               const struct oz_act_spec *spec)
{
    int64_t d = s->h->cols;
    struct oz_act a = oz_exec_act_as(x, s->h->rows, d, spec);
    bool waits = s->late->waits;
    s->late->waits = false;
    oz_op_norm_mod(x, &(struct oz_norm_mod_args){.x = s->h,
                                                 .y = waits ? &s->late->y : NULL,
                                                 .gate = waits ? s->late->gate : (struct oz_mod){0},
                                                 .norm = OZ_NORM_LAYER,
                                                 .eps = EPS,
                                                 .shift = {s->mod, (3 * half + 0) * d},
                                                 .scale = {s->mod, (3 * half + 1) * d},
                                                 .mod_index = s->mod_index,
                                                 .out = &a,
                                                 .sequences = s->rows});
    return a;
}

/* QK-norm, then rotation: in place, or to `out`. */
static void rotate(struct oz_exec *x, const struct oz_qwen_image_config *c, const struct stream *s,
                   struct oz_act *a, const struct oz_param *weight, struct oz_act *out)
{
    oz_op_qk_norm_rope(x, &(struct oz_qk_norm_rope_args){.x = a,
                                                         .heads = c->heads,
                                                         .head_dim = c->head_dim,
                                                         .weight = weight,
                                                         .eps = EPS,
                                                         .rope = OZ_ROPE_PAIRS,
                                                         .cosine = s->cosine,
                                                         .sine = s->sine,
                                                         .out = out});
}

/* q, k, v and o of both streams: each its own, or, for a device that takes rotated rows of bf16, parts of
 * one matrix, text first. o is as the projection behind it wants it. */
static void make_rows(struct oz_exec *x, struct stream *text, struct stream *image, bool text_asks)
{
    struct stream *const streams[2] = {text, image};
    const int64_t d = image->h->cols;
    const int64_t rows = text->h->rows + image->h->rows;
    struct oz_act_spec wants[2];
    for (int i = 0; i < 2; i++) {
        wants[i] = oz_linear_wants(x, &streams[i]->w->out, streams[i]->mode);
    }
    if (x->dev->rope_out) {
        const int64_t asking = text_asks ? rows : image->h->rows;
        struct oz_act q = oz_exec_act_half(x, asking, d);
        struct oz_act k = oz_exec_act_half(x, rows, d);
        struct oz_act v = oz_exec_act_half(x, rows, d);
        int64_t first = 0;
        for (int i = 0; i < 2; i++) {
            int64_t count = streams[i]->h->rows;
            bool asks = i == 1 || text_asks;
            streams[i]->q =
                asks ? oz_act_rows(&q, asking - rows + first, count) : (struct oz_act){0};
            streams[i]->k = oz_act_rows(&k, first, count);
            streams[i]->v = oz_act_rows(&v, first, count);
            first += count;
        }
    }
    for (int i = 0; i < 2; i++) {
        struct stream *s = streams[i];
        bool asks = i == 1 || text_asks;
        if (!x->dev->rope_out) {
            /* q and k are rounded once, behind norm and rotation: twice costs the pictures 2 to 8 dB */
            s->q = asks ? oz_exec_act(x, s->h->rows, d) : (struct oz_act){0};
            s->k = oz_exec_act(x, s->h->rows, d);
            s->v = oz_exec_act_half(x, s->h->rows, d);
        }
        s->o = asks ? oz_exec_act_as(x, s->h->rows, d, &wants[i]) : (struct oz_act){0};
    }
}

/* q, k, v of a stream, ready for attention; no q where nothing asks. Inputs are shared by those
 * projections that want the same format. */
static void project(struct oz_exec *x, const struct oz_qwen_image_config *c, struct stream *s,
                    bool with_q)
{
    const struct oz_linear *const weights[3] = {&s->w->q, &s->w->k, &s->w->v};
    const struct oz_param *const norms[2] = {&s->w->norm_q, &s->w->norm_k};
    struct oz_act *const outs[3] = {&s->q, &s->k, &s->v};
    struct oz_act input = {0};
    struct oz_act sums = {0};
    size_t mark = oz_exec_mark(x);
    x->label = s->label;
    if (x->dev->rope_out) { /* in f32, to be rounded behind norm and rotation */
        sums = oz_exec_act(x, s->h->rows, s->h->cols);
    }
    for (int i = with_q ? 0 : 1; i < 3; i++) {
        struct oz_act_spec wants = oz_linear_wants(x, weights[i], s->mode);
        struct oz_act *out = i < 2 && x->dev->rope_out ? &sums : outs[i];
        if (input.rows == 0 || !oz_act_spec_equal(&wants, &input.spec)) {
            input = modulated(x, s, 0, &wants);
        }
        /* behind rows of codes, which are far coarser, one rounding more costs nothing */
        sums.spec.dtype = oz_dtype_bits(wants.dtype) < 16 ? OZ_DTYPE_BF16 : OZ_DTYPE_F32;
        oz_op_linear(x, &(struct oz_linear_args){.x = &input,
                                                 .w = weights[i],
                                                 .mode = oz_param_mode(&weights[i]->w, s->mode),
                                                 .out = out,
                                                 .sequences = s->rows});
        if (i < 2 && x->dev->rope_out) {
            rotate(x, c, s, &sums, norms[i], outs[i]);
        }
    }
    oz_exec_reset(x, mark);
    for (int i = with_q ? 0 : 1; i < 2 && !x->dev->rope_out; i++) {
        rotate(x, c, s, outs[i], norms[i], NULL);
    }
}

/* h += gate w(in), now or late; gate is column `gate` of the modulation. */
static void add(struct oz_exec *x, struct stream *s, const struct oz_act *in,
                const struct oz_linear *w, int64_t gate)
{
    struct oz_linear_args a = {
        .x = in, .w = w, .mode = oz_param_mode(&w->w, s->mode), .sequences = s->rows};
    if (x->dev->adds_late) {
        a.out = &s->late->y;
        s->late->gate = (struct oz_mod){s->mod, gate};
        s->late->waits = true;
    } else {
        a.gate = (struct oz_mod){s->mod, gate};
        a.mod_index = s->mod_index;
        a.residual = s->h;
    }
    oz_op_linear(x, &a);
}

/* h += gate1 out(o); h += gate2 mlp(modulated h). */
static void finish(struct oz_exec *x, struct stream *s)
{
    int64_t d = s->h->cols;
    x->label = s->label;
    add(x, s, &s->o, &s->w->out, 2 * d);
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
    add(x, s, &hidden, &s->w->down, 5 * d);
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

/* The two streams of a block. */
static void streams_of(const struct oz_qwen_image *m, const struct oz_qwen_image_batch *b,
                       int32_t index, struct state *state, struct stream *image,
                       struct stream *text)
{
    const struct oz_qwen_image_block *w = &m->blocks[index];
    *image = (struct stream){.w = &w->image,
                             .h = &state->image_h,
                             .late = &state->late[0],
                             .mod = &b->mod->image[index],
                             .mod_index = b->image_mod,
                             .rows = &b->image,
                             .cosine = b->image_cos,
                             .sine = b->image_sin,
                             .label = w->label_image,
                             .mode = b->mode};
    *text = (struct stream){.w = &w->text,
                            .h = &state->text_h,
                            .late = &state->late[1],
                            .mod = &b->mod->text[index],
                            .mod_index = b->text_mod,
                            .rows = &b->text,
                            .cosine = b->text_cos,
                            .sine = b->text_sin,
                            .label = w->label_text,
                            .mode = b->mode};
}

/* side: NULL, or where the text's own work goes. */
static void block(struct oz_exec *x, struct oz_side *side, const struct oz_qwen_image *m,
                  const struct oz_qwen_image_batch *b, int32_t index, struct state *state)
{
    struct oz_exec *t = side != NULL ? &side->exec : x;
    bool last = index == m->config.layers - 1; /* its text update is never read */
    size_t mark = oz_exec_mark(x);
    struct stream image;
    struct stream text;
    streams_of(m, b, index, state, &image, &text);
    make_rows(x, &text, &image, !last);
    project(t, &m->config, &text, !last);
    project(x, &m->config, &image, true);
    x->label = m->blocks[index].label_attn;
    if (side != NULL) {
        oz_side_join(side);
    }
    attend(x, &m->config, &text, &image, !last);
    if (side != NULL && !last) { /* it goes before the picture's: both are at hand then */
        oz_side_fork(side);
        finish(t, &text);
    }
    finish(x, &image);
    if (side == NULL && !last) {
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

/* Bytes that the text's own work takes at most: all of it, measured. */
static size_t measure_text(struct oz_exec *x, const struct oz_qwen_image *m,
                           const struct oz_qwen_image_batch *b, const struct state *state)
{
    struct oz_arena own;
    struct oz_arena shared; /* q, k, v, o: main's */
    struct oz_exec t;
    struct oz_exec rows;
    struct state copy = *state;
    oz_arena_init_measure(&own, "text");
    oz_arena_init_measure(&shared, "rows");
    oz_exec_init(&t, x->dev, OZ_EXEC_MEASURE, &own, x->err);
    oz_exec_init(&rows, x->dev, OZ_EXEC_MEASURE, &shared, x->err);
    embed_text(&t, m, b, &copy.text_h);
    for (int32_t i = 0; i < m->config.layers; i++) {
        bool last = i == m->config.layers - 1;
        size_t mark = oz_exec_mark(&rows);
        struct stream image;
        struct stream text;
        streams_of(m, b, i, &copy, &image, &text);
        make_rows(&rows, &text, &image, !last);
        project(&t, &m->config, &text, !last);
        if (!last) {
            finish(&t, &text);
        }
        oz_exec_reset(&rows, mark);
    }
    if (t.status != OZ_OK && x->status == OZ_OK) {
        x->status = t.status;
    }
    return own.peak_bytes;
}

void oz_qwen_image_forward(struct oz_exec *x, const struct oz_qwen_image *m,
                           const struct oz_qwen_image_batch *b, struct oz_act *out)
{
    int64_t d = width(m);
    size_t mark = oz_exec_mark(x);
    struct state state = {.image_h = oz_exec_act(x, b->latents->rows, d),
                          .text_h = oz_exec_act(x, b->text_states->rows, d)};
    struct oz_act image_h = state.image_h;
    struct oz_side side;
    bool apart = oz_side_pays(x);
    for (int i = 0; i < 2 && x->dev->adds_late; i++) {
        state.late[i].y = oz_exec_act_half(x, i == 0 ? image_h.rows : state.text_h.rows, d);
    }
    if (apart) {
        oz_side_begin(&side, x, measure_text(x, m, b, &state));
        oz_side_fork(&side);
    }
    embed_image(x, m, b, &state.image_h);
    embed_text(apart ? &side.exec : x, m, b, &state.text_h);
    for (int32_t i = 0; i < m->config.layers; i++) {
        oz_exec_block(x, i);
        block(x, apart ? &side : NULL, m, b, i, &state);
    }
    if (apart) {
        oz_side_end(&side);
    }
    struct oz_act_spec wants = oz_linear_wants(x, &m->proj_out, b->mode);
    struct oz_act normed = oz_exec_act_as(x, image_h.rows, d, &wants);
    x->label = "norm_out";
    oz_op_norm_mod(x, &(struct oz_norm_mod_args){.x = &image_h,
                                                 .y = state.late[0].waits ? &state.late[0].y : NULL,
                                                 .gate = state.late[0].gate,
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
