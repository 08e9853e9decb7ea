/* norm_mod against double: every norm, residual, factors, modulation. */
#include "kern.h"

struct problem {
    int64_t m, n;
    enum oz_dtype x, out_dtype;
    enum oz_norm norm;
    bool y, mul, mul_column, gate, weight, plus_one, bias, scale, shift, index, out;
    enum oz_fn fn, mul_fn;
};

static double factor_of(enum oz_norm norm, const double *x, int64_t n, double eps, double *mean)
{
    double sum = 0;
    double squares = 0;
    *mean = 0;
    for (int64_t c = 0; c < n; c++) {
        sum += x[c];
    }
    *mean = norm == OZ_NORM_LAYER ? sum / (double)n : 0;
    for (int64_t c = 0; c < n; c++) {
        squares += (x[c] - *mean) * (x[c] - *mean);
    }
    switch (norm) {
    case OZ_NORM_NONE: return 1;
    case OZ_NORM_LAYER:
    case OZ_NORM_RMS: return 1 / sqrt(squares / (double)n + eps);
    case OZ_NORM_CHANNEL_L2: return sqrt((double)n) / fmax(sqrt(squares), eps);
    }
    return 0;
}

/* What the row holds after the residual; checks it and returns it as stored. */
static void check_residual(const struct problem *p, const struct oz_norm_mod_args *a, int64_t r,
                           const double *before, double *row)
{
    for (int64_t c = 0; c < p->n; c++) {
        double add = 0;
        if (a->y != NULL) {
            int64_t at = a->mod_index != NULL ? a->mod_index[r] : 0;
            add = kern_get(a->y, r, c);
            add *= a->gate.table != NULL ? kern_get(a->gate.table, at, a->gate.col + c) : 1;
            if (a->mul != NULL) {
                add *= kern_fn(a->mul_fn, kern_get(a->mul, r, p->mul_column ? 0 : c));
            }
        }
        kern_near("residual", a->x, r, c, before[c] + add, 10 * KERN_U32 * fabs(add));
        row[c] = kern_get(a->x, r, c);
    }
}

static void check_out(const struct problem *p, const struct oz_norm_mod_args *a, int64_t r,
                      const double *row)
{
    double mean;
    double factor = factor_of(a->norm, row, p->n, a->eps, &mean);
    int64_t at = a->mod_index != NULL ? a->mod_index[r] : 0;
    for (int64_t c = 0; c < p->n; c++) {
        double x = (row[c] - mean) * factor;
        double bound = KERN_U32 * fabs(x);
        if (p->weight) {
            double w = kern_weight(a->weight, 0, 0, c) + (p->plus_one ? 1 : 0);
            x *= w;
            bound =
                bound * fabs(w) + 2 * KERN_U32 * fabs(x) + (p->plus_one ? KERN_U32 * fabs(x) : 0);
        }
        if (p->bias) {
            x += kern_weight(a->bias, 0, 0, c);
            bound += KERN_U32 * fabs(x);
        }
        if (p->scale) {
            double s = 1 + kern_get(a->scale.table, at, a->scale.col + c);
            double magnitude = fabs(x);
            x *= s;
            bound = bound * fabs(s) + KERN_U32 * (fabs(x) + magnitude * fabs(s));
        }
        if (p->shift) {
            x += kern_get(a->shift.table, at, a->shift.col + c);
            bound += KERN_U32 * fabs(x);
        }
        bound = p->fn == OZ_FN_NONE ? bound : 1.2 * bound + 8 * KERN_U32 * fabs(x);
        kern_near("out", a->out, r, c, kern_fn(p->fn, x), bound * 1.01);
    }
}

static void check(const struct problem *p)
{
    struct oz_act *table = kern_act(3, 3 * p->n + 2, 1, OZ_DTYPE_F32, 1);
    struct oz_norm_mod_args a = {
        .x = kern_act(p->m, p->n, 3, p->x, 2),
        .y = p->y ? kern_act(p->m, p->n, 1, p->x, 1) : NULL,
        .mul = p->mul ? kern_act(p->m, p->mul_column ? 1 : p->n, 2, p->x, 1) : NULL,
        .mul_fn = p->mul_fn,
        .norm = p->norm,
        .eps = 1e-5F,
        .weight = p->weight ? kern_vector("w", p->n, 1) : NULL,
        .bias = p->bias ? kern_vector("b", p->n, 1) : NULL,
        .weight_plus_one = p->plus_one,
        .gate = {p->gate ? table : NULL, 0},
        .scale = {p->scale ? table : NULL, p->n + 1},
        .shift = {p->shift ? table : NULL, 2 * p->n + 2},
        .mod_index = p->index ? kern_ids(p->m, 3) : NULL,
        .fn = p->fn,
        .out = p->out ? kern_out(p->m, p->n, 5, p->out_dtype) : NULL,
    };
    double *before = kern_doubles(a.x);
    double *row = kern_array((size_t)p->n * sizeof *row);
    if (p->y) {
        kern_output(a.x->data);
    }
    kern_run(OZ_OP_NORM_MOD, &a);
    for (int64_t r = 0; r < p->m; r++) {
        check_residual(p, &a, r, before + r * p->n, row);
        if (p->out) {
            check_out(p, &a, r, row);
        }
    }
}

static void sizes(void **state)
{
    /* around vectors of 8 and 16, steps of 32 and 64; enough rows for several threads */
    static const int64_t n[] = {1, 2, 3, 17, 64, 1000, 31, 32, 63, 65, 127, 3072};
    static const int64_t m[] = {1, 2, 3, 17, 1, 40, 9, 8, 70, 33, 300, 12};
    for (int norm = OZ_NORM_NONE; norm <= OZ_NORM_CHANNEL_L2; norm++) {
        for (int i = 0; i < 12; i++) {
            struct problem p = {.m = m[i], .n = n[i], .norm = (enum oz_norm)norm, .out = true};
            p.x = p.out_dtype = OZ_DTYPE_F32;
            check(&p);
        }
    }
}

static void options(void **state)
{
    for (int i = 0; i < 120; i++) {
        struct problem p = {.m = 1 + kern_below(5), .n = 1 + kern_below(i % 2 ? 40 : 200)};
        p.x = kern_coin() ? OZ_DTYPE_F32 : OZ_DTYPE_BF16;
        p.out_dtype = kern_coin() ? OZ_DTYPE_F32 : OZ_DTYPE_BF16;
        p.norm = (enum oz_norm)kern_below(4);
        p.y = kern_coin();
        p.mul = p.y && kern_coin();
        p.mul_column = kern_coin();
        p.mul_fn = kern_coin() ? OZ_FN_SIGMOID : OZ_FN_NONE;
        p.gate = kern_coin();
        p.weight = kern_coin();
        p.plus_one = p.weight && kern_coin();
        p.bias = kern_coin();
        p.scale = kern_coin();
        p.shift = kern_coin();
        p.index = kern_coin();
        p.fn = kern_coin() ? OZ_FN_SILU : OZ_FN_NONE;
        p.out = !p.y || kern_coin();
        check(&p);
    }
}

/* A large mean must not eat the variance. */
static void large_mean(void **state)
{
    struct problem p = {.m = 2, .n = 500, .norm = OZ_NORM_LAYER};
    struct oz_act *x = kern_act(2, 500, 0, OZ_DTYPE_F32, 1);
    struct oz_act *out = kern_out(2, 500, 0, OZ_DTYPE_F32);
    struct oz_norm_mod_args a = {.x = x, .norm = OZ_NORM_LAYER, .eps = 1e-6F, .out = out};
    for (int64_t i = 0; i < 1000; i++) {
        kern_set(x, i / 500, i % 500, 4096 + kern_get(x, i / 500, i % 500));
    }
    kern_run(OZ_OP_NORM_MOD, &a);
    double *row = kern_doubles(x);
    check_out(&p, &a, 0, row);
    check_out(&p, &a, 1, row + 500);
}

/* One feature far beyond all others, at the first place or elsewhere. */
static void outlier(void **state)
{
    for (int norm = OZ_NORM_LAYER; norm <= OZ_NORM_CHANNEL_L2; norm++) {
        struct problem p = {.m = 2, .n = 777, .norm = (enum oz_norm)norm};
        struct oz_act *x = kern_act(2, 777, 0, OZ_DTYPE_F32, 1);
        struct oz_act *out = kern_out(2, 777, 0, OZ_DTYPE_F32);
        struct oz_norm_mod_args a = {.x = x, .norm = (enum oz_norm)norm, .eps = 1e-6F, .out = out};
        kern_set(x, 0, 0, 30000);
        kern_set(x, 1, 500, -1e6);
        kern_run(OZ_OP_NORM_MOD, &a);
        double *row = kern_doubles(x);
        check_out(&p, &a, 0, row);
        check_out(&p, &a, 1, row + 777);
    }
}

static void nan_propagates(void **state)
{
    for (int norm = OZ_NORM_NONE; norm <= OZ_NORM_CHANNEL_L2; norm++) {
        struct oz_act *x = kern_act(3, 70, 0, OZ_DTYPE_F32, 1);
        struct oz_act *out = kern_out(3, 70, 0, OZ_DTYPE_F32);
        struct oz_norm_mod_args a = {.x = x, .norm = (enum oz_norm)norm, .eps = 1e-6F, .out = out};
        kern_set(x, 1, 69, NAN);
        kern_run(OZ_OP_NORM_MOD, &a);
        for (int64_t c = 0; c < 70; c++) {
            assert_false(isnan(kern_get(out, 0, c)) || isnan(kern_get(out, 2, c)));
            assert_true(isnan(kern_get(out, 1, c)) == (norm != OZ_NORM_NONE || c == 69));
        }
    }
}

static void zeros(void **state)
{
    struct oz_act *x = kern_act(1, 8, 0, OZ_DTYPE_F32, 0);
    struct oz_act *out = kern_out(1, 8, 0, OZ_DTYPE_F32);
    for (int norm = OZ_NORM_NONE; norm <= OZ_NORM_CHANNEL_L2; norm++) {
        struct oz_norm_mod_args a = {.x = x, .norm = (enum oz_norm)norm, .eps = 1e-12F, .out = out};
        kern_run(OZ_OP_NORM_MOD, &a);
        assert_true(kern_get(out, 0, 7) == 0);
    }
}

/* Every row of `all` is what its own rows give at any place of a smaller batch. */
static void check_rows(struct oz_norm_mod_args a, const struct oz_act *y, enum oz_dtype to)
{
    static const int64_t counts[] = {1, 2, 3, 11, 12, 13, 64, 257};
    int64_t n = a.x->cols;
    const struct oz_act *x = a.x;
    const int32_t *index = a.mod_index;
    struct oz_act *work = kern_out(257, n, 0, OZ_DTYPE_F32);
    struct oz_act *all = kern_out(257, n, 0, to);
    struct oz_act *out = kern_out(257, n, 0, to);
    for (int i = 8; i-- > 0;) { /* first all of them */
        for (int place = 0; place < 3; place++) {
            int64_t first = (257 - counts[i]) * place / 2;
            struct oz_act from = kern_rows(x, first, counts[i]);
            struct oz_act add = y != NULL ? kern_rows(y, first, counts[i]) : from;
            struct oz_act part = kern_rows(work, 0, counts[i]);
            struct oz_act result = kern_rows(i == 7 && place == 0 ? all : out, 0, counts[i]);
            memcpy(part.data, from.data, (size_t)(counts[i] * n) * sizeof(float));
            a.x = &part;
            a.y = y != NULL ? &add : NULL;
            a.mod_index = index + first;
            a.out = &result;
            assert_int_equal(kern_run_once(place == 1 ? 5 : 2, OZ_OP_NORM_MOD, &a), OZ_OK);
            for (int64_t r = 0; r < counts[i]; r++) {
                assert_true(kern_same_row(&result, r, all, first + r));
            }
        }
    }
}

static void row_independence(void **state)
{
    static const int64_t cols[] = {100, 256, 331};
    for (int i = 0; i < 24; i += (int)kern_stride()) {
        int64_t n = cols[i % 3];
        struct oz_act *table = kern_act(3, 3 * n, 0, OZ_DTYPE_F32, 1);
        struct oz_norm_mod_args a = {
            .x = kern_act(257, n, 0, OZ_DTYPE_F32, 1),
            .norm = (enum oz_norm)(i % 4),
            .eps = 1e-6F,
            .weight = kern_coin() ? kern_vector("w", n, 1) : NULL,
            .bias = kern_coin() ? kern_vector("b", n, 1) : NULL,
            .gate = {kern_coin() ? table : NULL, 0},
            .scale = {kern_coin() ? table : NULL, n},
            .shift = {kern_coin() ? table : NULL, 2 * n},
            .mod_index = kern_ids(257, 3),
            .fn = kern_coin() ? OZ_FN_SILU : OZ_FN_NONE,
        };
        struct oz_act *y = i % 2 ? kern_act(257, n, 0, OZ_DTYPE_F32, 1) : NULL;
        check_rows(a, y, i % 5 ? OZ_DTYPE_F32 : OZ_DTYPE_BF16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERN_TEST(sizes),
        KERN_TEST(options),
        KERN_TEST(large_mean),
        KERN_TEST(outlier),
        KERN_TEST(nan_propagates),
        KERN_TEST(zeros),
        KERN_TEST(row_independence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
