/*
 * Large products over tiles (cpu/tiles.h), kernel by kernel: cut in many ways, sums are to the bit those of
 * the driver of small products, with every number of threads.
 */
#include "kern.h"

#include "base/pool.h"
#include "cpu/gemm.h"
#include "cpu/tiles.h"

/* Blocks that fit, that do not, and that are larger than the product; panels inside and outside. */
static const struct oz_tile_tuning tunings[] = {
    {.row_block = 32, .col_block = 32, .steps = 1, .panels = 1},
    {.row_block = 64,
     .col_block = 96,
     .steps = 2,
     .panels = 2,
     .ask_sums = true,
     .ask_rows = true,
     .pack_bytes = 1 << 14},
    {.row_block = 512, .col_block = 512, .steps = 8, .panels = 4, .ask_rows = true},
    {.row_block = 96,
     .col_block = 64,
     .steps = 3,
     .panels = 2,
     .whole_bytes = 1 << 20,
     .ask_sums = true},
    {.row_block = 128, .col_block = 1024, .steps = 64, .panels = 3, .pack_bytes = 1 << 30},
};
#define TUNINGS (sizeof tunings / sizeof *tunings)

struct cut {
    struct oz_cpu_kernel kernel;
    struct oz_gemm_kernel gemm;
    struct oz_tile_kernel tiles;
    struct oz_param_plan plan;
};

/* The kernel in turn with other blocks; NULL: without tiles. */
static void cut_as(struct cut *c, const struct oz_tile_tuning *tuning)
{
    c->kernel = *kern_kernel();
    c->gemm = *c->kernel.gemm;
    c->tiles = *c->gemm.tiles;
    c->kernel.gemm = &c->gemm;
    c->gemm.tiles = tuning != NULL ? &c->tiles : NULL;
    c->tiles.tuning = tuning != NULL ? *tuning : c->tiles.tuning;
    c->plan = (struct oz_param_plan){.kernel = &c->kernel, .stored = OZ_DTYPE_BF16};
}

static void *scratch_of(size_t bytes)
{
    void *memory = NULL;
    assert_true(bytes < SIZE_MAX / 2);
    assert_int_equal(posix_memalign(&memory, 64, bytes + 64), 0);
    memset(memory, 0xFF, bytes + 64); /* every f32 of it is NaN */
    return memory;
}

static void check_end(void *memory, size_t bytes)
{
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(((uint8_t *)memory)[bytes + i], 0xFF);
    }
    free(memory);
}

static void run_linear(struct oz_linear_args *a, struct oz_linear *w, struct oz_linear *up,
                       struct cut *c, int threads)
{
    w->w.plan = &c->plan;
    up->w.plan = &c->plan;
    struct oz_op_ctx ctx = {.dev = kern_device(threads)};
    assert_null(oz_gemm_linear_reject(a, &c->kernel));
    ctx.scratch_bytes = oz_gemm_linear_scratch(ctx.dev, a, &c->kernel);
    ctx.scratch = scratch_of(ctx.scratch_bytes);
    assert_int_equal(oz_gemm_linear(&ctx, a, &c->kernel), OZ_OK);
    check_end(ctx.scratch, ctx.scratch_bytes);
}

static void compare(const char *what, const struct oz_act *want, const struct oz_act *got, size_t i,
                    int threads)
{
    for (int64_t r = 0; r < want->rows; r++) {
        if (!kern_same_row(want, r, got, r)) {
            fail_msg("%s: row %lld of %lld, blocks %d, %d threads: not the bytes without tiles",
                     what, (long long)r, (long long)want->rows, (int)i, threads);
        }
    }
}

static void check_linear(int64_t m, int64_t n, int64_t k, bool both)
{
    static const int threads[] = {1, 2, 5};
    struct oz_act *x = kern_act(m, k, kern_below(7), OZ_DTYPE_BF16, 1);
    struct oz_linear w = {.w = *kern_param("w", OZ_DTYPE_BF16, 1, n, k, 0.5),
                          .b = *kern_vector("b", n, 1)};
    struct oz_linear up = {.w = *kern_param("up", OZ_DTYPE_BF16, 1, n, k, 0.5)};
    struct oz_act *want = kern_out(m, n, 3, OZ_DTYPE_F32);
    struct oz_act *got = kern_out(m, n, 1, OZ_DTYPE_F32);
    kern_pack(&w.w, OZ_USE_LINEAR);
    kern_pack(&up.w, OZ_USE_LINEAR);
    struct oz_linear_args a = {.x = x,
                               .w = &w,
                               .up = both ? &up : NULL,
                               .fn = both ? OZ_FN_SILU : OZ_FN_NONE,
                               .out = want};
    struct cut c;
    cut_as(&c, NULL);
    run_linear(&a, &w, &up, &c, 2);
    a.out = got;
    for (size_t i = 0; i < TUNINGS; i++) {
        cut_as(&c, &tunings[i]);
        run_linear(&a, &w, &up, &c, threads[(i + (size_t)m) % 3]);
        compare("linear", want, got, i, threads[(i + (size_t)m) % 3]);
    }
    kern_forget();
}

static void linear_of_kernel(void)
{
    static const int64_t rows[] = {1, 2, 3, 11, 13, 16, 17, 31, 33, 64, 100, 257};
    if (kern_kernel()->gemm == NULL || kern_kernel()->gemm->tiles == NULL) {
        return;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_linear(rows[i], 70, 301, i % 2 != 0);
        check_linear(rows[i], 160, 96, i % 2 == 0);
    }
    check_linear(130, 33, 1030, false);
    check_linear(0, 40, 64, false);
}

/* Rows that are gathered: a picture's patches. */
static void check_conv(int32_t height, int32_t width, int32_t channels, int32_t n, int32_t side)
{
    int64_t m = (int64_t)height * width;
    int32_t k = side * side * channels;
    struct oz_act *x = kern_act(m, channels, 2, OZ_DTYPE_F32, 1);
    struct oz_param *w = kern_param("w", OZ_DTYPE_BF16, 1, n, k, 0.5);
    struct oz_act *want = kern_out(m, n, 0, OZ_DTYPE_F32);
    struct oz_act *got = kern_out(m, n, 5, OZ_DTYPE_F32);
    kern_pack(w, OZ_USE_CONV);
    struct oz_conv_args a = {.x = x,
                             .height = height,
                             .width = width,
                             .kt = 1,
                             .kh = side,
                             .kw = side,
                             .stride = 1,
                             .stride_t = 1,
                             .pad_top = side / 2,
                             .pad_bottom = side / 2,
                             .pad_left = side / 2,
                             .pad_right = side / 2,
                             .w = w,
                             .out = want};
    for (size_t i = 0; i <= TUNINGS; i++) {
        struct cut c;
        cut_as(&c, i > 0 ? &tunings[i - 1] : NULL);
        w->plan = &c.plan;
        struct oz_op_ctx ctx = {.dev = kern_device(i % 2 != 0 ? 5 : 2)};
        ctx.scratch_bytes = oz_gemm_conv_scratch(ctx.dev, &a, &c.kernel);
        ctx.scratch = scratch_of(ctx.scratch_bytes);
        assert_null(oz_gemm_conv_reject(&a, &c.kernel));
        assert_int_equal(oz_gemm_conv(&ctx, &a, &c.kernel), OZ_OK);
        check_end(ctx.scratch, ctx.scratch_bytes);
        if (i > 0) {
            compare("conv", want, got, i - 1, i % 2 != 0 ? 5 : 2);
        }
        a.out = got;
    }
    kern_forget();
}

static void conv_of_kernel(void)
{
    if (kern_kernel()->gemm == NULL || kern_kernel()->gemm->tiles == NULL) {
        return;
    }
    check_conv(9, 13, 20, 40, 3);
    check_conv(16, 5, 33, 96, 1);
    check_conv(2, 3, 7, 3, 3);
}

static void linears(void **state)
{
    kern_each(OZ_OP_LINEAR, linear_of_kernel);
}

static void convs(void **state)
{
    kern_each(OZ_OP_CONV, conv_of_kernel);
}

/* What is large: by its work, or by its weights. */
static void sizes(void **state)
{
    const struct oz_tile_kernel k = {.tuning = {.least_work = 1000000, .least_weights = 10000}};
    assert_true(oz_tiles_pay(&k, 1, 100, 100));
    assert_false(oz_tiles_pay(&k, 100, 99, 100));
    assert_true(oz_tiles_pay(&k, 102, 99, 100));
    assert_false(oz_tiles_pay(&k, 0, 1000, 1000));
    assert_true(oz_tiles_pay(&k, 1, INT64_C(1) << 40, INT64_C(1) << 40));
}

int main(void)
{
    const struct CMUnitTest tests[] = {KERN_TEST(linears), KERN_TEST(convs), KERN_TEST(sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
