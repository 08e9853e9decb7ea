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
#include "encode.h"

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
        f32 && c.bound > 0x1p-18 && c.out->spec.dtype == OZ_DTYPE_F32 && c.op != OZ_OP_TIME_EMBED
            ? 0x1p-18
            : c.bound;
    struct twin_distance d = twin_compare(t, c.out);
    (void)snprintf(text, sizeof text, "relative %.2e of %.2e, largest %.2e, %lld of %lld differ",
                   d.relative, bound, d.largest, (long long)d.different,
                   (long long)(c.out->rows * c.out->cols));
    tell(d.relative <= bound, precision, f->name, variant, text);
}

/* ---- row independence ---- */

/* Sequences of few rows and of many; together they are one tall matrix. */
static const int32_t lengths[] = {1, 2, 3, 11, 300, 12, 13, 64, 257, 157};
#define SEQUENCES ((int)(sizeof lengths / sizeof *lengths))
#define MOST_ROWS 820

/* A linear over a batch, and over each of its sequences. */
struct batch {
    struct oz_linear *w;
    struct oz_act *x, *all, *some;
    struct oz_ragged *rows;
    enum oz_fn fn;
};

/* Each sequence alone against its rows in the batch. */
static void alone(struct twin *t, const struct batch *b, const char *what)
{
    char text[160] = "";
    bool good = true;
    const struct oz_linear_args whole = {
        .x = b->x, .w = b->w, .fn = b->fn, .out = b->all, .sequences = b->rows};
    bool ran = twin_run(t->gpu, OZ_OP_LINEAR, &whole) == OZ_OK;
    for (int s = 0; s < SEQUENCES && ran && good; s++) {
        int32_t first = b->rows->offsets[s];
        const int32_t offsets[2] = {0, lengths[s]};
        const struct oz_ragged one = {.count = 1, .offsets = offsets};
        struct oz_act part = oz_act_rows(b->x, first, lengths[s]);
        struct oz_act out = oz_act_rows(b->some, 0, lengths[s]);
        const struct oz_linear_args a = {
            .x = &part, .w = b->w, .fn = b->fn, .out = &out, .sequences = &one};
        ran = twin_run(t->gpu, OZ_OP_LINEAR, &a) == OZ_OK && twin_download(t) == OZ_OK;
        size_t size = (size_t)oz_dtype_bits(out.spec.dtype) / 8;
        const uint8_t *want = t->back + ((uint8_t *)b->all->data - t->device) +
                              (size_t)(first * b->all->stride) * size;
        const uint8_t *got = t->back + ((uint8_t *)out.data - t->device);
        good = ran && memcmp(want, got, (size_t)(lengths[s] * b->all->cols) * size) == 0;
        if (!good) {
            (void)snprintf(text, sizeof text, "%d rows from row %d differ", lengths[s], first);
        }
    }
    tell(ran && good, "rows", what, 0, ran ? text : "did not run");
}

static void independence(struct twin *t, const char *codec, enum oz_act_mode mode, int64_t n,
                         int64_t k, enum oz_fn fn)
{
    char what[64];
    struct oz_act_spec spec = oz_act_spec_of(mode, OZ_EXPONENT_DEFAULT, NULL, NULL);
    const struct oz_act_spec out = {.dtype = fn == OZ_FN_NONE ? OZ_DTYPE_F32 : OZ_DTYPE_BF16};
    struct batch b = {.fn = fn};
    for (int side = 0; side < 2; side++) {
        twin_begin(t, side, 99);
        b.x = mode == OZ_ACT_NONE ? twin_act(t, MOST_ROWS, k, 0, OZ_DTYPE_BF16, 1)
                                  : twin_quantized(t, MOST_ROWS, k, &spec);
        b.w = twin_linear(t, codec, n, k, true);
        b.all = twin_out(t, MOST_ROWS, n, &out);
        b.some = twin_out(t, MOST_ROWS, n, &out);
        b.rows = twin_ragged(t, SEQUENCES, lengths);
        if (side == 0 && twin_upload(t) != OZ_OK) {
            tell(false, "rows", codec, 0, "no upload");
            return;
        }
    }
    b.w->w.act_count = mode == OZ_ACT_NONE ? 0 : 1;
    b.w->w.acts[0] = spec;
    (void)snprintf(what, sizeof what, "%s %lldx%lld%s", codec, (long long)n, (long long)k,
                   fn == OZ_FN_NONE ? "" : " gelu");
    alone(t, &b, what);
}

static void all_independence(struct twin *t)
{
    independence(t, "bf16", OZ_ACT_NONE, 256, 256, OZ_FN_NONE);
    independence(t, "bf16", OZ_ACT_NONE, 3072, 3072, OZ_FN_NONE);
    independence(t, "bf16", OZ_ACT_NONE, 3072, 12288, OZ_FN_NONE);
    independence(t, "bf16", OZ_ACT_NONE, 12288, 3072, OZ_FN_GELU_TANH);
    independence(t, "bf16", OZ_ACT_NONE, 64, 3072, OZ_FN_NONE);
    independence(t, "fp8_channel", OZ_ACT_FP8_TOKEN, 3072, 3072, OZ_FN_NONE);
    independence(t, "fp8_channel", OZ_ACT_FP8_TOKEN, 3072, 12288, OZ_FN_NONE);
    independence(t, "fp8_channel", OZ_ACT_FP8_TOKEN, 12288, 3072, OZ_FN_GELU_TANH);
    independence(t, "fp8_tensor", OZ_ACT_FP8_TOKEN, 3072, 3072, OZ_FN_NONE);
    independence(t, "int8_channel", OZ_ACT_INT8_TOKEN, 3072, 3072, OZ_FN_NONE);
    independence(t, "mxfp4", OZ_ACT_NONE, 3072, 3072, OZ_FN_NONE);
    independence(t, "u4_group+zeros", OZ_ACT_NONE, 3072, 3072, OZ_FN_NONE);
    independence(t, "q4_k", OZ_ACT_NONE, 3072, 3072, OZ_FN_NONE);
}

static void tell_encoded(bool good, const char *name, int variant, const char *text)
{
    tell(good, "bytes", name, variant, text);
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
        all_independence(&t);
        gpu_encode_all(gpu, tell_encoded);
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
