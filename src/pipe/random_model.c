#include "pipe/random_model.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "ckpt/writer.h"
#include "model/qwen25_vl/qwen25_vl.h"
#include "model/qwen_image/qwen_image.h"
#include "model/qwen_vae/qwen_vae.h"
#include "num/noise.h"
#include "pipe/filling.h"
#include "pipe/find.h"
#include "pipe/random_config.h"
#include "quant/layer.h"
#include "text/tokenizer.h"

#define SHARD_BYTES (INT64_C(4) << 30)
#define MAX_CONFIG_BYTES ((size_t)1 << 20)
#define MAX_TOKENIZER_BYTES ((size_t)64 << 20)
#define CHUNK 65536 /* elements that are written at once */
#define EXTRA_TENSORS 128

/* A component's tensors while they are collected. */
struct tensors {
    struct oz_ckpt_spec *specs; /* [count] */
    struct oz_filling *fillings;
    char (*names)[96]; /* of those that are in no layer table */
    int32_t count, capacity, named;
    enum oz_status status; /* sticky */
};

struct job {
    const struct oz_random_model *m;
    const char *folder;
    struct oz_random_sizes sizes;
    struct oz_noise noise;
    uint16_t *chunk; /* [CHUNK] */
    struct oz_qwen_image transformer;
    struct oz_qwen25_vl text_encoder;
    struct oz_qwen_vae vae;
    int64_t done, total; /* bytes */
};

/* ---- tensors ---- */

static void add(struct tensors *t, const char *name, struct oz_filling f, int32_t rank,
                const int64_t *shape)
{
    if (t->count >= t->capacity) {
        t->status = OZ_ERR_INTERNAL;
        return;
    }
    struct oz_ckpt_spec *s = &t->specs[t->count];
    *s = (struct oz_ckpt_spec){.name = name, .dtype = OZ_DTYPE_BF16, .rank = rank};
    memcpy(s->shape, shape, (size_t)rank * sizeof *shape);
    t->fillings[t->count++] = f;
}

/* One that the layer table ignores, under a name of its own. */
static void add_extra(struct tensors *t, struct oz_filling f, int32_t rank, const int64_t *shape,
                      const char *prefix, const char *name)
{
    if (t->named >= EXTRA_TENSORS) {
        t->status = OZ_ERR_INTERNAL;
        return;
    }
    char *own = t->names[t->named++];
    (void)snprintf(own, sizeof t->names[0], "%s.%s", prefix, name);
    add(t, own, f, rank, shape);
}

static void add_row(struct tensors *t, const struct oz_layer *row)
{
    struct oz_ckpt_spec spec;
    struct oz_filling f;
    oz_filling_of_row(row, &spec, &f);
    add(t, spec.name, f, spec.rank, spec.shape);
}

/* The vision tower's tensors, which text to image ignores. */
static void add_vision(struct tensors *t, const struct oz_random_sizes *s)
{
    enum {
        H = OZ_RANDOM_VISION_HIDDEN,
        I = OZ_RANDOM_VISION_INTERMEDIATE,
        P = OZ_RANDOM_VISION_PATCH,
        M = OZ_RANDOM_VISION_MERGED
    };
    static const char visual[] = "visual";
    static const char block[] = "visual.blocks.0";
    const struct {
        const char *prefix, *name;
        int64_t out, in;
        bool biased;
    } linears[] = {
        {block, "attn.qkv", 3 * (int64_t)H, H, true},
        {block, "attn.proj", H, H, true},
        {block, "mlp.gate_proj", I, H, true},
        {block, "mlp.up_proj", I, H, true},
        {block, "mlp.down_proj", H, I, true},
        {visual, "merger.mlp.0", M, M, true},
        {visual, "merger.mlp.2", s->text_hidden, M, true},
    };
    const int64_t patch[] = {H, 3, 2, P, P};
    const int64_t hidden[] = {H};
    for (size_t i = 0; i < sizeof linears / sizeof *linears; i++) {
        char name[64];
        const int64_t shape[] = {linears[i].out, linears[i].in};
        (void)snprintf(name, sizeof name, "%s.weight", linears[i].name);
        add_extra(t, oz_filling_normal(linears[i].in), 2, shape, linears[i].prefix, name);
        (void)snprintf(name, sizeof name, "%s.bias", linears[i].name);
        add_extra(t, oz_filling_bias(), 1, shape, linears[i].prefix, name);
    }
    add_extra(t, oz_filling_normal(3 * 2 * P * P), 5, patch, visual, "patch_embed.proj.weight");
    add_extra(t, oz_filling_ones(), 1, hidden, block, "norm1.weight");
    add_extra(t, oz_filling_ones(), 1, hidden, block, "norm2.weight");
    add_extra(t, oz_filling_ones(), 1, hidden, visual, "merger.ln_q.weight");
}

static void add_time_conv(struct tensors *t, int64_t out, int64_t in, const char *prefix)
{
    const int64_t shape[] = {out, in, 3, 1, 1};
    add_extra(t, oz_filling_normal(in), 5, shape, prefix, "time_conv.weight");
    add_extra(t, oz_filling_bias(), 1, shape, prefix, "time_conv.bias");
}

/* Convolutions over time, which a single frame ignores. */
static void add_time_convs(struct tensors *t, const struct oz_qwen_vae *m)
{
    const struct oz_qwen_vae_config *c = &m->config;
    char prefix[64];
    int32_t number = 0;
    for (int32_t i = 0; i + 1 < c->levels; i++) {
        number += c->num_res_blocks;
        if (c->temperal_downsample[i]) {
            int64_t n = m->encoder.levels[i].out;
            (void)snprintf(prefix, sizeof prefix, "encoder.down_blocks.%d", number);
            add_time_conv(t, n, n, prefix);
        }
        number++;
        if (c->temperal_downsample[c->levels - 2 - i]) {
            int64_t n = m->decoder.levels[i].out;
            (void)snprintf(prefix, sizeof prefix, "decoder.up_blocks.%d.upsamplers.0", i);
            add_time_conv(t, 2 * n, n, prefix);
        }
    }
}

/* ---- values ---- */

static enum oz_status tell(struct job *job, int64_t bytes, struct oz_error *err)
{
    job->done += bytes;
    const struct oz_progress p = {.struct_size = sizeof p,
                                  .stage = OZ_STAGE_WRITE,
                                  .picture = -1,
                                  .done = job->done,
                                  .total = job->total};
    if (job->m->progress != NULL && job->m->progress(job->m->progress_ctx, &p) != 0) {
        return OZ_FAIL(err, OZ_ERR_CANCELLED, "Writing the model was interrupted.");
    }
    return OZ_OK;
}

static enum oz_status write_tensor(struct job *job, struct oz_ckpt_writer *w,
                                   const struct oz_ckpt_spec *spec, struct oz_filling f,
                                   struct oz_error *err)
{
    int64_t elements = 1;
    uint64_t state = oz_noise_state(job->m->seed, spec->name);
    const uint16_t *table = oz_noise_table(&job->noise, f);
    if (table == NULL) {
        return OZ_FAIL_NOMEM(err, spec->name);
    }
    for (int32_t i = 0; i < spec->rank; i++) {
        elements *= spec->shape[i];
    }
    for (int64_t at = 0; at < elements;) {
        int64_t count = elements - at < CHUNK ? elements - at : CHUNK;
        oz_noise_fill(table, state, at, count, job->chunk);
        OZ_TRY(oz_ckpt_writer_put(w, job->chunk, 2 * (size_t)count, err));
        OZ_TRY(tell(job, 2 * count, err));
        at += count;
    }
    return OZ_OK;
}

static enum oz_status write_tensors(struct job *job, const struct tensors *t, const char *folder,
                                    const char *stem, struct oz_error *err)
{
    static const char *const metadata[][2] = {{"format", "pt"}};
    int64_t most = job->m->max_shard_bytes > 0 ? job->m->max_shard_bytes : SHARD_BYTES;
    struct oz_ckpt_writer *w;
    const struct oz_ckpt_writer_options o = {.folder = folder,
                                             .stem = stem,
                                             .max_shard_bytes = most,
                                             .metadata = metadata,
                                             .metadata_count = 1};
    OZ_TRY(oz_ckpt_writer_create(&w, &o, t->specs, t->count, err));
    enum oz_status status = OZ_OK;
    int32_t i = oz_ckpt_writer_next(w);
    for (; i >= 0 && status == OZ_OK; i = oz_ckpt_writer_next(w)) {
        status = write_tensor(job, w, &t->specs[i], t->fillings[i], err);
    }
    if (status == OZ_OK) {
        status = oz_ckpt_writer_finish(w, err);
    }
    oz_ckpt_writer_destroy(&w);
    return status;
}

/* ---- components ---- */

/* A component: what it is called, and how its table is built from its config. */
struct component {
    const char *name, *stem;
    void (*config)(struct oz_buf *b, const struct oz_random_sizes *s);
    enum oz_status (*build)(struct job *job, const struct oz_json *json, struct oz_arena *host,
                            struct oz_layer_table *t, struct oz_error *err);
    void (*extras)(const struct job *job, struct tensors *t); /* NULL: none */
};

static enum oz_status build_transformer(struct job *job, const struct oz_json *json,
                                        struct oz_arena *host, struct oz_layer_table *t,
                                        struct oz_error *err)
{
    struct oz_qwen_image_config c;
    OZ_TRY(oz_qwen_image_config_read(&c, json, "the random transformer", err));
    OZ_TRY(oz_arena_init_host(host, "transformer", oz_qwen_image_host_bytes(&c), err));
    return oz_qwen_image_build(&job->transformer, &c, host, t, err);
}

static enum oz_status build_text_encoder(struct job *job, const struct oz_json *json,
                                         struct oz_arena *host, struct oz_layer_table *t,
                                         struct oz_error *err)
{
    struct oz_qwen25_vl_config c;
    OZ_TRY(oz_qwen25_vl_config_read(&c, json, "the random text encoder", err));
    OZ_TRY(oz_arena_init_host(host, "text_encoder", oz_qwen25_vl_host_bytes(&c), err));
    return oz_qwen25_vl_build(&job->text_encoder, &c, host, t, "model", err);
}

static enum oz_status build_vae(struct job *job, const struct oz_json *json, struct oz_arena *host,
                                struct oz_layer_table *t, struct oz_error *err)
{
    struct oz_qwen_vae_config c;
    OZ_TRY(oz_qwen_vae_config_read(&c, json, "the random VAE", err));
    OZ_TRY(oz_arena_init_host(host, "vae", oz_qwen_vae_host_bytes(&c), err));
    return oz_qwen_vae_build(&job->vae, &c, host, t, false, err);
}

static void extras_text_encoder(const struct job *job, struct tensors *t)
{
    add_vision(t, &job->sizes);
}

static void extras_vae(const struct job *job, struct tensors *t)
{
    add_time_convs(t, &job->vae);
}

static const struct component components[] = {
    {"text_encoder", "model", oz_random_config_text_encoder, build_text_encoder,
     extras_text_encoder},
    {"transformer", "diffusion_pytorch_model", oz_random_config_transformer, build_transformer,
     NULL},
    {"vae", "diffusion_pytorch_model", oz_random_config_vae, build_vae, extras_vae},
};
#define COMPONENTS (sizeof components / sizeof *components)

static int64_t bytes_of(const struct tensors *t)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < t->count; i++) {
        int64_t n = 2;
        for (int32_t d = 0; d < t->specs[i].rank; d++) {
            n *= t->specs[i].shape[d];
        }
        bytes += n;
    }
    return bytes;
}

static void tensors_deinit(struct tensors *t)
{
    oz_free(t->specs);
    oz_free(t->fillings);
    oz_free(t->names);
}

static enum oz_status collect(const struct job *job, const struct component *c,
                              const struct oz_layer_table *table, struct tensors *t,
                              struct oz_error *err)
{
    size_t n = (size_t)table->count + EXTRA_TENSORS;
    *t = (struct tensors){.capacity = (int32_t)n,
                          .specs = oz_alloc_zero(n, sizeof *t->specs),
                          .fillings = oz_alloc_zero(n, sizeof *t->fillings),
                          .names = oz_alloc_zero(EXTRA_TENSORS, sizeof *t->names)};
    if (t->specs == NULL || t->fillings == NULL || t->names == NULL) {
        return OZ_FAIL_NOMEM(err, c->name);
    }
    for (int32_t i = 0; i < table->count; i++) {
        add_row(t, &table->rows[i]);
    }
    if (c->extras != NULL) {
        c->extras(job, t);
    }
    return t->status == OZ_OK
               ? OZ_OK
               : OZ_FAIL(err, t->status, "The random %s does not fit its list.", c->name);
}

/* Config, table, tensors; writes them, or only counts their bytes. */
static enum oz_status component_run(struct job *job, const struct component *c, const char *folder,
                                    bool counting, struct oz_error *err)
{
    struct oz_buf text;
    struct oz_json *json = NULL;
    struct oz_arena host = {0};
    struct oz_layer_table table = {0};
    struct tensors t = {0};
    char *path = oz_file_join(folder, "config.json");
    oz_buf_init(&text, MAX_CONFIG_BYTES);
    c->config(&text, &job->sizes);
    enum oz_status status =
        path != NULL && text.status == OZ_OK ? OZ_OK : OZ_FAIL_NOMEM(err, c->name);
    if (status == OZ_OK) {
        status = oz_json_parse(&json, text.data, text.bytes, path, err);
    }
    if (status == OZ_OK) {
        status = c->build(job, json, &host, &table, err);
    }
    if (status == OZ_OK) {
        status = collect(job, c, &table, &t, err);
    }
    if (status == OZ_OK && counting) {
        job->total += bytes_of(&t);
    } else if (status == OZ_OK) {
        status = oz_file_make_folder(folder, err);
        if (status == OZ_OK) {
            status = write_tensors(job, &t, folder, c->stem, err);
        }
        if (status == OZ_OK) {
            status = oz_file_write(path, text.data, text.bytes, err);
        }
    }
    tensors_deinit(&t);
    oz_arena_deinit(&host);
    oz_json_free(json);
    oz_buf_deinit(&text);
    oz_free(path);
    return status;
}

static enum oz_status all_components(struct job *job, bool counting, struct oz_error *err)
{
    for (size_t i = 0; i < COMPONENTS; i++) {
        char *folder = oz_file_join(job->folder, components[i].name);
        if (folder == NULL) {
            return OZ_FAIL_NOMEM(err, components[i].name);
        }
        enum oz_status status = component_run(job, &components[i], folder, counting, err);
        oz_free(folder);
        OZ_TRY(status);
    }
    return OZ_OK;
}

/* ---- what is not weights ---- */

static enum oz_status write_text(const struct job *job, const char *folder, const char *file,
                                 struct oz_buf *b, struct oz_error *err)
{
    char relative[96];
    (void)snprintf(relative, sizeof relative, "%s%s%s", folder, folder[0] != '\0' ? "/" : "", file);
    char *path = oz_file_join(job->folder, relative);
    enum oz_status status = path != NULL && b->status == OZ_OK
                                ? oz_file_write(path, b->data, b->bytes, err)
                                : OZ_FAIL_NOMEM(err, file);
    oz_free(path);
    oz_buf_deinit(b);
    return status;
}

/* Makes <folder>/<name>. */
static enum oz_status make_folder(const struct job *job, const char *name, struct oz_error *err)
{
    char *path = oz_file_join(job->folder, name);
    enum oz_status status =
        path != NULL ? oz_file_make_folder(path, err) : OZ_FAIL_NOMEM(err, name);
    oz_free(path);
    return status;
}

static enum oz_status copy_tokenizer(const struct job *job, const char *bundled,
                                     struct oz_error *err)
{
    static const char *const files[] = {"tokenizer/tokenizer.json",
                                        "tokenizer/tokenizer_config.json"};
    OZ_TRY(make_folder(job, "tokenizer", err));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *from = oz_file_join(bundled, files[i]);
        char *to = oz_file_join(job->folder, files[i]);
        enum oz_status status = from != NULL && to != NULL
                                    ? oz_file_copy(from, to, MAX_TOKENIZER_BYTES, err)
                                    : OZ_FAIL_NOMEM(err, files[i]);
        oz_free(from);
        oz_free(to);
        OZ_TRY(status);
    }
    return OZ_OK;
}

static enum oz_status count_vocab(const char *bundled, int32_t *vocab, struct oz_error *err)
{
    struct oz_tokenizer *tokenizer = NULL;
    char *folder = oz_file_join(bundled, "tokenizer");
    enum oz_status status = folder != NULL ? oz_tokenizer_open(&tokenizer, folder, err)
                                           : OZ_FAIL_NOMEM(err, "the tokenizer");
    if (status == OZ_OK) {
        *vocab = (oz_tokenizer_count(tokenizer) + 63) / 64 * 64;
        oz_tokenizer_close(&tokenizer);
    }
    oz_free(folder);
    return status;
}

static enum oz_status check_free(const struct job *job, struct oz_error *err)
{
    char *path = oz_file_join(job->folder, "model_index.json");
    if (path == NULL) {
        return OZ_FAIL_NOMEM(err, job->folder);
    }
    bool there = oz_file_exists(path);
    oz_free(path);
    return there
               ? OZ_FAIL(err, OZ_ERR_ARG,
                         "%s holds a model already; write to a folder that does not.", job->folder)
               : OZ_OK;
}

static enum oz_status run(struct job *job, const char *bundled, struct oz_error *err)
{
    struct oz_buf b;
    int32_t vocab = 0;
    OZ_TRY(check_free(job, err));
    OZ_TRY(count_vocab(bundled, &vocab, err));
    OZ_TRY(oz_random_sizes_fill(&job->sizes, job->m, vocab, err));
    OZ_TRY(all_components(job, true, err));
    OZ_TRY(oz_file_make_folder(job->folder, err));
    OZ_TRY(all_components(job, false, err));
    OZ_TRY(copy_tokenizer(job, bundled, err));
    OZ_TRY(make_folder(job, "scheduler", err));
    oz_buf_init(&b, MAX_CONFIG_BYTES);
    oz_random_config_scheduler(&b);
    OZ_TRY(write_text(job, "scheduler", "scheduler_config.json", &b, err));
    oz_buf_init(&b, MAX_CONFIG_BYTES);
    oz_random_config_ounce(&b, &job->sizes);
    OZ_TRY(write_text(job, "", "ounce.json", &b, err));
    oz_buf_init(&b, MAX_CONFIG_BYTES);
    oz_random_config_index(&b);
    return write_text(job, "", "model_index.json", &b, err);
}

enum oz_status oz_random_model_write(const char *folder, const struct oz_random_model *m,
                                     struct oz_error *err)
{
    char *bundled = NULL;
    struct job *job = oz_alloc_zero(1, sizeof *job);
    if (job == NULL) {
        return OZ_FAIL_NOMEM(err, "a random model");
    }
    job->m = m;
    job->folder = folder;
    job->chunk = oz_alloc(CHUNK * sizeof *job->chunk);
    enum oz_status status = job->chunk != NULL ? oz_model_find(NULL, &bundled, err)
                                               : OZ_FAIL_NOMEM(err, "a random model");
    if (status == OZ_OK) {
        status = run(job, bundled, err);
    }
    oz_free(bundled);
    oz_free(job->chunk);
    oz_noise_deinit(&job->noise);
    oz_free(job);
    return status;
}
