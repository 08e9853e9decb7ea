/*
 * A checkpoint that a toolchain has quantized: one of tests/golden/dialects, with changes that the input
 * says, opened and loaded whole. The first byte chooses the fixture, the second what follows: the text of
 * config.json, or changes of single bytes in the file of weights or in its description, each a place in
 * two bytes and a value in a third. Input that begins with '{' is a config for each fixture in turn.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "fuzz/fuzz.h"
#include "unit/dialect_model.h"

#define GOLDEN OZ_TEST_DIR "/golden/dialects"

static const char *const fixtures[] = {
    "comfy_convrot",
    "comfy_fp8",
    "comfy_fp8_cast",
    "comfy_fp8_old",
    "comfy_int8",
    "comfy_mxfp8",
    "comfy_nvfp4",
    "hf_fp8_block",
    "hf_fp8_inverse",
    "hf_fp8_static",
    "modelslim",
    "nunchaku_fp4",
    "nunchaku_int4",
    "omni_dualscale",
    "omni_mxfp4",
    "omni_svdquant",
    "quark",
    "bnb_fp4",
    "bnb_int8",
    "bnb_nf4_nested",
    "ct_fp8_static",
    "ct_int4",
    "ct_int4_asym",
    "ct_int4_channel",
    "ct_int8",
    "ct_mxfp4",
    "ct_nvfp4",
    "modelopt_fp8",
    "modelopt_fp8_blocks",
    "modelopt_fp8_channel",
    "modelopt_int4_awq",
    "modelopt_int8_sq",
    "modelopt_mixed",
    "modelopt_mxfp4",
    "modelopt_mxfp8",
    "modelopt_nvfp4",
    "torchao_fp8",
    "torchao_int8",
    "torchao_mx",
    "torchao_nvfp4",
    "nunchaku_fused_fp4", /* the other fused one takes ten times as long as the rest */
    "torchao_int4",
};
enum { FIXTURES = sizeof fixtures / sizeof *fixtures };
static const char *const descriptions[] = {"config.json", "hf_quant_config.json",
                                           "quant_model_description.json"};
enum { DESCRIPTIONS = 3, FILES = 1 + DESCRIPTIONS };

static struct {
    char *data[FILES]; /* weights, then descriptions; NULL: none */
    size_t bytes[FILES];
} golden[FIXTURES];

static void read_golden(size_t k)
{
    char path[512];
    struct oz_error err;
    for (int i = 0; i < FILES && golden[k].data[0] == NULL; i++) {
        (void)snprintf(path, sizeof path, GOLDEN "/%s/%s", fixtures[k],
                       i == 0 ? "model.safetensors" : descriptions[i - 1]);
        if (oz_file_exists(path)) {
            FUZZ_CHECK(oz_file_read(path, 1 << 20, &golden[k].data[i], &golden[k].bytes[i], &err) ==
                       OZ_OK);
        }
        if (i == 0) {
            FUZZ_CHECK(golden[k].data[0] != NULL);
        }
    }
}

/* One of the fixture's files, with changes. */
static void write_changed(const char *name, const char *from, size_t bytes, const uint8_t *changes,
                          size_t count)
{
    char *copy = malloc(bytes + 1);
    FUZZ_CHECK(copy != NULL);
    memcpy(copy, from, bytes);
    for (size_t i = 0; i + 2 < count; i += 3) {
        size_t at = (size_t)changes[i] << 8 | changes[i + 1];
        copy[at % bytes] = (char)changes[i + 2];
    }
    (void)fuzz_file(name, copy, bytes);
    free(copy);
}

static void write_fixture(size_t k, int how, const uint8_t *data, size_t bytes)
{
    write_changed("model.safetensors", golden[k].data[0], golden[k].bytes[0], data,
                  how == 1 ? bytes : 0);
    for (int i = 0; i < DESCRIPTIONS; i++) {
        const char *text = golden[k].data[1 + i];
        if (how == 0 && i == 0) {
            (void)fuzz_file(descriptions[i], data, bytes);
        } else if (text != NULL) {
            write_changed(descriptions[i], text, golden[k].bytes[1 + i], data,
                          how == 2 ? bytes : 0);
        } else {
            char path[4096];
            (void)snprintf(path, sizeof path, "%s/%s", fuzz_folder(), descriptions[i]);
            (void)remove(path);
        }
    }
}

/* The device, and what the fixtures are worth, stay open: most of the time would be theirs. */
static struct dialect_model *model_of(size_t k)
{
    static struct dialect_model models[FIXTURES];
    static struct dialect_model first; /* has the device */
    struct dialect_model *m = &models[k];
    struct oz_error err;
    char expected[512];
    if (first.dev == NULL) {
        FUZZ_CHECK(dialect_open_device(&first, &err) == OZ_OK);
    }
    if (m->expected == NULL) {
        (void)snprintf(expected, sizeof expected, GOLDEN "/%s/expected.safetensors", fixtures[k]);
        FUZZ_CHECK(dialect_expect(m, expected, &err) == OZ_OK);
        m->dev = first.dev;
    }
    return m;
}

/* The first and the last row of each weight. */
static void decode_ends(const struct dialect_model *m)
{
    for (int32_t i = 0; i < m->table.count; i++) {
        const struct oz_weight *w = &m->table.rows[i].bind->weight;
        float line[1024];
        if (w->codec != NULL && w->rows > 0 && w->cols <= 1024) {
            w->codec->decode(w, 0, 0, 0, w->cols, line);
            w->codec->decode(w, w->slices - 1, w->rows - 1, 0, w->cols, line);
        }
    }
}

static void open_and_load(size_t k)
{
    struct oz_error err;
    struct dialect_model *m = model_of(k);
    err.message[0] = '\0';
    enum oz_status status = dialect_open_weights(m, fuzz_folder(), &err);
    status = status == OZ_OK ? dialect_load(m, &err) : status;
    FUZZ_CHECK(status == OZ_OK || err.message[0] != '\0');
    FUZZ_CHECK(status != OZ_ERR_INTERNAL);
    if (status == OZ_OK) {
        decode_ends(m);
    }
    dialect_close_weights(m);
}

/* Everything that stays is taken before the fuzzer counts what an input takes and gives back. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    for (size_t k = 0; k < FIXTURES; k++) {
        (void)model_of(k);
        read_golden(k);
    }
    (void)fuzz_folder();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static size_t turn;
    if (bytes < 2) {
        return 0;
    }
    bool config = data[0] == '{';
    size_t k = config ? turn++ % FIXTURES : data[0] % FIXTURES;
    read_golden(k);
    if (config) {
        write_fixture(k, 0, data, bytes);
    } else {
        write_fixture(k, data[1] % 3, data + 2, bytes - 2);
    }
    open_and_load(k);
    return 0;
}
