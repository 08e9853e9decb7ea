/*
 * Decode and encode. Feature maps are f32, channel-last. A residual block works in two maps (its
 * input, which becomes its output, and one more): the normed map in front of each convolution
 * exists only as a band of rows.
 */
#include <math.h>

#include "model/qwen_vae/qwen_vae.h"
#include "ops/ops.h"
#include "ops/param.h"

#define EPS 1e-12F

/* A feature map's place in time and space. */
struct grid {
    int32_t frames, height, width;
};

static int64_t pixels(struct grid g)
{
    return (int64_t)g.frames * g.height * g.width;
}

/* Rows of a map of `cols` channels that are worked on at once: all of them where frames depend on
 * each other, else an even number. */
static int32_t band_rows(const struct oz_qwen_vae *m, struct grid g, int64_t cols)
{
    int64_t rows = m->band_bytes / (g.width * cols * (int64_t)sizeof(float));
    rows = rows < 2 ? 2 : rows & ~INT64_C(1);
    return g.frames > 1 || rows > g.height ? g.height : (int32_t)rows;
}

/* Rows [y0, y1) of a map; all of it for several frames, which have one band. */
static struct oz_act map_rows(const struct oz_act *map, struct grid g, int32_t y0, int32_t y1)
{
    return oz_act_rows(map, (int64_t)y0 * g.width, (int64_t)g.frames * (y1 - y0) * g.width);
}

/* A band [y0, y1) of a map and the rows around it that a 3 x 3 kernel meets. */
struct halo {
    int32_t y0, y1;
    int32_t top, bottom; /* zero rows where the picture ends */
};

static struct halo halo_of(int32_t y0, int32_t y1, int32_t height, int32_t reach)
{
    struct halo h = {y0 - reach, y1 + reach, 0, 0};
    if (h.y0 < 0) {
        h.top = -h.y0;
        h.y0 = 0;
    }
    if (h.y1 > height) {
        h.bottom = h.y1 - height;
        h.y1 = height;
    }
    return h;
}

/* One convolution, stride 1, that keeps the width; out may be residual itself. */
static void conv(struct oz_exec *x, const struct oz_qwen_vae_conv *c, const struct oz_act *in,
                 struct grid g, int32_t pad_top, int32_t pad_bottom, const struct oz_act *residual,
                 struct oz_act *out)
{
    const struct oz_param *w = &c->w;
    const int32_t k = (int32_t)w->shape[w->rank - 1];
    const struct oz_conv_args a = {.x = in,
                                   .frames = g.frames,
                                   .height = g.height,
                                   .width = g.width,
                                   .w = w,
                                   .b = &c->b,
                                   .kt = w->rank == 5 ? (int32_t)w->shape[2] : 1,
                                   .kh = k,
                                   .kw = k,
                                   .stride = 1,
                                   .stride_t = 1,
                                   .pad_top = pad_top,
                                   .pad_bottom = pad_bottom,
                                   .pad_left = k / 2,
                                   .pad_right = k / 2,
                                   .residual = residual,
                                   .out = out};
    oz_op_conv(x, &a);
}

/* The same over a whole map, labelled with the convolution's own name. */
static void conv_whole(struct oz_exec *x, const struct oz_qwen_vae_conv *c, const struct oz_act *in,
                       struct grid g, struct oz_act *out)
{
    const int32_t pad = (int32_t)c->w.shape[c->w.rank - 1] / 2;
    x->label = c->name;
    conv(x, c, in, g, pad, pad, NULL, out);
}

/* out = conv(silu(norm(in))) + residual, 3 x 3, band by band. */
static void norm_conv(struct oz_exec *x, const struct oz_qwen_vae *m, const struct oz_param *gamma,
                      const struct oz_qwen_vae_conv *c, const struct oz_act *in, struct grid g,
                      const struct oz_act *residual, struct oz_act *out)
{
    const size_t mark = oz_exec_mark(x);
    const int32_t step = band_rows(m, g, in->cols);
    const int32_t most = g.height - step > 2 ? step + 2 : g.height; /* with its halo */
    const struct oz_act_spec wants = oz_conv_wants(x, &c->w);
    struct oz_act band = oz_exec_act_as(x, (int64_t)g.frames * most * g.width, in->cols, &wants);
    for (int32_t y0 = 0; y0 < g.height; y0 += step) {
        const int32_t y1 = g.height - y0 < step ? g.height : y0 + step;
        const struct halo h = halo_of(y0, y1, g.height, 1);
        const struct grid part = {g.frames, h.y1 - h.y0, g.width};
        struct oz_act from = map_rows(in, g, h.y0, h.y1);
        struct oz_act n = oz_act_rows(&band, 0, from.rows);
        const struct oz_norm_mod_args norm = {.x = &from,
                                              .norm = OZ_NORM_CHANNEL_L2,
                                              .eps = EPS,
                                              .weight = gamma,
                                              .fn = OZ_FN_SILU,
                                              .out = &n};
        oz_op_norm_mod(x, &norm);
        struct oz_act to = map_rows(out, g, y0, y1);
        if (residual != NULL) {
            const struct oz_act add = map_rows(residual, g, y0, y1);
            conv(x, c, &n, part, h.top, h.bottom, &add, &to);
        } else {
            conv(x, c, &n, part, h.top, h.bottom, NULL, &to);
        }
    }
    oz_exec_reset(x, mark);
}

/*
 * y = conv2(silu(norm2(conv1(silu(norm1(x)))))) + (shortcut of) x. Without a shortcut y takes the
 * place of x; else it is pushed on the step arena and is the caller's to reset.
 */
static struct oz_act resnet(struct oz_exec *x, const struct oz_qwen_vae *m,
                            const struct oz_qwen_vae_resnet *r, struct oz_act in, struct grid g)
{
    const int64_t width = r->conv1.w.shape[0];
    const bool wider = oz_param_exists(&r->shortcut.w);
    struct oz_act out = wider ? oz_exec_act(x, pixels(g), width) : in;
    const size_t mark = oz_exec_mark(x);
    struct oz_act middle = oz_exec_act(x, pixels(g), width);
    x->label = r->name;
    norm_conv(x, m, &r->norm1, &r->conv1, &in, g, NULL, &middle);
    if (wider) {
        conv(x, &r->shortcut, &in, g, 0, 0, NULL, &out);
    }
    norm_conv(x, m, &r->norm2, &r->conv2, &middle, g, &out, &out);
    oz_exec_reset(x, mark);
    return out;
}

/*
 * Uploads the ends of one frame and of the picture, as two ragged of one sequence. The numbers lie
 * on the caller's stack, so a device that copies later is waited for: once a picture.
 */
static void upload_offsets(struct oz_exec *x, const int32_t host[4], struct oz_ragged *frame,
                           struct oz_ragged *picture)
{
    int32_t *device = oz_exec_push(x, 4 * sizeof *host);
    oz_exec_upload(x, device, host, 4 * sizeof *host);
    if (oz_exec_ok(x) && x->mode == OZ_EXEC_RUN && !x->dev->host_memory) {
        x->status = x->dev->wait(x->dev, x->queue, x->err);
    }
    const bool pushed = device != NULL;
    *frame = (struct oz_ragged){1, host, device};
    *picture = (struct oz_ragged){1, host + 2, pushed ? device + 2 : NULL};
}

/* x += proj(attention(to_qkv(norm(x)))): one head over the pixels of each frame. */
static void attend(struct oz_exec *x, const struct oz_qwen_vae_middle *b, struct oz_act *map,
                   struct grid g)
{
    const size_t mark = oz_exec_mark(x);
    const int64_t n = map->cols;
    const int64_t frame_rows = (int64_t)g.height * g.width;
    const int32_t ends[4] = {0, (int32_t)frame_rows, 0, (int32_t)pixels(g)};
    const struct oz_act_spec in_spec = oz_linear_wants(x, &b->to_qkv, 0);
    const struct oz_act_spec out_spec = oz_linear_wants(x, &b->proj, 0);
    struct oz_ragged frame;
    struct oz_ragged picture;
    x->label = b->attention;
    upload_offsets(x, ends, &frame, &picture);

    struct oz_act qkv = oz_exec_act(x, map->rows, 3 * n);
    const size_t inner = oz_exec_mark(x);
    struct oz_act normed = oz_exec_act_as(x, map->rows, n, &in_spec);
    const struct oz_norm_mod_args norm = {.x = map,
                                          .norm = OZ_NORM_CHANNEL_L2,
                                          .eps = EPS,
                                          .weight = &b->norm,
                                          .out = &normed,
                                          .sequences = &picture};
    oz_op_norm_mod(x, &norm);
    const struct oz_linear_args to_qkv = {
        .x = &normed, .w = &b->to_qkv, .out = &qkv, .sequences = &picture};
    oz_op_linear(x, &to_qkv);
    oz_exec_reset(x, inner);

    for (int32_t f = 0; f < g.frames; f++) {
        const struct oz_act rows = oz_act_rows(&qkv, f * frame_rows, frame_rows);
        const struct oz_act q = oz_act_cols(&rows, 0, n);
        const struct oz_act k = oz_act_cols(&rows, n, n);
        const struct oz_act v = oz_act_cols(&rows, 2 * n, n);
        struct oz_act to = oz_act_rows(map, f * frame_rows, frame_rows);
        const size_t each = oz_exec_mark(x);
        struct oz_act fed = oz_exec_act_as(x, frame_rows, n, &out_spec);
        const struct oz_attention_args attention = {
            .segment_count = 1,
            .segments = {{.q = &q, .k = &k, .v = &v, .rows = &frame, .out = &fed}},
            .heads = 1,
            .kv_heads = 1,
            .head_dim = (int32_t)n,
            .scale = 1.0F / sqrtf((float)n),
            .mask = OZ_MASK_NONE};
        oz_op_attention(x, &attention);
        const struct oz_linear_args proj = {
            .x = &fed, .w = &b->proj, .residual = &to, .sequences = &frame};
        oz_op_linear(x, &proj);
        oz_exec_reset(x, each);
    }
    oz_exec_reset(x, mark);
}

static void middle(struct oz_exec *x, const struct oz_qwen_vae *m,
                   const struct oz_qwen_vae_middle *b, struct oz_act *map, struct grid g)
{
    (void)resnet(x, m, &b->resnets[0], *map, g);
    attend(x, b, map, g);
    (void)resnet(x, m, &b->resnets[1], *map, g);
}

/* out = conv(nearest x 2 of in), band by band; g is in's, out is twice as high and wide. */
static void upsample(struct oz_exec *x, const struct oz_qwen_vae *m,
                     const struct oz_qwen_vae_conv *c, const struct oz_act *in, struct grid g,
                     struct oz_act *out)
{
    const size_t mark = oz_exec_mark(x);
    const struct grid big = {g.frames, 2 * g.height, 2 * g.width};
    const int32_t step = band_rows(m, big, in->cols);
    const int32_t most =
        g.height - step / 2 > 2 ? step / 2 + 2 : g.height; /* source rows, with halo */
    const struct oz_act_spec wants = oz_conv_wants(x, &c->w);
    struct oz_act wide =
        oz_exec_act_as(x, (int64_t)g.frames * 2 * most * big.width, in->cols, &wants);
    x->label = c->name;
    for (int32_t y0 = 0; y0 < big.height; y0 += step) {
        const int32_t y1 = big.height - y0 < step ? big.height : y0 + step;
        const struct halo h = halo_of(y0, y1, big.height, 1);
        const struct grid part = {g.frames, h.y1 - h.y0, big.width};
        const int32_t s0 = h.y0 / 2;
        const int32_t s1 = (h.y1 + 1) / 2;
        const struct oz_act from = map_rows(in, g, s0, s1);
        struct oz_act grown = oz_act_rows(&wide, 0, 4 * from.rows);
        const struct oz_resample_args a = {.x = &from,
                                           .kind = OZ_RESAMPLE_NEAREST,
                                           .frames = g.frames,
                                           .height = s1 - s0,
                                           .width = g.width,
                                           .factor_t = 1,
                                           .factor_y = 2,
                                           .factor_x = 2,
                                           .out = &grown};
        oz_op_resample(x, &a);
        const struct oz_act seen = map_rows(&grown, big, h.y0 - 2 * s0, h.y1 - 2 * s0);
        struct oz_act to = map_rows(out, big, y0, y1);
        conv(x, c, &seen, part, h.top, h.bottom, NULL, &to);
    }
    oz_exec_reset(x, mark);
}

/* Halves height and width: zeros to the right and below only, then 3 x 3 with stride 2. */
static void downsample(struct oz_exec *x, const struct oz_qwen_vae_conv *c, const struct oz_act *in,
                       struct grid g, struct oz_act *out)
{
    const struct oz_conv_args a = {.x = in,
                                   .frames = g.frames,
                                   .height = g.height,
                                   .width = g.width,
                                   .w = &c->w,
                                   .b = &c->b,
                                   .kt = 1,
                                   .kh = 3,
                                   .kw = 3,
                                   .stride = 2,
                                   .stride_t = 1,
                                   .pad_bottom = 1,
                                   .pad_right = 1,
                                   .out = out};
    x->label = c->name;
    oz_op_conv(x, &a);
}

/* What both directions check first. The picture's side is h, w times `scale`. */
static bool check(struct oz_exec *x, const struct oz_qwen_vae *m, const char *what, struct grid g,
                  int32_t scale)
{
    if (!oz_exec_ok(x)) {
        return false;
    }
    if (g.frames < 1 || g.height < 1 || g.width < 1 || g.height > INT32_MAX / scale ||
        g.width > INT32_MAX / scale || (int64_t)g.height * g.width > INT32_MAX / g.frames) {
        oz_exec_fail(x, OZ_ERR_ARG, "vae: %s of %d frames of %d x %d is not possible.", what,
                     g.frames, g.height, g.width);
        return false;
    }
    bool temporal = !m->time_taps;
    for (int32_t i = 0; i + 1 < m->config.levels; i++) {
        temporal = temporal || m->config.temperal_downsample[i];
    }
    if (g.frames > 1 && temporal) {
        oz_exec_fail(x, OZ_ERR_UNSUPPORTED,
                     "vae: %s of more than one frame is not supported (%d were given).", what,
                     g.frames);
        return false;
    }
    return true;
}

static bool check_act(struct oz_exec *x, const struct oz_act *a, const char *what, int64_t rows,
                      int64_t cols)
{
    if (a->rows != rows || a->cols != cols) {
        oz_exec_fail(x, OZ_ERR_ARG, "vae: %s is [%lld, %lld]; [%lld, %lld] was expected.", what,
                     (long long)a->rows, (long long)a->cols, (long long)rows, (long long)cols);
        return false;
    }
    return true;
}

void oz_qwen_vae_decode(struct oz_exec *x, const struct oz_qwen_vae *m, const struct oz_act *latent,
                        int32_t frames, int32_t h, int32_t w, struct oz_act *out)
{
    const struct oz_qwen_vae_coder *d = &m->decoder;
    const int32_t levels = m->config.levels;
    const int32_t scale = 1 << (levels - 1);
    const struct grid small = {frames, h, w};
    if (!check(x, m, "decoding", small, scale)) {
        return;
    }
    const struct grid large = {frames, h * scale, w * scale};
    if (!check_act(x, latent, "the latent", pixels(small), m->config.z_dim) ||
        !check_act(x, out, "the picture", pixels(large), m->config.input_channels)) {
        return;
    }
    /* Each level's input has its place below those of the smaller levels before it, so that nothing
     * of them is left when the large ones work. */
    const size_t start = oz_exec_mark(x);
    struct oz_act place[OZ_QWEN_VAE_MAX_LEVELS];
    size_t mark[OZ_QWEN_VAE_MAX_LEVELS];
    for (int32_t i = levels - 1; i >= 0; i--) {
        place[i] = oz_exec_act(x, pixels((struct grid){frames, h << i, w << i}), d->levels[i].in);
        mark[i] = oz_exec_mark(x);
    }
    struct oz_act z = oz_exec_act(x, latent->rows, latent->cols);
    conv_whole(x, &m->post_quant_conv, latent, small, &z);
    conv_whole(x, &d->conv_in, &z, small, &place[0]);
    oz_exec_reset(x, mark[0]);
    middle(x, m, &d->middle, &place[0], small);
    for (int32_t i = 0; i < levels; i++) {
        const struct oz_qwen_vae_level *level = &d->levels[i];
        const struct grid g = {frames, h << i, w << i};
        struct oz_act map = place[i];
        for (int32_t j = 0; j < level->resnet_count; j++) {
            map = resnet(x, m, &level->resnets[j], map, g);
        }
        if (i + 1 < levels) {
            upsample(x, m, &level->resample, &map, g, &place[i + 1]);
            oz_exec_reset(x, mark[i + 1]);
        } else {
            x->label = d->conv_out.name;
            norm_conv(x, m, &d->norm_out, &d->conv_out, &map, g, NULL, out);
        }
    }
    oz_exec_reset(x, start);
}

void oz_qwen_vae_encode(struct oz_exec *x, const struct oz_qwen_vae *m, const struct oz_act *image,
                        int32_t frames, int32_t h, int32_t w, struct oz_act *moments)
{
    const struct oz_qwen_vae_coder *e = &m->encoder;
    const int32_t levels = m->config.levels;
    const int32_t scale = 1 << (levels - 1);
    struct grid g = {frames, h, w};
    if (!check(x, m, "encoding", g, 1)) {
        return;
    }
    if (h % scale != 0 || w % scale != 0) {
        oz_exec_fail(x, OZ_ERR_ARG,
                     "vae: a picture of %d x %d cannot be encoded; height and width "
                     "must be multiples of %d.",
                     h, w, scale);
        return;
    }
    const int64_t cells = pixels((struct grid){frames, h / scale, w / scale});
    if (!check_act(x, image, "the picture", pixels(g), m->config.input_channels) ||
        !check_act(x, moments, "the latent's moments", cells, 2 * (int64_t)m->config.z_dim)) {
        return;
    }
    /* Maps shrink from level to level: the first level's work is the peak, so what follows it has
     * its place below. */
    const size_t start = oz_exec_mark(x);
    const int64_t after = levels > 1 ? pixels(g) / 4 : 0;
    struct oz_act next = oz_exec_act(x, after, e->levels[0].out);
    const size_t above = oz_exec_mark(x);
    struct oz_act map = oz_exec_act(x, pixels(g), e->levels[0].in);
    conv_whole(x, &e->conv_in, image, g, &map);
    for (int32_t i = 0; i < levels; i++) {
        const struct oz_qwen_vae_level *level = &e->levels[i];
        for (int32_t j = 0; j < level->resnet_count; j++) {
            map = resnet(x, m, &level->resnets[j], map, g);
        }
        if (i + 1 < levels) {
            const struct grid half = {frames, g.height / 2, g.width / 2};
            if (i > 0) {
                next = oz_exec_act(x, pixels(half), map.cols);
            }
            downsample(x, &level->resample, &map, g, &next);
            if (i == 0) {
                oz_exec_reset(x, above);
            }
            map = next;
            g = half;
        }
    }
    middle(x, m, &e->middle, &map, g);
    struct oz_act raw = oz_exec_act(x, cells, moments->cols);
    x->label = e->conv_out.name;
    norm_conv(x, m, &e->norm_out, &e->conv_out, &map, g, NULL, &raw);
    conv_whole(x, &m->quant_conv, &raw, g, moments);
    oz_exec_reset(x, start);
}
