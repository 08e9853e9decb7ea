/*
 * An adapter (LoRA) for a small model: a first line that stands behind the folder in --lora, a second
 * that is PEFT's adapter_config.json or empty, a third that is the safetensors header, and the data.
 * What is accepted names whole pairs of the layers' sizes, and merging them leaves finite weights or
 * is refused.
 */
#include "load/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "ckpt/writer.h"
#include "dev/ops.h"
#include "fuzz/fuzz.h"

#define ROWS 7
#define SIDE 6 /* of the largest layer */

static struct oz_arena host;
static struct oz_layer_table table;
static struct oz_match *match;
static char adapter[128]; /* folder of the input */

/* A plain layer, one that is turned in the file, two whose names differ in dots alone, and what no
 * adapter may have: a norm, a convolution, a layer without use. */
static void build_model(void)
{
    static const struct {
        const char *name;
        enum oz_layer_kind kind;
        int32_t rank;
        int64_t shape[4];
        uint32_t transform;
    } layers[ROWS] = {
        {"blocks.0.to_q.weight", OZ_LAYER_LINEAR, 2, {4, SIDE}, 0},
        {"blocks.0.to_k.weight", OZ_LAYER_LINEAR, 2, {4, SIDE}, OZ_TRANSFORM_TRANSPOSE},
        {"a_b.c.weight", OZ_LAYER_LINEAR, 2, {4, 4}, 0},
        {"a.b_c.weight", OZ_LAYER_LINEAR, 2, {4, 4}, 0},
        {"norm.weight", OZ_LAYER_NORM, 1, {4}, 0},
        {"conv.weight", OZ_LAYER_CONV, 4, {4, 4, 1, 1}, 0},
        {"spare.weight", OZ_LAYER_LINEAR, 2, {4, 4}, 0},
    };
    static const uint8_t zeros[256];
    static struct oz_param params[ROWS - 1];
    static struct oz_ckpt *ckpt;
    struct oz_ckpt_spec specs[ROWS] = {0};
    struct oz_ckpt_writer *w;
    struct oz_error err;
    char folder[128];
    (void)snprintf(adapter, sizeof adapter, "%s/lora", fuzz_folder());
    (void)snprintf(folder, sizeof folder, "%s/base", fuzz_folder());
    FUZZ_CHECK(mkdir(adapter, 0700) == 0 && mkdir(folder, 0700) == 0);
    FUZZ_CHECK(oz_arena_init_host(&host, "host", 1 << 16, &err) == OZ_OK);
    FUZZ_CHECK(oz_layer_table_init(&table, &host, "transformer", ROWS, 0) == OZ_OK);
    for (int i = 0; i < ROWS; i++) {
        struct oz_layer row = {.kind = layers[i].kind,
                               .rank = layers[i].rank,
                               .transform = layers[i].transform,
                               .bind = i < ROWS - 1 ? &params[i] : NULL};
        specs[i] = (struct oz_ckpt_spec){
            .name = layers[i].name, .dtype = OZ_DTYPE_BF16, .rank = layers[i].rank};
        memcpy(row.shape, layers[i].shape, sizeof layers[i].shape);
        memcpy(specs[i].shape, layers[i].shape, sizeof layers[i].shape);
        if (row.transform != 0) {
            row.file_rank = 2;
            row.file_shape[0] = specs[i].shape[0] = SIDE;
            row.file_shape[1] = specs[i].shape[1] = 4;
        }
        oz_layer_add(&table, &row, "%s", layers[i].name);
    }
    FUZZ_CHECK(oz_layer_table_finish(&table, &err) == OZ_OK);
    const struct oz_ckpt_writer_options o = {.folder = folder, .stem = "model"};
    FUZZ_CHECK(oz_ckpt_writer_create(&w, &o, specs, ROWS, &err) == OZ_OK);
    for (int32_t i; (i = oz_ckpt_writer_next(w)) >= 0;) {
        size_t n = 1;
        for (int32_t d = 0; d < specs[i].rank; d++) {
            n *= (size_t)specs[i].shape[d];
        }
        FUZZ_CHECK(oz_ckpt_writer_put(w, zeros, 2 * n, &err) == OZ_OK);
    }
    FUZZ_CHECK(oz_ckpt_writer_finish(w, &err) == OZ_OK);
    oz_ckpt_writer_destroy(&w);
    FUZZ_CHECK(oz_ckpt_open(&ckpt, folder, NULL, &err) == OZ_OK);
    FUZZ_CHECK(oz_match_create(&match, ckpt, &table, NULL, &err) == OZ_OK);
}

/* Merges all that a row has into ones: finite, or refused with a reason. */
static void merge(const struct oz_lora *l, int32_t row)
{
    static const int64_t up_rows[SIDE] = {0, 1, 2, 3, 4, 5};
    int64_t out = table.rows[row].shape[0];
    int64_t in = table.rows[row].shape[1];
    int64_t rank = oz_lora_rank(l, row);
    float w[SIDE][SIDE];
    float *lines[SIDE];
    for (int i = 0; i < SIDE; i++) {
        lines[i] = w[i];
        for (int j = 0; j < SIDE; j++) {
            w[i][j] = 1;
        }
    }
    struct oz_lora_rows r = {.row = row,
                             .count = out,
                             .cols = in,
                             .up_rows = up_rows,
                             .w = lines,
                             .down =
                                 malloc((size_t)oz_lora_down_elements(rank, in) * sizeof(float)),
                             .up = malloc((size_t)(rank * out) * sizeof(float)),
                             .limit = INFINITY,
                             .stored_name = "F32"};
    struct oz_error err = {0};
    FUZZ_CHECK(r.down != NULL && r.up != NULL);
    enum oz_status status = oz_lora_merge(l, &r, &err);
    FUZZ_CHECK(status == OZ_OK || (status == OZ_ERR_FORMAT && err.message[0] != '\0'));
    for (int i = 0; i < SIDE; i++) {
        for (int j = 0; j < SIDE && status == OZ_OK; j++) {
            FUZZ_CHECK(isfinite(w[i][j]) && ((i < out && j < in) || w[i][j] == 1));
        }
    }
    free(r.down);
    free(r.up);
}

static void check_pair(const struct oz_lora *l, int32_t row, const struct oz_lora_pair *p)
{
    const struct oz_layer *layer = &table.rows[row];
    FUZZ_CHECK(layer->kind == OZ_LAYER_LINEAR && layer->bind != NULL);
    FUZZ_CHECK(p->file >= 0 && p->file < l->file_count);
    FUZZ_CHECK(p->rank > 0 && p->down->rank == 2 && p->up->rank == 2);
    FUZZ_CHECK(p->down->shape[0] == p->rank && p->up->shape[1] == p->rank);
    FUZZ_CHECK(p->down->shape[1] == layer->shape[1]);
    FUZZ_CHECK(p->up->shape[0] == layer->shape[0]);
    FUZZ_CHECK(isfinite(p->factor) && p->factor != 0);
}

static void check(const struct oz_lora *l)
{
    struct oz_error err;
    int32_t pairs = 0;
    int32_t layers = 0;
    for (int32_t i = 0; i < l->file_count; i++) {
        layers += l->files[i].layers;
    }
    for (int32_t row = 0; row < ROWS; row++) {
        int32_t file = -1;
        for (int32_t i = l->first[row]; i >= 0; i = l->pairs[i].next) {
            FUZZ_CHECK(i < l->pair_count && l->pairs[i].file > file); /* in order, one of each */
            file = l->pairs[i].file;
            check_pair(l, row, &l->pairs[i]);
            pairs++;
        }
        if (file < 0) {
            continue;
        }
        struct oz_buf b;
        struct oz_json *v;
        oz_buf_init(&b, 1 << 16);
        oz_lora_json(l, row, &b);
        FUZZ_CHECK(oz_json_parse(&v, b.data, b.bytes, "report", &err) == OZ_OK);
        oz_json_free(v);
        oz_buf_deinit(&b);
        merge(l, row);
    }
    FUZZ_CHECK(pairs == l->pair_count && layers == pairs && pairs > 0);
    FUZZ_CHECK(oz_lora_check(l, &err) == OZ_OK);
}

/* The bytes up to a newline or the end; *data goes behind it. */
static size_t take_line(const uint8_t **data, size_t *bytes)
{
    const uint8_t *end = *bytes > 0 ? memchr(*data, '\n', *bytes) : NULL;
    size_t n = end != NULL ? (size_t)(end - *data) : *bytes;
    size_t skip = end != NULL ? n + 1 : n;
    *data += skip;
    *bytes -= skip;
    return n;
}

/* adapter_model.safetensors and adapter_config.json, of what stands behind the first line. */
static void write_adapter(const uint8_t *data, size_t bytes)
{
    static uint8_t file[1 << 16];
    const uint8_t *config = data;
    size_t config_bytes = take_line(&data, &bytes);
    const uint8_t *header = data;
    size_t header_bytes = take_line(&data, &bytes);
    for (size_t i = 0; i < 8; i++) {
        file[i] = (uint8_t)((uint64_t)header_bytes >> 8 * i);
    }
    memcpy(file + 8, header, header_bytes);
    memcpy(file + 8 + header_bytes, data, bytes);
    (void)fuzz_file("lora/adapter_model.safetensors", file, 8 + header_bytes + bytes);
    const char *path = fuzz_file("lora/adapter_config.json", config, config_bytes);
    if (config_bytes == 0) {
        FUZZ_CHECK(unlink(path) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char name[] = "/adapter_model.safetensors";
    char texts[2][512];
    const char *list[2] = {texts[0], texts[1]};
    struct oz_lora *l;
    struct oz_error err;
    if (match == NULL) {
        build_model();
    }
    const char *suffix = (const char *)data;
    size_t n = take_line(&data, &bytes);
    size_t skip =
        n >= sizeof name - 1 && memcmp(suffix, name, sizeof name - 1) == 0 ? sizeof name - 1 : 0;
    if (n > 200 || bytes > 1 << 15 || (n > 0 && memchr(suffix + skip, '/', n - skip) != NULL)) {
        return 0; /* never another path */
    }
    (void)snprintf(texts[0], sizeof *texts, "%s%.*s", adapter, (int)n, n > 0 ? suffix : "");
    (void)snprintf(texts[1], sizeof *texts, "%s%s:-0.5", adapter, name);
    write_adapter(data, bytes);
    for (int32_t files = 1; files <= 2; files++) { /* alone, then before itself */
        err.message[0] = '\0';
        enum oz_status status = oz_lora_open(&l, match, list, files, 0, &err);
        if (status != OZ_OK) {
            FUZZ_CHECK(l == NULL && err.message[0] != '\0');
            FUZZ_CHECK(status != OZ_ERR_NOMEM && status != OZ_ERR_INTERNAL);
            break;
        }
        FUZZ_CHECK(l->file_count == files);
        check(l);
        oz_lora_close(&l);
    }
    return 0;
}
