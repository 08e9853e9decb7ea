/* A config.json, put to each component's reader. What is accepted builds a table. */
#include "base/arena.h"
#include "base/json.h"
#include "fuzz/fuzz.h"
#include "model/qwen25_vl/qwen25_vl.h"
#include "model/qwen_image/qwen_image.h"
#include "model/qwen_vae/qwen_vae.h"

#define MOST_BYTES ((size_t)1 << 26) /* of a table that is worth building here */

static void text_encoder(const struct oz_json *v)
{
    struct oz_qwen25_vl_config c;
    static struct oz_qwen25_vl m;
    struct oz_layer_table t;
    struct oz_arena host;
    struct oz_error err;
    if (oz_qwen25_vl_config_read(&c, v, "config.json", &err) != OZ_OK) {
        return;
    }
    size_t bytes = oz_qwen25_vl_host_bytes(&c);
    if (bytes <= MOST_BYTES && oz_arena_init_host(&host, "host", bytes, &err) == OZ_OK) {
        FUZZ_CHECK(oz_qwen25_vl_build(&m, &c, &host, &t, "model.", &err) == OZ_OK);
        oz_arena_deinit(&host);
    }
}

static void transformer(const struct oz_json *v)
{
    struct oz_qwen_image_config c;
    static struct oz_qwen_image m;
    struct oz_layer_table t;
    struct oz_arena host;
    struct oz_error err;
    if (oz_qwen_image_config_read(&c, v, "config.json", &err) != OZ_OK) {
        return;
    }
    size_t bytes = oz_qwen_image_host_bytes(&c);
    if (bytes <= MOST_BYTES && oz_arena_init_host(&host, "host", bytes, &err) == OZ_OK) {
        (void)oz_qwen_image_build(&m, &c, &host, &t, &err);
        oz_arena_deinit(&host);
    }
}

static void vae(const struct oz_json *v)
{
    struct oz_qwen_vae_config c;
    static struct oz_qwen_vae m;
    struct oz_layer_table t;
    struct oz_arena host;
    struct oz_error err;
    if (oz_qwen_vae_config_read(&c, v, "config.json", &err) != OZ_OK) {
        return;
    }
    size_t bytes = oz_qwen_vae_host_bytes(&c);
    if (bytes <= MOST_BYTES && oz_arena_init_host(&host, "host", bytes, &err) == OZ_OK) {
        (void)oz_qwen_vae_build(&m, &c, &host, &t, false, &err);
        oz_arena_deinit(&host);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct oz_json *v;
    struct oz_error err;
    if (oz_json_parse(&v, (const char *)data, bytes, "config.json", &err) != OZ_OK) {
        FUZZ_CHECK(v == NULL && err.message[0] != '\0');
        return 0;
    }
    text_encoder(v);
    transformer(v);
    vae(v);
    oz_json_free(v);
    return 0;
}
