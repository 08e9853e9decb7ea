#include "pipe/pipeline.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/names.h"
#include "pipe/filling.h"
#include "pipe/find.h"
#include "pipe/task.h"
#include "text/template.h"

#define CARD_BAND_BYTES \
    (INT64_C(256) << 20) /* of the VAE's maps between a norm and its convolution */
#define CARD_RING_BYTES \
    (INT64_C(192) << 20) /* the widest weights wait whole for their scale, two chunks beside them */
#define MAX_CONFIG_BYTES (1U << 20)

static const struct {
    const char *name, *class_name;
    const char *stems[3];
} kinds[OZ_COMPONENT_COUNT] = {
    [OZ_COMPONENT_TEXT_ENCODER] = {"text_encoder",
                                   "Qwen2_5_VLForConditionalGeneration",
                                   {"model", NULL}},
    [OZ_COMPONENT_TRANSFORMER] = {"transformer",
                                  "QwenImageTransformer2DModel",
                                  {"diffusion_pytorch_model", NULL}},
    [OZ_COMPONENT_VAE] = {"vae", "AutoencoderKLQwenImage", {"diffusion_pytorch_model", NULL}},
};

/* A JSON file of the model: path in fresh memory, and its document. */
static enum oz_status read_json(const char *folder, const char *file, char **path,
                                struct oz_json **json, struct oz_error *err)
{
    *json = NULL;
    *path = oz_file_join(folder, file);
    if (*path == NULL) {
        return OZ_FAIL_NOMEM(err, file);
    }
    return oz_json_parse_file(json, *path, MAX_CONFIG_BYTES, err);
}

/* ---- model_index.json ---- */

static enum oz_status check_index_class(const char *path, const struct oz_json *json,
                                        struct oz_error *err)
{
    const char *class_name;
    OZ_TRY(oz_json_get_string(json, "_class_name", "", &class_name, path, err));
    if (strcmp(class_name, "QwenImagePipeline") != 0) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: the pipeline is \"%s\"; this version runs QwenImagePipeline.", path,
                       class_name);
    }
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const char *found =
            oz_json_string(oz_json_at(oz_json_get(json, kinds[i].name), 1), "absent");
        if (strcmp(found, kinds[i].class_name) != 0) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "%s: the component %s is %s; this version runs %s there.", path,
                           kinds[i].name, found, kinds[i].class_name);
        }
    }
    /* The reference takes the class from here, whatever the scheduler's own config says. */
    static const char wanted[] = "FlowMatchEulerDiscreteScheduler";
    const char *found = oz_json_string(oz_json_at(oz_json_get(json, "scheduler"), 1), "absent");
    return strcmp(found, wanted) == 0
               ? OZ_OK
               : OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                         "%s: the scheduler is %s; for this model ounce has %s.", path, found,
                         wanted);
}

static enum oz_status read_index(const char *folder, struct oz_error *err)
{
    char *path = oz_file_join(folder, "model_index.json");
    if (path == NULL) {
        return OZ_FAIL_NOMEM(err, folder);
    }
    bool there = oz_file_exists(path);
    oz_free(path);
    if (!there) {
        return OZ_FAIL(err, OZ_ERR_NO_MODEL,
                       "%s is no model folder: it has no model_index.json. Give the folder that "
                       "holds transformer/, text_encoder/, vae/ and tokenizer/.",
                       folder);
    }
    struct oz_json *json;
    enum oz_status status = read_json(folder, "model_index.json", &path, &json, err);
    if (status == OZ_OK) {
        status = check_index_class(path, json, err);
    }
    oz_json_free(json);
    oz_free(path);
    return status;
}

/* ---- ounce.json ---- */

static enum oz_status apply_defaults(struct oz_pipeline *p, const char *path,
                                     const struct oz_json *json, struct oz_error *err)
{
    static const char *const known[] = {"name",           "width",           "height",
                                        "true_cfg_scale", "negative_prompt", "num_inference_steps"};
    for (void *it = oz_json_first(json); it != NULL; it = oz_json_next(json, it)) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            found = found || strcmp(known[i], oz_json_key(it)) == 0;
        }
        if (!found) {
            const char *near =
                oz_names_nearest(oz_json_key(it), known, sizeof known / sizeof *known);
            return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: the key \"%s\" is not known%s%s%s", path,
                           oz_json_key(it), near != NULL ? "; did you mean \"" : "",
                           near != NULL ? near : "", near != NULL ? "\"?" : ".");
        }
    }
    int64_t width;
    int64_t height;
    int64_t steps;
    const char *name;
    const char *negative;
    struct oz_pipeline_defaults *d = &p->defaults;
    OZ_TRY(oz_json_get_integer(json, "width", d->width, 1, OZ_TASK_MAX_SIDE, &width, path, err));
    OZ_TRY(oz_json_get_integer(json, "height", d->height, 1, OZ_TASK_MAX_SIDE, &height, path, err));
    OZ_TRY(oz_json_get_integer(json, "num_inference_steps", d->num_inference_steps, 1,
                               OZ_TASK_MAX_STEPS, &steps, path, err));
    OZ_TRY(oz_json_get_number(json, "true_cfg_scale", d->true_cfg_scale, &d->true_cfg_scale, path,
                              err));
    OZ_TRY(oz_json_get_string(json, "name", NULL, &name, path, err));
    OZ_TRY(oz_json_get_string(json, "negative_prompt", NULL, &negative, path, err));
    int32_t multiple = oz_pipeline_size_multiple(p);
    if (width % multiple != 0 || height % multiple != 0) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: the size %lld x %lld is no multiple of %d, as this model needs.", path,
                       (long long)width, (long long)height, multiple);
    }
    if (!(d->true_cfg_scale > 0 && d->true_cfg_scale <= OZ_TASK_MAX_SCALE)) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: \"true_cfg_scale\" is %g; it must be more than 0 and at most %g.", path,
                       d->true_cfg_scale, OZ_TASK_MAX_SCALE);
    }
    d->width = (int32_t)width;
    d->height = (int32_t)height;
    d->num_inference_steps = (int32_t)steps;
    if (name != NULL) {
        oz_free(p->name);
        p->name = oz_strdup(name);
    }
    if (negative != NULL) {
        oz_free(d->negative_prompt);
        d->negative_prompt = oz_strdup(negative);
    }
    return p->name != NULL && d->negative_prompt != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, path);
}

/* The family's defaults, overridden by the model's own ounce.json. */
static enum oz_status read_defaults(struct oz_pipeline *p, struct oz_error *err)
{
    size_t n = strlen(p->path);
    while (n > 1 && p->path[n - 1] == '/') {
        n--;
    }
    size_t begin = n;
    while (begin > 0 && p->path[begin - 1] != '/') {
        begin--;
    }
    p->name = oz_strndup(p->path + begin, n - begin);
    p->defaults = (struct oz_pipeline_defaults){.width = 1024,
                                                .height = 1024,
                                                .num_inference_steps = 50,
                                                .true_cfg_scale = 4.0,
                                                .negative_prompt = oz_strdup(" ")};
    char *path = oz_file_join(p->path, "ounce.json");
    if (path == NULL || p->name == NULL || p->defaults.negative_prompt == NULL) {
        oz_free(path);
        return OZ_FAIL_NOMEM(err, "the model's defaults");
    }
    enum oz_status status = OZ_OK;
    if (oz_file_exists(path)) {
        struct oz_json *json;
        status = oz_json_parse_file(&json, path, MAX_CONFIG_BYTES, err);
        if (status == OZ_OK) {
            status = apply_defaults(p, path, json, err);
        }
        oz_json_free(json);
    }
    oz_free(path);
    return status;
}

/* ---- components ---- */

static enum oz_status build_text_encoder(struct oz_pipeline *p, struct oz_component *c,
                                         const struct oz_json *json, const char *path,
                                         struct oz_error *err)
{
    struct oz_qwen25_vl_config config;
    char prefix[OZ_QWEN25_VL_PREFIX_BYTES];
    OZ_TRY(oz_qwen25_vl_config_read(&config, json, path, err));
    if (c->ckpt != NULL) {
        OZ_TRY(oz_qwen25_vl_rename(c->ckpt, &c->convention, err));
        OZ_TRY(oz_qwen25_vl_find_prefix(c->ckpt, prefix, err));
    } else {
        (void)snprintf(prefix, sizeof prefix, "model");
    }
    OZ_TRY(oz_arena_init_host(&c->host, c->name, oz_qwen25_vl_host_bytes(&config), err));
    return oz_qwen25_vl_build(&p->text_encoder, &config, &c->host, &c->table, prefix, err);
}

static enum oz_status build_transformer(struct oz_pipeline *p, struct oz_component *c,
                                        const struct oz_json *json, const char *path,
                                        struct oz_error *err)
{
    struct oz_qwen_image_config config;
    OZ_TRY(oz_qwen_image_config_read(&config, json, path, err));
    if (c->ckpt != NULL) {
        OZ_TRY(oz_qwen_image_rename(c->ckpt, &c->convention, err));
    }
    OZ_TRY(oz_arena_init_host(&c->host, c->name, oz_qwen_image_host_bytes(&config), err));
    return oz_qwen_image_build(&p->transformer, &config, &c->host, &c->table, err);
}

static enum oz_status build_vae(struct oz_pipeline *p, struct oz_component *c,
                                const struct oz_json *json, const char *path, struct oz_error *err)
{
    struct oz_qwen_vae_config config;
    OZ_TRY(oz_qwen_vae_config_read(&config, json, path, err));
    if (c->ckpt != NULL) { /* dummies have the names that they are asked for */
        OZ_TRY(oz_qwen_vae_rename(c->ckpt, &config, &c->convention, err));
    }
    OZ_TRY(oz_arena_init_host(&c->host, c->name, oz_qwen_vae_host_bytes(&config), err));
    return oz_qwen_vae_build(&p->vae, &config, &c->host, &c->table, false, err);
}

/* The config tells of the folder's own weights; what replaces them speaks for itself. */
static enum oz_status read_stored(struct oz_component *c, const struct oz_json *json,
                                  const char *path, struct oz_error *err)
{
    bool folder = oz_file_is_folder(c->folder);
    const struct oz_stored_input in = {.config = c->replaced ? NULL : json,
                                       .path = c->replaced ? c->folder : path,
                                       .folder = folder ? c->folder : NULL,
                                       .ckpt = c->ckpt,
                                       .table = &c->table,
                                       .arena = &c->stored_memory};
    OZ_TRY(oz_stored_prepare(c->ckpt, &c->table, err));
    OZ_TRY(oz_arena_init_host(&c->stored_memory, c->name, oz_stored_bytes(&c->table), err));
    return oz_stored_read(&c->stored, &in, err);
}

/* Dummies are what an unquantized checkpoint would be. */
static enum oz_status check_dummy(const struct oz_json *json, const char *path,
                                  struct oz_error *err)
{
    return oz_json_get(json, "quantization_config") == NULL
               ? OZ_OK
               : OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                         "%s says that the weights are quantized; dummy weights are drawn as bf16. "
                         "Take \"quantization_config\" out of it, and quantize while loading "
                         "(--quantization).",
                         path);
}

/* The checkpoint and the layer table: of files the table is made for the names they have, of dummies the
 * checkpoint for the table. */
static enum oz_status open_weights(struct oz_pipeline *p, struct oz_component *c,
                                   enum oz_component_id id, const struct oz_pipeline_options *o,
                                   const struct oz_json *json, const char *path,
                                   struct oz_error *err)
{
    if (o->dummy) {
        OZ_TRY(check_dummy(json, path, err));
    } else {
        OZ_TRY(oz_ckpt_open_limited(&c->ckpt, c->folder, c->replaced ? NULL : kinds[id].stems,
                                    o->max_header_bytes, err));
    }
    switch (id) {
    case OZ_COMPONENT_TEXT_ENCODER: OZ_TRY(build_text_encoder(p, c, json, path, err)); break;
    case OZ_COMPONENT_TRANSFORMER: OZ_TRY(build_transformer(p, c, json, path, err)); break;
    case OZ_COMPONENT_VAE: OZ_TRY(build_vae(p, c, json, path, err)); break;
    case OZ_COMPONENT_COUNT: break;
    }
    return o->dummy ? oz_filling_open(&c->ckpt, &c->table, c->name, err) : OZ_OK;
}

static enum oz_status open_component(struct oz_pipeline *p, enum oz_component_id id,
                                     const struct oz_pipeline_options *o, struct oz_error *err)
{
    struct oz_component *c = &p->components[id];
    bool replaced =
        id == OZ_COMPONENT_TRANSFORMER && o->transformer != NULL && o->transformer[0] != 0;
    struct oz_json *json = NULL;
    char *path = NULL;
    c->name = kinds[id].name;
    c->class_name = kinds[id].class_name;
    c->stem = kinds[id].stems[0];
    c->of_transformers = id == OZ_COMPONENT_TEXT_ENCODER;
    c->replaced = replaced;
    c->config_folder = oz_file_join(p->path, c->name);
    c->folder = replaced ? oz_strdup(o->transformer) : oz_file_join(p->path, c->name);
    if (c->folder == NULL || c->config_folder == NULL) {
        return OZ_FAIL_NOMEM(err, c->name);
    }
    enum oz_status status = read_json(c->config_folder, "config.json", &path, &json, err);
    if (status == OZ_OK) {
        status = open_weights(p, c, id, o, json, path, err);
    }
    if (status == OZ_OK) {
        status = read_stored(c, json, path, err);
    }
    oz_json_free(json);
    oz_free(path);
    OZ_TRY(status);
    OZ_TRY(oz_match_create(&c->match, c->ckpt, &c->table, &c->stored, err));
    if (id != OZ_COMPONENT_TRANSFORMER || o->lora_count == 0) {
        return OZ_OK;
    }
    return oz_lora_open(&c->lora, c->match, o->loras, o->lora_count, o->max_header_bytes, err);
}

/* What the caller lays over the model's scheduler. */
static enum oz_status override_scheduler(struct oz_pipeline *p, const char *text,
                                         struct oz_error *err)
{
    struct oz_json *json = NULL;
    bool inlined = text[strspn(text, " \t\r\n")] == '{';
    const char *name = inlined ? "scheduler_config" : text;
    enum oz_status status = inlined ? oz_json_parse(&json, text, strlen(text), name, err)
                                    : oz_json_parse_file(&json, text, MAX_CONFIG_BYTES, err);
    if (status == OZ_OK) {
        status = oz_sched_flow_config_override(&p->scheduler, json, name, err);
    }
    oz_json_free(json);
    return status;
}

static enum oz_status open_scheduler(struct oz_pipeline *p, const struct oz_pipeline_options *o,
                                     struct oz_error *err)
{
    struct oz_json *json = NULL;
    char *path = NULL;
    enum oz_status status =
        read_json(p->path, "scheduler/scheduler_config.json", &path, &json, err);
    if (status == OZ_OK) {
        status = oz_sched_flow_config_read(&p->scheduler, json, path, err);
    }
    oz_json_free(json);
    oz_free(path);
    OZ_TRY(status);
    bool asks = o->scheduler_config != NULL && o->scheduler_config[0] != '\0';
    return asks ? override_scheduler(p, o->scheduler_config, err) : OZ_OK;
}

static enum oz_status open_tokenizer(struct oz_pipeline *p, struct oz_error *err)
{
    char *folder = oz_file_join(p->path, "tokenizer");
    if (folder == NULL) {
        return OZ_FAIL_NOMEM(err, "a path");
    }
    enum oz_status status = oz_tokenizer_open(&p->tokenizer, folder, err);
    oz_free(folder);
    OZ_TRY(status);
    int32_t vocabulary = p->text_encoder.config.vocab;
    if (oz_tokenizer_count(p->tokenizer) > vocabulary) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: the tokenizer has %d tokens, the text encoder only %d.", p->path,
                       oz_tokenizer_count(p->tokenizer), vocabulary);
    }
    return OZ_OK;
}

/* Components must fit each other. */
static enum oz_status check_fit(const struct oz_pipeline *p, struct oz_error *err)
{
    const struct oz_qwen_image_config *t = &p->transformer.config;
    if (p->text_encoder.config.hidden != t->text_dim) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: the text encoder gives %d features, the transformer takes %d.", p->path,
                       p->text_encoder.config.hidden, t->text_dim);
    }
    if (p->vae.config.z_dim != t->out_channels) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: the VAE has %d latent channels, the transformer %d.", p->path,
                       p->vae.config.z_dim, t->out_channels);
    }
    return OZ_OK;
}

static enum oz_status open_all(struct oz_pipeline *p, const struct oz_pipeline_options *o,
                               struct oz_error *err)
{
    if (o->dummy && o->transformer != NULL && o->transformer[0] != '\0') {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "The transformer's weights cannot come from %s and be dummies, too; leave "
                       "out one of both.",
                       o->transformer);
    }
    OZ_TRY(oz_model_check_links(p->path, err));
    OZ_TRY(read_index(p->path, err));
    OZ_TRY(open_scheduler(p, o, err));
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        OZ_TRY(open_component(p, (enum oz_component_id)i, o, err));
    }
    OZ_TRY(open_tokenizer(p, err));
    OZ_TRY(check_fit(p, err));
    return read_defaults(p, err); /* last: what is allowed depends on the components */
}

enum oz_status oz_pipeline_open(struct oz_pipeline **out, const char *folder,
                                const struct oz_pipeline_options *options, struct oz_error *err)
{
    static const struct oz_pipeline_options none;
    *out = NULL;
    struct oz_pipeline *p = oz_alloc_zero(1, sizeof *p);
    if (p == NULL) {
        return OZ_FAIL_NOMEM(err, folder);
    }
    p->class_name = "QwenImagePipeline";
    options = options != NULL ? options : &none;
    p->path = oz_strdup(folder);
    p->modulation = oz_alloc_zero(1, sizeof *p->modulation);
    p->offload = oz_alloc_zero(1, sizeof *p->offload);
    enum oz_status status = OZ_OK;
    if (p->path == NULL || p->modulation == NULL || p->offload == NULL) {
        status = OZ_FAIL_NOMEM(err, folder);
    } else {
        p->modulation->mode = options->modulation;
        p->offload->mode = options->offload;
        p->dummy = options->dummy;
        status = open_all(p, options, err);
    }
    if (status != OZ_OK) {
        oz_pipeline_close(&p);
        return status;
    }
    *out = p;
    return OZ_OK;
}

int32_t oz_pipeline_size_multiple(const struct oz_pipeline *p)
{
    return p->transformer.config.patch_size << (p->vae.config.levels - 1);
}

enum oz_status oz_pipeline_check(const struct oz_pipeline *p, struct oz_error *err)
{
    struct oz_error all;
    enum oz_status status = OZ_OK;
    for (int i = OZ_COMPONENT_COUNT - 1; i >= 0; i--) {
        const struct oz_component *c = &p->components[i];
        struct oz_error one;
        enum oz_status found = oz_match_check(c->match, c->folder, &one);
        if (found != OZ_OK && status != OZ_OK) {
            (void)oz_error_prefix(&all, status, "%s ", one.message);
        } else if (found != OZ_OK) {
            all = one;
        }
        status = found != OZ_OK ? found : status;
    }
    return status == OZ_OK ? OZ_OK : OZ_FAIL(err, status, "%s", all.message);
}

struct oz_load_args oz_pipeline_load_args(const struct oz_pipeline *p, const struct oz_component *c)
{
    return (struct oz_load_args){.match = c->match,
                                 .takes = oz_modulation_leaves_in,
                                 .takes_ctx = p,
                                 .dev = p->dev,
                                 .ring_bytes = p->dev->host_memory ? 0 : CARD_RING_BYTES,
                                 .assignment = c->assignment.table != NULL ? &c->assignment : NULL,
                                 .lora = c->lora};
}

struct oz_load_ring *oz_pipeline_ring(const struct oz_pipeline *p, struct oz_load_ring *ring)
{
    return p->dev->host_memory ? NULL : ring;
}

/* One pass over all components: measuring, or for real. */
static enum oz_status load_all(struct oz_pipeline *p, struct oz_arena *model, oz_progress_fn fn,
                               void *ctx, struct oz_error *err)
{
    int64_t done = 0;
    int64_t total = 0;
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_load_args args = oz_pipeline_load_args(p, &p->components[i]);
        total += oz_load_bytes(&args);
    }
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        struct oz_component *c = &p->components[i];
        struct oz_load_args args = oz_pipeline_load_args(p, c);
        c->loaded = (struct oz_load_stats){0};
        if (model->measuring) { /* perhaps again */
            oz_load_report_deinit(&c->report);
            oz_load_schedule_deinit(&c->schedule);
            args.report = &c->report;
            args.schedule = &c->schedule;
        }
        args.model = model;
        args.progress = fn;
        args.progress_ctx = ctx;
        args.done_bytes = &done;
        args.total_bytes = total;
        args.stats = &c->loaded;
        args.ring = oz_pipeline_ring(p, &p->ring);
        OZ_TRY(oz_load_component(&args, err));
    }
    return OZ_OK;
}

enum oz_status oz_pipeline_plan(struct oz_pipeline *p, struct oz_device *dev, size_t *model_bytes,
                                struct oz_error *err)
{
    struct oz_arena measure;
    OZ_TRY(oz_pipeline_check(p, err));
    p->dev = dev;
    if (!dev->host_memory) { /* a card wants large pieces of work, and no cache has to hold them */
        p->vae.band_bytes = CARD_BAND_BYTES;
    }
    oz_arena_init_measure(&measure, "model");
    OZ_TRY(load_all(p, &measure, NULL, NULL, err));
    *model_bytes = measure.used_bytes;
    if (oz_offload_is_on(p)) {
        OZ_TRY(oz_offload_plan(p, err));
        *model_bytes = p->offload->room_bytes;
    }
    return oz_modulation_stays(p) ? OZ_OK : oz_modulation_plan(p, err);
}

enum oz_status oz_pipeline_load(struct oz_pipeline *p, struct oz_device *dev, oz_progress_fn fn,
                                void *ctx, struct oz_error *err)
{
    size_t bytes;
    enum oz_status status;
    OZ_TRY(oz_pipeline_plan(p, dev, &bytes, err));
    if (oz_offload_is_on(p)) {
        status = oz_offload_load(p, fn, ctx, err);
    } else {
        if (bytes > 0) {
            OZ_TRY(dev->alloc(dev, bytes, &p->model_memory, err));
        }
        oz_arena_init_view(&p->model, "model", p->model_memory, bytes, dev->host_memory);
        status = load_all(p, &p->model, fn, ctx, err);
    }
    oz_load_ring_deinit(&p->ring, dev);
    return status == OZ_OK ? oz_pipeline_check_files(p, err) : status;
}

enum oz_status oz_pipeline_check_files(const struct oz_pipeline *p, struct oz_error *err)
{
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        OZ_TRY(oz_ckpt_check(p->components[i].ckpt, err));
        OZ_TRY(oz_lora_check(p->components[i].lora, err));
    }
    return OZ_OK;
}

void oz_pipeline_close(struct oz_pipeline **pipeline)
{
    struct oz_pipeline *p = *pipeline;
    if (p == NULL) {
        return;
    }
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        struct oz_component *c = &p->components[i];
        oz_load_report_deinit(&c->report);
        oz_lora_close(&c->lora);
        oz_load_schedule_deinit(&c->schedule);
        oz_match_destroy(&c->match);
        oz_arena_deinit(&c->assign_memory);
        oz_arena_deinit(&c->stored_memory);
        oz_arena_deinit(&c->host);
        oz_ckpt_close(&c->ckpt);
        oz_free(c->config_folder);
        oz_free(c->folder);
    }
    oz_arena_deinit(&p->model);
    if (p->dev != NULL) {
        p->dev->free(p->dev, p->model_memory);
    }
    if (p->modulation != NULL) {
        oz_modulation_deinit(p->modulation, p->dev);
        oz_free(p->modulation);
    }
    if (p->offload != NULL) {
        oz_offload_deinit(p->offload, p->dev);
        oz_free(p->offload);
    }
    oz_tokenizer_close(&p->tokenizer);
    oz_free(p->defaults.negative_prompt);
    oz_free(p->name);
    oz_free(p->path);
    oz_free(p);
    *pipeline = NULL;
}
