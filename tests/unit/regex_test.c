/* base/regex.h and base/log.h. */
#include "test.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/regex.h"
#include "scratch.h"

static struct oz_error err;

static bool find(const char *pattern, const char *text, size_t from, bool anchored, size_t *begin,
                 size_t *end)
{
    struct oz_regex *re;
    bool found;
    assert_int_equal(oz_regex_compile(&re, pattern, &err), OZ_OK);
    assert_int_equal(
        oz_regex_match(re, text, strlen(text), from, anchored, &found, begin, end, &err), OZ_OK);
    oz_regex_free(re);
    return found;
}

static void matches(void **state)
{
    size_t b;
    size_t e;
    assert_true(find("b+", "abbc", 0, false, &b, &e) && b == 1 && e == 3);
    assert_true(find("b+", "abbc", 2, false, &b, &e) && b == 2 && e == 3);
    assert_false(find("b+", "abbc", 0, true, &b, &e));
    assert_true(find("b+", "abbc", 1, true, &b, &e) && b == 1);
    assert_false(find("b+", "abbc", 3, false, &b, &e));
    assert_true(find("\\p{L}", "1\xC3\xA9", 0, false, &b, &e) && b == 1 && e == 3);
    assert_true(find("", "", 0, false, &b, &e) && b == 0 && e == 0);
}

static void wrong_patterns(void **state)
{
    struct oz_regex *re = (struct oz_regex *)&err;
    assert_int_equal(oz_regex_compile(&re, "a(b", &err), OZ_ERR_ARG);
    assert_null(re);
    assert_non_null(strstr(err.message, "\"a(b\""));
    assert_non_null(strstr(err.message, "character 3"));
    assert_int_equal(oz_regex_compile(&re, "[z-a]", &err), OZ_ERR_ARG);
    assert_int_equal(oz_regex_compile(&re, "\xFF", &err), OZ_ERR_ARG);
    oz_regex_free(NULL);
}

/* A pattern that backtracks for ever gives an error in a moment. */
static void catastrophic_patterns(void **state)
{
    static char text[101];
    static const char *const patterns[] = {"(a+)+$", "(a|aa)+$", "(.*)*x\\1y"};
    memset(text, 'a', 99);
    text[99] = '!';
    for (int i = 0; i < 3; i++) {
        struct oz_regex *re;
        bool found;
        size_t b;
        size_t e;
        assert_int_equal(oz_regex_compile(&re, patterns[i], &err), OZ_OK);
        enum oz_status status =
            oz_regex_match(re, text, strlen(text), 0, false, &found, &b, &e, &err);
        assert_false(found);
        if (i < 2) {
            assert_int_equal(status, OZ_ERR_FORMAT);
            assert_non_null(strstr(err.message, "gave up"));
        }
        oz_regex_free(re);
    }
}

/* ---- the log ---- */

static void listen(const char *topics)
{
    if (topics != NULL) {
        (void)setenv("OUNCE_LOG", topics, 1);
    } else {
        (void)unsetenv("OUNCE_LOG");
    }
    oz_log_set(scratch_log_line, NULL);
    scratch_log_clear();
}

static void levels(void **state)
{
    listen(NULL);
    oz_log(OZ_LOG_ERROR, "load", "one %d", 1);
    oz_log(OZ_LOG_WARN, "ckpt", "two");
    oz_log(OZ_LOG_INFO, "load", "three");
    oz_log(OZ_LOG_DEBUG, "load", "four");
    assert_string_equal(scratch_log, "error load: one 1\nwarn ckpt: two\ninfo load: three\n");
    assert_false(oz_log_wants(OZ_LOG_DEBUG, "load"));
}

static void topics(void **state)
{
    listen("dispatch,load");
    assert_true(oz_log_wants(OZ_LOG_DEBUG, "load"));
    assert_true(oz_log_wants(OZ_LOG_DEBUG, "dispatch"));
    assert_false(oz_log_wants(OZ_LOG_DEBUG, "loader"));
    assert_false(oz_log_wants(OZ_LOG_DEBUG, "loa"));
    assert_true(oz_log_wants(OZ_LOG_INFO, "anything"));
    listen("all");
    assert_true(oz_log_wants(OZ_LOG_DEBUG, "anything"));
    listen(",,text,");
    assert_true(oz_log_wants(OZ_LOG_DEBUG, "text"));
    assert_false(oz_log_wants(OZ_LOG_DEBUG, "load"));
}

static void silence(void **state)
{
    listen("all");
    oz_log_set(NULL, NULL);
    assert_false(oz_log_wants(OZ_LOG_ERROR, "load"));
    oz_log(OZ_LOG_ERROR, "load", "nobody hears");
    assert_string_equal(scratch_log, "");
}

static void long_lines_arrive_whole(void **state)
{
    static char text[10000];
    memset(text, 'x', sizeof text - 1);
    listen(NULL);
    oz_log(OZ_LOG_WARN, "load", "%s", text);
    assert_int_equal(strlen(scratch_log), strlen("warn load: \n") + sizeof text - 1);
    scratch_log_clear();
    oz_alloc_fail_at(1, 0);
    oz_log(OZ_LOG_WARN, "load", "%s", text); /* without memory: its beginning */
    oz_alloc_fail_at(0, 0);
    assert_true(strlen(scratch_log) > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches),
        cmocka_unit_test(wrong_patterns),
        cmocka_unit_test(catastrophic_patterns),
        cmocka_unit_test(levels),
        cmocka_unit_test(topics),
        cmocka_unit_test(silence),
        cmocka_unit_test(long_lines_arrive_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
