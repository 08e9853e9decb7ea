/* base/names.h: suggestions, and lists that people can read. */
#include "test.h"

#include "base/alloc.h"
#include "base/names.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

static void nearest(void **state)
{
    static const char *const names[] = {"--height", "--width", "--seed", "--prompt",
                                        "--prompts-file"};
    assert_string_equal(oz_names_nearest("--hieght", names, COUNT(names)), "--height");
    assert_string_equal(oz_names_nearest("--promt", names, COUNT(names)), "--prompt");
    assert_string_equal(oz_names_nearest("--prompts-fil", names, COUNT(names)), "--prompts-file");
    assert_string_equal(oz_names_nearest("--seed", names, COUNT(names)), "--seed");
    assert_null(oz_names_nearest("--quantization", names, COUNT(names)));
    assert_null(oz_names_nearest("anything", names, 0));
    assert_null(oz_names_nearest("", names, COUNT(names)));
}

static void very_long_names(void **state)
{
    static char a[5000];
    static char b[5000];
    memset(a, 'a', sizeof a - 1);
    memset(b, 'b', sizeof b - 1);
    const char *const names[] = {b, a};
    assert_ptr_equal(oz_names_nearest(a, names, 2), a);
}

static void folds(const char **names, size_t count, const char *want)
{
    struct oz_buf b;
    oz_buf_init(&b, 1 << 20);
    oz_names_fold(&b, names, count);
    assert_int_equal(b.status, OZ_OK);
    assert_string_equal(oz_buf_text(&b), want);
    oz_buf_deinit(&b);
}

#define FOLDS(want, ...)                     \
    do {                                     \
        const char *list_[] = {__VA_ARGS__}; \
        folds(list_, COUNT(list_), want);    \
    } while (0)

static void folding(void **state)
{
    FOLDS("a", "a");
    FOLDS("a, b, c", "c", "a", "b");
    FOLDS("b.{0..2}.w", "b.1.w", "b.0.w", "b.2.w");
    FOLDS("b.{0..1,3,5..6}.w", "b.6.w", "b.5.w", "b.3.w", "b.0.w", "b.1.w");
    FOLDS("b.{1..2,9..11}.w", "b.10.w", "b.11.w", "b.9.w", "b.2.w", "b.1.w");
    FOLDS("b.{0..1}.v, b.{0..1}.w, z", "b.0.w", "z", "b.1.v", "b.1.w", "b.0.v");
    FOLDS("w{1..2}", "w1", "w2");
    FOLDS("{1..2}x", "1x", "2x");
    FOLDS("w, w1", "w1", "w");
    struct oz_buf b;
    oz_buf_init(&b, 100);
    oz_names_fold(&b, NULL, 0);
    assert_string_equal(oz_buf_text(&b), "");
    oz_buf_deinit(&b);
}

/* Names with several numbers fold in one of them at a time. */
static void several_numbers(void **state)
{
    FOLDS("b.0.mod.{1..2}.w, b.1.mod.{1..2}.w", "b.0.mod.1.w", "b.0.mod.2.w", "b.1.mod.1.w",
          "b.1.mod.2.w");
    FOLDS("b.{0..2}.mod.1.w", "b.0.mod.1.w", "b.1.mod.1.w", "b.2.mod.1.w");
    FOLDS("b.1.c.1, b.2.c.2", "b.1.c.1", "b.2.c.2");
    FOLDS("b.{1,11}.c.1", "b.1.c.1", "b.11.c.1");
}

/* What is printed can be found in the file again: zeros in front stay, long numbers stay. */
static void numbers_that_are_not_counters(void **state)
{
    FOLDS("m-00001-of-00002, m-00002-of-00002", "m-00001-of-00002", "m-00002-of-00002");
    FOLDS("w0, w00, w01", "w00", "w0", "w01");
    FOLDS("w{0..1}", "w0", "w1");
    FOLDS("w123456789012345678901, w123456789012345678902", "w123456789012345678901",
          "w123456789012345678902");
}

/* A hostile file's names cost seconds at most. */
static void many_names_that_do_not_fold(void **state)
{
    enum { N = 200000 };
    static char text[N][16];
    static const char *names[N];
    for (int i = 0; i < N; i++) {
        (void)snprintf(text[i], sizeof text[i], "t1.%c%c%c%c%c", 'a' + i % 26, 'a' + i / 26 % 26,
                       'a' + i / 676 % 26, 'a' + i / 17576 % 26, 'a' + i / 456976 % 26);
        names[i] = text[i];
    }
    struct oz_buf b;
    oz_buf_init(&b, 1 << 24);
    oz_names_fold(&b, names, N);
    assert_int_equal(b.status, OZ_OK);
    assert_int_equal(b.bytes, (size_t)N * 10 - 2); /* every one is there */
    oz_buf_deinit(&b);
}

static void no_memory(void **state)
{
    for (int i = 1; i <= 2; i++) {
        const char *names[] = {"a", "b"};
        struct oz_buf b;
        oz_buf_init(&b, 100);
        oz_alloc_fail_at((uint64_t)i, 0);
        oz_names_fold(&b, names, 2);
        oz_alloc_fail_at(0, 0);
        assert_int_equal(b.status, OZ_ERR_NOMEM);
        oz_buf_deinit(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearest),
        cmocka_unit_test(very_long_names),
        cmocka_unit_test(folding),
        cmocka_unit_test(several_numbers),
        cmocka_unit_test(numbers_that_are_not_counters),
        cmocka_unit_test(many_names_that_do_not_fold),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
