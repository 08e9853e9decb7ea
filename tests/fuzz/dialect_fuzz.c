/*
 * The quantization_config of a component, against a small checkpoint that has layers quantized by two
 * toolchains and a plain one. What is accepted names planes that lie in the file and fit their codec.
 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "ckpt/writer.h"
#include "fuzz/fuzz.h"
#include "num/codebook.h"
#include "quant/dialect/dialect.h"

static struct oz_arena host;
static struct oz_layer_table table;
static struct oz_ckpt *ckpt;

#define STATE "d.weight.quant_state.bitsandbytes__nf4"
static const char state[] = "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", "
                            "\"shape\": [4, 64], \"nested_blocksize\": 256, \"nested_dtype\": "
                            "\"float32\", \"nested_offset\": 0.5}";

static const void *content(const char *name, const void *zeros)
{
    return strcmp(name, STATE) == 0                         ? (const void *)state
           : strcmp(name, "d.weight.quant_map") == 0        ? (const void *)oz_codebook_nf4.values
           : strcmp(name, "d.weight.nested_quant_map") == 0 ? oz_codebook_dynamic8.values
                                                            : zeros;
}

static void open_checkpoint(void)
{
    static const struct oz_ckpt_spec specs[] = {
        {.name = "a.weight", .dtype = OZ_DTYPE_F8_E4M3, .rank = 2, .shape = {4, 64}},
        {.name = "a.weight_scale", .dtype = OZ_DTYPE_F32, .rank = 2, .shape = {4, 1}},
        {.name = "b.weight_packed", .dtype = OZ_DTYPE_U8, .rank = 2, .shape = {4, 32}},
        {.name = "b.weight_scale", .dtype = OZ_DTYPE_F8_E4M3, .rank = 2, .shape = {4, 4}},
        {.name = "b.weight_global_scale", .dtype = OZ_DTYPE_F32, .rank = 1, .shape = {1}},
        {.name = "c.weight", .dtype = OZ_DTYPE_BF16, .rank = 2, .shape = {4, 64}},
        {.name = "d.weight", .dtype = OZ_DTYPE_U8, .rank = 2, .shape = {128, 1}},
        {.name = "d.weight.absmax", .dtype = OZ_DTYPE_U8, .rank = 1, .shape = {4}},
        {.name = "d.weight.nested_absmax", .dtype = OZ_DTYPE_F32, .rank = 1, .shape = {1}},
        {.name = "d.weight.nested_quant_map", .dtype = OZ_DTYPE_F32, .rank = 1, .shape = {256}},
        {.name = "d.weight.quant_map", .dtype = OZ_DTYPE_F32, .rank = 1, .shape = {16}},
        {.name = STATE, .dtype = OZ_DTYPE_U8, .rank = 1, .shape = {sizeof state - 1}},
    };
    static const uint8_t zeros[4096];
    struct oz_ckpt_writer *w;
    struct oz_error err;
    const struct oz_ckpt_writer_options o = {.folder = fuzz_folder(), .stem = "model"};
    const struct oz_layer row = {.kind = OZ_LAYER_LINEAR, .rank = 2, .shape = {4, 64}};
    if (ckpt != NULL) {
        return;
    }
    FUZZ_CHECK(oz_ckpt_writer_create(&w, &o, specs, sizeof specs / sizeof *specs, &err) == OZ_OK);
    for (int32_t i = oz_ckpt_writer_next(w); i >= 0; i = oz_ckpt_writer_next(w)) {
        int64_t bytes;
        FUZZ_CHECK(oz_dtype_bytes(specs[i].dtype,
                                  specs[i].shape[0] * (specs[i].rank > 1 ? specs[i].shape[1] : 1),
                                  &bytes));
        FUZZ_CHECK(oz_ckpt_writer_put(w, content(specs[i].name, zeros), (size_t)bytes, &err) ==
                   OZ_OK);
    }
    FUZZ_CHECK(oz_ckpt_writer_finish(w, &err) == OZ_OK);
    oz_ckpt_writer_destroy(&w);
    FUZZ_CHECK(oz_ckpt_open(&ckpt, fuzz_folder(), NULL, &err) == OZ_OK);
    FUZZ_CHECK(oz_arena_init_host(&host, "host", 1 << 16, &err) == OZ_OK);
    FUZZ_CHECK(oz_layer_table_init(&table, &host, "transformer", 4, 0) == OZ_OK);
    for (int i = 0; i < 4; i++) {
        oz_layer_add(&table, &row, "%c.weight", 'a' + i);
    }
    FUZZ_CHECK(oz_layer_table_finish(&table, &err) == OZ_OK);
}

static void check(const struct oz_stored *s)
{
    int32_t count = 0;
    for (int32_t i = 0; s->method != NULL && i < table.count; i++) {
        const struct oz_codec *codec = s->schemes[i].codec;
        count += codec != NULL;
        if (codec == NULL) {
            continue;
        }
        struct oz_weight w = oz_weight_shape(codec, 1, 4, 64);
        for (int p = 0; p < OZ_PLANE_COUNT; p++) {
            int64_t bytes;
            int64_t row;
            const struct oz_tensor_view *t = s->weights[i].planes[p].tensor;
            FUZZ_CHECK((t != NULL) == w.planes[p].present);
            FUZZ_CHECK(t == NULL || s->weights[i].planes[p].move == OZ_MOVE_NUMBER ||
                       (oz_weight_plane_bytes(&w, (enum oz_plane)p, &bytes, &row) == OZ_OK &&
                        bytes == t->bytes));
        }
    }
    FUZZ_CHECK(count == s->count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct oz_json *v;
    struct oz_error err;
    struct oz_stored stored;
    open_checkpoint();
    if (oz_json_parse(&v, (const char *)data, bytes, "config.json", &err) != OZ_OK) {
        return 0;
    }
    struct oz_arena arena;
    FUZZ_CHECK(oz_arena_init_host(&arena, "stored", oz_stored_bytes(&table), &err) == OZ_OK);
    err.message[0] = '\0';
    if (oz_stored_read(&stored, v, "config.json", ckpt, &table, &arena, &err) == OZ_OK) {
        check(&stored);
    } else {
        FUZZ_CHECK(err.message[0] != '\0');
    }
    oz_arena_deinit(&arena);
    oz_json_free(v);
    return 0;
}
