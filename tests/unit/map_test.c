/* The hash maps, at their limits. */
#include "test.h"

#include "base/alloc.h"
#include "base/map.h"

static void test_strings(void **state)
{
    static const char text[] = "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz";
    struct oz_string_map map;
    int32_t n = 0;
    assert_int_equal(oz_string_map_init(&map, 1000, NULL), OZ_OK);
    /* All parts of 1 to 20 letters that begin in the first 36; each is another string. */
    for (size_t begin = 0; begin < 36; begin++) {
        for (size_t bytes = 1; bytes <= 20; bytes++) {
            assert_true(oz_string_map_put(&map, text + begin, bytes, n++));
            assert_false(oz_string_map_put(&map, text + begin, bytes, -5));
        }
    }
    assert_true(oz_string_map_put(&map, "", 0, n));
    assert_int_equal(oz_string_map_get(&map, "", 0, -1), n);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(oz_string_map_get(&map, text + i / 20, (size_t)i % 20 + 1, -1), i);
    }
    assert_int_equal(oz_string_map_get(&map, "ba", 2, -1), -1);
    assert_int_equal(oz_string_map_get(&map, "a\0", 2, -1), -1);
    oz_string_map_deinit(&map);
    assert_int_equal(oz_string_map_get(&map, "a", 1, -7), -7);
}

static void test_full(void **state)
{
    for (size_t max = 1; max < 200; max++) {
        struct oz_pair_map map;
        assert_int_equal(oz_pair_map_init(&map, max, NULL), OZ_OK);
        for (uint32_t i = 0; i < max; i++) {
            oz_pair_map_put(&map, i, ~i, i, 2 * i);
        }
        for (uint32_t i = 0; i < max; i++) {
            const struct oz_pair_slot *s = oz_pair_map_get(&map, i, ~i);
            assert_non_null(s);
            assert_int_equal(s->first, i);
            assert_int_equal(s->second, 2 * i);
        }
        assert_null(oz_pair_map_get(&map, (uint32_t)max, 0));
        oz_pair_map_put(&map, 0, ~0U, 7, 8);
        assert_int_equal(oz_pair_map_get(&map, 0, ~0U)->first, 7);
        oz_pair_map_deinit(&map);
    }
}

static void test_empty_and_impossible(void **state)
{
    struct oz_pair_map pairs = {0};
    struct oz_string_map strings;
    struct oz_error err;
    assert_null(oz_pair_map_get(&pairs, 1, 2));
    oz_pair_map_deinit(&pairs);
    assert_int_equal(oz_pair_map_init(&pairs, 0, &err), OZ_OK);
    assert_null(oz_pair_map_get(&pairs, 1, 2));
    oz_pair_map_deinit(&pairs);
    assert_int_equal(oz_string_map_init(&strings, SIZE_MAX / 2, &err), OZ_ERR_NOMEM);
    oz_string_map_deinit(&strings);
    oz_alloc_fail_at(1, 0);
    assert_int_equal(oz_pair_map_init(&pairs, 10, &err), OZ_ERR_NOMEM);
    oz_alloc_fail_at(0, 0);
    oz_pair_map_deinit(&pairs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_empty_and_impossible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
