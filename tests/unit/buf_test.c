/* base/buf.h and base/error.h: text that is built up, and text that must fit. */
#include "test.h"

#include <float.h>
#include <math.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"
#include "base/unicode.h"

static struct oz_error err;

static void builds_a_string(void **state)
{
    struct oz_buf b;
    oz_buf_init(&b, 1000);
    assert_string_equal(oz_buf_text(&b), "");
    oz_buf_puts(&b, "a");
    oz_buf_append(&b, "\0b", 2);
    oz_buf_printf(&b, "%d-%s", 12, "c");
    assert_int_equal(b.bytes, 7);
    assert_memory_equal(b.data, "a\0b12-c", 8);
    oz_buf_deinit(&b);
    assert_true(b.data == NULL && b.max_bytes == 1000);
}

static void the_maximum_is_exact_and_sticky(void **state)
{
    struct oz_buf b;
    oz_buf_init(&b, 5);
    oz_buf_puts(&b, "12345");
    assert_int_equal(b.status, OZ_OK);
    oz_buf_puts(&b, "");
    assert_int_equal(b.status, OZ_OK);
    oz_buf_puts(&b, "6");
    assert_int_equal(b.status, OZ_ERR_ARG);
    oz_buf_printf(&b, "%d", 7);
    assert_string_equal(oz_buf_text(&b), "12345");
    assert_null(oz_buf_take(&b));
    assert_int_equal(b.status, OZ_OK); /* empty and usable again */
    oz_buf_puts(&b, "1234");
    oz_buf_printf(&b, "%d", 56);
    assert_int_equal(b.status, OZ_ERR_ARG);
    assert_string_equal(oz_buf_text(&b), "1234");
    oz_buf_deinit(&b);
}

static void out_of_memory_is_sticky(void **state)
{
    struct oz_buf b;
    oz_buf_init(&b, 1000);
    oz_buf_puts(&b, "kept");
    oz_alloc_fail_at(1, 0);
    oz_buf_printf(&b, "%200d", 1);
    assert_int_equal(b.status, OZ_ERR_NOMEM);
    oz_buf_puts(&b, "not added");
    assert_string_equal(oz_buf_text(&b), "kept");
    oz_alloc_fail_at(0, 0);
    oz_buf_deinit(&b);
}

static void taken(void **state)
{
    struct oz_buf b;
    oz_buf_init(&b, 10);
    char *empty = oz_buf_take(&b);
    assert_string_equal(empty, "");
    oz_buf_puts(&b, "mine");
    char *text = oz_buf_take(&b);
    assert_string_equal(text, "mine");
    assert_true(b.data == NULL && b.bytes == 0);
    oz_free(text);
    oz_free(empty);
}

static void json_strings(void **state)
{
    struct oz_buf b;
    oz_buf_init(&b, 1000);
    oz_buf_json(&b, "a\"b\\c\nd\te\x01\x7F/\xC3\xA9\xF0\x9F\x8D\x8E");
    assert_string_equal(oz_buf_text(&b),
                        "\"a\\\"b\\\\c\\nd\\u0009e\\u0001\\u007f/\xC3\xA9\xF0\x9F\x8D\x8E\"");
    struct oz_json *v;
    assert_int_equal(oz_json_parse(&v, b.data, b.bytes, "test", &err), OZ_OK);
    assert_string_equal(oz_json_string(v, ""), "a\"b\\c\nd\te\x01\x7F/\xC3\xA9\xF0\x9F\x8D\x8E");
    oz_json_free(v);
    oz_buf_deinit(&b);
}

static void json_numbers(void **state)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},
                 {-0.0, "-0"},
                 {4, "4"},
                 {0.1, "0.1"},
                 {-2.5, "-2.5"},
                 {1e22, "1e+22"},
                 {1e23, "1e+23"},
                 {1.0 / 3, "0.3333333333333333"},
                 {0.1 + 0.2, "0.30000000000000004"},
                 {123456789012345678.0, "1.2345678901234568e+17"},
                 {5e-324, "4.94065645841247e-324"},
                 {DBL_MAX, "1.7976931348623157e+308"},
                 {(double)NAN, "null"},
                 {(double)INFINITY, "null"},
                 {-(double)INFINITY, "null"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct oz_buf b;
        oz_buf_init(&b, 100);
        oz_buf_number(&b, cases[i].value);
        assert_string_equal(oz_buf_text(&b), cases[i].text);
        struct oz_json *v;
        assert_int_equal(oz_json_parse(&v, b.data, b.bytes, "test", &err), OZ_OK);
        assert_true(!isfinite(cases[i].value) || oz_json_number(v, -1) == cases[i].value);
        oz_json_free(v);
        oz_buf_deinit(&b);
    }
}

/* ---- errors ---- */

static enum oz_status passes_on(struct oz_error *e)
{
    OZ_TRY(OZ_FAIL(e, OZ_ERR_FORMAT, "%d of %d", 3, 4));
    return OZ_OK;
}

static void raised_and_passed_on(void **state)
{
    assert_int_equal(passes_on(&err), OZ_ERR_FORMAT);
    assert_int_equal(err.code, OZ_ERR_FORMAT);
    assert_string_equal(err.message, "3 of 4");
    assert_non_null(strstr(err.file, "buf_test.c"));
    assert_true(err.line > 0);
    assert_int_equal(passes_on(NULL), OZ_ERR_FORMAT);
    assert_int_equal(OZ_FAIL_NOMEM(&err, "the kettle"), OZ_ERR_NOMEM);
    assert_string_equal(err.message, "Out of memory for the kettle.");
}

static void statuses_have_texts(void **state)
{
    assert_string_equal(oz_status_text(OZ_OK), "success");
    assert_string_equal(oz_status_text(OZ_ERR_NO_MODEL), "no such model");
    assert_string_equal(oz_status_text((enum oz_status)77), "unknown status");
    assert_string_equal(oz_status_text((enum oz_status) - 1), "unknown status");
}

/* Long messages end in "..." and stay whole UTF-8, wherever the cut falls. */
static void long_messages_are_cut_between_letters(void **state)
{
    static char text[2 * OZ_ERROR_MESSAGE_BYTES];
    for (int shift = 0; shift < 4; shift++) {
        size_t n = (size_t)shift;
        memset(text, 'x', n);
        while (n + 5 < sizeof text) {
            memcpy(text + n, "\xF0\x9F\x8D\x8E", 5);
            n += 4;
        }
        assert_int_equal(OZ_FAIL(&err, OZ_ERR_ARG, "%s", text), OZ_ERR_ARG);
        size_t length = strlen(err.message);
        size_t bad;
        assert_true(length < OZ_ERROR_MESSAGE_BYTES && length > OZ_ERROR_MESSAGE_BYTES - 8);
        assert_true(oz_utf8_valid(err.message, length, &bad));
        assert_string_equal(err.message + length - 3, "...");
        assert_int_equal(oz_error_prefix(&err, OZ_ERR_IO, "front%d: ", shift), OZ_ERR_ARG);
        length = strlen(err.message);
        assert_true(oz_utf8_valid(err.message, length, &bad));
        assert_true(strncmp(err.message, "front", 5) == 0);
        assert_string_equal(err.message + length - 3, "...");
    }
    memset(text, 'y', OZ_ERROR_MESSAGE_BYTES - 1);
    text[OZ_ERROR_MESSAGE_BYTES - 1] = '\0';
    assert_int_equal(OZ_FAIL(&err, OZ_ERR_ARG, "%s", text), OZ_ERR_ARG);
    assert_string_equal(err.message, text); /* just fits */
}

static void prefixes(void **state)
{
    assert_int_equal(OZ_FAIL(&err, OZ_ERR_IO, "No such file."), OZ_ERR_IO);
    assert_int_equal(oz_error_prefix(&err, OZ_ERR_ARG, "request %d: ", 2), OZ_ERR_IO);
    assert_string_equal(err.message, "request 2: No such file.");
    assert_int_equal(err.code, OZ_ERR_IO);
    assert_int_equal(oz_error_prefix(NULL, OZ_ERR_ARG, "x"), OZ_ERR_ARG);
    static char front[2 * OZ_ERROR_MESSAGE_BYTES];
    memset(front, 'z', sizeof front - 1);
    assert_int_equal(oz_error_prefix(&err, OZ_ERR_ARG, "%s", front), OZ_ERR_IO);
    assert_int_equal(strlen(err.message), OZ_ERROR_MESSAGE_BYTES - 1);
    assert_string_equal(err.message + OZ_ERROR_MESSAGE_BYTES - 5, "z...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builds_a_string),
        cmocka_unit_test(the_maximum_is_exact_and_sticky),
        cmocka_unit_test(out_of_memory_is_sticky),
        cmocka_unit_test(taken),
        cmocka_unit_test(json_strings),
        cmocka_unit_test(json_numbers),
        cmocka_unit_test(raised_and_passed_on),
        cmocka_unit_test(statuses_have_texts),
        cmocka_unit_test(long_messages_are_cut_between_letters),
        cmocka_unit_test(prefixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
