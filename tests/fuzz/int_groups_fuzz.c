/*
 * The quantization_config of a component, against a checkpoint with a layer in GPTQ's packing and one in
 * AWQ's. What is accepted names tensors that the loader's moves read within their bounds.
 */
#include <string.h>

#include "base/json.h"
#include "ckpt/writer.h"
#include "fuzz/fuzz.h"
#include "quant/dialect/dialect.h"

enum { N = 32, K = 64 };

static struct oz_arena host;
static struct oz_layer_table tables[2]; /* of the one layer and of the other */
static struct oz_ckpt *ckpt;

static void open_checkpoint(void)
{
    static const struct oz_ckpt_spec specs[] = {
        {.name = "a.qweight", .dtype = OZ_DTYPE_I32, .rank = 2, .shape = {K, N / 8}},
        {.name = "a.qzeros", .dtype = OZ_DTYPE_I32, .rank = 2, .shape = {2, N / 8}},
        {.name = "a.scales", .dtype = OZ_DTYPE_F16, .rank = 2, .shape = {2, N}},
        {.name = "g.g_idx", .dtype = OZ_DTYPE_I32, .rank = 1, .shape = {K}},
        {.name = "g.qweight", .dtype = OZ_DTYPE_I32, .rank = 2, .shape = {K / 8, N}},
        {.name = "g.qzeros", .dtype = OZ_DTYPE_I32, .rank = 2, .shape = {2, N / 8}},
        {.name = "g.scales", .dtype = OZ_DTYPE_BF16, .rank = 2, .shape = {2, N}},
    };
    static const uint8_t zeros[4096];
    struct oz_ckpt_writer *w;
    struct oz_error err;
    const struct oz_ckpt_writer_options o = {.folder = fuzz_folder(), .stem = "model"};
    const struct oz_layer row = {.kind = OZ_LAYER_LINEAR, .rank = 2, .shape = {N, K}};
    if (ckpt != NULL) {
        return;
    }
    FUZZ_CHECK(oz_ckpt_writer_create(&w, &o, specs, sizeof specs / sizeof *specs, &err) == OZ_OK);
    for (int32_t i = oz_ckpt_writer_next(w); i >= 0; i = oz_ckpt_writer_next(w)) {
        int64_t bytes;
        FUZZ_CHECK(oz_dtype_bytes(specs[i].dtype,
                                  specs[i].shape[0] * (specs[i].rank > 1 ? specs[i].shape[1] : 1),
                                  &bytes));
        FUZZ_CHECK(oz_ckpt_writer_put(w, zeros, (size_t)bytes, &err) == OZ_OK);
    }
    FUZZ_CHECK(oz_ckpt_writer_finish(w, &err) == OZ_OK);
    oz_ckpt_writer_destroy(&w);
    FUZZ_CHECK(oz_ckpt_open(&ckpt, fuzz_folder(), NULL, &err) == OZ_OK);
    FUZZ_CHECK(oz_arena_init_host(&host, "host", 1 << 16, &err) == OZ_OK);
    for (int i = 0; i < 2; i++) {
        FUZZ_CHECK(oz_layer_table_init(&tables[i], &host, "transformer", 1, 0) == OZ_OK);
        oz_layer_add(&tables[i], &row, i == 0 ? "a.weight" : "g.weight");
        FUZZ_CHECK(oz_layer_table_finish(&tables[i], &err) == OZ_OK);
    }
}

/* A tensor of words or of scales must have a line for each group, or for each word of a row. */
static void check_row(const struct oz_stored_weight *w, const struct oz_codec *codec)
{
    int64_t bits = oz_codec_plane(codec, OZ_PLANE_CODES)->cell_bits;
    const struct oz_tensor_view *codes = w->planes[OZ_PLANE_CODES].tensor;
    const struct oz_tensor_view *zeros = w->planes[OZ_PLANE_ZEROS].tensor;
    const struct oz_tensor_view *scales = w->planes[OZ_PLANE_SCALES].tensor;
    bool awq = w->planes[OZ_PLANE_CODES].move == OZ_MOVE_AWQ_CODES;
    FUZZ_CHECK(codes != NULL && zeros != NULL && scales != NULL && w->group_cols > 0);
    int64_t groups = (K + w->group_cols - 1) / w->group_cols;
    FUZZ_CHECK(codes->shape[0] == (awq ? K : K * bits / 32));
    FUZZ_CHECK(codes->shape[1] == (awq ? N * bits / 32 : N));
    FUZZ_CHECK(zeros->shape[0] == groups && zeros->shape[1] == N * bits / 32);
    FUZZ_CHECK(scales->shape[0] == groups && scales->shape[1] == N);
}

static void read_layer(const struct oz_json *v, const struct oz_layer_table *table)
{
    struct oz_error err;
    struct oz_stored stored;
    struct oz_arena arena;
    FUZZ_CHECK(oz_arena_init_host(&arena, "stored", oz_stored_bytes(table), &err) == OZ_OK);
    err.message[0] = '\0';
    const struct oz_stored_input in = {
        .config = v, .path = "config.json", .ckpt = ckpt, .table = table, .arena = &arena};
    if (oz_stored_read(&stored, &in, &err) != OZ_OK) {
        FUZZ_CHECK(err.message[0] != '\0');
    } else if (stored.method != NULL && stored.schemes[0].codec != NULL) {
        check_row(&stored.weights[0], stored.schemes[0].codec);
    }
    oz_arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct oz_json *v;
    struct oz_error err;
    open_checkpoint();
    if (oz_json_parse(&v, (const char *)data, bytes, "config.json", &err) != OZ_OK) {
        return 0;
    }
    read_layer(v, &tables[0]);
    read_layer(v, &tables[1]);
    oz_json_free(v);
    return 0;
}
