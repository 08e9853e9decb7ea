/* sample: every filter against sorting, and the frequencies of what is drawn. */
#include "kern.h"

#define VOCABULARY 50

static const double *sorted_by;

static int descending(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a;
    int32_t j = *(const int32_t *)b;
    return sorted_by[i] != sorted_by[j] ? (sorted_by[i] > sorted_by[j] ? -1 : 1) : (i < j ? -1 : 1);
}

/* The token by the definition in ops.h; *margin: how near the decision was. */
static int32_t naive(const struct oz_act *logits, int64_t r, const struct oz_sample_row *how,
                     double *margin)
{
    double p[VOCABULARY];
    int32_t order[VOCABULARY];
    double sum = 0;
    double kept_sum = 0;
    double reached = 0;
    int32_t kept = 0;
    for (int32_t i = 0; i < VOCABULARY; i++) {
        p[i] = exp((kern_get(logits, r, i) - 10) / how->temperature);
        order[i] = i;
        sum += p[i];
    }
    for (int32_t i = 0; i < VOCABULARY; i++) {
        p[i] /= sum;
    }
    sorted_by = p;
    qsort(order, VOCABULARY, sizeof *order, descending);
    *margin = 1;
    while (kept < VOCABULARY && (how->top_k == 0 || kept < how->top_k)) {
        double probability = p[order[kept]];
        double floor = how->min_p * p[order[0]];
        *margin = fmin(*margin, kept > 0 && how->min_p > 0 ? fabs(probability - floor) : 1);
        if (probability < floor) {
            break;
        }
        kept_sum += probability;
        kept++;
        *margin = fmin(*margin, how->top_p < 1 ? fabs(kept_sum - how->top_p) : 1);
        if (how->top_p < 1 && kept_sum >= how->top_p) {
            break;
        }
    }
    for (int32_t i = 0; i < kept; i++) {
        reached += p[order[i]];
        *margin = fmin(*margin, i < kept - 1 ? fabs(reached - how->uniform * kept_sum) : 1);
        if (reached > how->uniform * kept_sum) {
            return order[i];
        }
    }
    return order[0];
}

static void filters(void **state)
{
    enum { M = 40 };
    int compared = 0;
    for (int i = 0; i < 40; i++) {
        struct oz_act *logits = kern_act(M, VOCABULARY, 3, i % 2 ? OZ_DTYPE_BF16 : OZ_DTYPE_F32, 2);
        struct oz_sample_row *rows = kern_array(M * sizeof *rows);
        int32_t *ids = kern_array(M * sizeof *ids);
        for (int r = 0; r < M; r++) {
            rows[r] = (struct oz_sample_row){
                .temperature = 0.3F + (float)kern_below(20) / 10,
                .top_p = kern_coin() ? 1 : (float)kern_below(100) / 100,
                .min_p = kern_coin() ? 0 : (float)kern_below(100) / 100,
                .top_k = kern_coin() ? 0 : 1 + (int32_t)kern_below(2 * VOCABULARY),
                .uniform = (float)kern_below(1 << 24) * 0x1p-24F,
            };
        }
        kern_output(ids);
        kern_run(OZ_OP_SAMPLE,
                 &(struct oz_sample_args){.logits = logits, .rows = rows, .ids = ids});
        for (int r = 0; r < M; r++) {
            double margin;
            int32_t want = naive(logits, r, &rows[r], &margin);
            if (margin > 1e-12) { /* double against double */
                assert_int_equal(ids[r], want);
                compared++;
            }
        }
    }
    assert_true(compared > 1500);
}

static void greedy_and_ties(void **state)
{
    struct oz_act *logits = kern_act(3, VOCABULARY, 0, OZ_DTYPE_F32, 0);
    struct oz_sample_row rows[3] = {{.temperature = 0}, {.temperature = 0}, {.temperature = 1}};
    int32_t ids[3];
    kern_set(logits, 0, 30, 2);
    kern_set(logits, 0, 20, 2);
    kern_set(logits, 1, 7, NAN);
    kern_set(logits, 1, 9, 1);
    rows[2].top_p = 1;
    rows[2].top_k = 4;
    rows[2].uniform = 0.99F;
    struct oz_sample_args a = {.logits = logits, .rows = rows, .ids = ids};
    assert_int_equal(kern_run_once(1, OZ_OP_SAMPLE, &a), OZ_OK);
    assert_int_equal(ids[0], 20);
    assert_int_equal(ids[1], 9);
    assert_int_equal(ids[2], 3); /* of equals the lower ids are kept */
}

/* Logits without a number, or with infinity, still give an id. */
static void degenerate(void **state)
{
    struct oz_act *logits = kern_act(3, VOCABULARY, 0, OZ_DTYPE_F32, 1);
    struct oz_sample_row rows[3];
    int32_t ids[3];
    for (int i = 0; i < VOCABULARY; i++) {
        kern_set(logits, 0, i, NAN);
        kern_set(logits, 1, i, -INFINITY);
    }
    kern_set(logits, 2, 17, INFINITY);
    for (int r = 0; r < 3; r++) {
        rows[r] = (struct oz_sample_row){.temperature = 1, .top_p = 0.9F, .uniform = 0.5F};
    }
    struct oz_sample_args a = {.logits = logits, .rows = rows, .ids = ids};
    assert_int_equal(kern_run_once(1, OZ_OP_SAMPLE, &a), OZ_OK);
    for (int r = 0; r < 3; r++) {
        assert_true(ids[r] >= 0 && ids[r] < VOCABULARY);
    }
    assert_int_equal(ids[2], 17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {KERN_TEST(filters), KERN_TEST(greedy_and_ties),
                                       KERN_TEST(degenerate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
