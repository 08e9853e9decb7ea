/*
 * gpu_ops [DEVICE]: every operator of a device against the CPU backend in f32, on random data: the
 * distance, in default precision and in f32; then row independence: the same bytes for a row whatever
 * stands beside it. Prints a line for each case; exits with 1 when one is off. DEVICE: cuda.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/pool.h"
#include "cases.h"
#include "dev/act_spec.h"

#define TWIN_BYTES ((size_t)512 << 20)

static int failures;
static int passed;

static void print_log(void *ctx, enum oz_log_level level, const char *topic, const char *message)
{
    (void)ctx;
    (void)level;
    (void)printf("  [%s] %s\n", topic, message);
}

static void tell(bool good, const char *precision, const char *name, int variant, const char *text)
{
    (void)printf("%s  %-7s %-13s %2d  %s\n", good ? "ok  " : "FAIL", precision, name, variant,
                 text);
    (void)fflush(stdout);
    *(good ? &passed : &failures) += 1;
}

/* ---- against the CPU ---- */

static void compare(struct twin *t, const struct gpu_family *f, int variant, const char *precision,
                    bool f32)
{
    char text[160];
    twin_begin(t, 0, 7 + (uint64_t)variant);
    struct gpu_case c = f->build(t, variant);
    enum oz_status status = twin_upload(t);
    enum oz_status cpu = twin_run(t->cpu, c.op, c.args);
    twin_begin(t, 1, 7 + (uint64_t)variant);
    c = f->build(t, variant);
    if (status == OZ_OK) {
        status = twin_run(t->gpu, c.op, c.args);
    }
    if (status == OZ_OK) {
        status = twin_download(t);
    }
    if (status != OZ_OK || cpu != OZ_OK) {
        (void)snprintf(text, sizeof text, "device: %s; CPU: %s", oz_status_text(status),
                       oz_status_text(cpu));
        tell(false, precision, f->name, variant, text);
        return;
    }
    /* In f32 only the order of sums, and exp and its kin, differ. */
    double bound =
        f32 && c.bound > 0x1p-18 && c.out->spec.dtype != OZ_DTYPE_BF16 && c.op != OZ_OP_TIME_EMBED
            ? 0x1p-18
            : c.bound;
    struct twin_distance d = twin_compare(t, c.out);
    (void)snprintf(text, sizeof text, "relative %.2e of %.2e, largest %.2e, %lld of %lld differ",
                   d.relative, bound, d.largest, (long long)d.different,
                   (long long)(c.out->rows * c.out->cols));
    tell(d.relative <= bound, precision, f->name, variant, text);
}

/* ---- row independence ---- */

static const int64_t few[] = {1, 2, 3, 11, 12, 13, 64, 257};
#define MOST_ROWS 520

static struct oz_act rows_of(const struct oz_act *a, int64_t first, int64_t count)
{
    struct oz_act view = *a;
    view.data =
        (uint8_t *)a->data + (size_t)(first * a->stride) * (size_t)oz_dtype_bits(a->spec.dtype) / 8;
    view.rows = count;
    for (int32_t i = 0; i < a->spec.scale_count; i++) {
        int64_t group = a->spec.scale[i].group_cols;
        int64_t groups = group > 0 ? (a->cols + group - 1) / group : 1;
        view.scales[i] =
            (uint8_t *)a->scales[i] +
            (size_t)(first * groups) * (size_t)oz_dtype_bits(a->spec.scale[i].dtype) / 8;
    }
    return view;
}

/* Rows of a linear alone against the same rows in the tall matrix. */
static void alone(struct twin *t, const struct oz_linear *w, const struct oz_act *x,
                  const struct oz_act *all, const struct oz_act *some, const char *what)
{
    char text[160] = "";
    bool good = true;
    const struct oz_linear_args whole = {.x = x, .w = w, .out = (struct oz_act *)(uintptr_t)all};
    bool ran = twin_run(t->gpu, OZ_OP_LINEAR, &whole) == OZ_OK;
    for (size_t i = 0; ran && i < sizeof few / sizeof *few && good; i++) {
        for (int64_t first = 0; first + few[i] <= MOST_ROWS && good; first += 7 * few[i] + 5) {
            struct oz_act part = rows_of(x, first, few[i]);
            struct oz_act out = rows_of(some, 0, few[i]);
            const struct oz_linear_args a = {.x = &part, .w = w, .out = &out};
            ran = ran && twin_run(t->gpu, OZ_OP_LINEAR, &a) == OZ_OK && twin_download(t) == OZ_OK;
            const uint8_t *want = t->back + ((uint8_t *)all->data - t->device) +
                                  (size_t)(first * all->stride) * sizeof(float);
            const uint8_t *got = t->back + ((uint8_t *)out.data - t->device);
            good = ran && memcmp(want, got, (size_t)(few[i] * all->cols) * sizeof(float)) == 0;
            if (!good) {
                (void)snprintf(text, sizeof text, "%s: %lld rows from row %lld differ", what,
                               (long long)few[i], (long long)first);
            }
        }
    }
    tell(ran && good, "rows", what, 0, ran ? text : "did not run");
}

static void independence(struct twin *t, const char *codec, enum oz_act_mode mode, int64_t n,
                         int64_t k)
{
    char what[64];
    struct oz_act_spec spec = oz_act_spec_of(mode, OZ_EXPONENT_DEFAULT, NULL, NULL);
    const struct oz_act_spec f32 = {.dtype = OZ_DTYPE_F32};
    struct oz_linear *w = NULL;
    struct oz_act *x = NULL;
    struct oz_act *all = NULL;
    struct oz_act *some = NULL;
    for (int side = 0; side < 2; side++) {
        twin_begin(t, side, 99);
        x = mode == OZ_ACT_NONE ? twin_act(t, MOST_ROWS, k, 0, OZ_DTYPE_BF16, 1)
                                : twin_quantized(t, MOST_ROWS, k, &spec);
        w = twin_linear(t, codec, n, k, true);
        all = twin_out(t, MOST_ROWS, n, &f32);
        some = twin_out(t, MOST_ROWS, n, &f32);
        if (side == 0 && twin_upload(t) != OZ_OK) {
            tell(false, "rows", codec, 0, "no upload");
            return;
        }
    }
    w->w.act_count = mode == OZ_ACT_NONE ? 0 : 1;
    w->w.acts[0] = spec;
    (void)snprintf(what, sizeof what, "%s %lldx%lld", codec, (long long)n, (long long)k);
    alone(t, w, x, all, some, what);
}

static void run_precision(struct oz_pool *pool, const char *name, bool f32)
{
    struct oz_error err;
    struct oz_device *cpu;
    struct oz_device *gpu;
    static struct twin t;
    if (oz_device_open(&cpu, "cpu", OZ_DEVICE_F32, pool, &err) != OZ_OK ||
        oz_device_open(&gpu, name, f32 ? OZ_DEVICE_F32 : 0, pool, &err) != OZ_OK) {
        (void)fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    if (!twin_open(&t, cpu, gpu, TWIN_BYTES)) {
        exit(1);
    }
    for (const struct gpu_family *f = gpu_families; f->name != NULL; f++) {
        for (int i = 0; i < f->count; i++) {
            compare(&t, f, i, f32 ? "f32" : "default", f32);
        }
    }
    if (!f32) {
        independence(&t, "bf16", OZ_ACT_NONE, 256, 256);
        independence(&t, "bf16", OZ_ACT_NONE, 3072, 3072);
        independence(&t, "bf16", OZ_ACT_NONE, 3072, 12288);
        independence(&t, "bf16", OZ_ACT_NONE, 12288, 3072);
        independence(&t, "bf16", OZ_ACT_NONE, 64, 3072);
        independence(&t, "fp8_channel", OZ_ACT_FP8_TOKEN, 3072, 3072);
        independence(&t, "fp8_channel", OZ_ACT_FP8_TOKEN, 3072, 12288);
        independence(&t, "int8_channel", OZ_ACT_INT8_TOKEN, 3072, 3072);
        independence(&t, "mxfp4", OZ_ACT_NONE, 3072, 3072);
    }
    twin_close(&t);
    oz_device_close(&gpu);
    oz_device_close(&cpu);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cuda";
    struct oz_pool *pool;
    struct oz_error err;
    (void)oz_log_set(print_log, NULL);
    if (oz_pool_create(&pool, 0, &err) != OZ_OK) {
        (void)fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    run_precision(pool, name, true);
    run_precision(pool, name, false);
    oz_pool_destroy(&pool);
    (void)printf("%d passed, %d failed\n", passed, failures);
    return failures > 0;
}
