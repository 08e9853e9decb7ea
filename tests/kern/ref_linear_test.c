/* linear, by the kernel that the plan chooses, against a sum in double; row independence. */
#include "kern.h"

struct problem {
    int64_t m, n, k;
    enum oz_dtype x, w, out;
    bool bias, up, residual, gate, index;
    bool unpacked; /* for the reference */
    enum oz_fn fn;
};

static struct oz_linear random_linear(const struct problem *p)
{
    struct oz_linear l = {.w = *kern_param("w", p->w, 1, p->n, p->k, 0.5)};
    if (!p->unpacked) {
        kern_pack(&l.w, OZ_USE_LINEAR);
    }
    if (p->bias) {
        l.b = *kern_vector("b", p->n, 1);
    }
    return l;
}

/* x w^T + b of one element, and a bound on the kernel's error. */
static double naive(const struct oz_act *x, const struct oz_linear *l, int64_t r, int64_t c,
                    double *bound)
{
    double sum = 0;
    double magnitudes = 0;
    for (int64_t k = 0; k < x->cols; k++) {
        double term = kern_get(x, r, k) * kern_weight(&l->w, 0, c, k);
        sum += term;
        magnitudes += fabs(term);
    }
    *bound = l->w.packed != NULL ? kern_sum_bound(x->cols, magnitudes)
                                 : kern_dot_bound(x->cols, magnitudes);
    if (l->b.name != NULL) {
        sum += kern_weight(&l->b, 0, 0, c);
        *bound += KERN_U32 * (fabs(sum) + *bound);
    }
    return sum;
}

/* No function here is steeper than 1.2; each loses at most 8 roundings of its argument. */
static double fn_bound(enum oz_fn fn, double x, double bound)
{
    return fn == OZ_FN_NONE ? bound : 1.2 * bound + 8 * KERN_U32 * (fabs(x) + 1);
}

static void check(const struct problem *p)
{
    struct oz_act *x = kern_act(p->m, p->k, 5, p->x, 1);
    struct oz_act *out = p->residual ? NULL : kern_out(p->m, p->n, 3, p->out);
    struct oz_act *residual = p->residual ? kern_act(p->m, p->n, 7, p->out, 1) : NULL;
    struct oz_act *table = kern_act(3, 2 * p->n + 1, 2, OZ_DTYPE_F32, 1);
    struct oz_linear w = random_linear(p);
    struct oz_linear up = random_linear(p);
    int32_t *index = p->index ? kern_ids(p->m, 3) : NULL;
    struct oz_linear_args a = {
        .x = x,
        .w = &w,
        .up = p->up ? &up : NULL,
        .fn = p->fn,
        .gate = {.table = p->gate ? table : NULL, .col = p->n + 1},
        .mod_index = index,
        .residual = residual,
        .out = out,
    };
    double *before = residual != NULL ? kern_doubles(residual) : NULL;
    if (residual != NULL) {
        kern_output(residual->data);
    }
    kern_run(OZ_OP_LINEAR, &a);
    for (int64_t r = 0; r < p->m; r++) {
        for (int64_t c = 0; c < p->n; c++) {
            double bound;
            double y = naive(x, &w, r, c, &bound);
            if (residual != NULL) {
                double gate = p->gate ? kern_get(table, index ? index[r] : 0, p->n + 1 + c) : 1;
                kern_near("residual", residual, r, c, before[r * p->n + c] + gate * y,
                          fabs(gate) * (bound + KERN_U32 * fabs(y)));
                continue;
            }
            double z = kern_fn(p->fn, y);
            bound = fn_bound(p->fn, y, bound);
            if (p->up) {
                double up_bound;
                double factor = naive(x, &up, r, c, &up_bound);
                bound = bound * (fabs(factor) + up_bound) + fabs(z) * up_bound;
                z *= factor;
            }
            kern_near("out", out, r, c, z, bound);
        }
    }
}

static void sizes(void **state)
{
    static const int64_t m[] = {1, 2, 3, 17, 33};
    static const int64_t n[] = {1, 2, 3, 17, 32, 33, 65};
    static const int64_t k[] = {1, 2, 3, 7, 8, 17, 64, 1024, 1025, 2100};
    for (size_t i = 0; i < 5; i++) {
        for (size_t j = 0; j < 7; j++) {
            struct problem p = {.m = m[i], .n = n[j], .k = k[(i * 7 + j) % 10]};
            p.x = p.w = p.out = OZ_DTYPE_F32;
            p.bias = kern_coin();
            check(&p);
            kern_forget();
        }
    }
}

static void formats(void **state)
{
    static const enum oz_dtype plain[] = {OZ_DTYPE_F32, OZ_DTYPE_BF16, OZ_DTYPE_F16};
    for (int i = 0; i < 12; i++) {
        struct problem p = {.m = 5, .n = 19, .k = 100, .bias = true};
        p.x = plain[i % 2];
        p.out = plain[i / 2 % 2];
        p.w = plain[i / 4];
        check(&p);
        p.residual = p.gate = p.index = true;
        check(&p);
        kern_forget();
    }
}

static void epilogues(void **state)
{
    struct problem p = {.m = 6, .n = 35, .k = 40, .x = OZ_DTYPE_F32, .w = OZ_DTYPE_BF16};
    p.out = OZ_DTYPE_F32;
    for (int bits = 0; bits < 4; bits++) {
        p.bias = bits & 1;
        p.up = bits & 2;
        for (int fn = OZ_FN_NONE; fn <= OZ_FN_SIGMOID; fn++) {
            p.fn = (enum oz_fn)fn;
            check(&p);
            kern_forget();
        }
    }
    p.fn = OZ_FN_NONE;
    p.up = false;
    p.residual = true;
    for (int bits = 0; bits < 4; bits++) {
        p.gate = bits & 1;
        p.index = bits & 2;
        check(&p);
    }
}

static void bands(void **state) /* more rows than a task takes */
{
    struct problem p = {.m = 1100, .n = 33, .k = 9, .bias = true, .fn = OZ_FN_SILU};
    p.x = p.w = p.out = OZ_DTYPE_F32;
    check(&p);
}

static void all_of_one_kernel(void)
{
    sizes(NULL);
    formats(NULL);
    epilogues(NULL);
    bands(NULL);
}

static void each_kernel(void **state)
{
    kern_each(OZ_OP_LINEAR, all_of_one_kernel);
}

static void row_independence(void **state)
{
    static const int64_t counts[] = {1, 2, 3, 11, 12, 13, 64, 257};
    struct problem p = {.m = 257, .n = 70, .k = 1500, .w = OZ_DTYPE_BF16, .bias = true};
    struct oz_linear w = random_linear(&p);
    struct oz_linear up = random_linear(&p);
    for (int i = 0; i < 2; i++) {
        enum oz_dtype dtype = i ? OZ_DTYPE_BF16 : OZ_DTYPE_F32;
        struct oz_act *x = kern_act(p.m, p.k, 1, dtype, 1);
        struct oz_act *all = kern_out(p.m, p.n, 0, dtype);
        struct oz_act *out = kern_out(p.m, p.n, 4, dtype);
        struct oz_linear_args a = {.x = x, .w = &w, .up = &up, .fn = OZ_FN_SILU, .out = all};
        assert_int_equal(kern_run_once(2, OZ_OP_LINEAR, &a), OZ_OK);
        for (size_t j = 0; j < 8; j += kern_stride()) {
            int64_t places[] = {0, (p.m - counts[j]) / 2, p.m - counts[j]};
            for (int q = 0; q < 3; q++) {
                struct oz_act part = kern_rows(x, places[q], counts[j]);
                struct oz_act to = kern_rows(out, 0, counts[j]);
                a.x = &part;
                a.out = &to;
                assert_int_equal(kern_run_once(2, OZ_OP_LINEAR, &a), OZ_OK);
                for (int64_t r = 0; r < counts[j]; r++) {
                    assert_true(kern_same_row(&to, r, all, places[q] + r));
                }
            }
        }
    }
}

static void nan_propagates(void **state)
{
    struct problem p = {.m = 3, .n = 9, .k = 20, .w = OZ_DTYPE_F32};
    struct oz_linear w = random_linear(&p);
    struct oz_act *x = kern_act(3, 20, 0, OZ_DTYPE_F32, 1);
    struct oz_act *out = kern_out(3, 9, 0, OZ_DTYPE_F32);
    kern_set(x, 1, 19, NAN);
    kern_run(OZ_OP_LINEAR, &(struct oz_linear_args){.x = x, .w = &w, .out = out});
    for (int64_t c = 0; c < 9; c++) {
        assert_true(isfinite(kern_get(out, 0, c)));
        assert_true(isnan(kern_get(out, 1, c)));
    }
}

static void refusals(void **state)
{
    struct problem p = {.m = 2, .n = 4, .k = 8, .w = OZ_DTYPE_F32, .unpacked = true};
    struct oz_linear w = random_linear(&p);
    struct oz_act *x = kern_act(2, 8, 0, OZ_DTYPE_F32, 1);
    struct oz_act *out = kern_out(2, 4, 0, OZ_DTYPE_F32);
    struct oz_linear_args a = {.x = x, .w = &w, .out = out};
    double *before = kern_doubles(out);
    x->spec.dtype = OZ_DTYPE_F8_E4M3;
    assert_int_equal(kern_run_once(1, OZ_OP_LINEAR, &a), OZ_ERR_UNSUPPORTED);
    x->spec.dtype = OZ_DTYPE_F32;
    out->spec.rotate_cols = 4;
    assert_int_equal(kern_run_once(1, OZ_OP_LINEAR, &a), OZ_ERR_UNSUPPORTED);
    out->spec.rotate_cols = 0;
    w.w.weight.planes[OZ_PLANE_SMOOTH].present = true;
    assert_int_equal(kern_run_once(1, OZ_OP_LINEAR, &a), OZ_ERR_UNSUPPORTED);
    for (int64_t i = 0; i < 8; i++) {
        assert_true(kern_get(out, i / 4, i % 4) == before[i]);
    }
}

/* Before anything is loaded the weights have no codec; scratch must be the same. */
static void scratch_from_shapes(void **state)
{
    struct problem p = {.m = 2, .n = 40, .k = 80, .w = OZ_DTYPE_BF16, .bias = true};
    struct oz_linear w = random_linear(&p);
    struct oz_linear empty = w;
    struct oz_act x = {.rows = 2, .cols = 80, .stride = 80, .spec = {.dtype = OZ_DTYPE_F32}};
    struct oz_act out = {.rows = 2, .cols = 40, .stride = 40, .spec = {.dtype = OZ_DTYPE_F32}};
    struct oz_linear_args a = {.x = &x, .w = &w, .up = &w, .out = &out};
    struct oz_device *dev = kern_device(2);
    size_t loaded = dev->ops->scratch_bytes(dev, OZ_OP_LINEAR, &a);
    memset(&empty.w.weight, 0, sizeof empty.w.weight);
    memset(&empty.b.weight, 0, sizeof empty.b.weight);
    a.w = a.up = &empty;
    assert_int_equal(dev->ops->scratch_bytes(dev, OZ_OP_LINEAR, &a), loaded);
    p.unpacked = true;
    struct oz_linear plain = random_linear(&p);
    a.w = a.up = &plain;
    x.cols = INT64_MAX / 64;
    assert_true(dev->ops->scratch_bytes(dev, OZ_OP_LINEAR, &a) == SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERN_TEST(sizes),          KERN_TEST(formats),     KERN_TEST(epilogues),
        KERN_TEST(bands),          KERN_TEST(each_kernel), KERN_TEST(row_independence),
        KERN_TEST(nan_propagates), KERN_TEST(refusals),    KERN_TEST(scratch_from_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
