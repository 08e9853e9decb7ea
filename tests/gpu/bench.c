/*
 * gpu_bench OUT.json [DEVICE [SCHEME...]]: Qwen-Image at full size with random weights, 1024x1024, 64
 * text tokens, no guidance: seconds of a step for each scheme, of the text encoder and of the VAE, and
 * where they go, operator by operator. Medians; the profile waits behind each operator, so its sum is
 * more than a step.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/pool.h"
#include "dummy.h"
#include "model/qwen25_vl/qwen25_vl.h"
#include "model/qwen_image/qwen_image.h"
#include "model/qwen_vae/qwen_vae.h"
#include "ops/ops.h"

#define SIDE 64 /* tokens of a picture's side */
#define TEXT 64
#define PROMPT_TOKENS 98 /* with the template's 34 */
#define REPEATS 5
#define MOST_ROWS 96

static FILE *json;
static struct oz_device *dev;
static struct oz_error err;

static void require(enum oz_status status)
{
    if (status != OZ_OK) {
        (void)printf("%s\n", err.message);
        exit(1);
    }
}

/* ---- the profile ---- */

static struct line {
    enum oz_op op;
    int64_t rows, cols, calls;
    double seconds;
} lines[MOST_ROWS];
static int line_count;
static double last;

static void on_op(void *ctx, enum oz_op op, const char *label, const struct oz_act *out)
{
    (void)ctx;
    (void)label;
    require(dev->wait(dev, NULL, &err));
    double now = oz_clock_seconds();
    int i = 0;
    while (i < line_count &&
           (lines[i].op != op || lines[i].rows != out->rows || lines[i].cols != out->cols)) {
        i++;
    }
    if (i == line_count && line_count < MOST_ROWS) {
        lines[line_count++] = (struct line){.op = op, .rows = out->rows, .cols = out->cols};
    }
    if (i < line_count) {
        lines[i].calls++;
        lines[i].seconds += now - last;
    }
    last = oz_clock_seconds();
}

static int by_time(const void *a, const void *b)
{
    double x = ((const struct line *)a)->seconds;
    double y = ((const struct line *)b)->seconds;
    return (x < y) - (x > y);
}

static void print_profile(void)
{
    qsort(lines, (size_t)line_count, sizeof *lines, by_time);
    (void)fprintf(json, ", \"profile\": [");
    for (int i = 0; i < line_count; i++) {
        const struct line *l = &lines[i];
        if (i < 14) {
            (void)printf("    %-13s -> %6lld x %-6lld  %4lld calls  %8.3f ms\n", oz_op_name(l->op),
                         (long long)l->rows, (long long)l->cols, (long long)l->calls,
                         1e3 * l->seconds);
        }
        (void)fprintf(
            json,
            "%s{\"op\": \"%s\", \"rows\": %lld, \"cols\": %lld, \"calls\": %lld, \"ms\": %.4f}",
            i > 0 ? ", " : "", oz_op_name(l->op), (long long)l->rows, (long long)l->cols,
            (long long)l->calls, 1e3 * l->seconds);
    }
    (void)fprintf(json, "]");
}

/* ---- timing ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Measures, takes memory, warms up, times and profiles a forward. */
static void time_forward(const char *name, void (*forward)(struct oz_exec *x, void *ctx), void *ctx,
                         size_t weight_bytes)
{
    struct oz_arena step;
    struct oz_exec x;
    void *memory;
    double seconds[REPEATS];
    oz_arena_init_measure(&step, "step");
    oz_exec_init(&x, dev, OZ_EXEC_MEASURE, &step, &err);
    forward(&x, ctx);
    require(x.status);
    size_t bytes = step.peak_bytes;
    require(dev->alloc(dev, bytes, &memory, &err));
    oz_arena_init_view(&step, "step", memory, bytes, dev->host_memory);
    oz_exec_init(&x, dev, OZ_EXEC_RUN, &step, &err);
    for (int i = -2; i < REPEATS; i++) {
        double start = oz_clock_seconds();
        forward(&x, ctx);
        require(x.status);
        require(dev->wait(dev, NULL, &err));
        if (i >= 0) {
            seconds[i] = oz_clock_seconds() - start;
        }
    }
    qsort(seconds, REPEATS, sizeof *seconds, by_value);
    int64_t available;
    int64_t total;
    require(dev->memory(dev, &available, &total, &err));
    (void)printf(
        "%-28s %9.3f ms (%.3f to %.3f), weights %.2f GiB, scratch %.2f GiB, card %.2f GiB\n", name,
        1e3 * seconds[REPEATS / 2], 1e3 * seconds[0], 1e3 * seconds[REPEATS - 1],
        (double)weight_bytes * 0x1p-30, (double)bytes * 0x1p-30,
        (double)(total - available) * 0x1p-30);
    (void)fprintf(
        json,
        ",\n  {\"name\": \"%s\", \"median_ms\": %.4f, \"least_ms\": %.4f, \"most_ms\": %.4f, "
        "\"weight_bytes\": %zu, \"scratch_bytes\": %zu, \"card_bytes\": %lld",
        name, 1e3 * seconds[REPEATS / 2], 1e3 * seconds[0], 1e3 * seconds[REPEATS - 1],
        weight_bytes, bytes, (long long)(total - available));
    line_count = 0;
    x.dump = on_op;
    last = oz_clock_seconds();
    forward(&x, ctx);
    require(x.status);
    require(dev->wait(dev, NULL, &err));
    print_profile();
    (void)fprintf(json, "}");
    (void)fflush(stdout);
    dev->free(dev, memory);
}

/* ---- inputs ---- */

static void *device_copy(const void *host, size_t bytes)
{
    void *memory;
    require(dev->alloc(dev, bytes, &memory, &err));
    require(dev->upload(dev, NULL, memory, host, bytes, &err));
    require(dev->wait(dev, NULL, &err));
    return memory;
}

static struct oz_act random_rows(int64_t rows, int64_t cols)
{
    static uint32_t seed = 12345;
    float *host = malloc((size_t)(rows * cols) * sizeof *host);
    for (int64_t i = 0; host != NULL && i < rows * cols; i++) {
        seed = seed * 1664525U + 1013904223U;
        host[i] = ((float)(seed >> 8) * 0x1p-24F - 0.5F) * 3.4F;
    }
    struct oz_act a =
        oz_act_f32(host != NULL ? device_copy(host, (size_t)(rows * cols) * 4) : NULL, rows, cols);
    free(host);
    return a;
}

static struct oz_ragged one_sequence(int32_t rows)
{
    static int32_t offsets[8][2];
    static int used;
    offsets[used][1] = rows;
    struct oz_ragged r = {.count = 1, .offsets = offsets[used]};
    r.device_offsets = device_copy(offsets[used++], sizeof offsets[0]);
    return r;
}

static void *zeros(size_t bytes)
{
    void *host = calloc(1, bytes);
    void *memory = device_copy(host, bytes);
    free(host);
    return memory;
}

/* ---- the three models ---- */

struct transformer {
    struct oz_qwen_image m;
    struct oz_qwen_image_batch b;
    struct oz_act out;
};

static void run_transformer(struct oz_exec *x, void *ctx)
{
    struct transformer *t = ctx;
    oz_qwen_image_forward(x, &t->m, &t->b, &t->out);
}

static void bench_transformer(struct dummy *d, const char *const *schemes, int count)
{
    static struct transformer t;
    static struct oz_act acts[256];
    static struct oz_qwen_image_mod mod;
    struct oz_qwen_image_config c = {.patch_size = 2,
                                     .in_channels = 64,
                                     .out_channels = 16,
                                     .layers = 60,
                                     .heads = 24,
                                     .head_dim = 128,
                                     .text_dim = 3584,
                                     .rope_dims = {16, 56, 56}};
    struct oz_arena host;
    struct oz_arena plan;
    struct oz_layer_table table;
    require(oz_arena_init_host(&host, "host", oz_qwen_image_host_bytes(&c), &err));
    require(oz_qwen_image_build(&t.m, &c, &host, &table, &err));
    oz_arena_init_measure(&plan, "plan");
    require(oz_qwen_image_mod_init(&mod, &t.m, 1, acts, &plan));
    void *memory = zeros(plan.used_bytes);
    oz_arena_init_view(&plan, "plan", memory, plan.used_bytes, dev->host_memory);
    require(oz_qwen_image_mod_init(&mod, &t.m, 1, acts, &plan));
    struct oz_act latents = random_rows(SIDE * SIDE, 64);
    struct oz_act states = random_rows(TEXT, c.text_dim);
    struct oz_act tables[4] = {random_rows(SIDE * SIDE, 64), random_rows(SIDE * SIDE, 64),
                               random_rows(TEXT, 64), random_rows(TEXT, 64)};
    t.b = (struct oz_qwen_image_batch){.image = one_sequence(SIDE * SIDE),
                                       .text = one_sequence(TEXT),
                                       .latents = &latents,
                                       .text_states = &states,
                                       .image_cos = &tables[0],
                                       .image_sin = &tables[1],
                                       .text_cos = &tables[2],
                                       .text_sin = &tables[3],
                                       .mod = &mod,
                                       .image_mod = zeros(SIDE * SIDE * 4),
                                       .text_mod = zeros(TEXT * 4)};
    t.out = random_rows(SIDE * SIDE, 64);
    for (int i = 0; i < count; i++) {
        char name[64];
        bool plain = strcmp(schemes[i], "bf16") == 0;
        double start = oz_clock_seconds();
        require(dummy_fill(d, &table, plain ? NULL : schemes[i], &err));
        (void)snprintf(name, sizeof name, "step %s", schemes[i]);
        (void)printf("  weights made in %.1f s\n", oz_clock_seconds() - start);
        time_forward(name, run_transformer, &t, d->bytes);
    }
    dev->free(dev, memory);
    dummy_empty(d);
}

struct text_encoder {
    struct oz_qwen25_vl m;
    struct oz_qwen25_vl_batch b;
    struct oz_act out;
};

static void run_text(struct oz_exec *x, void *ctx)
{
    struct text_encoder *t = ctx;
    oz_qwen25_vl_forward(x, &t->m, &t->b, &t->out);
}

static void bench_text(struct dummy *d)
{
    static struct text_encoder t;
    struct oz_qwen25_vl_config c = {.hidden = 3584,
                                    .intermediate = 18944,
                                    .layers = 28,
                                    .vocab = 152064,
                                    .heads = 28,
                                    .kv_heads = 4,
                                    .head_dim = 128,
                                    .mrope_section = {16, 24, 24},
                                    .rope_theta = 1e6,
                                    .eps = 1e-6F};
    struct oz_arena host;
    struct oz_layer_table table;
    require(oz_arena_init_host(&host, "host", oz_qwen25_vl_host_bytes(&c), &err));
    require(oz_qwen25_vl_build(&t.m, &c, &host, &table, "", &err));
    require(dummy_fill(d, &table, NULL, &err));
    struct oz_ragged sequence = one_sequence(PROMPT_TOKENS);
    struct oz_act tables[2] = {random_rows(PROMPT_TOKENS, 64), random_rows(PROMPT_TOKENS, 64)};
    t.b = (struct oz_qwen25_vl_batch){.rows = PROMPT_TOKENS,
                                      .ids = zeros(PROMPT_TOKENS * 4),
                                      .sequences = &sequence,
                                      .cosine = &tables[0],
                                      .sine = &tables[1]};
    t.out = random_rows(PROMPT_TOKENS, c.hidden);
    time_forward("text encoder bf16", run_text, &t, d->bytes);
    dummy_empty(d);
}

struct decoder {
    struct oz_qwen_vae m;
    struct oz_act latent, out;
};

static void run_vae(struct oz_exec *x, void *ctx)
{
    struct decoder *t = ctx;
    oz_qwen_vae_decode(x, &t->m, &t->latent, 1, 2 * SIDE, 2 * SIDE, &t->out);
}

static void bench_vae(struct dummy *d)
{
    static struct decoder t;
    struct oz_qwen_vae_config c = {.base_dim = 96,
                                   .z_dim = 16,
                                   .num_res_blocks = 2,
                                   .input_channels = 3,
                                   .levels = 4,
                                   .dim_mult = {1, 2, 4, 4}};
    struct oz_arena host;
    struct oz_layer_table table;
    require(oz_arena_init_host(&host, "host", oz_qwen_vae_host_bytes(&c), &err));
    require(oz_qwen_vae_build(&t.m, &c, &host, &table, false, &err));
    t.m.band_bytes = INT64_C(512) << 20;
    require(dummy_fill(d, &table, NULL, &err));
    t.latent = random_rows(4 * SIDE * SIDE, 16);
    t.out = random_rows(256 * SIDE * SIDE, 3);
    time_forward("vae decode", run_vae, &t, d->bytes);
    dummy_empty(d);
}

static void print_log(void *ctx, enum oz_log_level level, const char *topic, const char *message)
{
    (void)ctx;
    (void)level;
    (void)printf("  [%s] %s\n", topic, message);
}

int main(int argc, char **argv)
{
    static const char *const all[] = {"bf16", "fp8_per_channel", "int8", "mxfp4"};
    struct oz_pool *pool;
    static struct dummy d;
    (void)oz_log_set(print_log, NULL);
    json = argc > 1 ? fopen(argv[1], "w") : NULL;
    if (json == NULL) {
        (void)fprintf(stderr, "usage: gpu_bench OUT.json [DEVICE [SCHEME...]]\n");
        return 2;
    }
    require(oz_pool_create(&pool, 0, &err));
    require(oz_device_open(&dev, argc > 2 ? argv[2] : "cuda", 0, pool, &err));
    require(dummy_open(&d, dev, &err));
    (void)fprintf(json, "[\n  {\"device\": \"%s\", \"tier\": \"%s\", \"side\": %d, \"text\": %d}",
                  dev->name, dev->tier, 16 * SIDE, TEXT);
    bench_transformer(&d, argc > 3 ? (const char *const *)argv + 3 : all, argc > 3 ? argc - 3 : 4);
    bench_text(&d);
    bench_vae(&d);
    (void)fprintf(json, "\n]\n");
    (void)fclose(json);
    dummy_close(&d);
    oz_device_close(&dev);
    oz_pool_destroy(&pool);
    return 0;
}
