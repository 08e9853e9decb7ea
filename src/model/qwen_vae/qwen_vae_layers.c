/*
 * The layer table of AutoencoderKLQwenImage: every parameter of encoder and decoder, by the names
 * that diffusers stores.
 */
#include "base/error.h"
#include "model/qwen_vae/qwen_vae.h"
#include "ops/param.h"

#define BAND_BYTES (INT64_C(16) << 20)

/* What the small builders share. */
struct builder {
    struct oz_layer_table *t;
    bool keep_time_taps;
};

static int64_t row_bound(const struct oz_qwen_vae_config *c)
{
    const int64_t resnet = 8; /* two norms, three convolutions with bias */
    int64_t level = (2 * (int64_t)c->num_res_blocks + 1) * resnet + 2 * 2;
    int64_t coder = 2 + 2 * resnet + 5 + 1 + 2;
    return c->levels * level + 2 * coder + 2 * 2;
}

size_t oz_qwen_vae_host_bytes(const struct oz_qwen_vae_config *c)
{
    /* A row, its parameter, and three strings that take an arena's step each. */
    size_t row = sizeof(struct oz_layer) + sizeof(struct oz_param) + sizeof(int32_t) +
                 4 * (size_t)OZ_ARENA_ALIGN;
    return (size_t)row_bound(c) * row + (size_t)64 * OZ_ARENA_ALIGN;
}

static void add_vector(struct builder *b, struct oz_param *p, enum oz_role role, int64_t n,
                       const char *module)
{
    const struct oz_layer row = {
        .kind = OZ_LAYER_VECTOR, .role = role, .rank = 1, .shape = {n}, .bind = p};
    oz_layer_add(b->t, &row, "%s.bias", module);
}

/* gamma [n]; the file has `ones` dims of 1 behind it. */
static void add_gamma(struct builder *b, struct oz_param *p, int64_t n, int32_t ones,
                      const char *module)
{
    struct oz_layer row = {.kind = OZ_LAYER_NORM,
                           .role = OZ_ROLE_NORM,
                           .rank = 1,
                           .shape = {n},
                           .file_rank = 1 + ones,
                           .file_shape = {n},
                           .transform = OZ_TRANSFORM_RESHAPE,
                           .bind = p};
    for (int32_t i = 0; i < ones; i++) {
        row.file_shape[1 + i] = 1;
    }
    oz_layer_add(b->t, &row, "%s.gamma", module);
}

/* A causal 3-D convolution, k x k x k. */
static void add_conv3(struct builder *b, struct oz_qwen_vae_conv *c, int64_t out, int64_t in,
                      int64_t k, const char *name)
{
    struct oz_layer row = {.kind = OZ_LAYER_CONV,
                           .role = OZ_ROLE_CONV,
                           .rank = 5,
                           .shape = {out, in, k, k, k},
                           .bind = &c->w};
    if (!b->keep_time_taps) {
        row.rank = 4;
        row.shape[4] = 0;
        row.file_rank = 5;
        for (int32_t i = 0; i < 5; i++) {
            row.file_shape[i] = i == 0 ? out : i == 1 ? in : k;
        }
        row.transform = OZ_TRANSFORM_LAST_TAP;
    }
    oz_layer_add(b->t, &row, "%s.weight", name);
    add_vector(b, &c->b, OZ_ROLE_CONV, out, name);
    c->name = name;
}

/* A convolution of each frame, 3 x 3. */
static void add_conv2(struct builder *b, struct oz_qwen_vae_conv *c, int64_t out, int64_t in,
                      const char *name)
{
    const struct oz_layer row = {.kind = OZ_LAYER_CONV,
                                 .role = OZ_ROLE_CONV,
                                 .rank = 4,
                                 .shape = {out, in, 3, 3},
                                 .bind = &c->w};
    oz_layer_add(b->t, &row, "%s.weight", name);
    add_vector(b, &c->b, OZ_ROLE_CONV, out, name);
    c->name = name;
}

/* A 1 x 1 convolution of each frame: a linear layer over pixels. */
static void add_linear(struct builder *b, struct oz_linear *l, int64_t out, int64_t in,
                       const char *name)
{
    const struct oz_layer row = {.kind = OZ_LAYER_LINEAR,
                                 .role = OZ_ROLE_OTHER,
                                 .rank = 2,
                                 .shape = {out, in},
                                 .file_rank = 4,
                                 .file_shape = {out, in, 1, 1},
                                 .transform = OZ_TRANSFORM_RESHAPE,
                                 .bind = &l->w};
    oz_layer_add(b->t, &row, "%s.weight", name);
    add_vector(b, &l->b, OZ_ROLE_OTHER, out, name);
}

static void add_resnet(struct builder *b, struct oz_qwen_vae_resnet *r, int64_t in, int64_t out,
                       const char *name)
{
    struct oz_layer_table *t = b->t;
    r->name = name;
    add_gamma(b, &r->norm1, in, 3, oz_layer_string(t, "%s.norm1", name));
    add_conv3(b, &r->conv1, out, in, 3, oz_layer_string(t, "%s.conv1", name));
    add_gamma(b, &r->norm2, out, 3, oz_layer_string(t, "%s.norm2", name));
    add_conv3(b, &r->conv2, out, out, 3, oz_layer_string(t, "%s.conv2", name));
    if (in != out) {
        add_conv3(b, &r->shortcut, out, in, 1, oz_layer_string(t, "%s.conv_shortcut", name));
    }
}

static void add_middle(struct builder *b, struct oz_qwen_vae_middle *m, int64_t n, const char *side)
{
    struct oz_layer_table *t = b->t;
    for (int32_t i = 0; i < 2; i++) {
        add_resnet(b, &m->resnets[i], n, n, oz_layer_string(t, "%s.mid_block.resnets.%d", side, i));
    }
    m->attention = oz_layer_string(t, "%s.mid_block.attentions.0", side);
    add_gamma(b, &m->norm, n, 2, oz_layer_string(t, "%s.norm", m->attention));
    add_linear(b, &m->to_qkv, 3 * n, n, oz_layer_string(t, "%s.to_qkv", m->attention));
    add_linear(b, &m->proj, n, n, oz_layer_string(t, "%s.proj", m->attention));
}

/* What lies behind the levels of either side. */
static void add_tail(struct builder *b, struct oz_qwen_vae_coder *e, int64_t in, int64_t out,
                     const char *side)
{
    e->norm_out_name = oz_layer_string(b->t, "%s.norm_out", side);
    add_gamma(b, &e->norm_out, in, 3, e->norm_out_name);
    add_conv3(b, &e->conv_out, out, in, 3, oz_layer_string(b->t, "%s.conv_out", side));
}

static struct oz_qwen_vae_resnet *push_resnets(struct oz_layer_table *t, int32_t count)
{
    void *memory = NULL;
    if (t->status == OZ_OK) {
        t->status =
            oz_arena_push(t->arena, (size_t)count * sizeof(struct oz_qwen_vae_resnet), &memory);
    }
    struct oz_qwen_vae_resnet *r = memory;
    for (int32_t i = 0; r != NULL && i < count; i++) {
        r[i] = (struct oz_qwen_vae_resnet){0};
    }
    return r;
}

/* Residual blocks and downsamplers share one flat numbering. */
static void add_encoder(struct builder *b, struct oz_qwen_vae_coder *e,
                        const struct oz_qwen_vae_config *c)
{
    struct oz_layer_table *t = b->t;
    int32_t number = 0;
    int32_t in = c->base_dim;
    add_conv3(b, &e->conv_in, in, c->input_channels, 3, "encoder.conv_in");
    for (int32_t i = 0; i < c->levels; i++) {
        struct oz_qwen_vae_level *level = &e->levels[i];
        level->in = in;
        level->out = c->base_dim * c->dim_mult[i];
        level->resnets = push_resnets(t, c->num_res_blocks);
        level->resnet_count = level->resnets != NULL ? c->num_res_blocks : 0;
        for (int32_t j = 0; j < level->resnet_count; j++) {
            add_resnet(b, &level->resnets[j], in, level->out,
                       oz_layer_string(t, "encoder.down_blocks.%d", number++));
            in = level->out;
        }
        if (i + 1 < c->levels) {
            add_conv2(b, &level->resample, in, in,
                      oz_layer_string(t, "encoder.down_blocks.%d.resample.1", number++));
        }
    }
    add_middle(b, &e->middle, in, "encoder");
    add_tail(b, e, in, 2 * (int64_t)c->z_dim, "encoder");
}

static void add_decoder(struct builder *b, struct oz_qwen_vae_coder *d,
                        const struct oz_qwen_vae_config *c)
{
    struct oz_layer_table *t = b->t;
    const int32_t count = c->num_res_blocks + 1;
    int32_t in = c->base_dim * c->dim_mult[c->levels - 1];
    add_conv3(b, &d->conv_in, in, c->z_dim, 3, "decoder.conv_in");
    add_middle(b, &d->middle, in, "decoder");
    for (int32_t i = 0; i < c->levels; i++) {
        struct oz_qwen_vae_level *level = &d->levels[i];
        level->in = in;
        level->out = c->base_dim * c->dim_mult[c->levels - 1 - i];
        level->resnets = push_resnets(t, count);
        level->resnet_count = level->resnets != NULL ? count : 0;
        for (int32_t j = 0; j < level->resnet_count; j++) {
            add_resnet(b, &level->resnets[j], in, level->out,
                       oz_layer_string(t, "decoder.up_blocks.%d.resnets.%d", i, j));
            in = level->out;
        }
        if (i + 1 < c->levels) {
            add_conv2(b, &level->resample, in / 2, in,
                      oz_layer_string(t, "decoder.up_blocks.%d.upsamplers.0.resample.1", i));
            in /= 2;
        }
    }
    add_tail(b, d, in, c->input_channels, "decoder");
}

enum oz_status oz_qwen_vae_build(struct oz_qwen_vae *m, const struct oz_qwen_vae_config *c,
                                 struct oz_arena *host, struct oz_layer_table *t,
                                 bool keep_time_taps, struct oz_error *err)
{
    static const char *const time_conv[] = {"time_conv.weight", "time_conv.bias"};
    static const char *const others[] = {"model.diffusion_model", "text_encoders"};
    *m = (struct oz_qwen_vae){.config = *c, .time_taps = keep_time_taps, .band_bytes = BAND_BYTES};
    if (oz_layer_table_init(t, host, "vae", (int32_t)row_bound(c), 4) != OZ_OK) {
        return OZ_FAIL_NOMEM(err, "the layer table of vae");
    }
    struct builder b = {t, keep_time_taps};
    add_encoder(&b, &m->encoder, c);
    add_conv3(&b, &m->quant_conv, 2 * (int64_t)c->z_dim, 2 * (int64_t)c->z_dim, 1, "quant_conv");
    add_conv3(&b, &m->post_quant_conv, c->z_dim, c->z_dim, 1, "post_quant_conv");
    add_decoder(&b, &m->decoder, c);
    for (int32_t i = 0; i < 2; i++) {
        const struct oz_ignore rule = {.name = "time convolutions",
                                       .suffix = time_conv[i],
                                       .reason = "not used for a single frame"};
        oz_layer_ignore(t, &rule);
        const struct oz_ignore other = {.name = "other components",
                                        .prefix = others[i],
                                        .reason = "of this file the VAE is read"};
        oz_layer_ignore(t, &other);
    }
    OZ_TRY(oz_layer_table_finish(t, err));
    oz_params_describe(t);
    return OZ_OK;
}
