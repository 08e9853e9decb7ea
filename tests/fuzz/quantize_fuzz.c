/*
 * A request for quantization: a first line that is a method's name, lines that begin with '.' are
 * dotted keys, the rest is a config. What is accepted is put to the transformer of a small config.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/json.h"
#include "base/yaml.h"
#include "fuzz/fuzz.h"
#include "model/qwen_image/qwen_image.h"
#include "quant/assign.h"

#define MOST_KEYS 8

static struct oz_arena host;
static struct oz_layer_table table;

/* The bundled model's transformer with two layers, once. */
static void build_table(void)
{
    static struct oz_qwen_image model;
    static const char text[] =
        "{\"_class_name\":\"QwenImageTransformer2DModel\",\"_diffusers_version"
        "\":\"0.40.0.dev0\",\"attention_head_dim\":64,\"axes_dims_rope\":[16,24,"
        "24],\"guidance_embeds\":false,\"in_channels\":64,\"joint_attention_dim"
        "\":256,\"num_attention_heads\":4,\"num_layers\":2,\"out_channels\":16,"
        "\"patch_size\":2,\"use_additional_t_cond\":false,\"use_layer3d_rope\":"
        "false,\"zero_cond_t\":false}";
    struct oz_qwen_image_config config;
    struct oz_json *v;
    struct oz_error err;
    if (table.rows != NULL) {
        return;
    }
    FUZZ_CHECK(oz_json_parse(&v, text, sizeof text - 1, "config.json", &err) == OZ_OK);
    FUZZ_CHECK(oz_qwen_image_config_read(&config, v, "config.json", &err) == OZ_OK);
    oz_json_free(v);
    FUZZ_CHECK(oz_arena_init_host(&host, "host", oz_qwen_image_host_bytes(&config), &err) == OZ_OK);
    FUZZ_CHECK(oz_qwen_image_build(&model, &config, &host, &table, &err) == OZ_OK);
}

static void assign(const struct oz_request *q)
{
    struct oz_arena arena;
    struct oz_assignment a;
    struct oz_error err;
    const char *line;
    struct oz_assign_input in = {.table = &table,
                                 .request = oz_request_for(q, "transformer", true),
                                 .acts = {0, OZ_ACT_BIT(OZ_ACT_MODE_COUNT) - 1}};
    FUZZ_CHECK(oz_arena_init_host(&arena, "assignment", oz_assign_bytes(&table, in.request),
                                  &err) == OZ_OK);
    enum oz_status status = oz_assign(&a, &in, &arena, &err);
    FUZZ_CHECK(status != OZ_ERR_NOMEM && status != OZ_ERR_INTERNAL);
    if (status == OZ_OK) {
        for (int32_t i = 0; i < table.count; i++) {
            FUZZ_CHECK(a.choices[i].rule != NULL && a.choices[i].scheme.name != NULL);
        }
        FUZZ_CHECK(oz_assignment_summary(&a, &arena, &line, &err) == OZ_OK);
    }
    oz_arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *keys[MOST_KEYS];
    struct oz_request_text text = {.keys = keys};
    struct oz_request *q;
    struct oz_error err;
    char *json;
    char *copy = malloc(bytes + 1);
    if (copy == NULL || bytes > (size_t)1 << 16) {
        free(copy);
        return 0;
    }
    memcpy(copy, data, bytes);
    copy[bytes] = '\0';
    build_table();
    char *line = copy;
    for (int number = 0; *line != '\0' && *line != '{'; number++) {
        char *end = strchr(line, '\n');
        if (end == NULL) {
            end = line + strlen(line);
        } else {
            *end++ = '\0';
        }
        if (*line == '.' && text.key_count < MOST_KEYS) {
            keys[text.key_count++] = line + 1;
        } else if (number == 0) {
            text.quantization = line;
        }
        line = end;
    }
    text.config = *line == '{' ? line : NULL; /* never a path */
    if (oz_request_create(&q, &text, &err) != OZ_OK) {
        FUZZ_CHECK(q == NULL && err.message[0] != '\0');
    } else if (q != NULL) {
        assign(q);
    }
    oz_request_destroy(&q);
    if (oz_yaml_to_json(line, strlen(line), "x.yaml", &json, &err) == OZ_OK) {
        struct oz_json *v; /* what it gives is JSON, but for keys that are given twice */
        if (oz_json_parse(&v, json, strlen(json), "x.yaml", &err) == OZ_OK) {
            oz_json_free(v);
        }
    }
    oz_free(json);
    free(copy);
    return 0;
}
