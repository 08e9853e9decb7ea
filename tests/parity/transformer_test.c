/*
 * The Qwen-Image transformer against figures that diffusers gave for a tiny, hash-filled model.
 */
#include "test.h"

#include <math.h>

#include "base/json.h"
#include "base/pool.h"
#include "fill.h"
#include "model/qwen_image/qwen_image.h"
#include "ops/ops.h"

/*
 * Figures are printed to six places. Two blocks of some ten products each of K <= 512 terms of order
 * one: each adds about sqrt(K) eps to values of order one, 20 sqrt(512) 2^-24 = 3e-5.
 */
#define TOLERANCE 3e-5

#define IMAGE_ROWS 24
#define TEXT_ROWS 7

static const char config_text[] =
    "{\"num_layers\": 2, \"num_attention_heads\": 4, \"attention_head_dim\": 32,"
    " \"joint_attention_dim\": 64, \"axes_dims_rope\": [8, 12, 12], \"in_channels\": 64,"
    " \"out_channels\": 16, \"patch_size\": 2}";

static struct oz_pool *pool;
static struct oz_device *device;
static struct oz_arena host, planes;
static struct oz_layer_table table;
static struct oz_qwen_image model;

static void require(enum oz_status status, const struct oz_error *err)
{
    if (status != OZ_OK) {
        fail_msg("%s (%s:%d)", err->message, err->file, err->line);
    }
}

static enum oz_status parse(const char *text, struct oz_qwen_image_config *c, struct oz_error *err)
{
    struct oz_json *json;
    require(oz_json_parse(&json, text, strlen(text), "config.json", err), err);
    enum oz_status status = oz_qwen_image_config_read(c, json, "config.json", err);
    oz_json_free(json);
    return status;
}

static int setup(void **state)
{
    struct oz_error err;
    struct oz_qwen_image_config c;
    require(oz_pool_create(&pool, 0, &err), &err);
    require(oz_device_open(&device, "cpu", OZ_DEVICE_F32, pool, &err), &err);
    require(parse(config_text, &c, &err), &err);
    require(oz_arena_init_host(&host, "host", oz_qwen_image_host_bytes(&c), &err), &err);
    require(oz_qwen_image_build(&model, &c, &host, &table, &err), &err);
    require(oz_arena_init_host(&planes, "planes", fill_bytes(&table), &err), &err);
    fill_table(&table, NULL, 0, &planes);
    return 0;
}

static int teardown(void **state)
{
    oz_arena_deinit(&planes);
    oz_arena_deinit(&host);
    oz_device_close(&device);
    oz_pool_destroy(&pool);
    return 0;
}

/* A forward of `copies` equal sequences at t = 0.75, as one batch. */
struct job {
    const struct oz_grid *grids;
    int32_t grid_count, copies;
};

static struct oz_act input(struct oz_exec *x, int64_t rows, int64_t cols, int32_t copies,
                           uint32_t m)
{
    struct oz_act a = oz_exec_act(x, rows * copies, cols);
    for (int32_t i = 0; i < copies && x->mode == OZ_EXEC_RUN; i++) {
        fill_input((float *)a.data + i * rows * cols, rows * cols, m);
    }
    return a;
}

static void forward(struct oz_exec *x, const struct job *j, float *out_host)
{
    struct oz_act mod_acts[4];
    struct oz_qwen_image_mod mod;
    int32_t n = j->copies;
    int64_t pairs = 16;
    int32_t image_offsets[9];
    int32_t text_offsets[9];
    for (int32_t i = 0; i <= n; i++) {
        image_offsets[i] = i * IMAGE_ROWS;
        text_offsets[i] = i * TEXT_ROWS;
    }
    float *t = oz_exec_push(x, sizeof *t);
    int32_t *index = oz_exec_push(x, (size_t)n * IMAGE_ROWS * sizeof *index);
    assert_int_equal(oz_qwen_image_mod_init(&mod, &model, 1, mod_acts, x->step), OZ_OK);
    struct oz_act latents = input(x, IMAGE_ROWS, 64, n, 0);
    struct oz_act states = input(x, TEXT_ROWS, 64, n, 1);
    struct oz_act image_cos = oz_exec_act(x, n * IMAGE_ROWS, pairs);
    struct oz_act image_sin = oz_exec_act(x, n * IMAGE_ROWS, pairs);
    struct oz_act text_cos = oz_exec_act(x, n * TEXT_ROWS, pairs);
    struct oz_act text_sin = oz_exec_act(x, n * TEXT_ROWS, pairs);
    struct oz_act out = oz_exec_act(x, n * IMAGE_ROWS, 64);
    if (x->mode == OZ_EXEC_RUN) {
        *t = 0.75F;
        memset(index, 0, (size_t)n * IMAGE_ROWS * sizeof *index);
        for (int32_t i = 0; i < n; i++) {
            oz_qwen_image_rope(&model.config, j->grids, j->grid_count, TEXT_ROWS,
                               (float *)image_cos.data + i * IMAGE_ROWS * pairs,
                               (float *)image_sin.data + i * IMAGE_ROWS * pairs,
                               (float *)text_cos.data + i * TEXT_ROWS * pairs,
                               (float *)text_sin.data + i * TEXT_ROWS * pairs);
        }
    }
    oz_qwen_image_mod_fill(x, &model, &mod, t);
    struct oz_qwen_image_batch b = {
        .image = {.count = n, .offsets = image_offsets, .device_offsets = image_offsets},
        .text = {.count = n, .offsets = text_offsets, .device_offsets = text_offsets},
        .latents = &latents,
        .text_states = &states,
        .image_cos = &image_cos,
        .image_sin = &image_sin,
        .text_cos = &text_cos,
        .text_sin = &text_sin,
        .mod = &mod,
        .image_mod = index,
        .text_mod = index,
    };
    oz_qwen_image_forward(x, &model, &b, &out);
    if (x->mode == OZ_EXEC_RUN && oz_exec_ok(x)) {
        memcpy(out_host, out.data, (size_t)n * IMAGE_ROWS * 64 * sizeof(float));
    }
}

/* Measures, then runs in an arena of exactly that size. */
static void run(const struct job *j, float *out)
{
    struct oz_error err;
    struct oz_exec x;
    struct oz_arena measure;
    struct oz_arena step;
    oz_arena_init_measure(&measure, "step");
    oz_exec_init(&x, device, OZ_EXEC_MEASURE, &measure, &err);
    forward(&x, j, NULL);
    require(x.status, &err);
    require(oz_arena_init_host(&step, "step", measure.peak_bytes, &err), &err);
    oz_exec_init(&x, device, OZ_EXEC_RUN, &step, &err);
    forward(&x, j, out);
    require(x.status, &err);
    assert_int_equal(step.peak_bytes, measure.peak_bytes);
    oz_arena_deinit(&step);
}

struct golden {
    double first[8], last[4], sum, squares;
};

static void compare(const float *out, const struct golden *g)
{
    size_t n = IMAGE_ROWS * 64;
    double sum = 0;
    double squares = 0;
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        sum += out[i];
        squares += (double)out[i] * out[i];
    }
    for (size_t i = 0; i < 8; i++) {
        worst = fmax(worst, fabs(out[i] - g->first[i]));
    }
    for (size_t i = 0; i < 4; i++) {
        worst = fmax(worst, fabs(out[n - 4 + i] - g->last[i]));
    }
    print_message("largest error %.2e, sum off by %.2e, squares by %.2e\n", worst,
                  fabs(sum - g->sum), fabs(squares - g->squares));
    assert_true(worst < TOLERANCE);
    /* Errors of n values add up like sqrt(n), with the values' sign in the squares. */
    assert_true(fabs(sum - g->sum) < TOLERANCE * sqrt((double)n));
    assert_true(fabs(squares - g->squares) < 2 * TOLERANCE * sqrt((double)n * g->squares));
}

static void test_one_grid(void **state)
{
    static const struct golden g = {
        {0.220602, 0.838990, -0.358981, -0.051767, -0.427253, 0.735525, 0.117867, 0.967411},
        {-0.090512, -0.094479, -1.431106, -0.698481},
        41.53202,
        536.54646};
    const struct oz_grid grid = {1, 4, 6};
    float out[IMAGE_ROWS * 64];
    run(&(struct job){&grid, 1, 1}, out);
    compare(out, &g);
}

static void test_two_grids(void **state)
{
    static const struct golden g = {
        {0.231978, 0.833162, -0.362519, -0.039572, -0.423791, 0.741748, 0.109694, 0.963263},
        {-0.098146, -0.091998, -1.430269, -0.698496},
        41.33314,
        536.18581};
    const struct oz_grid grids[2] = {{1, 4, 3}, {1, 4, 3}};
    float out[IMAGE_ROWS * 64];
    run(&(struct job){grids, 2, 1}, out);
    compare(out, &g);
}

/* Five equal sequences in one ragged batch: each gives the bytes that it gives alone. */
static void test_copies(void **state)
{
    const struct oz_grid grid = {1, 4, 6};
    static float alone[IMAGE_ROWS * 64];
    static float many[5 * IMAGE_ROWS * 64];
    run(&(struct job){&grid, 1, 1}, alone);
    run(&(struct job){&grid, 1, 5}, many);
    for (int i = 0; i < 5; i++) {
        assert_memory_equal(many + i * IMAGE_ROWS * 64, alone, sizeof alone);
    }
}

static void test_switches_refused(void **state)
{
    static const char *const keys[] = {"zero_cond_t", "use_layer3d_rope", "use_additional_t_cond",
                                       "guidance_embeds"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct oz_qwen_image_config c;
        struct oz_error err;
        char text[128];
        (void)snprintf(text, sizeof text, "{\"%s\": true}", keys[i]);
        assert_int_equal(parse(text, &c, &err), OZ_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, keys[i]));
    }
}

static void test_bad_configs(void **state)
{
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"{\"num_layers\": 0}", "num_layers"},
        {"{\"num_layers\": 1e9}", "num_layers"},
        {"{\"num_layers\": \"60\"}", "num_layers"},
        {"{\"axes_dims_rope\": [16, 56]}", "axes_dims_rope"},
        {"{\"axes_dims_rope\": [16, 56, 54]}", "add up"},
        {"{\"axes_dims_rope\": [15, 57, 56]}", "even"},
        {"{\"in_channels\": 60}", "in_channels"},
        {"{\"zero_cond_t\": 1}", "zero_cond_t"},
        {"[]", "object"},
        {"{\"_class_name\": \"FluxTransformer2DModel\"}", "FluxTransformer2DModel"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct oz_qwen_image_config c;
        struct oz_error err = {0};
        assert_int_not_equal(parse(bad[i].text, &c, &err), OZ_OK);
        if (strstr(err.message, bad[i].word) == NULL) {
            fail_msg("%s: the message is \"%s\"", bad[i].text, err.message);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_grid),    cmocka_unit_test(test_two_grids),
        cmocka_unit_test(test_copies),      cmocka_unit_test(test_switches_refused),
        cmocka_unit_test(test_bad_configs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
