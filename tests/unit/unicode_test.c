/* Normal form C, and what UTF-8 is. */
#include "test.h"

#include "base/alloc.h"
#include "base/unicode.h"

static struct oz_error err;

static void check_nfc(const char *text, const char *want)
{
    char *out;
    size_t bytes;
    assert_int_equal(oz_unicode_nfc(text, strlen(text), &out, &bytes, &err), OZ_OK);
    assert_int_equal(bytes, strlen(want));
    assert_string_equal(out, want);
    oz_free(out);
}

static void test_nfc(void **state)
{
    check_nfc("", "");
    check_nfc("plain", "plain");
    check_nfc("e\xCC\x81", "\xC3\xA9");
    /* marks are ordered by class: dot below before acute; equal classes keep their order */
    check_nfc("q\xCC\x81\xCC\xA3", "q\xCC\xA3\xCC\x81");
    check_nfc("q\xCC\x83\xCC\x81", "q\xCC\x83\xCC\x81");
    check_nfc("s\xCC\x87\xCC\xA3", "\xE1\xB9\xA9");
    check_nfc("\xCC\x81\xCC\xA3", "\xCC\xA3\xCC\x81"); /* no base */
    /* singletons, exclusions */
    check_nfc("\xE2\x84\xAB", "\xC3\x85");
    check_nfc("\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC");
    /* Hangul: L + V + T; U+11A7 is no final */
    check_nfc("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81");
    check_nfc("\xEA\xB0\x80\xE1\x86\xA7", "\xEA\xB0\x80\xE1\x86\xA7");
    check_nfc("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA7\xCC\x81", "\xEA\xB0\x80\xE1\x86\xA7\xCC\x81");
}

static void test_zero_bytes_stay(void **state)
{
    char *out;
    size_t bytes;
    assert_int_equal(oz_unicode_nfc("a\0e\xCC\x81", 5, &out, &bytes, &err), OZ_OK);
    assert_int_equal(bytes, 4);
    assert_memory_equal(out, "a\0\xC3\xA9", 5);
    oz_free(out);
}

static void test_every_code_point(void **state)
{
    for (uint32_t c = 0; c <= 0x110000; c++) {
        char text[5] = {0};
        size_t used;
        size_t at;
        size_t n = oz_utf8_encode(c, text);
        if (c == 0x110000 || (c >= 0xD800 && c < 0xE000)) {
            assert_int_equal(n, 0);
            continue;
        }
        assert_true(n > 0 && oz_utf8_valid(text, n, NULL));
        assert_int_equal(oz_utf8_decode(text, n, &used), c);
        assert_int_equal(used, n);
        assert_int_equal(oz_utf8_whole(text, n), n);
        if (n > 1) {
            assert_false(oz_utf8_valid(text, n - 1, &at));
            assert_int_equal(at, 0);
            assert_int_equal(oz_utf8_whole(text, n - 1), 0);
        }
    }
}

static void test_invalid(void **state)
{
    static const struct {
        const char *text;
        size_t bytes, at;
    } bad[] = {{"a\x80", 2, 1},        {"\xC0\x80", 2, 0},         {"ab\xE7\x8C", 4, 2},
               {"\xED\xA0\x80", 3, 0}, {"\xF4\x90\x80\x80", 4, 0}, {"\xF0\x8F\xBF\xBF", 4, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        size_t at = 99;
        char *out;
        size_t bytes;
        assert_false(oz_utf8_valid(bad[i].text, bad[i].bytes, &at));
        assert_int_equal(at, bad[i].at);
        assert_int_equal(oz_unicode_nfc(bad[i].text, bad[i].bytes, &out, &bytes, &err),
                         OZ_ERR_FORMAT);
        assert_null(out);
    }
}

/* Half a million marks in the wrong order: hours with an insertion sort, a moment without. */
static void test_many_marks(void **state)
{
    const size_t pairs = 1 << 18;
    char *text = oz_alloc(pairs * 4);
    char *out;
    size_t bytes;
    for (size_t i = 0; i < pairs; i++) {
        memcpy(text + 4 * i, "\xCC\x81\xCC\xA3", 4);
    }
    assert_int_equal(oz_unicode_nfc(text, pairs * 4, &out, &bytes, &err), OZ_OK);
    assert_int_equal(bytes, pairs * 4);
    for (size_t i = 0; i < pairs; i++) {
        assert_memory_equal(out + 2 * i, "\xCC\xA3", 2);
        assert_memory_equal(out + 2 * (pairs + i), "\xCC\x81", 2);
    }
    oz_free(out);
    oz_free(text);
}

static void test_out_of_memory(void **state)
{
    enum oz_status status = OZ_ERR_NOMEM;
    for (uint64_t n = 1; status != OZ_OK; n++) {
        char *out;
        size_t bytes;
        oz_alloc_fail_at(n, 0);
        status = oz_unicode_nfc("q\xCC\x81\xCC\xA3", 5, &out, &bytes, &err);
        oz_alloc_fail_at(0, 0);
        assert_true(status == OZ_OK ? n == 4 : status == OZ_ERR_NOMEM);
        oz_free(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nfc),
        cmocka_unit_test(test_zero_bytes_stay),
        cmocka_unit_test(test_every_code_point),
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_many_marks),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
