/*
 * num: elements and codecs against the bytes that the field's own tools make of the same numbers
 * (tests/golden/codecs, made by tools/golden/make_codecs.py). All must be equal, but for the counts
 * in the table below: there a tool's arithmetic differs from the one that we follow, as
 * docs/formats/number-formats.md tells.
 */
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "ckpt/table.h"
#include "num/codebook.h"
#include "num/codec.h"
#include "num/codec_list.h"
#include "num/float.h"
#include "num/group.h"

enum { ROWS = 48, COLS = 256, PLANE = ROWS * COLS };

static const char *const files[] = {"torch", "elements", "torchao", "compressed_tensors",
                                    "bitsandbytes"};
enum { FILES = sizeof files / sizeof *files };
static struct oz_ckpt *golden[FILES];

static int setup(void **state)
{
    for (int i = 0; i < FILES; i++) {
        struct oz_error err;
        char path[512];
        (void)snprintf(path, sizeof path, "%s/golden/codecs/%s.safetensors", OZ_TEST_DIR, files[i]);
        if (oz_ckpt_open(&golden[i], path, NULL, &err) != OZ_OK) {
            return -1;
        }
    }
    return 0;
}

static int teardown(void **state)
{
    for (int i = 0; i < FILES; i++) {
        oz_ckpt_close(&golden[i]);
    }
    return 0;
}

/* The tensor <name>.<suffix> of any of the files; NULL without. */
static const struct oz_tensor_view *find(const char *name, const char *suffix)
{
    const struct oz_tensor_view *t = NULL;
    char full[64];
    (void)snprintf(full, sizeof full, "%s.%s", name, suffix);
    for (int i = 0; i < FILES && t == NULL; i++) {
        t = oz_ckpt_find(golden[i], full, NULL);
    }
    return t;
}

static float f32_at(const uint8_t *data, int64_t i)
{
    float x;
    memcpy(&x, data + 4 * i, 4);
    return x;
}

/* ---- elements ---- */

static float widen_e2m1(uint8_t code)
{
    return oz_e2m1_to_f32(code);
}

static void elements(void **state)
{
    static const struct {
        const char *name;
        float (*widen)(uint8_t);
        uint8_t (*narrow)(float);
    } formats[] = {
        {"e4m3", oz_e4m3_to_f32, oz_f32_to_e4m3},
        {"e5m2", oz_e5m2_to_f32, oz_f32_to_e5m2},
        {"e2m1", widen_e2m1, oz_f32_to_e2m1},
        {"e8m0", oz_e8m0_to_f32, NULL},
    };
    for (int i = 0; i < 4; i++) {
        const struct oz_tensor_view *values = find(formats[i].name, "values");
        assert_int_equal(values->elements, i == 2 ? 16 : 256);
        for (int64_t c = 0; c < values->elements; c++) {
            float want = f32_at(values->data, c);
            float got = formats[i].widen((uint8_t)c);
            assert_true(isnan(want) ? isnan(got) : oz_f32_bits(got) == oz_f32_bits(want));
        }
        if (formats[i].narrow == NULL) {
            continue;
        }
        const struct oz_tensor_view *from = find(formats[i].name, "from");
        const struct oz_tensor_view *codes = find(formats[i].name, "codes");
        assert_true(from->elements > 2000 && codes->elements == from->elements);
        for (int64_t c = 0; c < from->elements; c++) {
            assert_int_equal(formats[i].narrow(f32_at(from->data, c)), codes->data[c]);
        }
    }
}

static void codebooks(void **state)
{
    static const struct {
        const char *name;
        const struct oz_codebook *book;
    } books[] = {{"nf4", &oz_codebook_nf4},
                 {"fp4_bnb", &oz_codebook_fp4_bnb},
                 {"dynamic8", &oz_codebook_dynamic8}};
    for (int i = 0; i < 3; i++) {
        const struct oz_tensor_view *values = find(books[i].name, "values");
        assert_int_equal(values->elements, books[i].book->count);
        assert_memory_equal(values->data, books[i].book->values, (size_t)values->bytes);
    }
}

/* ---- codecs ---- */

/* `x` of the file under a codec; planes are the caller's to free. */
static struct oz_weight encode(const char *name, enum oz_exponent_rule rule)
{
    struct oz_weight w = oz_weight_shape(oz_codec_find(name), 1, ROWS, COLS);
    const struct oz_tensor_view *x = oz_ckpt_find(golden[0], "x", NULL);
    float *src = malloc(PLANE * sizeof *src);
    struct oz_encode_state s;
    for (int64_t i = 0; i < PLANE; i++) {
        uint16_t h;
        memcpy(&h, x->data + 2 * i, 2);
        src[i] = oz_bf16_to_f32(h);
    }
    for (int p = 0; p < OZ_PLANE_COUNT; p++) {
        struct oz_plane_view *v = &w.planes[p];
        if (v->present) {
            assert_int_equal(
                oz_weight_plane_bytes(&w, (enum oz_plane)p, &v->bytes, &v->row_stride_bytes),
                OZ_OK);
            v->data = calloc((size_t)v->bytes, 1);
        }
    }
    oz_encode_state_init(&s);
    s.exponent_rule = rule;
    if (w.codec->observe != NULL) {
        assert_int_equal(w.codec->observe(&w, 0, src, ROWS, COLS, &s), OZ_OK);
        w.codec->begin(&w, 0, &s);
    }
    assert_int_equal(w.codec->encode(&w, 0, 0, src, ROWS, COLS, &s), OZ_OK);
    free(src);
    return w;
}

static void drop(struct oz_weight *w)
{
    for (int p = 0; p < OZ_PLANE_COUNT; p++) {
        free(w->planes[p].data);
    }
}

/* The nibbles exchanged; of bitsandbytes' fp4, where 8 is a second zero, that made 0. */
static uint8_t from_bnb(uint8_t b, bool fp4)
{
    uint8_t low = b >> 4;
    uint8_t high = b & 15U;
    return fp4 ? (uint8_t)((low == 8 ? 0 : low) | (high == 8 ? 0 : high) << 4)
               : (uint8_t)(low | high << 4);
}

/* Cells that differ between a plane and a tensor of the file. */
static int differing(const struct oz_weight *w, enum oz_plane plane, const char *name,
                     const char *suffix, bool bnb)
{
    const struct oz_tensor_view *t = find(name, suffix);
    const struct oz_plane_view *v = &w->planes[plane];
    size_t size = v->dtype == OZ_DTYPE_F32 ? 4 : 1;
    bool fp4 = strncmp(name, "fp4", 3) == 0;
    int count = 0;
    if (t == NULL) {
        return 0;
    }
    assert_int_equal(t->bytes, v->bytes);
    for (int64_t i = 0; i < t->bytes; i += (int64_t)size) {
        if (bnb) { /* twice is the order of before, without second zeros */
            uint8_t got = from_bnb(((uint8_t *)v->data)[i], fp4);
            count += from_bnb(got, fp4) != from_bnb(t->data[i], fp4);
        } else {
            count += memcmp((uint8_t *)v->data + i, t->data + i, size) != 0;
        }
    }
    return count;
}

/* Expected counts: bytes of codes (two codes each in 4-bit formats), scales, second scales. */
static const struct {
    const char *name, *codec;
    enum oz_exponent_rule rule;
    int codes, scales, scales2;
} cases[] = {
    {"fp8_tensor.torch", "fp8_tensor", OZ_EXPONENT_DEFAULT, 0, 0, 0},
    {"fp8_channel.torch", "fp8_channel", OZ_EXPONENT_DEFAULT, 0, 0, 0},
    {"fp8_block.torch", "fp8_block", OZ_EXPONENT_DEFAULT, 0, 0, 0},
    {"int8_channel.torch", "int8_channel", OZ_EXPONENT_DEFAULT, 0, 0, 0},
    {"int8_channel_bf16.torch", "int8_channel_bf16", OZ_EXPONENT_DEFAULT, 0, 0, 0},
    {"mxfp8.torchao.ceil", "mxfp8", OZ_EXPONENT_CEIL, 0, 0, 0},
    {"mxfp8.torchao.even", "mxfp8", OZ_EXPONENT_EVEN, 0, 0, 0},
    {"mxfp8.torchao.floor", "mxfp8", OZ_EXPONENT_FLOOR, 0, 0, 0},
    {"mxfp4.torchao.ceil", "mxfp4", OZ_EXPONENT_CEIL, 0, 0, 0},
    {"mxfp4.torchao.even", "mxfp4", OZ_EXPONENT_EVEN, 0, 0, 0},
    {"mxfp4.torchao.floor", "mxfp4", OZ_EXPONENT_FLOOR, 0, 0, 0},
    {"nvfp4.torchao", "nvfp4", OZ_EXPONENT_DEFAULT, 1477, 232, 0},
    {"int8_channel.torchao", "int8_channel", OZ_EXPONENT_DEFAULT, 0, 0, 0},
    {"fp8_tensor.compressed_tensors", "fp8_tensor", OZ_EXPONENT_DEFAULT, 0, 0, 0},
    {"fp8_channel.compressed_tensors", "fp8_channel", OZ_EXPONENT_DEFAULT, 256, 2, 0},
    {"int8_channel.compressed_tensors", "int8_channel", OZ_EXPONENT_DEFAULT, 397, 48, 0},
    {"mxfp4.compressed_tensors", "mxfp4", OZ_EXPONENT_EVEN, 0, 0, 0},
    {"mxfp8.compressed_tensors", "mxfp8", OZ_EXPONENT_CEIL, 93, 3, 0},
    {"nvfp4.compressed_tensors", "nvfp4", OZ_EXPONENT_DEFAULT, 77, 50, 1},
    {"nf4.bnb", "nf4", OZ_EXPONENT_DEFAULT, 0, 0, 0},
    {"nf4_nested.bnb", "nf4_nested", OZ_EXPONENT_DEFAULT, 0, 2, 1},
    {"fp4_bnb.bnb", "fp4_bnb", OZ_EXPONENT_DEFAULT, 0, 0, 0},
    {"fp4_bnb_nested.bnb", "fp4_bnb_nested", OZ_EXPONENT_DEFAULT, 0, 2, 1},
};

static void codecs(void **state)
{
    int failures = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct oz_weight w = encode(cases[i].codec, cases[i].rule);
        bool bnb = strstr(cases[i].name, ".bnb") != NULL;
        assert_non_null(find(cases[i].name, "codes"));
        int codes = differing(&w, OZ_PLANE_CODES, cases[i].name, "codes", bnb);
        int scales = differing(&w, OZ_PLANE_SCALES, cases[i].name, "scales", false);
        int scales2 = differing(&w, OZ_PLANE_SCALES2, cases[i].name, "scales2", false) +
                      differing(&w, OZ_PLANE_OFFSETS, cases[i].name, "offsets", false);
        if (codes != cases[i].codes || scales != cases[i].scales || scales2 != cases[i].scales2) {
            print_error("%s: %d bytes of codes, %d scales, %d second scales differ; expected %d, "
                        "%d, %d\n",
                        cases[i].name, codes, scales, scales2, cases[i].codes, cases[i].scales,
                        cases[i].scales2);
            failures++;
        }
        drop(&w);
    }
    assert_int_equal(failures, 0);
}

/* bitsandbytes' own bytes, nibbles turned over, decode to its own values. */
static void bnb_decodes(void **state)
{
    static const char *const names[] = {"nf4", "nf4_nested", "fp4_bnb", "fp4_bnb_nested"};
    for (int i = 0; i < 4; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "%s.bnb", names[i]);
        struct oz_weight w = encode(names[i], OZ_EXPONENT_DEFAULT);
        const struct oz_tensor_view *want = find(name, "decoded");
        const struct oz_tensor_view *codes = find(name, "codes");
        for (int64_t k = 0; k < codes->bytes; k++) {
            ((uint8_t *)w.planes[OZ_PLANE_CODES].data)[k] =
                (uint8_t)(codes->data[k] << 4 | codes->data[k] >> 4);
        }
        static const char *const suffixes[] = {"scales", "scales2", "offsets"};
        static const enum oz_plane planes[] = {OZ_PLANE_SCALES, OZ_PLANE_SCALES2, OZ_PLANE_OFFSETS};
        for (int p = 0; p < (i % 2 ? 3 : 1); p++) {
            const struct oz_tensor_view *t = find(name, suffixes[p]);
            memcpy(w.planes[planes[p]].data, t->data, (size_t)t->bytes);
        }
        int64_t rows = want->elements / COLS;
        assert_true(rows == 12);
        for (int64_t r = 0; r < rows; r++) {
            float got[COLS];
            w.codec->decode(&w, 0, r, 0, COLS, got);
            for (int64_t c = 0; c < COLS; c++) { /* it dequantizes to bf16, the input's type */
                assert_true(oz_bf16_to_f32(oz_f32_to_bf16(got[c])) ==
                            f32_at(want->data, r * COLS + c));
            }
        }
        drop(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(elements), cmocka_unit_test(codebooks),
                                       cmocka_unit_test(codecs), cmocka_unit_test(bnb_decodes)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
