/*
 * gpu_bench OUT.json [DEVICE [SCHEME...]]: Qwen-Image at full size with random weights, 1024x1024, 64
 * text tokens, no guidance. For each scheme, with all three models there and modulation as a table: a step
 * alone and of 4 and 8 pictures together, the text encoder (in the same scheme), the VAE, a picture of 20
 * steps, what of the card it takes, and where a step goes, operator by operator. Medians; the profile
 * waits behind each operator, so its sum is more than a step.
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
#define STEPS 20
#define MOST_TOGETHER 8
#define MOST_ROWS 96

static FILE *json;
static struct oz_device *dev;
static struct oz_error err;
static int64_t used_before; /* of the card, by the context and others */

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

typedef void forward_fn(struct oz_exec *x, void *ctx);

/* Some forwards in turn, in one step arena. */
struct work {
    const char *name;
    struct {
        forward_fn *forward;
        void *ctx;
        int times;
    } parts[3];
    int repeats;
    bool profiled;
};

static void run_work(const struct work *w, struct oz_exec *x)
{
    for (int i = 0; i < 3; i++) {
        for (int n = 0; n < w->parts[i].times; n++) {
            const size_t mark = oz_exec_mark(x);
            w->parts[i].forward(x, w->parts[i].ctx);
            require(x->status);
            oz_exec_reset(x, mark);
        }
    }
}

/* Measures, takes memory, warms up, times and profiles. */
static double time_work(const struct work *w)
{
    struct oz_arena step;
    struct oz_exec x;
    void *memory;
    double seconds[REPEATS];
    oz_arena_init_measure(&step, "step");
    oz_exec_init(&x, dev, OZ_EXEC_MEASURE, &step, &err);
    run_work(w, &x);
    size_t bytes = step.peak_bytes;
    require(dev->alloc(dev, bytes, &memory, &err));
    oz_arena_init_view(&step, "step", memory, bytes, dev->host_memory);
    oz_exec_init(&x, dev, OZ_EXEC_RUN, &step, &err);
    for (int i = w->repeats > 3 ? -2 : -1; i < w->repeats; i++) {
        double start = oz_clock_seconds();
        run_work(w, &x);
        require(dev->wait(dev, NULL, &err));
        if (i >= 0) {
            seconds[i] = oz_clock_seconds() - start;
        }
    }
    qsort(seconds, (size_t)w->repeats, sizeof *seconds, by_value);
    double median = seconds[w->repeats / 2];
    int64_t available;
    int64_t total;
    require(dev->memory(dev, &available, &total, &err));
    (void)printf("%-28s %9.3f ms (%.3f to %.3f), scratch %.2f GiB, card %.2f GiB\n", w->name,
                 1e3 * median, 1e3 * seconds[0], 1e3 * seconds[w->repeats - 1],
                 (double)bytes * 0x1p-30, (double)(total - available - used_before) * 0x1p-30);
    (void)fprintf(json,
                  ",\n  {\"name\": \"%s\", \"median_ms\": %.4f, \"least_ms\": %.4f, \"most_ms\": "
                  "%.4f, \"scratch_bytes\": %zu, \"card_bytes\": %lld",
                  w->name, 1e3 * median, 1e3 * seconds[0], 1e3 * seconds[w->repeats - 1], bytes,
                  (long long)(total - available - used_before));
    if (w->profiled) {
        line_count = 0;
        x.dump = on_op;
        last = oz_clock_seconds();
        run_work(w, &x);
        require(dev->wait(dev, NULL, &err));
        print_profile();
    }
    (void)fprintf(json, "}");
    (void)fflush(stdout);
    dev->free(dev, memory);
    return median;
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

/* `count` sequences of so many rows. */
static struct oz_ragged sequences(int32_t count, int32_t rows)
{
    static int32_t offsets[16][MOST_TOGETHER + 1];
    static int used;
    int32_t *mine = offsets[used++];
    for (int32_t i = 0; i <= count; i++) {
        mine[i] = i * rows;
    }
    return (struct oz_ragged){
        .count = count, .offsets = mine, .device_offsets = device_copy(mine, sizeof offsets[0])};
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
    struct oz_layer_table table;
    struct oz_qwen_image_mod mod;
    struct batch {
        struct oz_qwen_image *m;
        struct oz_qwen_image_batch b;
        struct oz_act latents, states, tables[4], out;
    } batches[3];
};

static const int32_t together[3] = {1, 4, MOST_TOGETHER};

static void run_transformer(struct oz_exec *x, void *ctx)
{
    struct batch *b = ctx;
    oz_qwen_image_forward(x, b->m, &b->b, &b->out);
}

static void make_batch(struct transformer *t, struct batch *b, int32_t count)
{
    const int32_t pixels = count * SIDE * SIDE;
    const int32_t text = count * TEXT;
    b->m = &t->m;
    b->latents = random_rows(pixels, 64);
    b->states = random_rows(text, 3584);
    for (int i = 0; i < 4; i++) {
        b->tables[i] = random_rows(i < 2 ? pixels : text, 64);
    }
    b->b = (struct oz_qwen_image_batch){.image = sequences(count, SIDE * SIDE),
                                        .text = sequences(count, TEXT),
                                        .latents = &b->latents,
                                        .text_states = &b->states,
                                        .image_cos = &b->tables[0],
                                        .image_sin = &b->tables[1],
                                        .text_cos = &b->tables[2],
                                        .text_sin = &b->tables[3],
                                        .mod = &t->mod,
                                        .image_mod = zeros((size_t)pixels * 4),
                                        .text_mod = zeros((size_t)text * 4)};
    b->out = random_rows(pixels, 64);
}

static void make_transformer(struct transformer *t)
{
    static struct oz_act acts[256];
    static struct oz_arena host;
    struct oz_qwen_image_config c = {.patch_size = 2,
                                     .in_channels = 64,
                                     .out_channels = 16,
                                     .layers = 60,
                                     .heads = 24,
                                     .head_dim = 128,
                                     .text_dim = 3584,
                                     .rope_dims = {16, 56, 56}};
    struct oz_arena plan;
    require(oz_arena_init_host(&host, "host", oz_qwen_image_host_bytes(&c), &err));
    require(oz_qwen_image_build(&t->m, &c, &host, &t->table, &err));
    oz_arena_init_measure(&plan, "plan");
    require(oz_qwen_image_mod_init(&t->mod, &t->m, 1, acts, &plan));
    void *memory = zeros(plan.used_bytes);
    oz_arena_init_view(&plan, "plan", memory, plan.used_bytes, dev->host_memory);
    require(oz_qwen_image_mod_init(&t->mod, &t->m, 1, acts, &plan));
    for (int i = 0; i < 3; i++) {
        make_batch(t, &t->batches[i], together[i]);
    }
}

struct text_encoder {
    struct oz_qwen25_vl m;
    struct oz_layer_table table;
    struct oz_qwen25_vl_batch b;
    struct oz_act out;
};

static void run_text(struct oz_exec *x, void *ctx)
{
    struct text_encoder *t = ctx;
    oz_qwen25_vl_forward(x, &t->m, &t->b, &t->out);
}

static void make_text(struct text_encoder *t)
{
    static struct oz_arena host;
    static struct oz_ragged sequence;
    static struct oz_act tables[2];
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
    require(oz_arena_init_host(&host, "host", oz_qwen25_vl_host_bytes(&c), &err));
    require(oz_qwen25_vl_build(&t->m, &c, &host, &t->table, "", &err));
    sequence = sequences(1, PROMPT_TOKENS);
    tables[0] = random_rows(PROMPT_TOKENS, 64);
    tables[1] = random_rows(PROMPT_TOKENS, 64);
    t->b = (struct oz_qwen25_vl_batch){.rows = PROMPT_TOKENS,
                                       .ids = zeros(PROMPT_TOKENS * 4),
                                       .sequences = &sequence,
                                       .cosine = &tables[0],
                                       .sine = &tables[1]};
    t->out = random_rows(PROMPT_TOKENS, c.hidden);
}

struct decoder {
    struct oz_qwen_vae m;
    struct oz_layer_table table;
    struct oz_act latent, out;
};

static void run_vae(struct oz_exec *x, void *ctx)
{
    struct decoder *t = ctx;
    oz_qwen_vae_decode(x, &t->m, &t->latent, 1, 2 * SIDE, 2 * SIDE, &t->out);
}

static void make_vae(struct decoder *t)
{
    static struct oz_arena host;
    struct oz_qwen_vae_config c = {.base_dim = 96,
                                   .z_dim = 16,
                                   .num_res_blocks = 2,
                                   .input_channels = 3,
                                   .levels = 4,
                                   .dim_mult = {1, 2, 4, 4}};
    require(oz_arena_init_host(&host, "host", oz_qwen_vae_host_bytes(&c), &err));
    require(oz_qwen_vae_build(&t->m, &c, &host, &t->table, false, &err));
    t->m.band_bytes = INT64_C(512) << 20;
    t->latent = random_rows(4 * SIDE * SIDE, 16);
    t->out = random_rows(256 * SIDE * SIDE, 3);
}

/* ---- all of it, in one scheme ---- */

struct models {
    struct transformer transformer;
    struct text_encoder text;
    struct decoder vae;
    struct dummy weights[3];
};

static void bench_scheme(struct models *m, const char *scheme, bool first)
{
    char name[64];
    const char *coded = strcmp(scheme, "bf16") == 0 ? NULL : scheme;
    double start = oz_clock_seconds();
    require(dummy_fill(&m->weights[0], &m->transformer.table, coded, &err));
    require(dummy_fill(&m->weights[1], &m->text.table, coded, &err));
    require(dummy_fill(&m->weights[2], &m->vae.table, NULL, &err));
    (void)printf("-- %s: weights of %.2f, %.2f and %.2f GiB made in %.1f s\n", scheme,
                 (double)m->weights[0].bytes * 0x1p-30, (double)m->weights[1].bytes * 0x1p-30,
                 (double)m->weights[2].bytes * 0x1p-30, oz_clock_seconds() - start);
    double alone = 0;
    for (int i = 0; i < 3; i++) {
        (void)snprintf(name, sizeof name, "step %s x%d", scheme, together[i]);
        const struct work w = {.name = name,
                               .parts = {{run_transformer, &m->transformer.batches[i], 1}},
                               .repeats = i == 0 ? REPEATS : 3,
                               .profiled = i == 0};
        double seconds = time_work(&w);
        alone = i == 0 ? seconds : alone;
        (void)printf("    %.2f pictures' steps a second, %.3f of 1 / latency\n",
                     together[i] / seconds, together[i] * alone / seconds);
    }
    (void)snprintf(name, sizeof name, "text encoder %s", scheme);
    const struct work text = {
        .name = name, .parts = {{run_text, &m->text, 1}}, .repeats = REPEATS, .profiled = true};
    (void)time_work(&text);
    if (first) {
        const struct work vae = {.name = "vae decode",
                                 .parts = {{run_vae, &m->vae, 1}},
                                 .repeats = REPEATS,
                                 .profiled = true};
        (void)time_work(&vae);
    }
    (void)snprintf(name, sizeof name, "picture %s, %d steps", scheme, STEPS);
    const struct work picture = {.name = name,
                                 .parts = {{run_text, &m->text, 1},
                                           {run_transformer, &m->transformer.batches[0], STEPS},
                                           {run_vae, &m->vae, 1}},
                                 .repeats = 3};
    (void)time_work(&picture);
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
    static struct models m;
    struct oz_pool *pool;
    int64_t total;
    int64_t available;
    (void)oz_log_set(print_log, NULL);
    json = argc > 1 ? fopen(argv[1], "w") : NULL;
    if (json == NULL) {
        (void)fprintf(stderr, "usage: gpu_bench OUT.json [DEVICE [SCHEME...]]\n");
        return 2;
    }
    require(oz_pool_create(&pool, 0, &err));
    require(oz_device_open(&dev, argc > 2 ? argv[2] : "cuda", 0, pool, &err));
    require(dev->memory(dev, &available, &total, &err));
    used_before = total - available;
    (void)fprintf(json,
                  "[\n  {\"device\": \"%s\", \"tier\": \"%s\", \"side\": %d, \"text\": %d, "
                  "\"used_before\": %lld}",
                  dev->name, dev->tier, 16 * SIDE, TEXT, (long long)used_before);
    for (int i = 0; i < 3; i++) { /* with one noise */
        require(i == 0 ? dummy_open(&m.weights[0], dev, &err)
                       : dummy_share(&m.weights[i], &m.weights[0]));
    }
    make_transformer(&m.transformer);
    make_text(&m.text);
    make_vae(&m.vae);
    const char *const *schemes = argc > 3 ? (const char *const *)argv + 3 : all;
    int count = argc > 3 ? argc - 3 : 4;
    for (int i = 0; i < count; i++) {
        bench_scheme(&m, schemes[i], i == 0);
    }
    (void)fprintf(json, "\n]\n");
    (void)fclose(json);
    for (int i = 2; i >= 0; i--) {
        dummy_close(&m.weights[i]);
    }
    oz_device_close(&dev);
    oz_pool_destroy(&pool);
    return 0;
}
