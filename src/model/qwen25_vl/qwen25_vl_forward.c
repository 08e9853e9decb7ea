#include <math.h>

#include "model/qwen25_vl/qwen25_vl.h"
#include "ops/ops.h"
#include "ops/param.h"

/* ---- positions ---- */

void oz_qwen25_vl_text_positions(const struct oz_ragged *sequences, int32_t *positions)
{
    int64_t rows = sequences->offsets[sequences->count];
    for (int32_t s = 0; s < sequences->count; s++) {
        int32_t first = sequences->offsets[s];
        for (int64_t r = first; r < sequences->offsets[s + 1]; r++) {
            int32_t p = (int32_t)(r - first);
            positions[r] = p;
            positions[rows + r] = p;
            positions[2 * rows + r] = p;
        }
    }
}

void oz_qwen25_vl_rope(const struct oz_qwen25_vl_config *c, const int32_t *positions, int64_t rows,
                       float *cosine, float *sine)
{
    int32_t pairs = c->head_dim / 2;
    int32_t j = 0;
    for (int32_t axis = 0; axis < 3; axis++) {
        for (int32_t end = j + c->mrope_section[axis]; j < end; j++) {
            float exponent = (float)(2 * j) / (float)c->head_dim;
            float frequency = 1.0F / (float)pow(c->rope_theta, (double)exponent);
            for (int64_t r = 0; r < rows; r++) {
                float angle = (float)positions[axis * rows + r] * frequency;
                cosine[r * pairs + j] = (float)cos((double)angle);
                sine[r * pairs + j] = (float)sin((double)angle);
            }
        }
    }
}

/* ---- forward ---- */

/* RMS(h) * weight, in a format. */
static struct oz_act normed(struct oz_exec *x, const struct oz_qwen25_vl *m,
                            const struct oz_qwen25_vl_batch *b, struct oz_act *h,
                            const struct oz_param *weight, const struct oz_act_spec *spec)
{
    struct oz_act out = oz_exec_act_as(x, h->rows, h->cols, spec);
    oz_op_norm_mod(x, &(struct oz_norm_mod_args){.x = h,
                                                 .norm = OZ_NORM_RMS,
                                                 .eps = m->config.eps,
                                                 .weight = weight,
                                                 .out = &out,
                                                 .sequences = b->sequences});
    return out;
}

/* q, k, v of a layer. They share one input where they want the same format. */
static void project(struct oz_exec *x, const struct oz_qwen25_vl *m,
                    const struct oz_qwen25_vl_batch *b, const struct oz_qwen25_vl_layer *l,
                    struct oz_act *h, struct oz_act *const outs[3])
{
    const struct oz_linear *const weights[3] = {&l->q, &l->k, &l->v};
    struct oz_act input = {0};
    size_t mark = oz_exec_mark(x);
    for (int i = 0; i < 3; i++) {
        struct oz_act_spec wants = oz_linear_wants(x, weights[i], 0);
        if (i == 0 || !oz_act_spec_equal(&wants, &input.spec)) {
            input = normed(x, m, b, h, &l->input_norm, &wants);
        }
        oz_op_linear(x,
                     &(struct oz_linear_args){
                         .x = &input, .w = weights[i], .out = outs[i], .sequences = b->sequences});
    }
    oz_exec_reset(x, mark);
}

static void rotate(struct oz_exec *x, const struct oz_qwen25_vl *m,
                   const struct oz_qwen25_vl_batch *b, int32_t heads, struct oz_act *a)
{
    oz_op_qk_norm_rope(x, &(struct oz_qk_norm_rope_args){.x = a,
                                                         .heads = heads,
                                                         .head_dim = m->config.head_dim,
                                                         .rope = OZ_ROPE_HALVES,
                                                         .cosine = b->cosine,
                                                         .sine = b->sine});
}

/* h += o(attention(norm(h))) */
static void attention(struct oz_exec *x, const struct oz_qwen25_vl *m,
                      const struct oz_qwen25_vl_batch *b, const struct oz_qwen25_vl_layer *l,
                      struct oz_act *h)
{
    const struct oz_qwen25_vl_config *c = &m->config;
    size_t mark = oz_exec_mark(x);
    x->label = l->attn_label;
    struct oz_act q = oz_exec_act(x, b->rows, (int64_t)c->heads * c->head_dim);
    struct oz_act k = oz_exec_act(x, b->rows, (int64_t)c->kv_heads * c->head_dim);
    struct oz_act v = oz_exec_act_half(x, b->rows, (int64_t)c->kv_heads * c->head_dim);

    project(x, m, b, l, h, (struct oz_act *const[3]){&q, &k, &v});
    rotate(x, m, b, c->heads, &q);
    rotate(x, m, b, c->kv_heads, &k);
    struct oz_act_spec wants = oz_linear_wants(x, &l->o, 0);
    struct oz_act mixed = oz_exec_act_as(x, b->rows, q.cols, &wants);
    oz_op_attention(
        x, &(struct oz_attention_args){
               .segment_count = 1,
               .segments = {{.q = &q, .k = &k, .v = &v, .rows = b->sequences, .out = &mixed}},
               .heads = c->heads,
               .kv_heads = c->kv_heads,
               .head_dim = c->head_dim,
               .scale = (float)(1.0 / sqrt((double)c->head_dim)),
               .mask = OZ_MASK_CAUSAL});
    oz_op_linear(x, &(struct oz_linear_args){
                        .x = &mixed, .w = &l->o, .residual = h, .sequences = b->sequences});
    oz_exec_reset(x, mark);
}

/* h += down(silu(gate(norm(h))) * up(norm(h))) */
static void mlp(struct oz_exec *x, const struct oz_qwen25_vl *m, const struct oz_qwen25_vl_batch *b,
                const struct oz_qwen25_vl_layer *l, struct oz_act *h)
{
    const struct oz_qwen25_vl_config *c = &m->config;
    size_t mark = oz_exec_mark(x);
    x->label = l->mlp_label;
    struct oz_act_spec gate = oz_linear_wants(x, &l->gate, 0);
    struct oz_act_spec up = oz_linear_wants(x, &l->up, 0);
    if (!oz_act_spec_equal(&gate, &up)) {
        oz_exec_fail(x, OZ_ERR_UNSUPPORTED,
                     "%s: gate_proj and up_proj want their input in different formats. Quantize "
                     "both alike.",
                     l->mlp_label);
        return;
    }
    struct oz_act_spec down = oz_linear_wants(x, &l->down, 0);
    struct oz_act hidden = oz_exec_act_as(x, b->rows, c->intermediate, &down);
    struct oz_act input = normed(x, m, b, h, &l->post_norm, &gate);
    oz_op_linear(x, &(struct oz_linear_args){.x = &input,
                                             .w = &l->gate,
                                             .up = &l->up,
                                             .fn = OZ_FN_SILU,
                                             .out = &hidden,
                                             .sequences = b->sequences});
    oz_op_linear(x, &(struct oz_linear_args){
                        .x = &hidden, .w = &l->down, .residual = h, .sequences = b->sequences});
    oz_exec_reset(x, mark);
}

void oz_qwen25_vl_forward(struct oz_exec *x, const struct oz_qwen25_vl *m,
                          const struct oz_qwen25_vl_batch *b, struct oz_act *out)
{
    size_t mark = oz_exec_mark(x);
    struct oz_act h = oz_exec_act(x, b->rows, m->config.hidden);
    x->label = m->embed_label;
    oz_op_embed(
        x, &(struct oz_embed_args){.table = &m->embed, .ids = b->ids, .scale = 1.0F, .out = &h});
    for (int32_t i = 0; i < m->config.layers; i++) {
        oz_exec_block(x, i);
        attention(x, m, b, &m->layers[i], &h);
        mlp(x, m, b, &m->layers[i], &h);
    }
    x->label = m->norm_label;
    oz_op_norm_mod(x, &(struct oz_norm_mod_args){.x = &h,
                                                 .norm = OZ_NORM_RMS,
                                                 .eps = m->config.eps,
                                                 .weight = &m->norm,
                                                 .out = out,
                                                 .sequences = b->sequences});
    oz_exec_reset(x, mark);
}

void oz_qwen25_vl_logits(struct oz_exec *x, const struct oz_qwen25_vl *m,
                         const struct oz_act *hidden, const int32_t *rows, int64_t count,
                         struct oz_act *logits)
{
    size_t mark = oz_exec_mark(x);
    x->label = "lm_head";
    if (!oz_param_exists(&m->lm_head.w)) {
        oz_exec_fail(x, OZ_ERR_INTERNAL, "The text encoder was built without its head.");
        return;
    }
    struct oz_act_spec spec = oz_linear_wants(x, &m->lm_head, 0);
    struct oz_act input = oz_exec_act_as(x, count, m->config.hidden, &spec);
    oz_op_act_quant(
        x, &(struct oz_act_quant_args){.x = hidden, .out = &input, .rows = count, .x_rows = rows});
    oz_op_linear(x, &(struct oz_linear_args){.x = &input, .w = &m->lm_head, .out = logits});
    oz_exec_reset(x, mark);
}
