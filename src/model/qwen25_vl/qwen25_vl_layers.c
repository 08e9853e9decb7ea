#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "ckpt/table.h"
#include "model/qwen25_vl/qwen25_vl.h"
#include "ops/param.h"

#define LAYER_ROWS 12 /* 7 weights, 3 biases, 2 norms */
#define OTHER_ROWS 3  /* embedding, final norm, head */
#define MAX_RULES 6

/* ---- prefix ---- */

enum oz_status oz_qwen25_vl_find_prefix(const struct oz_ckpt *ckpt,
                                        char prefix[OZ_QWEN25_VL_PREFIX_BYTES],
                                        struct oz_error *err)
{
    /* A norm: toolchains that quantize leave its name as it is. */
    static const char first[] = "layers.0.input_layernorm.weight";
    const char *found = NULL;
    size_t n = sizeof first - 1;
    prefix[0] = '\0';
    for (int64_t i = 0; i < oz_ckpt_count(ckpt); i++) {
        const char *name = oz_ckpt_tensor(ckpt, i)->name;
        size_t length = strlen(name);
        if (length < n || strcmp(name + length - n, first) != 0 ||
            (length > n && name[length - n - 1] != '.')) {
            continue;
        }
        if (found != NULL) {
            return OZ_FAIL(err, OZ_ERR_FORMAT,
                           "The checkpoint has two language models, at %s and at %s; one was "
                           "expected.",
                           found, name);
        }
        found = name;
        size_t bytes = length > n ? length - n - 1 : 0;
        if (bytes >= OZ_QWEN25_VL_PREFIX_BYTES) {
            return OZ_FAIL(err, OZ_ERR_FORMAT,
                           "Tensor %s: what stands before \"layers\" has %zu "
                           "bytes; at most %d are expected.",
                           name, bytes, OZ_QWEN25_VL_PREFIX_BYTES - 1);
        }
        memcpy(prefix, name, bytes);
        prefix[bytes] = '\0';
    }
    if (found == NULL) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "The checkpoint has no tensor model.%s (or model.language_model.%s): it "
                       "holds no Qwen2.5-VL language model.",
                       first, first);
    }
    return OZ_OK;
}

/* ---- layer table ---- */

size_t oz_qwen25_vl_host_bytes(const struct oz_qwen25_vl_config *c)
{
    size_t layers = (size_t)c->layers;
    size_t rows = layers * LAYER_ROWS + OTHER_ROWS;
    size_t text = OZ_ARENA_ALIGN * 2; /* a name with the longest prefix */
    size_t per_row = sizeof(struct oz_layer) + sizeof(int32_t) + 2 * text;
    size_t per_layer = sizeof(struct oz_qwen25_vl_layer) + 4 * text;
    return rows * per_row + layers * per_layer + 16 * text + MAX_RULES * sizeof(struct oz_ignore);
}

/* What the builder passes around. */
struct build {
    const struct oz_qwen25_vl_config *c;
    struct oz_layer_table *t;
    const char *prefix; /* with its dot: "model." or "" */
    int32_t layer;
    const char *qkv, *gate_up; /* fused groups of the present layer */
};

/* A linear's place in its layer. */
struct place {
    const char *name; /* "self_attn.q_proj" */
    enum oz_role role;
    const char *fused;
    int32_t fused_index;
    enum oz_cut cut;
};

static void add_norm(const struct build *b, const char *name, struct oz_param *bind)
{
    struct oz_layer row = {.kind = OZ_LAYER_NORM,
                           .role = OZ_ROLE_NORM,
                           .rank = 1,
                           .shape = {b->c->hidden},
                           .block_number = b->layer + 1,
                           .bind = bind};
    oz_layer_add(b->t, &row, "%slayers.%d.%s.weight", b->prefix, b->layer, name);
}

static void add_linear(const struct build *b, const struct place *p, int64_t out, int64_t in,
                       bool bias, struct oz_linear *bind)
{
    struct oz_layer row = {.kind = OZ_LAYER_LINEAR,
                           .role = p->role,
                           .rank = 2,
                           .shape = {out, in},
                           .fused = p->fused,
                           .fused_index = p->fused_index,
                           .cut = p->cut,
                           .cut_unit = p->cut == OZ_CUT_HEADS ? b->c->head_dim : 0,
                           .block_number = b->layer + 1,
                           .bind = &bind->w};
    oz_layer_add(b->t, &row, "%slayers.%d.%s.weight", b->prefix, b->layer, p->name);
    if (bias) {
        row.kind = OZ_LAYER_VECTOR;
        row.rank = 1;
        row.shape[1] = 0;
        row.cut = p->cut == OZ_CUT_COLS ? OZ_CUT_NONE : p->cut;
        row.bind = &bind->b;
        oz_layer_add(b->t, &row, "%slayers.%d.%s.bias", b->prefix, b->layer, p->name);
    }
}

static void add_layer(struct build *b, struct oz_qwen25_vl_layer *l)
{
    const struct oz_qwen25_vl_config *c = b->c;
    int64_t q = (int64_t)c->heads * c->head_dim;
    int64_t kv = (int64_t)c->kv_heads * c->head_dim;
    const char *qkv = oz_layer_string(b->t, "%slayers.%d.self_attn.qkv_proj", b->prefix, b->layer);
    const char *up = oz_layer_string(b->t, "%slayers.%d.mlp.gate_up_proj", b->prefix, b->layer);
    const struct place places[] = {
        {"self_attn.q_proj", OZ_ROLE_ATTN_QKV, qkv, 0, OZ_CUT_HEADS},
        {"self_attn.k_proj", OZ_ROLE_ATTN_QKV, qkv, 1, OZ_CUT_HEADS},
        {"self_attn.v_proj", OZ_ROLE_ATTN_QKV, qkv, 2, OZ_CUT_HEADS},
        {"self_attn.o_proj", OZ_ROLE_ATTN_OUT, NULL, 0, OZ_CUT_COLS},
        {"mlp.gate_proj", OZ_ROLE_MLP_UP, up, 0, OZ_CUT_ROWS},
        {"mlp.up_proj", OZ_ROLE_MLP_UP, up, 1, OZ_CUT_ROWS},
        {"mlp.down_proj", OZ_ROLE_MLP_DOWN, NULL, 0, OZ_CUT_COLS},
    };
    l->attn_label = oz_layer_string(b->t, "%slayers.%d.self_attn", b->prefix, b->layer);
    l->mlp_label = oz_layer_string(b->t, "%slayers.%d.mlp", b->prefix, b->layer);
    add_norm(b, "input_layernorm", &l->input_norm);
    add_linear(b, &places[0], q, c->hidden, true, &l->q);
    add_linear(b, &places[1], kv, c->hidden, true, &l->k);
    add_linear(b, &places[2], kv, c->hidden, true, &l->v);
    add_linear(b, &places[3], c->hidden, q, false, &l->o);
    add_norm(b, "post_attention_layernorm", &l->post_norm);
    add_linear(b, &places[4], c->intermediate, c->hidden, false, &l->gate);
    add_linear(b, &places[5], c->intermediate, c->hidden, false, &l->up);
    add_linear(b, &places[6], c->hidden, c->intermediate, false, &l->down);
}

static void add_ends(const struct build *b, struct oz_qwen25_vl *m)
{
    const struct oz_qwen25_vl_config *c = b->c;
    m->embed_label = oz_layer_string(b->t, "%sembed_tokens", b->prefix);
    m->norm_label = oz_layer_string(b->t, "%snorm", b->prefix);
    struct oz_layer row = {.kind = OZ_LAYER_EMBED,
                           .role = OZ_ROLE_TOKEN_EMBED,
                           .rank = 2,
                           .shape = {c->vocab, c->hidden},
                           .bind = &m->embed};
    oz_layer_add(b->t, &row, "%sembed_tokens.weight", b->prefix);
    if (c->need_head) {
        row.kind = OZ_LAYER_LINEAR;
        row.role = OZ_ROLE_LM_HEAD;
        row.cut = OZ_CUT_ROWS;
        row.bind = &m->lm_head.w;
        if (c->tied) {
            row.tied_to = oz_layer_string(b->t, "%sembed_tokens.weight", b->prefix);
            row.optional = true;
        }
        oz_layer_add(b->t, &row, "lm_head.weight");
    }
    row = (struct oz_layer){.kind = OZ_LAYER_NORM,
                            .role = OZ_ROLE_NORM,
                            .rank = 1,
                            .shape = {c->hidden},
                            .bind = &m->norm};
    oz_layer_add(b->t, &row, "%snorm.weight", b->prefix);
}

static void add_rules(const struct build *b)
{
    static const char unused[] = "not used for text to image";
    const struct oz_ignore visual = {"vision tower", "visual", NULL, unused};
    const struct oz_ignore model_visual = {"vision tower", "model.visual", NULL, unused};
    const struct oz_ignore head = {"language model head", "lm_head", NULL, unused};
    static const char *const others[] = {"model.diffusion_model", "text_encoders", "vae"};
    for (size_t i = 0; i < sizeof others / sizeof *others;
         i++) { /* a whole checkpoint of ComfyUI */
        const struct oz_ignore rule = {.name = "other components",
                                       .prefix = others[i],
                                       .reason = "of this file the text encoder is read"};
        oz_layer_ignore(b->t, &rule);
    }
    oz_layer_ignore(b->t, &visual);
    oz_layer_ignore(b->t, &model_visual);
    if (!b->c->need_head) {
        oz_layer_ignore(b->t, &head);
    }
}

enum oz_status oz_qwen25_vl_build(struct oz_qwen25_vl *m, const struct oz_qwen25_vl_config *c,
                                  struct oz_arena *host, struct oz_layer_table *t,
                                  const char *prefix, struct oz_error *err)
{
    static const char what[] = "the text encoder's parameters";
    void *layers;
    int32_t rows = c->layers * LAYER_ROWS + OTHER_ROWS;
    size_t bytes = (size_t)c->layers * sizeof *m->layers;
    assert(strlen(prefix) < OZ_QWEN25_VL_PREFIX_BYTES);
    *m = (struct oz_qwen25_vl){.config = *c};
    if (oz_arena_push(host, bytes, &layers) != OZ_OK ||
        oz_layer_table_init(t, host, "text_encoder", rows, MAX_RULES) != OZ_OK) {
        return OZ_FAIL_NOMEM(err, what);
    }
    memset(layers, 0, bytes);
    m->layers = layers;

    struct build b = {.c = c, .t = t};
    b.prefix = oz_layer_string(t, "%s%s", prefix, prefix[0] != '\0' ? "." : "");
    if (b.prefix == NULL) {
        return OZ_FAIL_NOMEM(err, what);
    }
    add_ends(&b, m);
    for (b.layer = 0; b.layer < c->layers; b.layer++) {
        add_layer(&b, &m->layers[b.layer]);
    }
    add_rules(&b);
    OZ_TRY(oz_layer_table_finish(t, err));
    oz_params_describe(t);
    return OZ_OK;
}
