#include "base/error.h"
#include "model/qwen_image/qwen_image.h"
#include "ops/param.h"

#define TOP_ROWS 16
#define BLOCK_ROWS 32

/* Where the rows of one block, or those outside of blocks, are being added. */
struct builder {
    struct oz_layer_table *t;
    int32_t block_number;
    int32_t head_dim; /* rows of a head, which cuts keep whole */
    bool planes_read;
};

/* "<module>.weight" [n, k] and "<module>.bias" [n]. */
static void linear(const struct builder *b, struct oz_linear *l, enum oz_role role, int64_t n,
                   int64_t k, enum oz_cut cut, const char *fused, int32_t fused_index,
                   const char *module)
{
    struct oz_layer row = {.kind = OZ_LAYER_LINEAR,
                           .role = role,
                           .rank = 2,
                           .shape = {n, k},
                           .cut = cut,
                           .cut_unit = cut == OZ_CUT_HEADS ? b->head_dim : 0,
                           .fused = fused,
                           .fused_index = fused_index,
                           .block_number = b->block_number,
                           .planes_read = b->planes_read,
                           .bind = &l->w};
    oz_layer_add(b->t, &row, "%s.weight", module);
    row.kind = OZ_LAYER_VECTOR;
    row.planes_read = false;
    row.rank = 1;
    row.cut = cut == OZ_CUT_COLS ? OZ_CUT_NONE : cut;
    row.bind = &l->b;
    oz_layer_add(b->t, &row, "%s.bias", module);
}

static void norm(const struct builder *b, struct oz_param *p, int64_t n, const char *module)
{
    oz_layer_add(b->t,
                 &(struct oz_layer){.kind = OZ_LAYER_NORM,
                                    .role = OZ_ROLE_NORM,
                                    .rank = 1,
                                    .shape = {n},
                                    .block_number = b->block_number,
                                    .bind = p},
                 "%s.weight", module);
}

/* Names of one stream's modules within a block. */
struct stream_names {
    const char *mod, *q, *k, *v, *out, *up, *down, *norm_q, *norm_k, *fused;
};

static const struct stream_names image_names = {
    "img_mod.1",          "attn.to_q",     "attn.to_k",   "attn.to_v",   "attn.to_out.0",
    "img_mlp.net.0.proj", "img_mlp.net.2", "attn.norm_q", "attn.norm_k", "attn.to_qkv",
};
static const struct stream_names text_names = {
    "txt_mod.1",         "attn.add_q_proj",    "attn.add_k_proj", "attn.add_v_proj",
    "attn.to_add_out",   "txt_mlp.net.0.proj", "txt_mlp.net.2",   "attn.norm_added_q",
    "attn.norm_added_k", "attn.add_kv_proj",
};

static void stream(const struct builder *b, const struct oz_qwen_image_config *c,
                   struct oz_qwen_image_stream *s, const struct stream_names *n, int32_t block)
{
    struct oz_layer_table *t = b->t;
    int64_t d = (int64_t)c->heads * c->head_dim;
#define NAME(module) oz_layer_string(t, "transformer_blocks.%d.%s", block, (module))
    const char *fused = NAME(n->fused);
    linear(b, &s->mod, OZ_ROLE_MODULATION, 6 * d, d, OZ_CUT_NONE, NULL, 0, NAME(n->mod));
    linear(b, &s->q, OZ_ROLE_ATTN_QKV, d, d, OZ_CUT_HEADS, fused, 0, NAME(n->q));
    linear(b, &s->k, OZ_ROLE_ATTN_QKV, d, d, OZ_CUT_HEADS, fused, 1, NAME(n->k));
    linear(b, &s->v, OZ_ROLE_ATTN_QKV, d, d, OZ_CUT_HEADS, fused, 2, NAME(n->v));
    linear(b, &s->out, OZ_ROLE_ATTN_OUT, d, d, OZ_CUT_COLS, NULL, 0, NAME(n->out));
    linear(b, &s->up, OZ_ROLE_MLP_UP, 4 * d, d, OZ_CUT_ROWS, NULL, 0, NAME(n->up));
    linear(b, &s->down, OZ_ROLE_MLP_DOWN, d, 4 * d, OZ_CUT_COLS, NULL, 0, NAME(n->down));
    norm(b, &s->norm_q, c->head_dim, NAME(n->norm_q));
    norm(b, &s->norm_k, c->head_dim, NAME(n->norm_k));
#undef NAME
}

size_t oz_qwen_image_host_bytes(const struct oz_qwen_image_config *c)
{
    size_t rows = TOP_ROWS + (size_t)c->layers * BLOCK_ROWS;
    return rows * 1024 + (size_t)c->layers * (sizeof(struct oz_qwen_image_block) + 1024) + 4096;
}

enum oz_status oz_qwen_image_build(struct oz_qwen_image *m, const struct oz_qwen_image_config *c,
                                   struct oz_arena *host, struct oz_layer_table *t,
                                   struct oz_error *err)
{
    void *blocks = NULL;
    int64_t d = (int64_t)c->heads * c->head_dim;
    *m = (struct oz_qwen_image){.config = *c};
    if (oz_arena_push(host, (size_t)c->layers * sizeof *m->blocks, &blocks) != OZ_OK ||
        oz_layer_table_init(t, host, "transformer", TOP_ROWS + c->layers * BLOCK_ROWS, 2) !=
            OZ_OK) {
        return OZ_FAIL_NOMEM(err, "the transformer's layer table");
    }
    m->blocks = blocks;
    struct builder top = {.t = t};
    struct builder time = {.t = t, .planes_read = true}; /* by time_embed */
    linear(&top, &m->img_in, OZ_ROLE_EMBEDDER, d, c->in_channels, OZ_CUT_NONE, NULL, 0, "img_in");
    norm(&top, &m->txt_norm, c->text_dim, "txt_norm");
    linear(&top, &m->txt_in, OZ_ROLE_EMBEDDER, d, c->text_dim, OZ_CUT_NONE, NULL, 0, "txt_in");
    linear(&time, &m->time_1, OZ_ROLE_EMBEDDER, d, OZ_QWEN_IMAGE_TIME_DIM, OZ_CUT_NONE, NULL, 0,
           "time_text_embed.timestep_embedder.linear_1");
    linear(&time, &m->time_2, OZ_ROLE_EMBEDDER, d, d, OZ_CUT_NONE, NULL, 0,
           "time_text_embed.timestep_embedder.linear_2");
    for (int32_t i = 0; i < c->layers; i++) {
        struct oz_qwen_image_block *block = &m->blocks[i];
        struct builder b = {.t = t, .block_number = i + 1, .head_dim = c->head_dim};
        *block = (struct oz_qwen_image_block){
            .label_image = oz_layer_string(t, "transformer_blocks.%d.image", i),
            .label_text = oz_layer_string(t, "transformer_blocks.%d.text", i),
            .label_attn = oz_layer_string(t, "transformer_blocks.%d.attn", i),
        };
        stream(&b, c, &block->image, &image_names, i);
        stream(&b, c, &block->text, &text_names, i);
    }
    linear(&top, &m->norm_out, OZ_ROLE_MODULATION, 2 * d, d, OZ_CUT_NONE, NULL, 0,
           "norm_out.linear");
    linear(&top, &m->proj_out, OZ_ROLE_FINAL, c->in_channels, d, OZ_CUT_NONE, NULL, 0, "proj_out");
    static const char *const others[] = {"text_encoders", "vae"};
    for (int i = 0; i < 2; i++) { /* a whole checkpoint of ComfyUI */
        const struct oz_ignore rule = {.name = "other components",
                                       .prefix = others[i],
                                       .reason = "of this file the transformer is read"};
        oz_layer_ignore(t, &rule);
    }
    OZ_TRY(oz_layer_table_finish(t, err));
    oz_params_describe(t);
    return OZ_OK;
}

int32_t oz_qwen_image_mod_part(const struct oz_qwen_image *m, const struct oz_layer *layer)
{
    if (layer->role != OZ_ROLE_MODULATION) {
        return -1;
    }
    return layer->block_number > 0 ? layer->block_number - 1 : m->config.layers;
}
