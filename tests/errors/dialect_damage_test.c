/*
 * Good checkpoints of other toolchains (tests/golden/dialects), damaged one thing at a time: each tensor
 * beside the codes dropped, renamed, shortened, made NaN; codes dropped and reshaped; codes of the wrong
 * order of nibbles; a shard missing; the config taken away, or another toolchain's; the header's metadata
 * taken away. What happens falls into four classes:
 *   passed            it loads, and the layers are worth what they were (what was lost had no effect)
 *   refused rightly   an error of the file, naming the tensor, the layer or the config
 *   wrong but loud    another error
 *   wrong and silent  it loads, and the layers are worth something else
 * The last two must be zero; the last line counts.
 */
#include "test.h"

#include <dirent.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/error.h"
#include "ckpt/writer.h"
#include "gguf_file.h"
#include "num/gguf.h"
#include "scratch.h"
#include "unit/dialect_file.h"
#include "unit/dialect_model.h"

#define GOLDEN OZ_TEST_DIR "/golden/dialects"

enum outcome { PASSED, REFUSED, LOUD, SILENT, OUTCOMES };
static int counts[OUTCOMES];
static struct oz_error err;

/* ---- one damage ---- */

static const char *fixture;
static const struct dialect_file *undamaged;

static bool names_it(const char *subject)
{
    char module[256];
    for (int i = 0; subject[0] == '{' && i < undamaged->count; i++) { /* a config */
        if (strstr(err.message, undamaged->pieces[i].name) != NULL) {
            return true;
        }
    }
    (void)snprintf(module, sizeof module, "%s", subject);
    for (char *dot = strrchr(module, '.'); dot != NULL; dot = strrchr(module, '.')) {
        *dot = '\0'; /* of "attn.to_q.weight.absmax" "attn.to_q", too */
        if (strstr(err.message, module) != NULL) {
            return true;
        }
    }
    return strstr(err.message, subject) != NULL || strstr(err.message, "config") != NULL ||
           strstr(err.message, "metadata") != NULL || strstr(err.message, "description") != NULL;
}

/* Opens and loads weights; what they are worth is in `expected`. */
static void judge_at(const char *weights, const char *expected, const char *what,
                     const char *subject)
{
    struct dialect_model m;
    enum oz_status status = dialect_open(&m, weights, expected, &err);
    status = status == OZ_OK ? dialect_load(&m, &err) : status;
    enum outcome outcome = REFUSED;
    if (status == OZ_OK) {
        outcome = dialect_compare(&m, NULL) == NULL ? PASSED : SILENT;
    } else if ((status != OZ_ERR_FORMAT && status != OZ_ERR_UNSUPPORTED) || !names_it(subject)) {
        outcome = LOUD;
    }
    if (outcome == LOUD || outcome == SILENT) {
        print_error("%s: %s %s: %s: %d %s\n", fixture, what, subject,
                    outcome == LOUD ? "wrong but loud" : "wrong and silent", (int)status,
                    status == OZ_OK ? "" : err.message);
    }
    counts[outcome]++;
    dialect_close(&m);
}

/* What lies in scratch "bad". */
static void judge(const char *what, const char *subject)
{
    char expected[512];
    (void)snprintf(expected, sizeof expected, GOLDEN "/%s/expected.safetensors", fixture);
    judge_at(scratch_path("bad"), expected, what, subject);
}

static void damage(const struct dialect_file *f, const char *what, const char *subject)
{
    dialect_file_write(f, 0, f->count, "bad/model.safetensors");
    judge(what, subject);
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name);
    size_t k = strlen(suffix);
    return n >= k && strcmp(name + n - k, suffix) == 0;
}

static bool is_codes(const char *name)
{
    static const char *const endings[] = {".weight", ".weight_packed", ".qweight", "_weight_qdata"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (ends_with(name, endings[i])) {
            return true;
        }
    }
    return false;
}

/* NaN in the first place, where the dtype has one. */
static bool put_nan(struct dialect_piece *p)
{
    static const uint8_t f32[] = {0, 0, 0xC0, 0x7F};
    static const uint8_t bf16[] = {0xC0, 0x7F};
    static const uint8_t f16[] = {0, 0x7E};
    static const uint8_t f8 = 0x7F;
    static const uint8_t e8m0 = 0xFF;
    bool bytes = strcmp(p->dtype, "U8") == 0 && ends_with(p->name, "weight_scale");
    const uint8_t *nan = strcmp(p->dtype, "F32") == 0                ? f32
                         : strcmp(p->dtype, "BF16") == 0             ? bf16
                         : strcmp(p->dtype, "F16") == 0              ? f16
                         : strcmp(p->dtype, "F8_E4M3") == 0          ? &f8
                         : strcmp(p->dtype, "F8_E8M0") == 0 || bytes ? &e8m0
                                                                     : NULL;
    size_t size = nan == f32 ? 4 : nan == bf16 || nan == f16 ? 2 : 1;
    if (nan == NULL || p->bytes < size) {
        return false;
    }
    memcpy(p->data, nan, size);
    return true;
}

static void damage_tensor(struct dialect_file *f, int i)
{
    struct dialect_piece *p = &f->pieces[i];
    const struct dialect_piece good = *p;
    p->gone = true;
    damage(f, "without", p->name);
    *p = good;
    (void)snprintf(p->name, sizeof p->name, "%.200s_x", good.name);
    damage(f, "renamed", good.name);
    *p = good;
    if (p->rank > 0 && p->shape[0] > 1) { /* a row less */
        p->bytes -= p->bytes / (size_t)p->shape[0];
        p->shape[0]--;
        damage(f, "a row less of", p->name);
        *p = good;
    }
    if (p->rank == 2 && p->shape[0] != p->shape[1] && p->shape[0] > 1 && p->shape[1] > 1) {
        p->shape[0] = good.shape[1];
        p->shape[1] = good.shape[0];
        damage(f, "reshaped", p->name);
        *p = good;
    }
    uint8_t first[4] = {0};
    memcpy(first, p->data, p->bytes < 4 ? p->bytes : 4);
    if (!is_codes(p->name) || strcmp(p->dtype, "F8_E4M3") == 0) {
        if (put_nan(p)) {
            damage(f, "NaN in", p->name);
        }
        memcpy(p->data, first, p->bytes < 4 ? p->bytes : 4);
    }
}

/* ---- configs ---- */

static void damage_metadata(struct dialect_file *f)
{
    char *good = f->metadata;
    if (good != NULL) {
        f->metadata = NULL;
        damage(f, "without", "the metadata");
        f->metadata = good;
    }
}

static void damage_config(const struct dialect_file *f)
{
    static const char *const configs[] = {
        "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}}",
        "{\"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true}}",
        "{\"quantization_config\": {\"quant_method\": \"fp8\"}}",
        "{\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_scale_semantics\": "
        "\"inverse\"}}",
        "{\"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"}}",
        "{\"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8\"}}",
        "{\"quantization_config\": {\"quant_method\": \"mxfp8\"}}",
        "{\"quantization_config\": {\"quant_method\": \"int8\"}}",
        "{\"quantization_config\": {\"quant_method\": \"torchao\"}}",
        "{\"quantization_config\": {\"quant_method\": \"svdquant\"}}",
        "{\"quantization_config\": {\"quant_method\": \"quark\", \"global_quant_config\": "
        "{\"weight\": {\"dtype\": \"fp4\", \"group_size\": 32, \"scale_format\": \"e8m0\"}}}}",
        "{\"quantization_config\": {\"quant_method\": \"comfy\"}}",
        "{\"quantization_config\": {\"quant_method\": \"mxfp4_dualscale\"}}",
    };
    dialect_file_write(f, 0, f->count, "bad/model.safetensors");
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        scratch_text("bad/config.json", configs[i]);
        judge("under another config", configs[i]);
    }
    scratch_remove("bad/config.json");
    scratch_remove("bad/hf_quant_config.json");
    scratch_remove("bad/quant_model_description.json");
    judge("without", "any config");
}

/* Two shards, and one of them not there. */
static void damage_shards(const struct dialect_file *f)
{
    static const char *const shards[] = {"model-00001-of-00002.safetensors",
                                         "model-00002-of-00002.safetensors"};
    struct oz_buf b;
    char name[128];
    int half = f->count / 2;
    scratch_remove("bad/model.safetensors");
    oz_buf_init(&b, 1 << 16);
    oz_buf_puts(&b, "{\"metadata\":{\"total_size\":0},\"weight_map\":{");
    for (int i = 0; i < f->count; i++) {
        oz_buf_printf(&b, "%s\"%s\":\"%s\"", i > 0 ? "," : "", f->pieces[i].name,
                      shards[i >= half]);
    }
    oz_buf_puts(&b, "}}");
    scratch_text("bad/model.safetensors.index.json", oz_buf_text(&b));
    oz_buf_deinit(&b);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(name, sizeof name, "bad/%s", shards[i]);
        dialect_file_write(f, i == 0 ? 0 : half, i == 0 ? half : f->count, name);
    }
    judge("in", "two shards");
    (void)snprintf(name, sizeof name, "bad/%s", shards[1]);
    scratch_remove(name);
    judge("without the shard", shards[1]);
}

static void damage_fixture(const char *name)
{
    struct dialect_file f;
    char path[512];
    fixture = name;
    (void)snprintf(path, sizeof path, GOLDEN "/%s", name);
    scratch_remove("bad");
    scratch_copy("bad", path);
    scratch_remove("bad/expected.safetensors");
    (void)snprintf(path, sizeof path, GOLDEN "/%s/model.safetensors", name);
    dialect_file_read(&f, path);
    undamaged = &f;
    int before = counts[PASSED];
    damage(&f, "undamaged", name);
    assert_int_equal(counts[PASSED], before + 1);
    for (int i = 0; i < f.count; i++) {
        if (strncmp(f.pieces[i].name, "proj_out", 8) != 0) { /* which is plain */
            damage_tensor(&f, i);
        }
    }
    damage_metadata(&f);
    damage_shards(&f);
    scratch_remove("bad/model.safetensors.index.json");
    scratch_remove("bad/model-00001-of-00002.safetensors");
    damage_config(&f);
    dialect_file_free(&f);
}

/* ---- GGUF: one tensor of each type of block ---- */

static const char *block_name; /* of the tensor in the file */
static uint64_t block_rows;

static void judge_blocks(const struct oz_tensor_view *t, const char *what, const char *subject)
{
    const uint64_t sizes[] = {(uint64_t)t->shape[1], block_rows};
    const struct oz_gguf_type *type = oz_gguf_type_of(t->codec);
    gguf_begin(1, 0);
    gguf_tensor(block_name, 2, sizes, type->number, 0);
    gguf_pad(32);
    gguf_put(t->data, (size_t)t->bytes / (size_t)t->shape[0] * block_rows);
    gguf_pad(32);
    judge_at(gguf_write("bad.gguf"), scratch_path("expected.safetensors"), what, subject);
}

/* A factor of one block is NaN, or infinite. */
static void damage_factor(const struct oz_tensor_view *t, uint8_t *data, int64_t block, int which)
{
    static const uint16_t halves[] = {0x7E00, 0xFE00, 0x7C00, 0xFC00};
    static const uint32_t words[] = {0x7FC00000, 0xFFC00000, 0x7F800000, 0xFF800000};
    const struct oz_gguf_type *type = oz_gguf_type_of(t->codec);
    struct oz_tensor_view bad = *t;
    int16_t factor = type->factors[which];
    uint8_t *b = data + block * type->bytes;
    bad.data = data;
    for (int k = 0; k < 4 && factor != OZ_GGUF_NONE; k++) {
        memcpy(data, t->data, (size_t)t->bytes);
        if (factor >= 0) {
            memcpy(b + factor, &halves[k], 2);
        } else if (factor == OZ_GGUF_F32) {
            memcpy(b, &words[k], 4);
        } else if (factor == OZ_GGUF_E8M0) {
            b[0] = 255;
        } else {
            for (int i = 0; i < 4; i++) { /* four bits of it in each word, the lowest first */
                uint8_t *high = b + type->bytes - 8 + 2 * i + 1;
                *high = (uint8_t)((*high & 15) | (halves[k] >> 4 * i & 15) << 4);
            }
        }
        judge_blocks(&bad, "NaN in a factor of", t->name);
    }
}

static void damage_blocks(const struct oz_ckpt *golden, const struct oz_tensor_view *t)
{
    char values[64];
    struct oz_ckpt_writer *w;
    (void)snprintf(values, sizeof values, "%s.values", t->name);
    const struct oz_tensor_view *v = oz_ckpt_find(golden, values, NULL);
    const struct oz_ckpt_writer_options o = {.folder = scratch_path("."), .stem = "expected"};
    assert_non_null(v);
    const struct oz_ckpt_spec spec = {
        .name = t->name, .dtype = v->dtype, .rank = 2, .shape = {v->shape[0], v->shape[1]}};
    scratch_remove("expected.safetensors");
    assert_int_equal(oz_ckpt_writer_create(&w, &o, &spec, 1, &err), OZ_OK);
    assert_int_equal(oz_ckpt_writer_put(w, v->data, (size_t)v->bytes, &err), OZ_OK);
    assert_int_equal(oz_ckpt_writer_finish(w, &err), OZ_OK);
    oz_ckpt_writer_destroy(&w);
    uint8_t *data = malloc((size_t)t->bytes);
    int64_t blocks = t->bytes / oz_gguf_type_of(t->codec)->bytes;
    int before = counts[PASSED];
    fixture = "gguf";
    block_name = t->name;
    block_rows = (uint64_t)t->shape[0];
    judge_blocks(t, "undamaged", t->name);
    assert_int_equal(counts[PASSED], before + 1);
    for (int which = 0; which < 2; which++) {
        damage_factor(t, data, 0, which);
        damage_factor(t, data, blocks / 2, which);
        damage_factor(t, data, blocks - 1, which);
    }
    block_rows--;
    judge_blocks(t, "a row less of", t->name);
    block_rows++;
    block_name = "another";
    judge_blocks(t, "renamed", t->name);
    free(data);
}

static void damaged_blocks(void **state)
{
    struct oz_ckpt *golden;
    int types = 0;
    (void)state;
    static const struct dialect_file none;
    undamaged = &none;
    assert_int_equal(oz_ckpt_open(&golden, OZ_TEST_DIR "/golden/gguf/blocks.gguf", NULL, &err),
                     OZ_OK);
    for (int64_t i = 0; i < oz_ckpt_count(golden); i++) {
        if (oz_gguf_type_of(oz_ckpt_tensor(golden, i)->codec) != NULL) {
            damage_blocks(golden, oz_ckpt_tensor(golden, i));
            types++;
        }
    }
    oz_ckpt_close(&golden);
    assert_int_equal(types, 25);
}

static void damaged(void **state)
{
    DIR *dir = opendir(GOLDEN);
    int fixtures = 0;
    (void)state;
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (e->d_name[0] != '.') {
            damage_fixture(e->d_name);
            fixtures++;
        }
    }
    (void)closedir(dir);
    printf("%d checkpoints and 25 types of blocks: %d passed, %d refused rightly, %d wrong but "
           "loud, %d wrong and silent\n",
           fixtures, counts[PASSED], counts[REFUSED], counts[LOUD], counts[SILENT]);
    assert_true(fixtures > 30 && counts[REFUSED] > 500);
    assert_int_equal(counts[LOUD], 0);
    assert_int_equal(counts[SILENT], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged_blocks), cmocka_unit_test(damaged)};
    return cmocka_run_group_tests_name("dialect_damage", tests, scratch_open, scratch_close);
}
