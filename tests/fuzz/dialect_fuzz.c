/*
 * A checkpoint that a toolchain has quantized: one of tests/golden/dialects, with changes that the input
 * says, opened and loaded whole. The first byte chooses the fixture, the second what follows: the text of
 * config.json, or changes of single bytes in the file of weights or in its description, each a place in
 * two bytes and a value in a third. Input that begins with '{' is a config for each fixture in turn.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
    "gpt_oss",
    "omni_int8",
    "omni_mxfp8",
    "ct_int8_channel",
    "ct_int8_group",
    "ct_int8_packed",
    "modelslim_more",
    "modelslim_tool",
    "modelopt_w4a8_awq", /* new ones stand last: the corpus counts them */
};
enum { FIXTURES = sizeof fixtures / sizeof *fixtures };
static const char *const descriptions[] = {"config.json", "hf_quant_config.json",
                                           "quant_model_description.json"};
enum { DESCRIPTIONS = 3, FILES = 1 + DESCRIPTIONS };

static const char *file_name(int i)
{
    return i == 0 ? "model.safetensors" : descriptions[i - 1];
}

/* A folder for each fixture, whose files stay as they are but for what an input changes, which goes back
 * after it: files made anew for each input took a tenth of the time. */
static struct {
    char folder[96];
    char *data[FILES]; /* weights, then descriptions; NULL: none */
    size_t bytes[FILES];
    char *file[FILES]; /* mapped from the folder, to be written to, where there are data */
} golden[FIXTURES];

static void write_file(const char *folder, const char *name, const void *data, size_t bytes)
{
    char path[160];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes && close(fd) == 0);
}

static char *map_file(const char *folder, const char *name, size_t bytes)
{
    char path[160];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    FUZZ_CHECK(fd >= 0 && at != MAP_FAILED && close(fd) == 0);
    return at;
}

static void read_golden(size_t k)
{
    char path[512];
    struct oz_error err;
    if (golden[k].data[0] != NULL) {
        return;
    }
    (void)snprintf(golden[k].folder, sizeof golden[k].folder, "%s/%s", fuzz_folder(), fixtures[k]);
    FUZZ_CHECK(mkdir(golden[k].folder, 0700) == 0);
    for (int i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof path, GOLDEN "/%s/%s", fixtures[k], file_name(i));
        if (oz_file_exists(path)) {
            FUZZ_CHECK(oz_file_read(path, 1 << 20, &golden[k].data[i], &golden[k].bytes[i], &err) ==
                       OZ_OK);
            write_file(golden[k].folder, file_name(i), golden[k].data[i], golden[k].bytes[i]);
            golden[k].file[i] = map_file(golden[k].folder, file_name(i), golden[k].bytes[i]);
        }
    }
    FUZZ_CHECK(golden[k].data[0] != NULL);
}

/* The changes of one of the fixture's files, or what stood there before them. */
static void write_changes(size_t k, int file, const uint8_t *changes, size_t count, bool back)
{
    const char *from = golden[k].data[file];
    for (size_t i = 0; i + 2 < count && from != NULL; i += 3) {
        size_t at = ((size_t)changes[i] << 8 | changes[i + 1]) % golden[k].bytes[file];
        golden[k].file[file][at] = back ? from[at] : (char)changes[i + 2];
    }
}

enum how { HOW_CONFIG, HOW_WEIGHTS, HOW_DESCRIPTIONS, HOW_COUNT };

static void write_fixture(size_t k, enum how how, const uint8_t *data, size_t bytes)
{
    if (how == HOW_CONFIG) {
        write_file(golden[k].folder, descriptions[0], data, bytes);
    } else {
        for (int i = how == HOW_WEIGHTS ? 0 : 1; i < (how == HOW_WEIGHTS ? 1 : FILES); i++) {
            write_changes(k, i, data, bytes, false);
        }
    }
}

static void restore_fixture(size_t k, enum how how, const uint8_t *data, size_t bytes)
{
    char path[160];
    if (how != HOW_CONFIG) {
        for (int i = how == HOW_WEIGHTS ? 0 : 1; i < (how == HOW_WEIGHTS ? 1 : FILES); i++) {
            write_changes(k, i, data, bytes, true);
        }
    } else if (golden[k].data[1] != NULL) {
        write_file(golden[k].folder, descriptions[0], golden[k].data[1], golden[k].bytes[1]);
    } else {
        (void)snprintf(path, sizeof path, "%s/%s", golden[k].folder, descriptions[0]);
        FUZZ_CHECK(remove(path) == 0);
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
    enum oz_status status = dialect_open_weights(m, golden[k].folder, &err);
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
    enum how how = config ? HOW_CONFIG : (enum how)(data[1] % HOW_COUNT);
    size_t skip = config ? 0 : 2;
    read_golden(k);
    write_fixture(k, how, data + skip, bytes - skip);
    open_and_load(k);
    restore_fixture(k, how, data + skip, bytes - skip);
    return 0;
}
