/*
 * The bundled model from prompt to picture against what diffusers computed from the same weights
 * (reference.safetensors), and what the run promises: bytes that do not depend on neighbours or
 * threads, memory as measured, no allocation while stepping.
 */
#include "test.h"

#include <math.h>

#include "base/alloc.h"
#include "base/pool.h"
#include "cases.h"
#include "ckpt/table.h"
#include "ops/ops.h"
#include "pipe/find.h"
#include "pipe/generate.h"

/* Bounds of the project's parity target; an independent f32 implementation reaches 1e-5. */
#define EMBEDS_BOUND 5e-5
#define PREDICTION_BOUND 1e-4
#define LATENTS_BOUND 1e-4
#define PICTURE_DB 100.0

/* How far a case is from the reference: maximum absolute errors. */
struct distance {
    double embeds, prediction, latents, picture_db;
    int bytes; /* of rounded pictures */
};

static struct oz_pool *pool;
static struct oz_device *device;
static struct oz_pipeline *pipeline;
static struct oz_ckpt *reference;
static struct reference_case cases[CASES];

static void open_pipeline(struct oz_device *dev, struct oz_pipeline **p)
{
    struct oz_error err;
    char *path;
    require(oz_model_find(NULL, &path, &err), &err);
    require(oz_pipeline_open(p, path, NULL, &err), &err);
    oz_free(path);
    require(oz_pipeline_load(*p, dev, NULL, NULL, &err), &err);
}

static int setup(void **state)
{
    struct oz_error err;
    require(oz_pool_create(&pool, 0, &err), &err);
    require(oz_device_open(&device, "cpu", OZ_DEVICE_F32, pool, &err), &err);
    open_pipeline(device, &pipeline);
    require(oz_ckpt_open(&reference, OZ_TEST_DIR "/parity/reference.safetensors", NULL, &err),
            &err);
    read_cases(reference, pipeline, cases);
    return 0;
}

static int teardown(void **state)
{
    oz_ckpt_close(&reference);
    oz_pipeline_close(&pipeline);
    oz_device_close(&device);
    oz_pool_destroy(&pool);
    return 0;
}

/* A reference tensor "f32.case<k>.<name>". */
static const struct oz_tensor_view *expected(int index, const char *name)
{
    char full[96];
    (void)snprintf(full, sizeof full, "f32.case%d.%s", index, name);
    const struct oz_tensor_view *t = oz_ckpt_find(reference, full, NULL);
    if (t == NULL) {
        fail_msg("the reference lacks %s", full);
    }
    return t;
}

static double largest_error(const float *got, const struct oz_tensor_view *t, int64_t count)
{
    double worst = 0;
    assert_int_equal(t->elements, count);
    for (int64_t i = 0; i < count; i++) {
        float want;
        memcpy(&want, t->data + 4 * i, sizeof want);
        double d = fabs((double)got[i] - (double)want);
        worst = d > worst || d != d ? d : worst;
    }
    return worst;
}

/* ---- watching a run ---- */

struct watch {
    int index; /* of the case */
    struct distance d;
};

static void raise_to(double *worst, double d)
{
    *worst = d > *worst || d != d ? d : *worst;
}

static void on_text(void *ctx, const struct oz_sequence *s, int branch)
{
    struct watch *w = ctx;
    const struct oz_act *a = &s->text[branch];
    const char *name = branch == OZ_BRANCH_NEGATIVE ? "negative_prompt_embeds" : "prompt_embeds";
    raise_to(&w->d.embeds, largest_error(a->data, expected(w->index, name), a->rows * a->cols));
    if (branch == OZ_BRANCH_POSITIVE) {
        const struct oz_tensor_view *ids = expected(w->index, "input_ids");
        assert_int_equal(ids->elements, s->tokens[branch].count);
        for (int64_t i = 0; i < ids->elements; i++) {
            int64_t id;
            memcpy(&id, ids->data + 8 * i, sizeof id);
            assert_int_equal(s->tokens[branch].ids[i], id);
        }
        const struct oz_tensor_view *init = expected(w->index, "latents.init");
        assert_int_equal(init->bytes, (int64_t)(s->latents.rows * s->latents.cols * 4));
        assert_memory_equal(s->latents.data, init->data, (size_t)init->bytes);
    }
}

static void on_prediction(void *ctx, const struct oz_sequence *s, const struct oz_act *v)
{
    struct watch *w = ctx;
    if (s->step == 0) {
        assert_int_equal(v->stride, v->cols);
        raise_to(&w->d.prediction,
                 largest_error(v->data, expected(w->index, "noise_pred.00"), v->rows * v->cols));
    }
}

static void on_latents(void *ctx, const struct oz_sequence *s, const struct oz_act *latents)
{
    struct watch *w = ctx;
    char name[32];
    (void)snprintf(name, sizeof name, "latents.%02d", s->step);
    raise_to(&w->d.latents,
             largest_error(latents->data, expected(w->index, name), latents->rows * latents->cols));
}

static void judge_picture(struct watch *w, const float *picture)
{
    const struct oz_tensor_view *t = expected(w->index, "image");
    double squares = 0;
    for (int64_t i = 0; i < t->elements; i++) {
        float want;
        memcpy(&want, t->data + 4 * i, sizeof want);
        double d = (double)picture[i] - (double)want;
        squares += d * d;
        long bytes = labs(lrintf(picture[i] * 255.0F) - lrintf(want * 255.0F));
        w->d.bytes = (int)bytes > w->d.bytes ? (int)bytes : w->d.bytes;
    }
    w->d.picture_db = -10 * log10(squares / (double)t->elements + 1e-30);
}

/* Runs a case and says how far it is from the reference. */
static struct distance run_case(const struct oz_pipeline *p, int index)
{
    struct oz_error err;
    struct oz_run_stats stats;
    struct watch w = {.index = index};
    const struct oz_run_hooks hooks = {
        .batch = {.prediction = on_prediction, .latents = on_latents, .ctx = &w},
        .text = on_text,
        .ctx = &w};
    const struct oz_run run = {.pipeline = p, .max_batch = 1, .hooks = &hooks};
    float *picture;
    require(oz_run_generate(&run, &cases[index].task, 1, &picture, &stats, &err), &err);
    judge_picture(&w, picture);
    oz_free(picture);
    return w.d;
}

static bool within_bounds(const struct distance *d)
{
    return d->embeds < EMBEDS_BOUND && d->prediction < PREDICTION_BOUND &&
           d->latents < LATENTS_BOUND && d->picture_db >= PICTURE_DB && d->bytes <= 1;
}

static void print_distance(const char *what, const struct distance *d)
{
    print_message("%-34s embeds %.1e  prediction %.1e  latents %.1e  picture %.1f dB, bytes %d\n",
                  what, d->embeds, d->prediction, d->latents, d->picture_db, d->bytes);
}

/* Under sanitizers: some of the cases are enough. */
static bool is_few(void)
{
    return getenv("OUNCE_TEST_FEW") != NULL;
}

static void test_cases(void **state)
{
    for (int i = 0; i < (is_few() ? 1 : CASES); i++) {
        struct distance d = run_case(pipeline, i);
        print_distance(cases[i].prompt, &d);
        assert_true(within_bounds(&d));
    }
}

/* What diffusers' own bf16 reaches against its f32: the default precision must not be worse. */
static void test_default_precision(void **state)
{
    static const double least_db[CASES] = {52.3, 51.3, 46.8};
    struct oz_device *dev;
    struct oz_error err;
    struct oz_pipeline *p;
    require(oz_device_open(&dev, "cpu", 0, pool, &err), &err);
    open_pipeline(dev, &p);
    for (int i = 0; i < (is_few() ? 1 : CASES); i++) {
        struct distance d = run_case(p, i);
        print_distance(cases[i].prompt, &d);
        print_message("%-34s %.1f dB of at least %.1f\n", "  default precision:", d.picture_db,
                      least_db[i]);
        assert_true(d.picture_db >= least_db[i]);
    }
    oz_pipeline_close(&p);
    oz_device_close(&dev);
}

/* ---- planted faults ---- */

/* Operators that change their arguments before they pass them on. */
static const struct oz_op_table *honest;

static enum oz_status erf_linear(const struct oz_op_ctx *ctx, const struct oz_linear_args *a)
{
    struct oz_linear_args changed = *a;
    changed.fn = a->fn == OZ_FN_GELU_TANH ? OZ_FN_GELU_ERF : a->fn;
    return honest->linear(ctx, &changed);
}

static enum oz_status layer_eps(const struct oz_op_ctx *ctx, const struct oz_norm_mod_args *a)
{
    struct oz_norm_mod_args changed = *a;
    changed.eps = a->norm == OZ_NORM_LAYER ? 1e-5F : a->eps;
    return honest->norm_mod(ctx, &changed);
}

static enum oz_status rms_eps(const struct oz_op_ctx *ctx, const struct oz_norm_mod_args *a)
{
    struct oz_norm_mod_args changed = *a;
    changed.eps = a->norm == OZ_NORM_RMS ? 1e-5F : a->eps;
    return honest->norm_mod(ctx, &changed);
}

static enum oz_status qk_eps(const struct oz_op_ctx *ctx, const struct oz_qk_norm_rope_args *a)
{
    struct oz_qk_norm_rope_args changed = *a;
    changed.eps = 1e-5F;
    return honest->qk_norm_rope(ctx, &changed);
}

/* An RMS norm with the usual eps of 1e-5 inside the root, where the reference has max(|x|, 1e-12) and
 * nothing else. (An eps of 1e-6 there moves the pictures to 117 dB: below what a bound of 100 dB can
 * see, above what f32 rounding does, 130 dB.) */
static enum oz_status vae_eps(const struct oz_op_ctx *ctx, const struct oz_norm_mod_args *a)
{
    struct oz_norm_mod_args changed = *a;
    if (a->norm == OZ_NORM_CHANNEL_L2) {
        changed.norm = OZ_NORM_RMS;
        changed.eps = 1e-5F;
    }
    return honest->norm_mod(ctx, &changed);
}

/* The timestep 1000 sigma rounded to bf16, as the bf16 reference rounds it. */
static enum oz_status rounded_time(const struct oz_op_ctx *ctx, const struct oz_time_embed_args *a)
{
    float t[64];
    struct oz_time_embed_args changed = *a;
    assert_true(a->rows <= 64);
    for (int64_t i = 0; i < a->rows; i++) {
        uint32_t u;
        t[i] = a->t[i] * a->scale;
        memcpy(&u, &t[i], sizeof u);
        u = (u + 0x7FFF + ((u >> 16) & 1)) & 0xFFFF0000;
        memcpy(&t[i], &u, sizeof u);
        t[i] /= a->scale;
    }
    changed.t = t;
    return honest->time_embed(ctx, &changed);
}

static void plant(struct oz_op_table *t, const char *fault)
{
    if (strcmp(fault, "erf GELU") == 0) {
        t->linear = erf_linear;
    } else if (strcmp(fault, "LayerNorm eps 1e-5") == 0) {
        t->norm_mod = layer_eps;
    } else if (strcmp(fault, "RMS eps 1e-5") == 0) {
        t->norm_mod = rms_eps;
        t->qk_norm_rope = qk_eps;
    } else if (strcmp(fault, "timestep rounded to bf16") == 0) {
        t->time_embed = rounded_time;
    } else if (strcmp(fault, "an eps inside the VAE's norm") == 0) {
        t->norm_mod = vae_eps;
    } else {
        fail_msg("no such fault: %s", fault);
    }
}

/* Each of the bounds' faults is caught by at least one case. */
static void test_planted_faults(void **state)
{
    static const char *const faults[] = {"erf GELU", "LayerNorm eps 1e-5", "RMS eps 1e-5",
                                         "timestep rounded to bf16",
                                         "an eps inside the VAE's norm"};
    if (is_few()) {
        skip(); /* of the bounds alone: there is nothing else in it to see */
    }
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        struct oz_device *faulty;
        struct oz_error err;
        struct oz_pipeline *p;
        require(oz_device_open(&faulty, "cpu", OZ_DEVICE_F32, pool, &err), &err);
        honest = faulty->ops;
        struct oz_op_table table = *honest;
        plant(&table, faults[f]);
        faulty->ops = &table;
        open_pipeline(faulty, &p);
        bool caught = false;
        for (int i = 0; i < CASES && !caught; i++) {
            struct distance d = run_case(p, i);
            print_distance(faults[f], &d);
            caught = !within_bounds(&d);
        }
        oz_pipeline_close(&p);
        faulty->ops = honest;
        oz_device_close(&faulty);
        if (!caught) {
            fail_msg("the bounds do not catch: %s", faults[f]);
        }
    }
}

/* ---- what a run promises ---- */

static const struct {
    const char *prompt;
    int32_t width, height, steps;
    double scale;
} mixed[] = {
    {"red apple", 64, 64, 5, 4.0},
    {"grinning cat", 96, 48, 3, 1.0},
    {"man firefighter: dark skin tone", 32, 80, 7, 2.5},
    {"rainbow", 128, 64, 4, 3.0},
};
#define MIXED (sizeof mixed / sizeof *mixed)

static struct oz_task mixed_task(const struct oz_pipeline *p, size_t i)
{
    struct oz_error err;
    struct oz_task t = {.prompt = mixed[i].prompt,
                        .width = mixed[i].width,
                        .height = mixed[i].height,
                        .steps = mixed[i].steps,
                        .scale = mixed[i].scale,
                        .seed = 100 + i};
    require(oz_task_resolve(&t, p, 0, &err), &err);
    return t;
}

static size_t picture_bytes(const struct oz_task *t)
{
    return 3 * sizeof(float) * (size_t)t->width * (size_t)t->height;
}

/* Alone, in batches of two to four (where requests join half-way), with one, two and three threads:
 * the same bytes; memory as measured; no allocation inside the loop. */
static void test_same_bytes(void **state)
{
    float *alone[MIXED];
    for (int32_t threads = 1; threads <= 3; threads++) {
        struct oz_error err;
        struct oz_pool *own;
        struct oz_device *dev;
        struct oz_pipeline *p;
        require(oz_pool_create(&own, threads, &err), &err);
        require(oz_device_open(&dev, "cpu", 0, own, &err), &err);
        open_pipeline(dev, &p);
        struct oz_task tasks[MIXED];
        for (size_t i = 0; i < MIXED; i++) {
            tasks[i] = mixed_task(p, i);
        }
        for (int32_t batch = 1; batch <= (int32_t)MIXED; batch++) {
            if (is_few() && batch != 1 && (threads != 2 || batch != 3)) {
                continue;
            }
            const struct oz_run run = {.pipeline = p, .max_batch = batch};
            struct oz_run_stats stats;
            float *pictures[MIXED];
            require(oz_run_generate(&run, tasks, MIXED, pictures, &stats, &err), &err);
            assert_int_equal(stats.loop_allocs, 0);
            assert_int_equal(stats.used.step, stats.measured.step);
            assert_int_equal(stats.used.plan, stats.measured.plan);
            assert_int_equal(stats.used.sequences, stats.measured.sequences);
            for (size_t i = 0; i < MIXED; i++) {
                if (threads == 1 && batch == 1) {
                    alone[i] = pictures[i];
                } else {
                    assert_memory_equal(pictures[i], alone[i], picture_bytes(&tasks[i]));
                    oz_free(pictures[i]);
                }
            }
        }
        oz_pipeline_close(&p);
        oz_device_close(&dev);
        oz_pool_destroy(&own);
    }
    for (size_t i = 0; i < MIXED; i++) {
        oz_free(alone[i]);
    }
}

/* What a call of one task gives, and how many linears of modulation ran for it. */
static int64_t mod_runs;

static void count_mods(void *ctx, enum oz_op op, const void *args)
{
    const struct oz_pipeline *p = ctx;
    const struct oz_linear_args *a = args;
    mod_runs += op == OZ_OP_LINEAR && a->w == &p->transformer.norm_out;
}

static float *draw_watched(const struct oz_pipeline *p, const struct oz_task *task, int64_t runs)
{
    struct oz_error err;
    struct oz_run_stats stats;
    float *picture;
    const struct oz_run run = {
        .pipeline = p, .max_batch = 1, .watch = count_mods, .watch_ctx = (void *)(uintptr_t)p};
    mod_runs = 0;
    require(oz_run_generate(&run, task, 1, &picture, &stats, &err), &err);
    assert_int_equal(mod_runs, runs);
    assert_int_equal(stats.used.table, stats.measured.table);
    assert_true((stats.used.table > 0) == (p->modulation->mode != OZ_MODULATION_RESIDENT));
    return picture;
}

static int64_t weight_bytes(const struct oz_pipeline *p)
{
    const struct oz_load_stats *s = &p->components[OZ_COMPONENT_TRANSFORMER].loaded;
    return s->arena_bytes + s->mapped_bytes;
}

/* Weights that pass by make the same table; a table that has the timesteps is not made again. */
static void test_modulation_modes(void **state)
{
    struct oz_error err;
    struct oz_pipeline *p[OZ_MODULATION_COUNT];
    for (int i = 0; i < OZ_MODULATION_COUNT; i++) {
        const struct oz_pipeline_options options = {.modulation = (enum oz_modulation_mode)i};
        require(oz_pipeline_open(&p[i], OZ_TEST_DIR "/../models/emoji", &options, &err), &err);
        require(oz_pipeline_load(p[i], device, NULL, NULL, &err), &err);
    }
    assert_true(weight_bytes(p[OZ_MODULATION_SCHEDULE]) + (9 << 20) <
                weight_bytes(p[OZ_MODULATION_RESIDENT]));
    struct oz_task tasks[3] = {mixed_task(p[0], 0), mixed_task(p[0], 1), mixed_task(p[0], 0)};
    tasks[1].steps = tasks[0].steps + 3;
    tasks[2].seed++;
    for (int k = is_few() ? 2 : 0; k < 3; k++) {
        float *want = draw_watched(p[OZ_MODULATION_RESIDENT], &tasks[k], 1);
        float *got = draw_watched(p[OZ_MODULATION_SCHEDULE], &tasks[k], 1);
        float *again = draw_watched(p[OZ_MODULATION_SCHEDULE], &tasks[k], 0);
        float *grid = draw_watched(p[OZ_MODULATION_GRID], &tasks[k], k == 0 || is_few());
        assert_memory_equal(got, want, picture_bytes(&tasks[k]));
        assert_memory_equal(again, want, picture_bytes(&tasks[k]));
        size_t values = picture_bytes(&tasks[k]) / sizeof *grid;
        double sum = 0;
        for (size_t i = 0; i < values; i++) {
            sum += ((double)grid[i] - want[i]) * ((double)grid[i] - want[i]);
        }
        double psnr = -10 * log10(sum / (double)values);
        print_message("grid: %.1f dB\n", psnr);
        assert_true(sum > 0 && psnr > 25); /* rounded timesteps: another picture, a near one */
        oz_free(want);
        oz_free(got);
        oz_free(again);
        oz_free(grid);
    }
    for (int i = 0; i < OZ_MODULATION_COUNT; i++) {
        oz_pipeline_close(&p[i]);
    }
}

static int cancel_at_step(void *ctx, const struct oz_progress *p)
{
    const int64_t *at = ctx;
    return p->stage == OZ_STAGE_DENOISE && p->done >= *at;
}

static void test_cancel(void **state)
{
    int64_t at = 2;
    struct oz_error err;
    struct oz_run_stats stats;
    float *picture;
    struct oz_task task = mixed_task(pipeline, 0);
    const struct oz_run run = {
        .pipeline = pipeline, .max_batch = 1, .progress = cancel_at_step, .progress_ctx = &at};
    assert_int_equal(oz_run_generate(&run, &task, 1, &picture, &stats, &err), OZ_ERR_CANCELLED);
    assert_null(picture);
}

static void test_one_step(void **state)
{
    struct oz_error err;
    struct oz_run_stats stats;
    float *picture;
    struct oz_task task = mixed_task(pipeline, 0);
    const struct oz_run run = {.pipeline = pipeline, .max_batch = 1};
    task.steps = 1;
    require(oz_run_generate(&run, &task, 1, &picture, &stats, &err), &err);
    for (size_t i = 0; i < picture_bytes(&task) / sizeof(float); i++) {
        assert_true(picture[i] >= 0.0F && picture[i] <= 1.0F);
    }
    oz_free(picture);
}

/* A run that fails at any allocation gives everything back (checked by the sanitizers) and says so. */
static void test_allocation_failures(void **state)
{
    struct oz_task task = mixed_task(pipeline, 0);
    const struct oz_run run = {.pipeline = pipeline, .max_batch = 2};
    task.steps = 1;
    task.width = task.height = 16;
    for (uint64_t n = 1;; n++) {
        struct oz_error err = {0};
        struct oz_run_stats stats;
        float *picture;
        oz_alloc_fail_at(n, 0);
        enum oz_status status = oz_run_generate(&run, &task, 1, &picture, &stats, &err);
        oz_alloc_fail_at(0, 0);
        if (status == OZ_OK) {
            oz_free(picture);
            assert_true(n > 10);
            return;
        }
        assert_int_equal(status, OZ_ERR_NOMEM);
        assert_null(picture);
        assert_true(err.message[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_default_precision),
        cmocka_unit_test(test_planted_faults),
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_modulation_modes),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_one_step),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
