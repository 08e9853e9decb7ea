/* base/json.h: what is refused, and what the typed getters say. */
#include "test.h"

#include "base/json.h"

static struct oz_error err;

static struct oz_json *parse(const char *text)
{
    struct oz_json *v;
    if (oz_json_parse(&v, text, strlen(text), "test", &err) != OZ_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    return v;
}

static void refused(const char *text, const char *phrase)
{
    struct oz_json *v = (struct oz_json *)&err;
    assert_int_equal(oz_json_parse(&v, text, strlen(text), "some.json", &err), OZ_ERR_FORMAT);
    assert_null(v);
    if (strstr(err.message, phrase) == NULL || strstr(err.message, "some.json") == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", phrase, err.message);
    }
}

static void malformed(void **state)
{
    refused("", "line 1");
    refused("{", "line 1");
    refused("{\n\n\"a\":,}", "line 3");
    refused("{\"a\":1}x", "end of file expected");
    refused("{\"a\":1}{}", "end of file expected");
    refused("{\"a\":1,\"a\":2}", "duplicate");
    refused("{\"a\":{\"b\":1,\"b\":1}}", "duplicate");
    refused("\"\xFF\"", "unable to decode byte");
    refused("\"\xED\xA0\x80\"", "unable to decode byte");
    refused("\"\xC0\x80\"", "unable to decode byte");
    refused("\"\\u0000\"", "\\u0000");
    refused("\"\\ud800\"", "Unicode");
    refused("01", "");
    refused("1.", "");
    refused("NaN", "");
    refused("[1,]", "");
    refused("'a'", "");
    refused("99999999999999999999", "too big integer");
    refused("-99999999999999999999", "too big negative integer");
    refused("1e999", "real number overflow");
}

/* What an own parser can get wrong. */
static void more_malformed(void **state)
{
    static const char *const texts[] = {
        "-",
        "+1",
        "-01",
        ".5",
        "1.e3",
        "1e",
        "1e+",
        "0x1",
        "1 2",
        "[1 2]",
        "[1,,2]",
        "[,1]",
        "{,}",
        "{\"a\"}",
        "{\"a\" 1}",
        "{\"a\":1,}",
        "{a:1}",
        "{1:2}",
        "[}",
        "{]",
        "]",
        "}",
        "tru",
        "nul",
        "falsey",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\",
        "\"abc",
        "\"a\nb\"",
        "\"a\tb\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"\\ud800\\",
        "// c\n1",
        "[1]]",
        "\xEF\xBB\xBF{}",
        "9223372036854775808",
        "-9223372036854775809",
        "[1e400]",
        "Infinity",
        "-Infinity",
        " ",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        print_message("%s\n", texts[i]);
        refused(texts[i], "is not valid JSON: ");
    }
    char many[2000];
    memset(many, '1', sizeof many - 1);
    many[sizeof many - 1] = '\0';
    many[1] = '.';
    refused(many, "too many digits");
}

static void numbers(void **state)
{
    static const struct {
        const char *text;
        double value;
    } reals[] = {
        {"0.1", 0.1},
        {"-0.0", -0.0},
        {"1.5e3", 1500},
        {"1E+2", 100},
        {"12345.678e-4", 1.2345678},
        {"2.2250738585072014e-308", 2.2250738585072014e-308},
        {"4.9e-324", 4.9e-324},
        {"1e-400", 0},
        {"1.7976931348623157e308", 1.7976931348623157e308},
        {"0.000000000000000000000000000001e30", 1},
        {"1e000000000000000000002", 100},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        struct oz_json *v = parse(reals[i].text);
        assert_int_equal(oz_json_type(v), OZ_JSON_REAL);
        double got = oz_json_number(v, 7);
        assert_memory_equal(&got, &reals[i].value, sizeof got);
        oz_json_free(v);
    }
    struct oz_json *v = parse("[-9223372036854775808,0,-0]");
    assert_int_equal(oz_json_integer(oz_json_at(v, 0), 0), INT64_MIN);
    assert_int_equal(oz_json_integer(oz_json_at(v, 2), 5), 0);
    oz_json_free(v);
}

static void strings(void **state)
{
    struct oz_json *v =
        parse("[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\",\"\\u00e9\\u732b\\ud83c\\uDF89\",\"\"]");
    assert_string_equal(oz_json_string(oz_json_at(v, 0), ""), "\"\\/\b\f\n\r\t");
    assert_string_equal(oz_json_string(oz_json_at(v, 1), ""),
                        "\xC3\xA9\xE7\x8C\xAB\xF0\x9F\x8E\x89");
    assert_string_equal(oz_json_string(oz_json_at(v, 2), "x"), "");
    oz_json_free(v);
}

/* Large enough for the map of names, and for several blocks. */
static void many_members(void **state)
{
    enum { MEMBERS = 20000 };
    char *text = malloc(MEMBERS * 32);
    assert_non_null(text);
    size_t n = 0;
    for (int i = 0; i < MEMBERS; i++) {
        n += (size_t)snprintf(text + n, 32, "%c\"key%d\":[%d]", i == 0 ? '{' : ',', i, i);
    }
    memcpy(text + n, "}", 2);
    struct oz_json *v = parse(text);
    assert_int_equal(oz_json_count(v), MEMBERS);
    for (int i = 0; i < MEMBERS; i += 7) {
        char key[32];
        (void)snprintf(key, sizeof key, "key%d", i);
        assert_int_equal(oz_json_integer(oz_json_at(oz_json_get(v, key), 0), -1), i);
    }
    assert_null(oz_json_get(v, "key"));
    oz_json_free(v);
    (void)snprintf(text + n, 32, ",\"key77\":1}");
    refused(text, "duplicate key \"key77\"");
    free(text);
}

static void zero_bytes_inside(void **state)
{
    struct oz_json *v;
    assert_int_equal(oz_json_parse(&v, "{}\0 ", 4, "test", &err), OZ_ERR_FORMAT);
    assert_int_equal(oz_json_parse(&v, "\"a\0b\"", 5, "test", &err), OZ_ERR_FORMAT);
}

static void too_deep(void **state)
{
    static char text[200001];
    memset(text, '[', 100000);
    memset(text + 100000, ']', 100000);
    refused(text, "depth");
}

static void values(void **state)
{
    struct oz_json *v = parse("{\"i\":-3,\"r\":2.5,\"e\":1e2,\"s\":\"t\",\"b\":true,\"n\":null,"
                              "\"l\":[1,[],\"x\"],\"o\":{},\"big\":9223372036854775807}");
    assert_int_equal(oz_json_type(v), OZ_JSON_OBJECT);
    assert_int_equal(oz_json_count(v), 9);
    assert_int_equal(oz_json_integer(oz_json_get(v, "i"), 0), -3);
    assert_int_equal(oz_json_integer(oz_json_get(v, "big"), 0), INT64_MAX);
    assert_int_equal(oz_json_integer(oz_json_get(v, "r"), 7), 7); /* no silent rounding */
    assert_int_equal(oz_json_type(oz_json_get(v, "e")), OZ_JSON_REAL);
    assert_true(oz_json_number(oz_json_get(v, "r"), 0) == 2.5);
    assert_true(oz_json_number(oz_json_get(v, "i"), 0) == -3);
    assert_true(oz_json_number(oz_json_get(v, "s"), 9) == 9);
    assert_string_equal(oz_json_string(oz_json_get(v, "s"), ""), "t");
    assert_string_equal(oz_json_string(oz_json_get(v, "i"), "not"), "not");
    assert_true(oz_json_bool(oz_json_get(v, "b"), false));
    assert_true(oz_json_bool(oz_json_get(v, "i"), true));
    const struct oz_json *list = oz_json_get(v, "l");
    assert_int_equal(oz_json_count(list), 3);
    assert_string_equal(oz_json_string(oz_json_at(list, 2), ""), "x");
    assert_null(oz_json_at(list, 3));
    assert_null(oz_json_at(v, 0));
    assert_null(oz_json_get(list, "l"));
    assert_null(oz_json_get(v, "absent"));
    assert_int_equal(oz_json_type(NULL), OZ_JSON_NULL);
    assert_int_equal(oz_json_count(NULL), 0);
    static const char *const names[] = {"an integer", "a number",  "a number",
                                        "a string",   "a boolean", "null",
                                        "a list",     "an object", "an integer"};
    int n = 0;
    for (void *it = oz_json_first(v); it != NULL; it = oz_json_next(v, it)) {
        assert_string_equal(oz_json_type_name(oz_json_value(it)), names[n++]);
    }
    assert_int_equal(n, 9);
    oz_json_free(v);
    oz_json_free(NULL);
}

static void order_of_the_text(void **state)
{
    struct oz_json *v = parse("{\"z\":1,\"a\":2,\"m\":3}");
    const char *want = "zam";
    for (void *it = oz_json_first(v); it != NULL; it = oz_json_next(v, it)) {
        assert_int_equal(oz_json_key(it)[0], *want++);
    }
    oz_json_free(v);
}

static void says(enum oz_status status, const char *phrase)
{
    assert_int_equal(status, OZ_ERR_FORMAT);
    if (strstr(err.message, phrase) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", phrase, err.message);
    }
}

static void typed_getters(void **state)
{
    struct oz_json *v = parse("{\"i\":5,\"r\":2.5,\"s\":\"t\",\"b\":true,\"n\":null,\"l\":[]}");
    int64_t i;
    double r;
    bool b;
    const char *s;
    assert_int_equal(oz_json_get_integer(v, "i", 1, 0, 9, &i, "c", &err), OZ_OK);
    assert_int_equal(i, 5);
    assert_int_equal(oz_json_get_integer(v, "none", 1, 0, 9, &i, "c", &err), OZ_OK);
    assert_int_equal(i, 1);
    assert_int_equal(oz_json_get_integer(v, "n", -7, 0, 9, &i, "c", &err), OZ_OK);
    assert_int_equal(i, -7); /* the fallback may lie outside */
    assert_int_equal(oz_json_get_number(v, "i", 1, &r, "c", &err), OZ_OK);
    assert_true(r == 5);
    assert_int_equal(oz_json_get_bool(v, "b", false, &b, "c", &err), OZ_OK);
    assert_true(b);
    assert_int_equal(oz_json_get_string(v, "s", "", &s, "c", &err), OZ_OK);
    assert_string_equal(s, "t");
    assert_int_equal(oz_json_get_string(v, "n", NULL, &s, "c", &err), OZ_OK);
    assert_null(s);

    says(oz_json_get_integer(v, "i", 1, 6, 9, &i, "c.json", &err),
         "c.json: \"i\" is 5; it must lie in 6 to 9.");
    says(oz_json_get_integer(v, "r", 1, 0, 9, &i, "c", &err), "must be an integer, not a number");
    says(oz_json_get_integer(v, "b", 1, 0, 9, &i, "c", &err), "must be an integer, not a boolean");
    says(oz_json_get_number(v, "s", 1, &r, "c", &err), "must be a number, not a string");
    says(oz_json_get_bool(v, "i", false, &b, "c", &err), "must be true or false, not an integer");
    says(oz_json_get_string(v, "l", "", &s, "c", &err), "must be a string, not a list");
    says(oz_json_get_string(oz_json_get(v, "l"), "s", "", &s, "c", &err),
         "an object was expected around \"s\", not a list");
    oz_json_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed),         cmocka_unit_test(zero_bytes_inside),
        cmocka_unit_test(more_malformed),    cmocka_unit_test(numbers),
        cmocka_unit_test(strings),           cmocka_unit_test(many_members),
        cmocka_unit_test(too_deep),          cmocka_unit_test(values),
        cmocka_unit_test(order_of_the_text), cmocka_unit_test(typed_getters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
