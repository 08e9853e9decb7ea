/* The vector functions of cpu/kern/x86/math_vec.h against double, at each tier that runs here: the
 * errors that the header states. */
#include "kern.h"

#include "math_vec.h"

enum { BLOCK = 4096 };

struct measure {
    const char *name;
    void (*run)(float *x, int64_t count);
    double (*exact)(double x);
    double relative; /* allowed, of the result ... */
    double of_x;     /* and of |x| */
    double absolute; /* and where the result is below `small` */
    double small;
    double worst, worst_x;
};

static double exact_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double exact_silu(double x)
{
    return x / (1 + exp(-x));
}

/* 0.5 x (1 + tanh u) without its cancellation. */
static double exact_gelu_tanh(double x)
{
    double u = 0.7978845608028653559 * (x + 0.044715 * x * x * x);
    return x / (1 + exp(-2 * u));
}

static void check_block(struct measure *m, const float *x, float *y, int64_t count)
{
    memcpy(y, x, (size_t)count * sizeof *y);
    m->run(y, count);
    for (int64_t i = 0; i < count; i++) {
        double want = m->exact(x[i]);
        double size = fabs(want);
        double error = fabs(y[i] - want);
        if (want > FLT_MAX) {
            assert_true(isinf(y[i]));
            continue;
        }
        double allowed = m->relative * size + m->of_x * fabs((double)x[i]);
        allowed += size < m->small ? m->absolute : 0;
        if (!(error <= allowed)) {
            fail_msg("%s(%.9g) is %.9g, not %.9g", m->name, x[i], y[i], want);
        }
        double scale = m->of_x > 0 ? fabs((double)x[i]) : size;
        if (size >= m->small && error > m->worst * scale) {
            m->worst = error / scale;
            m->worst_x = x[i];
        }
    }
}

/* Every `step`-th float from `from` away from zero to `to` (of one sign). */
static void sweep(struct measure *m, float from, float to, uint64_t step)
{
    float x[BLOCK];
    float y[BLOCK];
    uint64_t end = oz_f32_bits(to);
    uint64_t u = oz_f32_bits(from);
    while (u <= end) {
        int64_t n = 0;
        for (; n < BLOCK && u <= end; n++, u += step) {
            x[n] = oz_f32_from_bits((uint32_t)u);
        }
        check_block(m, x, y, n);
    }
}

static void report(const char *tier, const struct measure *m)
{
    print_message("%s %s: largest error 2^%.3f of %s, at %.9g\n", tier, m->name, log2(m->worst),
                  m->of_x > 0 ? "|x|" : "the result", m->worst_x);
}

static void check_exp(const struct kern_math *math)
{
    struct measure m = {.name = "exp",
                        .run = math->exp,
                        .exact = exp,
                        .relative = 0x1.12p-23,
                        .absolute = 0x1p-149,
                        .small = FLT_MIN};
    sweep(&m, -0.0F, -104.0F, 499);
    sweep(&m, 0.0F, 89.0F, 499);
    sweep(&m, 0.5F, 1.0F, 1);
    sweep(&m, -0.5F, -1.0F, 1);
    sweep(&m, 64.0F, 89.0F, 1);
    sweep(&m, -64.0F, -104.0F, 1);
    report(oz_tier_name(math->tier), &m);

    float x[8] = {NAN, INFINITY, -INFINITY, 0, -0.0F, -1e30F, 89.5F, 1e30F};
    math->exp(x, 8);
    assert_true(isnan(x[0]));
    assert_true(isinf(x[1]) && isinf(x[6]) && isinf(x[7]));
    assert_true(x[2] == 0 && x[3] == 1 && x[4] == 1 && x[5] == 0);
}

static void check_fn(const struct kern_math *math, struct measure m)
{
    sweep(&m, -0.0F, -200.0F, 1499);
    sweep(&m, 0.0F, 200.0F, 1499);
    sweep(&m, -1.0F, -2.0F, 7);
    sweep(&m, 0.5F, 1.0F, 7);
    report(oz_tier_name(math->tier), &m);
}

/* A value gives the same bits in any lane and beside any neighbours. */
static void check_lanes(void (*run)(float *x, int64_t count))
{
    float row[67];
    for (int i = 0; i < 67; i++) {
        row[i] = (float)(kern_normal() * 10);
    }
    for (int64_t n = 1; n <= 67; n++) {
        float all[67];
        float one = row[n - 1];
        memcpy(all, row, sizeof all);
        run(all, n);
        run(&one, 1);
        assert_memory_equal(&one, &all[n - 1], sizeof one);
    }
}

static void check(const struct kern_math *math)
{
    struct oz_cpuid id;
    oz_cpuid_read(&id);
    if (!(oz_tier_mask(&id) & (1U << math->tier))) {
        print_message("%s: not on this processor\n", oz_tier_name(math->tier));
        return;
    }
    check_exp(math);
    check_fn(math, (struct measure){.name = "sigmoid",
                                    .run = math->sigmoid,
                                    .exact = exact_sigmoid,
                                    .relative = 4.2 * KERN_U32,
                                    .absolute = 0x1p-127,
                                    .small = FLT_MIN});
    check_fn(math, (struct measure){.name = "silu",
                                    .run = math->silu,
                                    .exact = exact_silu,
                                    .relative = 5.2 * KERN_U32,
                                    .absolute = 0x1p-121,
                                    .small = 0x1p-120});
    check_fn(math, (struct measure){.name = "gelu_tanh",
                                    .run = math->gelu_tanh,
                                    .exact = exact_gelu_tanh,
                                    .of_x = 4 * KERN_U32,
                                    .absolute = 0x1p-121,
                                    .small = 0x1p-120});
    check_lanes(math->exp);
    check_lanes(math->sigmoid);
    check_lanes(math->silu);
    check_lanes(math->gelu_tanh);
}

static void avx2(void **state)
{
    check(&kern_math_avx2);
}

#if defined(OZ_HAVE_AVX512)
static void avx512(void **state)
{
    check(&kern_math_avx512);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERN_TEST(avx2),
#if defined(OZ_HAVE_AVX512)
        KERN_TEST(avx512),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
