/*
 * Each scenario with the n-th allocation failing, for every n (of large ones a sample, unless
 * OUNCE_FAULTS=full): OZ_ERR_NOMEM with a message, or the very result of an undisturbed run. Nothing
 * leaks: the sanitizer says so.
 */
#include "test.h"

#include "base/alloc.h"
#include "faults/scenarios.h"

static struct oz_error err;

/* The next allocation that fails: all at first, then ever fewer; OUNCE_TEST_FEW (sanitizers): fewer still. */
static uint64_t next_allocation(uint64_t n)
{
    bool few = getenv("OUNCE_TEST_FEW") != NULL;
    if (scenarios_full() || n < (few ? 24 : 64)) {
        return n + 1;
    }
    return n + 1 + n / (few ? 4 : 16);
}

static void sweep(const struct scenario *s)
{
    uint64_t want = 0;
    uint64_t before = oz_alloc_calls();
    if (s->run(&want, &err) != OZ_OK) {
        fail_msg("%s: %s", s->name, err.message);
    }
    uint64_t calls = oz_alloc_calls() - before;
    uint64_t failed = 0;
    uint64_t tried = 0;
    for (uint64_t n = 1; n <= calls; n = next_allocation(n), tried++) {
        for (int sticky = 0; sticky < 2; sticky++) {
            uint64_t digest = 0;
            memset(&err, 0, sizeof err);
            oz_alloc_fail_at(n, sticky);
            enum oz_status status = s->run(&digest, &err);
            oz_alloc_fail_at(0, 0);
            if (status == OZ_OK ? digest != want
                                : status != OZ_ERR_NOMEM || err.code != OZ_ERR_NOMEM ||
                                      err.message[0] == '\0') {
                fail_msg("%s, allocation %d of %d%s: status %d, \"%s\"", s->name, (int)n,
                         (int)calls, sticky ? " and later" : "", status,
                         status == OZ_OK ? "another result" : err.message);
            }
            failed += status != OZ_OK;
        }
    }
    uint64_t digest = 0;
    if (s->run(&digest, &err) != OZ_OK || digest != want) {
        fail_msg("%s does not recover", s->name);
    }
    print_message("%s: %d allocations, %d tried, %d runs refused\n", s->name, (int)calls,
                  (int)tried, (int)failed);
    assert_true(failed >= tried);
}

static void every_scenario(void **state)
{
    for (int i = 0; i < scenario_count; i++) {
        sweep(&scenarios[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_scenario)};
    return cmocka_run_group_tests(tests, scenarios_open, scenarios_close);
}
