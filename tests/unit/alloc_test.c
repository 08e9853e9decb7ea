/* base/alloc.h: counted, and failing where a test asks for it. */
#include "test.h"

#include "base/alloc.h"

static void zero_sizes_give_memory(void **state)
{
    void *a = oz_alloc(0);
    void *b = oz_alloc_zero(0, 8);
    void *c = oz_alloc_aligned(0, 64);
    void *d = oz_realloc(NULL, 0);
    assert_true(a != NULL && b != NULL && c != NULL && d != NULL);
    assert_int_equal((uintptr_t)c % 64, 0);
    oz_free(a);
    oz_free(b);
    oz_free(c);
    oz_free(d);
    oz_free(NULL);
}

static void products_that_overflow(void **state)
{
    assert_null(oz_alloc_zero(SIZE_MAX / 2, 3));
    assert_null(oz_strndup("", SIZE_MAX));
}

static void zeroed(void **state)
{
    unsigned char *p = oz_alloc_zero(100, 3);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(p[i], 0);
    }
    oz_free(p);
}

static void calls_are_counted(void **state)
{
    uint64_t before = oz_alloc_calls();
    void *p = oz_alloc(1);
    assert_int_equal(oz_alloc_calls() - before, 1);
    p = oz_realloc(p, 2);
    char *text = oz_strdup("two");
    void *aligned = oz_alloc_aligned(1, 64);
    void *zeros = oz_alloc_zero(1, 1);
    assert_int_equal(oz_alloc_calls() - before, 5);
    oz_free(p);
    oz_free(text);
    oz_free(aligned);
    oz_free(zeros);
    assert_int_equal(oz_alloc_calls() - before, 5); /* giving back is no call */
}

static void strings(void **state)
{
    char *a = oz_strdup("ounce");
    char *b = oz_strndup("ounces", 5);
    assert_string_equal(a, b);
    oz_free(a);
    oz_free(b);
}

static void the_nth_fails(void **state)
{
    oz_alloc_fail_at(3, 0);
    void *p[4];
    for (int i = 0; i < 4; i++) {
        p[i] = oz_alloc(8);
        assert_true((p[i] == NULL) == (i == 2));
    }
    oz_alloc_fail_at(0, 0);
    for (int i = 0; i < 4; i++) {
        oz_free(p[i]);
    }
}

static void sticky_and_off_again(void **state)
{
    void *kept = oz_alloc(8);
    oz_alloc_fail_at(1, 1);
    assert_null(oz_alloc(1));
    assert_null(oz_alloc_zero(1, 1));
    assert_null(oz_alloc_aligned(1, 64));
    assert_null(oz_strdup(""));
    assert_null(oz_realloc(kept, 100)); /* and `kept` is still ours */
    oz_alloc_fail_at(0, 1);
    void *p = oz_realloc(kept, 100);
    assert_non_null(p);
    oz_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_sizes_give_memory),
        cmocka_unit_test(products_that_overflow),
        cmocka_unit_test(zeroed),
        cmocka_unit_test(calls_are_counted),
        cmocka_unit_test(strings),
        cmocka_unit_test(the_nth_fails),
        cmocka_unit_test(sticky_and_off_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
