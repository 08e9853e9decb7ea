/* PNG: round trips, files made here by hand of every kind that we read, and damage. */
#include "test.h"

#include <stdbool.h>

#include "base/alloc.h"
#include "media/png.h"

#define MANY ((uint64_t)1 << 24)

static struct oz_error err;

/* ---- a PNG writer of its own: stored deflate blocks, nothing shared with the code under test ---- */

static uint32_t crc_of(const uint8_t *p, size_t n)
{
    uint32_t c = 0xFFFFFFFFU;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) {
            c = (c >> 1) ^ (0xEDB88320U & (0U - (c & 1U)));
        }
    }
    return ~c;
}

static void put_u32(struct oz_buf *b, uint32_t v)
{
    uint8_t bytes[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
    oz_buf_append(b, bytes, 4);
}

static void put_chunk(struct oz_buf *b, const char *type, const void *data, size_t bytes)
{
    put_u32(b, (uint32_t)bytes);
    size_t at = b->bytes;
    oz_buf_append(b, type, 4);
    oz_buf_append(b, data, bytes);
    put_u32(b, crc_of((const uint8_t *)b->data + at, bytes + 4));
}

static void put_header(struct oz_buf *b, uint32_t width, uint32_t height, int depth, int color,
                       int interlace)
{
    struct oz_buf h;
    uint8_t rest[5] = {(uint8_t)depth, (uint8_t)color, 0, 0, (uint8_t)interlace};
    oz_buf_init(&h, 100);
    put_u32(&h, width);
    put_u32(&h, height);
    oz_buf_append(&h, rest, 5);
    oz_buf_append(b, "\x89PNG\r\n\x1A\n", 8);
    put_chunk(b, "IHDR", h.data, h.bytes);
    oz_buf_deinit(&h);
}

static void put_pixels(struct oz_buf *b, const uint8_t *raw, uint16_t bytes)
{
    struct oz_buf z;
    uint32_t s1 = 1;
    uint32_t s2 = 0;
    uint16_t no = (uint16_t)~bytes;
    uint8_t head[7] = {
        0x78, 1, 1, (uint8_t)bytes, (uint8_t)(bytes >> 8), (uint8_t)no, (uint8_t)(no >> 8)};
    for (size_t i = 0; i < bytes; i++) {
        s1 = (s1 + raw[i]) % 65521;
        s2 = (s2 + s1) % 65521;
    }
    oz_buf_init(&z, 1 << 17);
    oz_buf_append(&z, head, 7);
    oz_buf_append(&z, raw, bytes);
    put_u32(&z, s2 << 16 | s1);
    put_chunk(b, "IDAT", z.data, z.bytes);
    oz_buf_deinit(&z);
}

static void check_rgb(const struct oz_buf *b, const uint8_t *want, uint32_t width, uint32_t height)
{
    struct oz_png png;
    if (oz_png_decode(b->data, b->bytes, MANY, &png, &err) != OZ_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(png.width, width);
    assert_int_equal(png.height, height);
    assert_memory_equal(png.rgb, want, (size_t)width * height * 3);
    oz_png_deinit(&png);
    assert_null(png.rgb);
}

/* ---- tests ---- */

static uint8_t *make_picture(uint32_t width, uint32_t height)
{
    uint8_t *rgb = oz_alloc((size_t)width * height * 3);
    uint32_t x = 12345;
    for (size_t i = 0; i < (size_t)width * height * 3; i++) {
        x = x * 1664525U + 1013904223U;
        rgb[i] = (uint8_t)(i % 7 == 0 ? x >> 24 : i / 16);
    }
    return rgb;
}

static void test_round_trip(void **state)
{
    static const uint32_t sizes[][2] = {{1, 1}, {1, 9}, {9, 1}, {17, 5}, {128, 128}, {300, 7}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct oz_buf a;
        struct oz_buf b;
        uint8_t *rgb = make_picture(sizes[i][0], sizes[i][1]);
        oz_buf_init(&a, 1 << 20);
        oz_buf_init(&b, 1 << 20);
        assert_int_equal(oz_png_encode(rgb, sizes[i][0], sizes[i][1], NULL, 0, &a, &err), OZ_OK);
        assert_int_equal(oz_png_encode(rgb, sizes[i][0], sizes[i][1], NULL, 0, &b, &err), OZ_OK);
        assert_int_equal(a.bytes, b.bytes);
        assert_memory_equal(a.data, b.data, a.bytes);
        check_rgb(&a, rgb, sizes[i][0], sizes[i][1]);
        oz_buf_deinit(&a);
        oz_buf_deinit(&b);
        oz_free(rgb);
    }
}

static bool holds(const struct oz_buf *b, const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i + n <= b->bytes; i++) {
        if (memcmp(b->data + i, text, n) == 0) {
            return true;
        }
    }
    return false;
}

static void test_texts(void **state)
{
    static const uint8_t rgb[3] = {1, 2, 3};
    const struct oz_png_text texts[] = {{OZ_PNG_KEYWORD, "{\"prompt\": \"red apple\"}\n"},
                                        {"Other Name", ""},
                                        {"unicode", "{\"prompt\": \"\xE7\x8C\xAB caf\xC3\xA9\"}"}};
    struct oz_buf b;
    struct oz_png png;
    oz_buf_init(&b, 1 << 20);
    assert_int_equal(oz_png_encode(rgb, 1, 1, texts, 1, &b, &err), OZ_OK);
    assert_true(holds(&b, "tEXtounce"));
    assert_false(holds(&b, "iTXt"));
    assert_false(holds(&b, "tIME"));
    b.bytes = 0;
    assert_int_equal(oz_png_encode(rgb, 1, 1, texts, 3, &b, &err), OZ_OK);
    assert_true(holds(&b, "iTXtunicode"));
    assert_int_equal(oz_png_decode(b.data, b.bytes, 1, &png, &err), OZ_OK);
    assert_int_equal(png.text_count, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(oz_png_find_text(&png, texts[i].keyword), texts[i].text);
    }
    assert_null(oz_png_find_text(&png, "none"));
    oz_png_deinit(&png);
    oz_buf_deinit(&b);
}

static void test_bad_arguments(void **state)
{
    static const uint8_t rgb[3 * 64] = {1, 2, 3};
    static const struct oz_png_text bad[] = {
        {"", "x"},
        {" a", "x"},
        {"a ", "x"},
        {"a  b", "x"},
        {"caf\xC3\xA9", "x"},
        {"a\n", "x"},
        {"0123456789012345678901234567890123456789012345678901234567890123456789012345678X", "x"},
        {"ok", "\xFF"}};
    struct oz_buf b;
    oz_buf_init(&b, 100);
    oz_buf_puts(&b, "before");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(oz_png_encode(rgb, 1, 1, &bad[i], 1, &b, &err), OZ_ERR_ARG);
    }
    assert_int_equal(oz_png_encode(rgb, 0, 1, NULL, 0, &b, &err), OZ_ERR_ARG);
    assert_int_equal(oz_png_encode(rgb, 1, 2000000, NULL, 0, &b, &err), OZ_ERR_ARG);
    struct oz_png_text large = {"ounce",
                                "a text that makes the file longer than the buffer may be"};
    assert_int_equal(oz_png_encode(rgb, 8, 8, &large, 1, &b, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "larger than 100 bytes"));
    assert_string_equal(oz_buf_text(&b), "before");
    assert_int_equal(b.status, OZ_OK);
    oz_buf_deinit(&b);
}

static void test_kinds(void **state)
{
    struct oz_buf b;
    oz_buf_init(&b, 1 << 16);
    /* grey of one bit: 1 0 1 */
    put_header(&b, 3, 1, 1, 0, 0);
    put_pixels(&b, (const uint8_t[]){0, 0xA0}, 2);
    put_chunk(&b, "IEND", "", 0);
    check_rgb(&b, (const uint8_t[]){255, 255, 255, 0, 0, 0, 255, 255, 255}, 3, 1);
    /* palette of two, with transparency */
    b.bytes = 0;
    put_header(&b, 2, 1, 8, 3, 0);
    put_chunk(&b, "PLTE", (const uint8_t[]){1, 2, 3, 4, 5, 6}, 6);
    put_chunk(&b, "tRNS", (const uint8_t[]){0}, 1);
    put_pixels(&b, (const uint8_t[]){0, 1, 0}, 3);
    put_chunk(&b, "IEND", "", 0);
    check_rgb(&b, (const uint8_t[]){4, 5, 6, 1, 2, 3}, 2, 1);
    /* RGBA of 16 bits, rounded: 0x0180 is 1.49 of 255ths, 0x01FF 1.99 */
    b.bytes = 0;
    put_header(&b, 1, 1, 16, 6, 0);
    put_pixels(&b, (const uint8_t[]){0, 0x01, 0x80, 0x01, 0xFF, 0xFF, 0xFF, 0, 0}, 9);
    put_chunk(&b, "IEND", "", 0);
    check_rgb(&b, (const uint8_t[]){1, 2, 255}, 1, 1);
    /* grey with alpha */
    b.bytes = 0;
    put_header(&b, 1, 1, 8, 4, 0);
    put_pixels(&b, (const uint8_t[]){0, 77, 3}, 3);
    put_chunk(&b, "IEND", "", 0);
    check_rgb(&b, (const uint8_t[]){77, 77, 77}, 1, 1);
    /* interlaced, 2 x 2: passes 1 (0,0), 6 (1,0), 7 (0..1, 1) */
    b.bytes = 0;
    put_header(&b, 2, 2, 8, 0, 1);
    put_pixels(&b, (const uint8_t[]){0, 10, 0, 20, 0, 30, 40}, 7);
    put_chunk(&b, "IEND", "", 0);
    check_rgb(&b, (const uint8_t[]){10, 10, 10, 20, 20, 20, 30, 30, 30, 40, 40, 40}, 2, 2);
    oz_buf_deinit(&b);
}

static void test_foreign_texts(void **state)
{
    struct oz_buf b;
    struct oz_png png;
    oz_buf_init(&b, 1 << 20);
    put_header(&b, 1, 1, 8, 2, 0);
    put_chunk(&b, "tEXt", "Comment\0caf\xE9", 12);      /* Latin-1 */
    put_chunk(&b, "iTXt", "bad\0\0\0\0\0\xFF\xFE", 10); /* not UTF-8: left out */
    put_chunk(&b, "iTXt", "good\0\0\0de\0gut\0\xC3\xA9", 16);
    put_chunk(&b, "zTXt", "broken\0\0xyz", 11); /* no deflate data: left out */
    put_pixels(&b, (const uint8_t[]){0, 1, 2, 3}, 4);
    for (int i = 0; i < 200; i++) {
        put_chunk(&b, "tEXt", "x\0y", 3);
    }
    put_chunk(&b, "IEND", "", 0);
    oz_buf_puts(&b, "trailing bytes");
    assert_int_equal(oz_png_decode(b.data, b.bytes, 1, &png, &err), OZ_OK);
    assert_string_equal(oz_png_find_text(&png, "Comment"), "caf\xC3\xA9");
    assert_null(oz_png_find_text(&png, "bad"));
    assert_string_equal(oz_png_find_text(&png, "good"), "\xC3\xA9");
    assert_null(oz_png_find_text(&png, "broken"));
    assert_in_range(png.text_count, 3, 64);
    oz_png_deinit(&png);
    oz_buf_deinit(&b);
}

static void test_too_large(void **state)
{
    struct oz_buf b;
    struct oz_png png;
    oz_buf_init(&b, 1 << 16);
    put_header(&b, 1000000, 1000000, 8, 2, 0);
    put_pixels(&b, (const uint8_t[]){0}, 1);
    assert_int_equal(oz_png_decode(b.data, b.bytes, MANY, &png, &err), OZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "1000000 x 1000000"));
    b.bytes = 0;
    put_header(&b, 0x7FFFFFFF, 0x7FFFFFFF, 16, 6, 1);
    assert_int_equal(oz_png_decode(b.data, b.bytes, UINT64_MAX, &png, &err), OZ_ERR_FORMAT);
    assert_int_equal(oz_png_decode("GIF89a..", 8, MANY, &png, &err), OZ_ERR_FORMAT);
    assert_int_equal(oz_png_decode("", 0, MANY, &png, &err), OZ_ERR_FORMAT);
    oz_buf_deinit(&b);
}

static void make_rich(struct oz_buf *b)
{
    const struct oz_png_text texts[] = {{OZ_PNG_KEYWORD, "{\"a\": 1}"}, {"u", "\xC3\xA9"}};
    uint8_t *rgb = make_picture(16, 8);
    oz_buf_init(b, 1 << 16);
    assert_int_equal(oz_png_encode(rgb, 16, 8, texts, 2, b, &err), OZ_OK);
    oz_free(rgb);
}

/* Every truncation is an error; every changed byte is an error or gives some picture. */
static void test_damage(void **state)
{
    struct oz_buf b;
    struct oz_png png;
    make_rich(&b);
    for (size_t n = 0; n < b.bytes; n++) {
        /* A copy of the exact size, so that a sanitizer sees a read beyond it. */
        char *part = oz_alloc(n);
        memcpy(part, b.data, n);
        assert_int_equal(oz_png_decode(part, n, MANY, &png, &err), OZ_ERR_FORMAT);
        assert_null(png.rgb);
        oz_free(part);
    }
    for (size_t i = 0; i < b.bytes; i++) {
        for (int bit = 0; bit < 8; bit++) {
            b.data[i] = (char)(b.data[i] ^ 1 << bit);
            enum oz_status status = oz_png_decode(b.data, b.bytes, MANY, &png, &err);
            assert_true(status == OZ_OK || status == OZ_ERR_FORMAT || status == OZ_ERR_UNSUPPORTED);
            oz_png_deinit(&png);
            b.data[i] = (char)(b.data[i] ^ 1 << bit);
        }
    }
    oz_buf_deinit(&b);
}

/* A chunk that says it has 2 GiB: an error before any memory is taken. */
static void test_chunks_that_claim_more(void **state)
{
    static const char *const types[] = {"tEXt", "zTXt", "iTXt", "iCCP", "IDAT", "PLTE", "eXIf"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct oz_buf b;
        struct oz_png png;
        oz_buf_init(&b, 1 << 10);
        put_header(&b, 4, 4, 8, 2, 0);
        put_u32(&b, 0x7FFFFFFF);
        oz_buf_append(&b, types[i], 4);
        oz_buf_puts(&b, i % 2 == 0 ? "some bytes" : "");
        uint64_t calls = oz_alloc_calls();
        err.message[0] = '\0';
        assert_int_equal(oz_png_decode(b.data, b.bytes, MANY, &png, &err), OZ_ERR_FORMAT);
        assert_non_null(strstr(err.message, "ends too early"));
        assert_int_equal(oz_alloc_calls(), calls);
        oz_buf_deinit(&b);
    }
}

static void test_out_of_memory(void **state)
{
    const struct oz_png_text texts[] = {{OZ_PNG_KEYWORD, "{\"a\": 1}"}, {"u", "\xC3\xA9"}};
    uint8_t *rgb = make_picture(16, 8);
    enum oz_status status = OZ_ERR_NOMEM;
    for (uint64_t n = 1; status != OZ_OK; n++) {
        struct oz_buf b;
        struct oz_png png = {0};
        oz_buf_init(&b, 1 << 16);
        oz_alloc_fail_at(n, 0);
        status = oz_png_encode(rgb, 16, 8, texts, 2, &b, &err);
        if (status == OZ_OK) {
            status = oz_png_decode(b.data, b.bytes, MANY, &png, &err);
        } else {
            assert_int_equal(b.bytes, 0);
        }
        oz_alloc_fail_at(0, 0);
        assert_true(status == OZ_OK ? n > 10 : status == OZ_ERR_NOMEM);
        assert_true(status != OZ_OK || png.text_count == 2);
        oz_png_deinit(&png);
        oz_buf_deinit(&b);
    }
    oz_free(rgb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_texts),
        cmocka_unit_test(test_bad_arguments), cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_foreign_texts), cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_damage),        cmocka_unit_test(test_chunks_that_claim_more),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
