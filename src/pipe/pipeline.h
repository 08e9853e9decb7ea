/*
 * pipe/pipeline.h: an opened QwenImagePipeline: its components, what feeds them, and its defaults.
 * Opening reads configs and headers (what `inspect` shows); loading makes it able to run.
 */
#ifndef OZ_PIPE_PIPELINE_H
#define OZ_PIPE_PIPELINE_H

#include <ounce/status.h>

#include "base/arena.h"
#include "ckpt/table.h"
#include "dev/device.h"
#include "load/load.h"
#include "load/lora.h"
#include "load/match.h"
#include "model/qwen25_vl/qwen25_vl.h"
#include "model/qwen_image/qwen_image.h"
#include "model/qwen_vae/qwen_vae.h"
#include "pipe/modulation.h"
#include "pipe/offload.h"
#include "pipe/sched_flow.h"
#include "quant/assign.h"
#include "quant/layer.h"
#include "text/tokenizer.h"

enum oz_component_id {
    OZ_COMPONENT_TEXT_ENCODER,
    OZ_COMPONENT_TRANSFORMER,
    OZ_COMPONENT_VAE,
    OZ_COMPONENT_COUNT
};

struct oz_component {
    const char *name;       /* "transformer": folder and prefix in rules */
    const char *class_name; /* "QwenImageTransformer2DModel" */
    const char *stem;       /* of its checkpoint's files: "diffusion_pytorch_model" */
    bool of_transformers;   /* its class is transformers', not diffusers' */
    char *folder;           /* or file: what its weights come from; for messages */
    char *config_folder;    /* of its config.json */
    bool replaced;          /* its weights come from elsewhere (oz_pipeline_options.transformer) */
    struct oz_ckpt *ckpt;
    const char *convention; /* of its tensors' names, where it is not ours; static; NULL */
    struct oz_arena host;   /* rows, strings, block lists */
    struct oz_layer_table table;
    struct oz_arena stored_memory;
    struct oz_stored stored; /* what the checkpoint holds quantized */
    struct oz_match *match;
    struct oz_lora *lora; /* merged while loading; NULL: none */
    struct oz_arena assign_memory;
    struct oz_assignment assignment; /* zero until oz_pipeline_assign */
    bool converted;                  /* written anew, whatever its form (pipe/convert.h) */
    struct oz_load_stats loaded;
    /* What the load is going to make of every tensor, and what it reads; from oz_pipeline_plan. */
    struct oz_load_report report;
    struct oz_load_schedule schedule;
};

struct oz_pipeline_defaults {
    int32_t width, height, num_inference_steps;
    double true_cfg_scale;
    char *negative_prompt;
};

struct oz_pipeline {
    char *path, *name;
    const char *class_name;
    bool dummy; /* weights are drawn, not read */
    struct oz_pipeline_defaults defaults;
    struct oz_tokenizer *tokenizer;
    struct oz_sched_flow_config scheduler;
    struct oz_component components[OZ_COMPONENT_COUNT];
    struct oz_qwen25_vl text_encoder;
    struct oz_qwen_image transformer;
    struct oz_qwen_vae vae;
    /* Steps of the denoising loop (0-based, ascending) in which the transformer's linears take their
     * second activation mode; borrowed from the assignment. */
    const int32_t *fallback_steps;
    int32_t fallback_step_count;
    /* Its table is made by runs, which see a pipeline that does not change otherwise. */
    struct oz_modulation *modulation;
    struct oz_offload *offload; /* likewise: what of the weights is on the device */
    struct oz_device *dev;      /* borrowed; NULL until loaded */
    struct oz_load_ring ring;   /* what loads stage in, while one goes on */
    void *model_memory;
    struct oz_arena model;
};

/* Pixels of a picture's side for each token: VAE scale times patch. */
int32_t oz_pipeline_size_multiple(const struct oz_pipeline *p);

/* How to open one. */
struct oz_pipeline_options {
    int64_t max_header_bytes; /* of a checkpoint's file; 0: OZ_CKPT_MAX_HEADER_BYTES */
    const char *transformer;  /* a checkpoint in place of the folder's own; NULL: none */
    const char *const *loras; /* "FILE" or "FILE:scale", merged into the transformer in order */
    int32_t lora_count;
    /* Members laid over the model's scheduler config: a JSON object, or the path of a file with one;
     * NULL or "": none. */
    const char *scheduler_config;
    enum oz_modulation_mode modulation;
    enum oz_offload_mode offload;
    bool dummy; /* configs alone are read, and weights drawn (pipe/filling.h) */
};

/* Opens the model in a folder: configs, headers, tables, matches. Tensors that do not fit are no
 * failure yet; adapters are (load/lora.h). `options` may be NULL. OZ_ERR_ARG, OZ_ERR_NO_MODEL, OZ_ERR_FORMAT, OZ_ERR_UNSUPPORTED, OZ_ERR_IO,
 * OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_pipeline_open(struct oz_pipeline **out, const char *folder,
                                            const struct oz_pipeline_options *options,
                                            struct oz_error *err);

/* OZ_ERR_FORMAT unless every tensor of every component is accounted for; names all that are not. */
OZ_MUST_USE enum oz_status oz_pipeline_check(const struct oz_pipeline *p, struct oz_error *err);

/* Checks that, and gives every parameter its codec and kernel for `dev` (which may be plan-only, and
 * must outlive the pipeline) without reading a weight. *model_bytes: what a load will take of the
 * device for weights, exactly: the model arena, or the room that offloaded ones pass through. */
OZ_MUST_USE enum oz_status oz_pipeline_plan(struct oz_pipeline *p, struct oz_device *dev,
                                            size_t *model_bytes, struct oz_error *err);

/* Checks that, and makes the parameters resident on `dev`, which must
 * outlive the pipeline. */
OZ_MUST_USE enum oz_status oz_pipeline_load(struct oz_pipeline *p, struct oz_device *dev,
                                            oz_progress_fn progress, void *progress_ctx,
                                            struct oz_error *err);

/* What a load of a component is told of the pipeline; the rest is the pass's. */
struct oz_load_args oz_pipeline_load_args(const struct oz_pipeline *p,
                                          const struct oz_component *c);

/* The ring itself where it is worth keeping from load to load: memory that a device can fetch from is dear
 * to take. Else NULL: each load gives its staging back. */
struct oz_load_ring *oz_pipeline_ring(const struct oz_pipeline *p, struct oz_load_ring *ring);

/* OZ_ERR_IO when a file of the model is not what was opened any more (ckpt/table.h). */
OZ_MUST_USE enum oz_status oz_pipeline_check_files(const struct oz_pipeline *p,
                                                   struct oz_error *err);

void oz_pipeline_close(struct oz_pipeline **p);

#endif
