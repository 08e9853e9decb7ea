/* qk_norm_rope against double. */
#include "kern.h"

struct problem {
    int64_t m;
    int32_t heads, dim, pairs;
    enum oz_dtype dtype, table;
    enum oz_rope rope;
    bool weight, plus_one, rows;
};

/* Head `h` of row r before -> after, and the bound for each element. */
static void naive(const struct problem *p, const struct oz_qk_norm_rope_args *a, int64_t r,
                  const double *before, double *x, double *bound)
{
    double sum = 0;
    for (int32_t c = 0; c < p->dim; c++) {
        sum += before[c] * before[c];
    }
    for (int32_t c = 0; c < p->dim; c++) {
        x[c] = before[c];
        bound[c] = 0;
        if (p->weight) {
            x[c] *= (kern_weight(a->weight, 0, 0, c) + (p->plus_one ? 1 : 0)) /
                    sqrt(sum / p->dim + a->eps);
            bound[c] = 4 * KERN_U32 * fabs(x[c]);
        }
    }
    int64_t row = p->rows ? a->table_rows[r] : r;
    for (int32_t j = 0; p->rope != OZ_ROPE_NONE && j < p->pairs; j++) {
        int32_t u = p->rope == OZ_ROPE_PAIRS ? 2 * j : j;
        int32_t v = p->rope == OZ_ROPE_PAIRS ? 2 * j + 1 : j + p->pairs;
        double cosine = kern_get(a->cosine, row, j);
        double sine = kern_get(a->sine, row, j);
        double first = x[u] * cosine - x[v] * sine;
        double second = x[u] * sine + x[v] * cosine;
        double size = 3 * KERN_U32 * (fabs(x[u]) + fabs(x[v])) * (fabs(cosine) + fabs(sine));
        double inherited = (bound[u] + bound[v]) * (fabs(cosine) + fabs(sine));
        x[u] = first;
        x[v] = second;
        bound[u] = bound[v] = size + inherited;
    }
}

static void check(const struct problem *p)
{
    int64_t table = p->rows ? 7 : p->m;
    struct oz_qk_norm_rope_args a = {
        .x = kern_act(p->m, p->heads * p->dim, 3, p->dtype, 1),
        .heads = p->heads,
        .head_dim = p->dim,
        .weight = p->weight ? kern_vector("w", p->dim, 1) : NULL,
        .weight_plus_one = p->plus_one,
        .eps = 1e-6F,
        .rope = p->rope,
        .table_rows = p->rows ? kern_ids(p->m, 7) : NULL,
    };
    if (p->rope != OZ_ROPE_NONE) {
        a.cosine = kern_act(table, p->pairs, 1, p->table, 1);
        a.sine = kern_act(table, p->pairs, 2, p->table, 1);
    }
    double *before = kern_doubles(a.x);
    double *x = kern_array((size_t)p->dim * sizeof *x);
    double *bound = kern_array((size_t)p->dim * sizeof *bound);
    kern_output(a.x->data);
    kern_run(OZ_OP_QK_NORM_ROPE, &a);
    for (int64_t i = 0; i < p->m * p->heads; i++) {
        naive(p, &a, i / p->heads, before + i * p->dim, x, bound);
        for (int32_t c = 0; c < p->dim; c++) {
            kern_near("head", a.x, i / p->heads, i % p->heads * p->dim + c, x[c], bound[c]);
        }
    }
}

static void options(void **state)
{
    for (int i = 0; i < 100; i++) {
        struct problem p = {.m = 1 + kern_below(6)};
        p.heads = 1 + (int32_t)kern_below(4);
        p.pairs = 1 + (int32_t)kern_below(20);
        p.dim = 2 * p.pairs + (kern_coin() ? (int32_t)kern_below(9) : 0);
        p.dtype = kern_coin() ? OZ_DTYPE_F32 : OZ_DTYPE_BF16;
        p.table = i % 5 ? OZ_DTYPE_F32 : OZ_DTYPE_BF16;
        p.rope = (enum oz_rope)kern_below(3);
        p.weight = kern_coin();
        p.plus_one = kern_coin();
        p.rows = kern_coin();
        check(&p);
    }
}

/* Whole vectors, more heads than are taken together, and rows for several threads. */
static void large(void **state)
{
    for (int i = 0; i < 6; i++) {
        struct problem p = {.m = 60, .heads = 19, .dim = 64, .pairs = i % 2 ? 32 : 24};
        p.dtype = p.table = OZ_DTYPE_F32;
        p.rope = i < 3 ? OZ_ROPE_PAIRS : OZ_ROPE_HALVES;
        p.weight = i % 3 != 0;
        p.plus_one = i % 3 == 2;
        p.rows = kern_coin();
        check(&p);
    }
}

static void check_rows(enum oz_rope rope, int32_t dim, int32_t pairs, bool norm)
{
    static const int64_t counts[] = {1, 2, 3, 11, 12, 13, 64, 257};
    int64_t cols = 3 * (int64_t)dim;
    struct oz_act *x = kern_act(257, cols, 0, OZ_DTYPE_F32, 1);
    struct oz_act *all = kern_out(257, cols, 0, OZ_DTYPE_F32);
    struct oz_act *part = kern_out(257, cols, 0, OZ_DTYPE_F32);
    struct oz_act *cosine = kern_act(257, pairs, 0, OZ_DTYPE_F32, 1);
    struct oz_act *sine = kern_act(257, pairs, 0, OZ_DTYPE_F32, 1);
    struct oz_qk_norm_rope_args a = {.heads = 3, .head_dim = dim, .eps = 1e-6F, .rope = rope};
    a.weight = norm ? kern_vector("w", dim, 1) : NULL;
    memcpy(all->data, x->data, (size_t)(257 * cols) * sizeof(float));
    a.x = all;
    a.cosine = cosine;
    a.sine = sine;
    assert_int_equal(kern_run_once(5, OZ_OP_QK_NORM_ROPE, &a), OZ_OK);
    for (int i = 0; i < 8; i++) {
        for (int place = 0; place < 3; place++) {
            int64_t first = (257 - counts[i]) * place / 2;
            struct oz_act from = kern_rows(x, first, counts[i]);
            struct oz_act c = kern_rows(cosine, first, counts[i]);
            struct oz_act s = kern_rows(sine, first, counts[i]);
            struct oz_act to = kern_rows(part, 0, counts[i]);
            memcpy(to.data, from.data, (size_t)(counts[i] * cols) * sizeof(float));
            a.x = &to;
            a.cosine = &c;
            a.sine = &s;
            assert_int_equal(kern_run_once(2, OZ_OP_QK_NORM_ROPE, &a), OZ_OK);
            for (int64_t r = 0; r < counts[i]; r++) {
                assert_true(kern_same_row(&to, r, all, first + r));
            }
        }
    }
}

static void row_independence(void **state)
{
    for (int norm = 0; norm < 2; norm++) {
        check_rows(OZ_ROPE_HALVES, 16, 8, norm);
        check_rows(OZ_ROPE_PAIRS, 64, 32, norm);
        check_rows(OZ_ROPE_HALVES, 64, 32, norm);
        check_rows(OZ_ROPE_PAIRS, 37, 11, norm);
        check_rows(OZ_ROPE_HALVES, 83, 35, norm);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {KERN_TEST(options), KERN_TEST(large),
                                       KERN_TEST(row_independence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
