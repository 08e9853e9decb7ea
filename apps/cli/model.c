#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "text.h"

/* Patterns out of "a,b" and "re:x{1,2}": an expression goes to the end of its text. */
static void split_patterns(const struct text_list *texts, struct text_list *out)
{
    for (size_t i = 0; i < texts->count; i++) {
        for (const char *at = texts->items[i]; at != NULL;) {
            const char *comma = strncmp(at, "re:", 3) == 0 ? NULL : strchr(at, ',');
            int length = comma != NULL ? (int)(comma - at) : (int)strlen(at);
            out->items = cli_grow(out->items, out->count + 1, sizeof *out->items);
            out->items[out->count++] = cli_format("%.*s", length, at);
            at = comma != NULL ? comma + 1 : NULL;
        }
    }
}

void cli_model_options(struct oz_engine_options *options, const struct settings *s,
                       struct text_list *ignored)
{
    split_patterns(&s->ignored_layers, ignored);
    oz_engine_options_default(options);
    options->model = s->model;
    options->device = s->device;
    options->precision = strcmp(s->precision, "f32") == 0 ? OZ_PRECISION_F32 : OZ_PRECISION_BF16;
    options->threads = s->threads;
    options->max_header_bytes = s->max_header_bytes;
    options->transformer = s->transformer;
    options->loras = s->loras.items;
    options->lora_count = (int32_t)s->loras.count;
    options->scheduler_config = s->scheduler_config;
    options->max_batch = s->max_batch;
    options->quantization = s->quantization;
    options->quantization_config = s->quantization_config;
    options->quantization_keys = s->quantization_keys.items;
    options->quantization_key_count = (int32_t)s->quantization_keys.count;
    options->ignored_layers = ignored->items;
    options->ignored_layer_count = (int32_t)ignored->count;
    options->keep = s->keep;
    options->modulation = s->modulation;
    options->load_format = s->load_format;
    options->offload = s->offload;
    options->linear_backend = s->linear_backend;
    options->moe_backend = s->moe_backend;
    options->allow_unmatched = s->allow_unmatched;
}

void cli_model_options_free(struct text_list *ignored)
{
    for (size_t i = 0; i < ignored->count; i++) {
        free((char *)(uintptr_t)ignored->items[i]);
    }
    free(ignored->items);
    *ignored = (struct text_list){0};
}

void cli_model_request(struct oz_image_request *request, const struct settings *s)
{
    oz_image_request_default(request);
    request->negative_prompt = s->negative_prompt;
    request->width = s->width;
    request->height = s->height;
    request->num_inference_steps = s->num_inference_steps;
    if (s->true_cfg_scale >= 0) {
        request->true_cfg_scale = s->true_cfg_scale > 1 ? s->true_cfg_scale : 1; /* 1: off */
    }
}
