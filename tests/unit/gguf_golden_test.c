/*
 * GGUF: the container and every block type against gguf-py (tests/golden/gguf/blocks.gguf, made by
 * tools/golden/gguf_blocks.py): bit for bit.
 */
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "ckpt/table.h"
#include "num/codec_list.h"
#include "num/float.h"
#include "num/gguf.h"

enum { COLS = 256, DIGEST_BLOCKS = 768 };

/* In the order of the maker's list, which gives each its salt. */
static const char *const names[] = {
    "q4_0",  "q4_1",  "q5_0",   "q5_1",   "q8_0",    "q2_k",   "q3_k",  "q4_k",    "q5_k",
    "q6_k",  "q8_k",  "iq4_nl", "iq4_xs", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s",
    "iq1_s", "iq1_m", "tq1_0",  "tq2_0",  "mxfp4",   "nvfp4",  "q1_0",
};
enum { NAMES = sizeof names / sizeof *names };

static struct oz_ckpt *golden;

static int setup(void **state)
{
    struct oz_error err;
    return oz_ckpt_open(&golden, OZ_TEST_DIR "/golden/gguf/blocks.gguf", NULL, &err) == OZ_OK ? 0
                                                                                              : -1;
}

static int teardown(void **state)
{
    oz_ckpt_close(&golden);
    return 0;
}

static void metadata(void **state)
{
    static const struct {
        const char *key, *value;
    } cases[] = {
        {"general.architecture", "golden"},
        {"ounce.u8", "200"},
        {"ounce.i8", "-100"},
        {"ounce.u16", "60000"},
        {"ounce.i16", "-30000"},
        {"ounce.u32", "4000000000"},
        {"ounce.i32", "-2000000000"},
        {"ounce.f32", "0.10000000149011612"},
        {"ounce.bool", "true"},
        {"ounce.string", "gr\xC3\xBC\xC3\x9F"
                         "e"},
        {"ounce.u64", "18000000000000000000"},
        {"ounce.i64", "-9000000000000000000"},
        {"ounce.f64", "0.1"},
        {"ounce.numbers", "[1,-2,3]"},
        {"ounce.strings", "3 of string"},
        {"ounce.many", "40 of i32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(oz_ckpt_metadata(golden, cases[i].key), cases[i].value);
    }
    assert_null(oz_ckpt_metadata(golden, "ounce.absent"));
    assert_int_equal(oz_ckpt_count(golden), 2 * NAMES);
}

/* A tensor of the file as a weight of one plane. */
static struct oz_weight weight_of(const struct oz_tensor_view *t)
{
    struct oz_weight w = oz_weight_shape(t->codec, 1, t->shape[0], t->shape[1]);
    struct oz_plane_view *v = &w.planes[OZ_PLANE_CODES];
    int64_t bytes;
    assert_int_equal(oz_weight_plane_bytes(&w, OZ_PLANE_CODES, &bytes, &v->row_stride_bytes),
                     OZ_OK);
    assert_int_equal(bytes, t->bytes);
    v->data = (void *)(uintptr_t)t->data;
    v->bytes = bytes;
    return w;
}

static void blocks(void **state)
{
    for (int i = 0; i < NAMES; i++) {
        char name[32];
        float got[COLS];
        (void)snprintf(name, sizeof name, "%s.values", names[i]);
        const struct oz_tensor_view *t = oz_ckpt_find(golden, names[i], NULL);
        const struct oz_tensor_view *values = oz_ckpt_find(golden, name, NULL);
        assert_true(t != NULL && values != NULL && t->codec != NULL);
        assert_true(t->rank == 2 && t->shape[1] == COLS && t->elements == values->elements);
        assert_true(t->dtype == OZ_DTYPE_U8 && values->dtype == OZ_DTYPE_F32);
        struct oz_weight w = weight_of(t);
        for (int64_t r = 0; r < t->shape[0]; r++) {
            const uint8_t *want = values->data + r * (int64_t)sizeof got;
            w.codec->decode(&w, 0, r, 0, COLS, got);
            if (memcmp(got, want, sizeof got) != 0) {
                fail_msg("%s: row %d differs", names[i], (int)r);
            }
            memset(got, 0, sizeof got);
            for (int64_t c = 0; c < COLS; c += 37) { /* parts of blocks, and across them */
                w.codec->decode(&w, 0, r, c, COLS - c < 37 ? COLS - c : 37, got + c);
            }
            assert_memory_equal(got, want, sizeof got);
        }
    }
}

/* oz_gguf_find_bad knows without decoding what decoding shows: for every place of a block, and every value of
 * a byte there. */
static void bad_factors(void **state)
{
    int reported = 0;
    for (int i = 0; i < NAMES; i++) {
        const struct oz_tensor_view *t = oz_ckpt_find(golden, names[i], NULL);
        const struct oz_gguf_type *type = oz_gguf_type_of(t->codec);
        uint8_t block[512];
        float y[OZ_GGUF_MOST_ELEMENTS];
        struct oz_weight w = oz_weight_shape(t->codec, 1, 1, type->elements);
        w.planes[OZ_PLANE_CODES].data = block;
        w.planes[OZ_PLANE_CODES].row_stride_bytes = type->bytes;
        assert_true(type->bytes <= (int32_t)sizeof block);
        for (int32_t p = 0; p + 1 < type->bytes; p++) {
            for (int k = 0; k < 512;
                 k++) { /* the second byte: as it was, or of an f16 that is none */
                memcpy(block, t->data, (size_t)type->bytes);
                block[p] = (uint8_t)k;
                block[p + 1] = k < 256 ? block[p + 1] : 0xFC;
                bool finite = true;
                w.codec->decode(&w, 0, 0, 0, type->elements, y);
                for (int32_t e = 0; e < type->elements; e++) {
                    finite = finite && isfinite(y[e]);
                }
                int64_t bad = oz_gguf_find_bad(type, block, 1);
                reported += bad == 0;
                /* Where codes are small a large exponent makes numbers yet. */
                bool exponent = type->factors[0] == OZ_GGUF_E8M0 || type->factors[0] == OZ_GGUF_F32;
                if (finite ? bad != -1 && !exponent : bad != 0) {
                    fail_msg("%s: byte %d is %d: find_bad says %d", names[i], p, k, (int)bad);
                }
            }
        }
        assert_int_equal(oz_gguf_find_bad(type, t->data, t->bytes / type->bytes), -1);
    }
    assert_true(reported > 100);
}

static void hashed(uint8_t *out, size_t count, uint64_t salt)
{
    for (size_t k = 0; k < count; k++) {
        uint64_t i = k + (salt << 32);
        i *= UINT64_C(0x9E3779B97F4A7C15);
        i ^= i >> 29;
        i *= UINT64_C(0xBF58476D1CE4E5B9);
        i ^= i >> 29;
        out[k] = (uint8_t)(i >> 24);
    }
}

static void mask_factors(const char *name, uint8_t *b, int32_t bytes)
{
    char key[48];
    (void)snprintf(key, sizeof key, "ounce.factors.%s", name);
    const char *at = oz_ckpt_metadata(golden, key);
    assert_non_null(at);
    while (*at != ']') {
        char *end;
        long offset = strtol(at + 1, &end, 10);
        for (int k = 0; k < DIGEST_BLOCKS && offset >= 0; k++) {
            b[k * bytes + offset] &= 0xBF;
        }
        at = end;
    }
}

/* Many blocks of hashed bytes by their digest: every entry of the grids is met. */
static void digests(void **state)
{
    for (int i = 0; i < NAMES; i++) {
        char key[48];
        const struct oz_tensor_view *t = oz_ckpt_find(golden, names[i], NULL);
        const struct oz_gguf_type *type = oz_gguf_type_of(t->codec);
        uint8_t *b = malloc((size_t)type->bytes * DIGEST_BLOCKS);
        hashed(b, (size_t)type->bytes * DIGEST_BLOCKS, (uint64_t)i + 100);
        mask_factors(names[i], b, type->bytes);
        struct oz_weight w = oz_weight_shape(t->codec, 1, DIGEST_BLOCKS, type->elements);
        w.planes[OZ_PLANE_CODES].data = b;
        w.planes[OZ_PLANE_CODES].row_stride_bytes = type->bytes;
        uint64_t h = UINT64_C(0xCBF29CE484222325);
        for (int64_t r = 0; r < DIGEST_BLOCKS; r++) {
            float y[OZ_GGUF_MOST_ELEMENTS];
            w.codec->decode(&w, 0, r, 0, type->elements, y);
            for (int c = 0; c < type->elements; c++) {
                uint32_t bits = oz_f32_bits(y[c]);
                for (int k = 0; k < 4; k++) {
                    h = (h ^ (bits >> 8 * k & 255U)) * UINT64_C(0x100000001B3);
                }
            }
        }
        (void)snprintf(key, sizeof key, "ounce.digest.%s", names[i]);
        if (h != strtoull(oz_ckpt_metadata(golden, key), NULL, 10)) {
            fail_msg("%s: values of hashed blocks differ", names[i]);
        }
        free(b);
    }
}

/* Types that gguf-py does not write, by hand. */
static void by_hand(void **state)
{
    uint8_t q2[18] = {0x00, 0xC0, 0xE4, 0x1B}; /* -2; codes 0 1 2 3, 3 2 1 0, zeros */
    uint8_t q8[36] = {0x00, 0x38, 0x12, 0x34, 1, 0xFF, 127, 0x80}; /* 0.5; the sum is not read */
    static const float want2[] = {2, -0.0F, -2, -4, -4, -2, -0.0F, 2, 2};
    static const float want8[] = {0.5F, -0.5F, 63.5F, -64, 0};
    float y[64];
    struct oz_weight w = oz_weight_shape(oz_codec_find("q2_0"), 1, 1, 64);
    w.planes[OZ_PLANE_CODES].data = q2;
    w.codec->decode(&w, 0, 0, 0, 64, y);
    assert_memory_equal(y, want2, sizeof want2);
    w = oz_weight_shape(oz_codec_find("q8_1"), 1, 1, 32);
    w.planes[OZ_PLANE_CODES].data = q8;
    w.codec->decode(&w, 0, 0, 0, 32, y);
    assert_memory_equal(y, want8, sizeof want8);
}

/* The table: sizes as the codecs have them, names that no other has. */
static void types(void **state)
{
    int count = 0;
    for (uint32_t n = 0; n < 64; n++) {
        const struct oz_gguf_type *t = oz_gguf_type_find(n);
        if (t == NULL) {
            continue;
        }
        count++;
        assert_int_equal(t->number, n);
        assert_true(t->elements <= OZ_GGUF_MOST_ELEMENTS);
        if (t->codec == NULL) {
            assert_int_equal(t->bytes * 8, oz_dtype_bits(t->dtype));
            continue;
        }
        struct oz_weight w = oz_weight_shape(t->codec, 1, 3, 2 * (int64_t)t->elements);
        int64_t bytes;
        assert_int_equal(oz_weight_bytes(&w, &bytes), OZ_OK);
        assert_int_equal(bytes, 6 * (int64_t)t->bytes);
        assert_int_equal(t->codec->col_multiple, t->elements);
        assert_ptr_equal(oz_gguf_type_of(t->codec), t);
        assert_null(t->codec->encode);
    }
    assert_int_equal(count, 35);
    assert_null(oz_gguf_type_find(4));
    assert_null(oz_gguf_type_find(31));
    assert_null(oz_gguf_type_of(&oz_codec_mxfp4));
    assert_null(oz_gguf_type_of(NULL));
    assert_string_equal(oz_tensor_format(oz_ckpt_find(golden, "q4_k", NULL)), "Q4_K");
    assert_string_equal(oz_tensor_format(oz_ckpt_find(golden, "q4_k.values", NULL)), "F32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(metadata),    cmocka_unit_test(blocks),
                                       cmocka_unit_test(bad_factors), cmocka_unit_test(digests),
                                       cmocka_unit_test(by_hand),     cmocka_unit_test(types)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
