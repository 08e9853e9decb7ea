/* base/arena.h and base/pages.h: exact marks and peaks, and what a full one says. */
#include "test.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/pages.h"

static struct oz_error err;

static void *push(struct oz_arena *a, size_t bytes)
{
    void *p;
    assert_int_equal(oz_arena_push(a, bytes, &p), OZ_OK);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % OZ_ARENA_ALIGN, 0);
    return p;
}

static void rounding(void **state)
{
    assert_int_equal(oz_arena_round(0), 0);
    assert_int_equal(oz_arena_round(1), OZ_ARENA_ALIGN);
    assert_int_equal(oz_arena_round(OZ_ARENA_ALIGN), OZ_ARENA_ALIGN);
    assert_int_equal(oz_arena_round(OZ_ARENA_ALIGN + 1), 2 * OZ_ARENA_ALIGN);
    assert_int_equal(oz_arena_round(SIZE_MAX), SIZE_MAX);
    assert_int_equal(oz_arena_round(SIZE_MAX - OZ_ARENA_ALIGN + 1), SIZE_MAX);
}

static void marks_and_peaks(void **state)
{
    struct oz_arena a;
    assert_int_equal(oz_arena_init_host(&a, "test", 8 * OZ_ARENA_ALIGN, &err), OZ_OK);
    uint8_t *first = push(&a, 10);
    size_t mark = oz_arena_mark(&a);
    assert_int_equal(mark, OZ_ARENA_ALIGN);
    uint8_t *second = push(&a, OZ_ARENA_ALIGN + 1);
    assert_ptr_equal(second, first + OZ_ARENA_ALIGN);
    assert_int_equal(a.used_bytes, 3 * OZ_ARENA_ALIGN);
    oz_arena_reset(&a, mark);
    assert_int_equal(a.used_bytes, mark);
    assert_int_equal(a.peak_bytes, 3 * OZ_ARENA_ALIGN);
    assert_ptr_equal(push(&a, 1), second); /* the same place again */
    push(&a, 0);
    assert_int_equal(a.used_bytes, 2 * OZ_ARENA_ALIGN);
    assert_int_equal(a.peak_bytes, 3 * OZ_ARENA_ALIGN);
    oz_arena_deinit(&a);
    oz_arena_deinit(&a); /* zeroed: fine */
}

static void full(void **state)
{
    struct oz_arena a;
    void *p = &a;
    assert_int_equal(oz_arena_init_host(&a, "test", OZ_ARENA_ALIGN + 1, &err), OZ_OK);
    assert_int_equal(a.capacity_bytes, 2 * OZ_ARENA_ALIGN);
    push(&a, OZ_ARENA_ALIGN + 1);
    assert_int_equal(oz_arena_push(&a, 1, &p), OZ_ERR_NOMEM);
    assert_null(p);
    assert_int_equal(a.used_bytes, 2 * OZ_ARENA_ALIGN);
    assert_int_equal(oz_arena_push(&a, SIZE_MAX, &p), OZ_ERR_NOMEM);
    assert_null(oz_arena_string(&a, "no room"));
    push(&a, 0);
    oz_arena_deinit(&a);
}

static void measuring_takes_what_running_takes(void **state)
{
    struct oz_arena m;
    struct oz_arena a;
    void *p;
    oz_arena_init_measure(&m, "test");
    for (size_t i = 0; i < 50; i++) {
        push(&m, 37 * i); /* never NULL */
    }
    assert_true(m.measuring && !m.host && (uintptr_t)m.base < 4096);
    assert_int_equal(oz_arena_init_host(&a, "test", m.peak_bytes, &err), OZ_OK);
    for (size_t i = 0; i < 50; i++) {
        memset(push(&a, 37 * i), 1, 37 * i);
    }
    assert_int_equal(a.used_bytes, m.peak_bytes);
    assert_int_equal(a.used_bytes, a.capacity_bytes);
    assert_int_equal(oz_arena_push(&m, SIZE_MAX / 2, &p), OZ_ERR_NOMEM);
    assert_null(oz_arena_string(&m, "no memory to hold it"));
    oz_arena_deinit(&a);
}

static void host_memory_is_zeroed(void **state)
{
    struct oz_arena a;
    size_t bytes = (size_t)1 << 20;
    assert_int_equal(oz_arena_init_host(&a, "test", bytes, &err), OZ_OK);
    const uint8_t *p = push(&a, bytes);
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(p[i], 0);
    }
    oz_arena_deinit(&a);
}

static void no_memory(void **state)
{
    struct oz_arena a;
    assert_int_equal(oz_arena_init_host(&a, "step", SIZE_MAX - 1, &err), OZ_ERR_NOMEM);
    assert_non_null(strstr(err.message, "step"));
    oz_arena_deinit(&a);
    oz_alloc_fail_at(1, 0);
    assert_int_equal(oz_arena_init_host(&a, "step", 4096, &err), OZ_ERR_NOMEM);
    assert_non_null(strstr(err.message, "4096 bytes"));
    oz_alloc_fail_at(0, 0);
    oz_arena_deinit(&a);
}

static void views_are_borrowed(void **state)
{
    _Alignas(OZ_ARENA_ALIGN) static uint8_t memory[4 * OZ_ARENA_ALIGN];
    struct oz_arena a;
    oz_arena_init_view(&a, "test", memory, sizeof memory, true);
    assert_ptr_equal(push(&a, 1), memory);
    assert_string_equal(oz_arena_string(&a, "text"), "text");
    oz_arena_deinit(&a);
    memset(memory, 1, sizeof memory); /* ours again, under ASan too */
}

static void pages_are_taken_all_or_none(void **state)
{
    struct oz_pages p;
    int32_t got[8];
    assert_int_equal(oz_pages_init(&p, 5, &err), OZ_OK);
    assert_int_equal(oz_pages_take(&p, 2, got), OZ_OK);
    assert_true(got[0] == 0 && got[1] == 1);
    assert_int_equal(oz_pages_take(&p, 4, got + 2), OZ_ERR_NOMEM);
    assert_int_equal(p.free_count, 3);
    assert_int_equal(oz_pages_take(&p, 3, got + 2), OZ_OK);
    assert_int_equal(oz_pages_take(&p, 1, got + 5), OZ_ERR_NOMEM);
    assert_int_equal(oz_pages_take(&p, 0, got + 5), OZ_OK);
    oz_pages_give(&p, 2, got + 1);
    assert_int_equal(oz_pages_take(&p, 2, got + 1), OZ_OK);
    bool seen[5] = {0};
    for (int i = 0; i < 5; i++) {
        assert_true(got[i] >= 0 && got[i] < 5 && !seen[got[i]]);
        seen[got[i]] = true;
    }
    oz_pages_give(&p, 5, got);
    assert_int_equal(p.free_count, 5);
    oz_pages_deinit(&p);
}

static void no_pages(void **state)
{
    struct oz_pages p;
    int32_t page;
    assert_int_equal(oz_pages_init(&p, 0, &err), OZ_OK);
    assert_int_equal(oz_pages_take(&p, 1, &page), OZ_ERR_NOMEM);
    oz_pages_deinit(&p);
    oz_alloc_fail_at(1, 0);
    assert_int_equal(oz_pages_init(&p, 4, &err), OZ_ERR_NOMEM);
    oz_alloc_fail_at(0, 0);
    oz_pages_deinit(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding),
        cmocka_unit_test(marks_and_peaks),
        cmocka_unit_test(full),
        cmocka_unit_test(measuring_takes_what_running_takes),
        cmocka_unit_test(host_memory_is_zeroed),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(views_are_borrowed),
        cmocka_unit_test(pages_are_taken_all_or_none),
        cmocka_unit_test(no_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
