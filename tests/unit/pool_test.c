/* base/pool.h: every part of a range once, whatever the threads. */
#include "test.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/pool.h"

#define MOST 5000

static struct oz_error err;
static atomic_int visits[MOST];
static atomic_int busy[8]; /* threads inside a call */
static int64_t grain_now, count_now;
static atomic_int wrong;

static void visit(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const int32_t *threads = ctx;
    if (thread < 0 || thread >= *threads || atomic_fetch_add(&busy[thread], 1) != 0) {
        atomic_fetch_add(&wrong, 1); /* outside the range, or shared by two running calls */
    }
    bool last = end == count_now;
    if (begin % grain_now != 0 || (!last && end - begin != grain_now) || end <= begin) {
        atomic_fetch_add(&wrong, 1);
    }
    for (int64_t i = begin; i < end; i++) {
        atomic_fetch_add(&visits[i], 1);
    }
    if (thread >= 0 && thread < 8) {
        atomic_fetch_sub(&busy[thread], 1);
    }
}

static void check_visits(int64_t count, int64_t grain)
{
    for (int64_t i = 0; i < MOST; i++) {
        if (atomic_exchange(&visits[i], 0) != (i < count)) {
            fail_msg("%d of %d (grain %d): not once", (int)i, (int)count, (int)grain);
        }
    }
    assert_int_equal(atomic_load(&wrong), 0);
}

static void cover(struct oz_pool *pool, int64_t count, int64_t grain)
{
    int32_t threads = oz_pool_threads(pool);
    grain_now = grain < 1 ? 1 : grain;
    count_now = count;
    oz_pool_for(pool, count, grain, visit, &threads);
    check_visits(count, grain);
}

static void stream(struct oz_pool *pool, int64_t count)
{
    int32_t threads = oz_pool_threads(pool);
    grain_now = 1;
    count_now = count;
    oz_pool_stream(pool, count, visit, &threads);
    check_visits(count, 1);
}

static void ranges_are_covered_once(void **state)
{
    static const int64_t counts[] = {0, 1, 2, 7, 64, 1000, MOST};
    static const int64_t grains[] = {0, 1, 3, 64, 10000};
    for (int32_t threads = 1; threads <= 5; threads++) {
        struct oz_pool *pool;
        assert_int_equal(oz_pool_create(&pool, threads, &err), OZ_OK);
        assert_int_equal(oz_pool_threads(pool), threads);
        for (size_t c = 0; c < 7; c++) {
            for (size_t g = 0; g < 5; g++) {
                cover(pool, counts[c], grains[g]);
                stream(pool, counts[c]);
            }
        }
        oz_pool_destroy(&pool);
        assert_null(pool);
    }
    cover(NULL, 100, 7);
    stream(NULL, 100);
    cover(NULL, -1, 7);
}

static void add(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    atomic_fetch_add((atomic_llong *)ctx, end - begin);
}

static void many_rounds(void **state)
{
    struct oz_pool *pool;
    assert_int_equal(oz_pool_create(&pool, 3, &err), OZ_OK);
    for (int round = 0; round < 3000; round++) {
        atomic_llong sum = 0;
        oz_pool_for(pool, round % 50, 1, add, &sum);
        assert_int_equal(atomic_load(&sum), round % 50);
    }
    oz_pool_destroy(&pool);
    oz_pool_destroy(&pool); /* NULL is fine */
}

static atomic_int first_of[2]; /* where each thread began, plus one; 0: not yet */

static void begin_together(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    int none = 0;
    (void)ctx;
    (void)end;
    atomic_compare_exchange_strong(&first_of[thread], &none, (int)begin + 1);
    while (atomic_load(&first_of[0]) == 0 || atomic_load(&first_of[1]) == 0) {
        (void)sched_yield();
    }
}

/* Each thread begins at its own part. */
static void streams_have_parts(void **state)
{
    struct oz_pool *pool;
    assert_int_equal(oz_pool_create(&pool, 2, &err), OZ_OK);
    oz_pool_stream(pool, 9, begin_together, NULL);
    assert_int_equal(atomic_load(&first_of[0]), 1);
    assert_int_equal(atomic_load(&first_of[1]), 6);
    oz_pool_destroy(&pool);
}

static void numbers_of_threads(void **state)
{
    struct oz_pool *pool;
    assert_true(oz_pool_default_threads() >= 1);
    assert_int_equal(oz_pool_create(&pool, -1, &err), OZ_ERR_ARG);
    assert_null(pool);
    assert_non_null(strstr(err.message, "-1 threads"));
    assert_int_equal(oz_pool_create(&pool, 1025, &err), OZ_ERR_ARG);
    assert_int_equal(oz_pool_create(&pool, 0, &err), OZ_OK);
    assert_int_equal(oz_pool_threads(pool), oz_pool_default_threads());
    oz_pool_destroy(&pool);
    assert_int_equal(oz_pool_threads(NULL), 1);
}

static void no_memory(void **state)
{
    for (uint64_t n = 1; n <= 3; n++) {
        struct oz_pool *pool;
        oz_alloc_fail_at(n, 0);
        assert_int_equal(oz_pool_create(&pool, 2, &err), OZ_ERR_NOMEM);
        oz_alloc_fail_at(0, 0);
        assert_null(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_covered_once),
        cmocka_unit_test(many_rounds),
        cmocka_unit_test(streams_have_parts),
        cmocka_unit_test(numbers_of_threads),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
