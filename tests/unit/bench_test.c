/* What `bench --against` calls a movement. */
#include "test.h"

#include "api/bench_table.h"

static struct oz_quartiles around(double median, double spread)
{
    return (struct oz_quartiles){
        .q1 = median - spread / 2, .median = median, .q3 = median + spread / 2};
}

static void quartiles(void **state)
{
    double odd[] = {5, 1, 4, 2, 3};
    double even[] = {4, 1, 3, 2};
    double one[] = {7};
    struct oz_quartiles q = oz_quartiles_of(odd, 5);
    assert_true(q.q1 == 2 && q.median == 3 && q.q3 == 4);
    q = oz_quartiles_of(even, 4);
    assert_true(q.q1 == 1.75 && q.median == 2.5 && q.q3 == 3.25);
    q = oz_quartiles_of(one, 1);
    assert_true(q.q1 == 7 && q.median == 7 && q.q3 == 7);
    q = oz_quartiles_of(one, 0);
    assert_true(q.median == 0);
}

static void verdicts(void **state)
{
    static const struct {
        double old_median, old_spread, new_median, new_spread;
        enum oz_verdict verdict;
    } cases[] = {
        {0.80, 0.01, 0.70, 0.01, OZ_VERDICT_SLOWER},
        {0.70, 0.01, 0.80, 0.01, OZ_VERDICT_FASTER},
        {0.80, 0.01, 0.79, 0.01, OZ_VERDICT_SAME},    /* within both */
        {0.80, 0.20, 0.70, 0.001, OZ_VERDICT_SAME},   /* within the old one's noise */
        {0.80, 0.001, 0.70, 0.20, OZ_VERDICT_SAME},   /* within the new one's */
        {0.80, 0.001, 0.795, 0.001, OZ_VERDICT_SAME}, /* less than one percent */
        {0.80, 0.0, 0.70, 0.0, OZ_VERDICT_SLOWER},
        {0.0, 0.0, 0.70, 0.0, OZ_VERDICT_SAME}, /* nothing to compare with */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct oz_quartiles o = around(cases[i].old_median, cases[i].old_spread);
        struct oz_quartiles n = around(cases[i].new_median, cases[i].new_spread);
        assert_int_equal(oz_bench_verdict(&o, &n), cases[i].verdict);
    }
}

/* Samples of several passes are one result; each is seen against the ceiling beside it. */
static void pooling(void **state)
{
    struct oz_error err;
    struct oz_bench_table t;
    static const double seconds[] = {1, 2};
    static const double high[] = {20, 20};
    static const double low[] = {10, 10};
    struct oz_bench_sample s = {.op = "linear",
                                .kernel = "k",
                                .shape = "s",
                                .unit = "GFLOP/s",
                                .work = 10,
                                .seconds = seconds,
                                .count = 2,
                                .ceilings = {{"f32", high}}};
    oz_bench_table_init(&t);
    assert_int_equal(oz_bench_table_add(&t, &s, &err), OZ_OK);
    s.ceilings[0].rates = low;
    assert_int_equal(oz_bench_table_add(&t, &s, &err), OZ_OK);
    s.shape = "other";
    assert_int_equal(oz_bench_table_add(&t, &s, &err), OZ_OK);
    oz_bench_table_finish(&t);
    assert_int_equal(t.count, 2);
    assert_int_equal(t.results[0].count, 4);
    assert_true(t.results[0].best == 10 && t.results[0].least == &t.results[0].bounds[0]);
    assert_true(t.results[0].least->median == 15 && t.results[0].least->best == 20);
    assert_true(t.results[0].rate.median == 7.5);  /* 5 5 10 10 */
    assert_true(t.results[0].share.median == 0.5); /* 0.25 0.5 0.5 1 */
    oz_bench_table_deinit(&t);
}

/* Of two ceilings the lower one binds, sample by sample; the one that does so in the median is named. */
static void two_ceilings(void **state)
{
    struct oz_error err;
    struct oz_bench_table t;
    struct oz_buf text;
    struct oz_buf json;
    const struct oz_bench_head head = {.device = "cpu", .tier = "avx2", .threads = 1};
    static const double seconds[] = {1, 1, 1};
    static const double read[] = {20, 20, 10};
    static const double decode[] = {16, 40, 10.5};
    const struct oz_bench_sample s = {.op = "linear",
                                      .kernel = "k",
                                      .shape = "s",
                                      .unit = "GB/s",
                                      .work = 8,
                                      .seconds = seconds,
                                      .count = 3,
                                      .ceilings = {{"read", read}, {"decode", decode}}};
    oz_bench_table_init(&t);
    oz_buf_init(&text, 1 << 16);
    oz_buf_init(&json, 1 << 16);
    assert_int_equal(oz_bench_table_add(&t, &s, &err), OZ_OK);
    oz_bench_table_finish(&t);
    assert_string_equal(t.results[0].least->name, "decode");
    assert_true(t.results[0].share.median == 0.5); /* 8/16 8/20 8/10 */
    oz_bench_table_text(&t, &head, NULL, &text);
    oz_bench_table_json(&t, &head, NULL, &json);
    assert_non_null(strstr(oz_buf_text(&text), "GB/s     decode     16.00  50.0 %"));
    assert_non_null(strstr(oz_buf_text(&json), "\"ceiling\":\"decode\",\"ceiling_rate\":16,"));
    assert_non_null(strstr(oz_buf_text(&json), "\"ceilings\":{\"read\":{\"median\":20,\"best\":20},"
                                               "\"decode\":{\"median\":16,\"best\":40}}"));
    oz_bench_table_deinit(&t);
    oz_buf_deinit(&text);
    oz_buf_deinit(&json);
}

/* One line for a kernel and reason, with the number of shapes; in the document each shape. */
static void what_is_not_measured(void **state)
{
    struct oz_bench_table t;
    struct oz_buf text;
    struct oz_buf json;
    const struct oz_bench_head head = {.device = "cpu", .tier = "avx2", .threads = 1};
    oz_bench_table_init(&t);
    oz_buf_init(&text, 1 << 16);
    oz_buf_init(&json, 1 << 16);
    oz_bench_table_skip(&t, "k1", "a m1", "too small");
    oz_bench_table_skip(&t, "k1", "a m2", "too small");
    oz_bench_table_skip(&t, "k2", "a m1", "too small");
    oz_bench_table_skip(&t, "k1", "a m3", "too odd");
    oz_bench_table_skip(&t, "k3", "", "no such unit");
    oz_bench_table_text(&t, &head, NULL, &text);
    oz_bench_table_json(&t, &head, NULL, &json);
    const char *lines = strstr(oz_buf_text(&text), "not measured");
    assert_non_null(lines);
    assert_string_equal(strchr(lines, '\n'), "\n  k1: too small (2 shapes)\n"
                                             "  k2: too small (1 shape)\n"
                                             "  k1: too odd (1 shape)\n"
                                             "  k3: no such unit\n");
    assert_non_null(strstr(oz_buf_text(&json),
                           "{\"kernel\":\"k1\",\"shape\":\"a m2\",\"reason\":\"too small\"}"));
    assert_non_null(strstr(oz_buf_text(&json),
                           "{\"kernel\":\"k3\",\"shape\":\"\",\"reason\":\"no such unit\"}"));
    oz_bench_table_deinit(&t);
    oz_buf_deinit(&text);
    oz_buf_deinit(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quartiles),
        cmocka_unit_test(verdicts),
        cmocka_unit_test(pooling),
        cmocka_unit_test(two_ceilings),
        cmocka_unit_test(what_is_not_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
