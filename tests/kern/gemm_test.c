/*
 * The packed products of linear, kernel by kernel: sums bit for bit in the order that each kernel
 * states, within the bound of any order in double, rows that depend on nothing but themselves, sizes
 * around every tile and block, special values.
 */
#include "kern.h"

#include "base/pool.h"
#include "cpu/gemm.h"

struct shape {
    int64_t n, k;
};

static const int64_t row_counts[] = {1, 2, 3, 5, 6, 7, 11, 12, 13, 31, 32, 33, 64, 95, 96, 97, 257};
#define ROW_COUNTS (sizeof row_counts / sizeof *row_counts)

/* Around panels (16, 32), tiles of K (2, 32) and blocks of K (256 to 4096). */
static const struct shape shapes[] = {{1, 1},   {15, 2},  {16, 3},    {17, 31},
                                      {31, 32}, {32, 33}, {33, 64},   {34, 65},
                                      {5, 257}, {65, 95}, {130, 385}, {48, 1030}};
#define SHAPES (sizeof shapes / sizeof *shapes)

/* ---- sums in a kernel's own order ---- */

/* One fused multiply-add for each k: what is widened, and f32. */
static float sum_in_order(const float *a, const float *b, int64_t k)
{
    float sum = 0;
    for (int64_t i = 0; i < k; i++) {
        sum = fmaf(a[i], b[i], sum);
    }
    return sum;
}

/* VDPBF16PS: of each pair the second first. */
static float sum_pairs(const float *a, const float *b, int64_t k)
{
    float sum = 0;
    for (int64_t i = 0; i < k; i += 2) {
        sum = i + 1 < k ? fmaf(a[i + 1], b[i + 1], sum) : sum;
        sum = fmaf(a[i], b[i], sum);
    }
    return sum;
}

/* TDPBF16PS: steps of 32, even and odd apart. */
static float sum_tiles(const float *a, const float *b, int64_t k)
{
    float sum = 0;
    for (int64_t i = 0; i < k; i += 32) {
        float even = 0;
        float odd = 0;
        for (int64_t j = i; j < i + 32 && j < k; j++) {
            float *half = j % 2 ? &odd : &even;
            *half = fmaf(a[j], b[j], *half);
        }
        sum += even + odd;
    }
    return sum;
}

static float sum_as(const struct oz_gemm_kernel *g, const float *a, const float *b, int64_t k)
{
    if (g->kr == 1) {
        return sum_in_order(a, b, k);
    }
    return g->k_multiple == 32 ? sum_tiles(a, b, k) : sum_pairs(a, b, k);
}

/* A row of elements as f32. */
static float *row_of_floats(int64_t count)
{
    return kern_array((size_t)count * sizeof(float));
}

struct operands {
    int64_t m, n, k;
    enum oz_dtype stored;
    struct oz_act *x, *out;
    struct oz_linear w;
    float *a, *b; /* rows and columns as f32 */
};

static struct operands make(int64_t m, int64_t n, int64_t k, enum oz_dtype stored)
{
    const struct oz_gemm_kernel *g = kern_kernel()->gemm;
    struct operands o = {.m = m, .n = n, .k = k, .stored = stored};
    o.x = kern_act(m, k, kern_below(7), g->a_dtype, 1);
    o.out = kern_out(m, n, kern_below(5), OZ_DTYPE_F32);
    o.w = (struct oz_linear){.w = *kern_param("w", stored, 1, n, k, 0.5)};
    kern_pack(&o.w.w, OZ_USE_LINEAR);
    o.a = row_of_floats(m * k);
    o.b = row_of_floats(n * k);
    for (int64_t i = 0; i < m * k; i++) {
        o.a[i] = (float)kern_get(o.x, i / k, i % k);
    }
    for (int64_t i = 0; i < n * k; i++) {
        o.b[i] = (float)kern_weight(&o.w.w, 0, i / k, i % k);
    }
    return o;
}

static void near_in_double(const struct operands *o, int64_t r, int64_t c)
{
    double sum = 0;
    double magnitudes = 0;
    for (int64_t i = 0; i < o->k; i++) {
        double term = (double)o->a[r * o->k + i] * o->b[c * o->k + i];
        sum += term;
        magnitudes += fabs(term);
    }
    kern_near("sum", o->out, r, c, sum, kern_sum_bound(o->k, magnitudes));
}

/* Kernels of f32 products must match to the bit. The bf16 instructions are documented less firmly: there
 * a difference is told, and only the bound must hold. */
static void check_sums(const struct operands *o)
{
    const struct oz_gemm_kernel *g = kern_kernel()->gemm;
    int64_t other = 0;
    for (int64_t r = 0; r < o->m; r++) {
        for (int64_t c = 0; c < o->n; c++) {
            float want = sum_as(g, o->a + r * o->k, o->b + c * o->k, o->k);
            float got = (float)kern_get(o->out, r, c);
            other += memcmp(&want, &got, sizeof got) != 0;
            near_in_double(o, r, c);
        }
    }
    if (other > 0 && g->kr == 1) {
        fail_msg("M %lld N %lld K %lld: %lld sums are not those of the stated order",
                 (long long)o->m, (long long)o->n, (long long)o->k, (long long)other);
    } else if (other > 0) {
        print_message("M %lld N %lld K %lld: %lld sums of %lld differ from the documented order\n",
                      (long long)o->m, (long long)o->n, (long long)o->k, (long long)other,
                      (long long)(o->m * o->n));
    }
}

static bool reads(enum oz_dtype stored)
{
    return kern_kernel()->gemm->a_dtype == OZ_DTYPE_F32 || stored == OZ_DTYPE_BF16;
}

static void run_sums(int64_t m, struct shape s, enum oz_dtype stored)
{
    if (reads(stored)) {
        struct operands o = make(m, s.n, s.k, stored);
        kern_run(OZ_OP_LINEAR, &(struct oz_linear_args){.x = o.x, .w = &o.w, .out = o.out});
        check_sums(&o);
        kern_forget();
    }
}

static void sums_of_kernel(void)
{
    static const enum oz_dtype stored[] = {OZ_DTYPE_BF16, OZ_DTYPE_F32, OZ_DTYPE_F16};
    if (kern_kernel()->gemm == NULL) {
        return;
    }
    for (size_t i = 0; i < ROW_COUNTS; i++) {
        for (size_t j = i % kern_stride(); j < SHAPES; j += kern_stride()) {
            if (row_counts[i] < 90 || (i + j) % 4 == 0) {
                run_sums(row_counts[i], shapes[j], stored[(i + j) % 3]);
                run_sums(row_counts[i], shapes[j], OZ_DTYPE_BF16);
            }
        }
    }
    for (int64_t m = 1; m < 40; m += 5) { /* beyond the blocks of few rows */
        run_sums(m, (struct shape){33, 1 + 4096 / (m > 6 ? 2 : 1)}, OZ_DTYPE_BF16);
    }
    run_sums(2, (struct shape){700, 40}, OZ_DTYPE_F32);
    run_sums(300, (struct shape){600, 40}, OZ_DTYPE_BF16);
}

/* ---- row independence ---- */

struct whole {
    struct operands o;
    struct oz_linear up;
    struct oz_act *out; /* all rows at once */
};

static void check_part(const struct whole *w, const struct oz_act *out, int64_t first,
                       int64_t count, int threads)
{
    struct oz_act part = kern_rows(w->o.x, first, count);
    struct oz_act to = kern_rows(out, 0, count);
    struct oz_linear_args a = {
        .x = &part, .w = &w->o.w, .up = &w->up, .fn = OZ_FN_SILU, .out = &to};
    assert_int_equal(kern_run_once(threads, OZ_OP_LINEAR, &a), OZ_OK);
    for (int64_t r = 0; r < count; r++) {
        if (!kern_same_row(&to, r, w->out, first + r)) {
            fail_msg("row %lld of %lld from %lld on with %d threads is not the row of 257",
                     (long long)r, (long long)count, (long long)first, threads);
        }
    }
}

static void rows_alone(int64_t n, int64_t k, enum oz_dtype stored, enum oz_dtype format)
{
    static const int64_t counts[] = {1, 2, 3, 11, 12, 13, 64, 257};
    static const int threads[] = {1, 2, 5};
    struct whole w = {.o = make(257, n, k, stored)};
    w.up = (struct oz_linear){.w = *kern_param("up", stored, 1, n, k, 0.5),
                              .b = *kern_vector("b", n, 1)};
    kern_pack(&w.up.w, OZ_USE_LINEAR);
    w.out = kern_out(257, n, 0, format);
    struct oz_act *out = kern_out(257, n, 4, format);
    struct oz_linear_args a = {
        .x = w.o.x, .w = &w.o.w, .up = &w.up, .fn = OZ_FN_SILU, .out = w.out};
    assert_int_equal(kern_run_once(2, OZ_OP_LINEAR, &a), OZ_OK);
    for (int i = 0; i < 8; i++) {
        int64_t last = 257 - counts[i];
        const int64_t places[] = {0, 1 < last ? 1 : last, last / 2, last};
        for (int j = 0; j < 4; j++) {
            check_part(&w, out, places[j], counts[i], threads[(i + j) % 3]);
        }
    }
    kern_forget();
}

static void rows_of_kernel(void)
{
    if (kern_kernel()->gemm == NULL) {
        return;
    }
    rows_alone(70, 1500, OZ_DTYPE_BF16, OZ_DTYPE_F32);
    rows_alone(70, 1500, OZ_DTYPE_BF16, OZ_DTYPE_BF16);
    rows_alone(19, 4200, OZ_DTYPE_BF16, OZ_DTYPE_F32);
    if (reads(OZ_DTYPE_F32)) {
        rows_alone(45, 1100, OZ_DTYPE_F32, OZ_DTYPE_F32);
    }
}

/* ---- special values ---- */

/* What is not finite stays in its row, and in its column. */
static void special(int64_t m, float value, bool in_weight)
{
    const int64_t n = 37;
    const int64_t k = 301;
    struct oz_linear w = {.w = *kern_param("w", OZ_DTYPE_BF16, 1, n, k, 0.5)};
    struct oz_act *x = kern_act(m, k, 1, kern_kernel()->gemm->a_dtype, 1);
    struct oz_act *out = kern_out(m, n, 0, OZ_DTYPE_F32);
    int64_t row = in_weight ? kern_below(n) : kern_below(m);
    int64_t at = kern_coin() ? k - 1 : kern_below(k);
    if (in_weight) {
        uint16_t *codes = w.w.weight.planes[OZ_PLANE_CODES].data;
        codes[row * k + at] = oz_f32_to_bf16(value);
    } else {
        kern_set(x, row, at, value);
    }
    kern_pack(&w.w, OZ_USE_LINEAR);
    kern_run(OZ_OP_LINEAR, &(struct oz_linear_args){.x = x, .w = &w, .out = out});
    for (int64_t r = 0; r < m; r++) {
        for (int64_t c = 0; c < n; c++) {
            bool hit = in_weight ? c == row : r == row;
            double y = kern_get(out, r, c);
            assert_true(!hit ? isfinite(y) : isnan(value) ? isnan(y) : isinf(y));
        }
    }
    kern_forget();
}

static void specials_of_kernel(void)
{
    static const int64_t counts[] = {1, 3, 13, 20, 33, 100};
    if (kern_kernel()->gemm == NULL) {
        return;
    }
    for (int i = 0; i < 6; i++) {
        special(counts[i], NAN, false);
        special(counts[i], NAN, true);
        special(counts[i], INFINITY, false);
        special(counts[i], -INFINITY, true);
    }
}

/* ---- the plan ---- */

static void ignore_report(void *ctx, const char *kernel, const char *reason)
{
    assert_true(strlen(kernel) > 0 && strlen(reason) > 0);
    ++*(int *)ctx;
}

/* Forced, a kernel is planned for every weight that it reads; it says why it declines another. */
static void plan_of_kernel(void)
{
    static const enum oz_dtype stored[] = {OZ_DTYPE_BF16, OZ_DTYPE_F32, OZ_DTYPE_F16};
    const struct oz_cpu_kernel *k = kern_kernel();
    struct oz_device *dev = kern_device(1);
    struct oz_error err;
    if (k->gemm == NULL || dev->ops == NULL || oz_cpu_of(dev)->usable[OZ_OP_LINEAR][0] != k ||
        !(oz_cpu_of(dev)->tiers & (1U << k->tier))) { /* emulated: in no list */
        return;
    }
    for (int i = 0; i < 3; i++) {
        int reports = 0;
        struct oz_param *p = kern_param("w", stored[i], 1, 40, 50, 1);
        const struct oz_plan_request request = {
            .use = OZ_USE_LINEAR, .report = ignore_report, .report_ctx = &reports};
        struct oz_plan_answer answer;
        assert_int_equal(dev->ops->plan_param(dev, p, &request, &answer, &err), OZ_OK);
        assert_int_equal(strcmp(answer.kernel, k->name) == 0, reads(stored[i]));
        assert_int_equal(reports > 0, !reads(stored[i]));
        if (reads(stored[i])) {
            assert_int_equal(answer.wants.dtype, k->gemm->a_dtype);
        }
    }
}

static void sums(void **state)
{
    kern_each(OZ_OP_LINEAR, sums_of_kernel);
}

static void rows(void **state)
{
    kern_each(OZ_OP_LINEAR, rows_of_kernel);
}

static void specials(void **state)
{
    kern_each(OZ_OP_LINEAR, specials_of_kernel);
}

static void plans(void **state)
{
    kern_each(OZ_OP_LINEAR, plan_of_kernel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {KERN_TEST(sums), KERN_TEST(rows), KERN_TEST(specials),
                                       KERN_TEST(plans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
