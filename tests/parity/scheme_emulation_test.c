/*
 * The bundled model in every scheme: how far the first noise prediction and the latents after five
 * steps move, against an emulation of the same scheme in PyTorch (tests/golden/schemes, made by
 * tools/golden/make_scheme_emulation.py). Both compute in f32 outside the quantized linears, and
 * both leave all but the blocks' own linears as they are. Also: sequences in different activation
 * modes in one batch.
 */
#include "test.h"

#include <math.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/pool.h"
#include "cases.h"
#include "ckpt/table.h"
#include "ops/ops.h"
#include "ops/param.h"
#include "pipe/find.h"
#include "pipe/generate.h"

#define STEPS 5

/* A row of the table, as the emulation names it. */
struct scheme {
    const char *name, *codec;
    enum oz_exponent_rule rule;
    enum oz_act_mode act;
};

static const struct scheme schemes[] = {
    {"fp8_per_tensor/fp8_per_token", "fp8_tensor", OZ_EXPONENT_DEFAULT, OZ_ACT_FP8_TOKEN},
    {"fp8_per_channel/fp8_per_token", "fp8_channel", OZ_EXPONENT_DEFAULT, OZ_ACT_FP8_TOKEN},
    {"fp8_per_block/fp8_per_block", "fp8_block", OZ_EXPONENT_DEFAULT, OZ_ACT_FP8_GROUP},
    {"fp8_per_channel/none", "fp8_channel", OZ_EXPONENT_DEFAULT, OZ_ACT_NONE},
    {"int8/int8_per_token", "int8_channel", OZ_EXPONENT_DEFAULT, OZ_ACT_INT8_TOKEN},
    {"mxfp8/mxfp8", "mxfp8", OZ_EXPONENT_CEIL, OZ_ACT_MXFP8},
    {"mxfp4/none", "mxfp4", OZ_EXPONENT_FLOOR, OZ_ACT_NONE},
    {"mxfp4/mxfp8", "mxfp4", OZ_EXPONENT_FLOOR, OZ_ACT_MXFP8},
    {"mxfp4/mxfp4", "mxfp4", OZ_EXPONENT_FLOOR, OZ_ACT_MXFP4},
    {"mxfp4_even/none", "mxfp4", OZ_EXPONENT_EVEN, OZ_ACT_NONE},
    {"mxfp4_even/mxfp4", "mxfp4", OZ_EXPONENT_EVEN, OZ_ACT_MXFP4},
    {"mxfp4_dualscale/none", "mxfp4_dualscale", OZ_EXPONENT_DEFAULT, OZ_ACT_NONE},
    {"mxfp4_dualscale/mxfp4_dualscale", "mxfp4_dualscale", OZ_EXPONENT_DEFAULT,
     OZ_ACT_MXFP4_DUALSCALE},
    {"nvfp4/none", "nvfp4", OZ_EXPONENT_DEFAULT, OZ_ACT_NONE},
    {"nvfp4/nvfp4", "nvfp4", OZ_EXPONENT_DEFAULT, OZ_ACT_NVFP4},
};
#define SCHEMES (sizeof schemes / sizeof *schemes)

static struct oz_pool *pool;
static struct oz_device *device;
static struct oz_pipeline *pipeline;
static struct oz_ckpt *reference;
static struct oz_json *golden;
static struct reference_case cases[CASES];

static int setup(void **state)
{
    struct oz_error err;
    char *path;
    require(oz_pool_create(&pool, 0, &err), &err);
    require(oz_device_open(&device, "cpu", OZ_DEVICE_F32, pool, &err), &err);
    require(oz_model_find(NULL, &path, &err), &err);
    require(oz_pipeline_open(&pipeline, path, NULL, &err), &err);
    oz_free(path);
    require(oz_pipeline_load(pipeline, device, NULL, NULL, &err), &err);
    require(oz_ckpt_open(&reference, OZ_TEST_DIR "/parity/reference.safetensors", NULL, &err),
            &err);
    require(
        oz_json_parse_file(&golden, OZ_TEST_DIR "/golden/schemes/emulation.json", 1 << 20, &err),
        &err);
    read_cases(reference, pipeline, cases);
    return 0;
}

static int teardown(void **state)
{
    oz_json_free(golden);
    oz_ckpt_close(&reference);
    oz_pipeline_close(&pipeline);
    oz_device_close(&device);
    oz_pool_destroy(&pool);
    return 0;
}

/* ---- the blocks' linears in a scheme ---- */

#define BLOCK_LINEARS 12

static struct oz_linear *block_linear(int32_t block, int i)
{
    struct oz_qwen_image_stream *s = i < BLOCK_LINEARS / 2
                                         ? &pipeline->transformer.blocks[block].image
                                         : &pipeline->transformer.blocks[block].text;
    struct oz_linear *const linears[] = {&s->q, &s->k, &s->v, &s->out, &s->up, &s->down};
    return linears[i % (BLOCK_LINEARS / 2)];
}

/* What a parameter was, and the memory of its planes. */
struct replaced {
    struct oz_param before;
    uint8_t *memory, *packed;
};

static void encode(struct oz_weight *w, enum oz_exponent_rule rule, const float *values)
{
    struct oz_encode_state state;
    oz_encode_state_init(&state);
    state.exponent_rule = rule;
    for (state.pass = 0; state.pass < w->codec->observe_passes; state.pass++) {
        assert_int_equal(w->codec->observe(w, 0, values, w->rows, w->cols, &state), OZ_OK);
    }
    if (w->codec->begin != NULL) {
        w->codec->begin(w, 0, &state);
    }
    assert_int_equal(w->codec->encode(w, 0, 0, values, w->rows, w->cols, &state), OZ_OK);
}

/* Memory for a weight's planes, one after the other. */
static uint8_t *place_planes(struct oz_weight *w)
{
    int64_t total;
    assert_int_equal(oz_weight_bytes(w, &total), OZ_OK);
    uint8_t *memory = test_calloc((size_t)total + 64 * OZ_PLANE_COUNT, 1);
    uint8_t *next = memory;
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        struct oz_plane_view *v = &w->planes[i];
        if (v->present) {
            int64_t bytes;
            assert_int_equal(
                oz_weight_plane_bytes(w, (enum oz_plane)i, &bytes, &v->row_stride_bytes), OZ_OK);
            v->data = next;
            v->bytes = v->slice_stride_bytes = bytes;
            next += (bytes + 63) / 64 * 64;
        }
    }
    return memory;
}

static void quantize(struct oz_param *p, const struct oz_scheme *scheme, struct replaced *r)
{
    struct oz_error err;
    struct oz_plan_answer answer;
    int64_t rows = p->weight.rows;
    int64_t cols = p->weight.cols;
    float *values = test_malloc((size_t)(rows * cols) * sizeof *values);
    r->before = *p;
    for (int64_t i = 0; i < rows; i++) {
        p->weight.codec->decode(&p->weight, 0, i, 0, cols, values + i * cols);
    }
    p->weight = oz_weight_shape(scheme->codec, 1, rows, cols);
    r->memory = place_planes(&p->weight);
    encode(&p->weight, scheme->exponent_rule, values);
    test_free(values);
    require(oz_param_set_acts(p, scheme, &err), &err);
    for (int32_t mode = 0; mode < scheme->mode_count; mode++) {
        const struct oz_plan_request request = {.use = OZ_USE_LINEAR, .mode = mode};
        require(device->ops->plan_param(device, p, &request, &answer, &err), &err);
    }
    p->plan = answer.plan;
    p->packed = NULL;
    if (answer.packed_bytes > 0) {
        struct oz_weight band = p->weight;
        r->packed = oz_alloc_aligned(answer.packed_bytes, 64);
        assert_non_null(r->packed);
        p->packed = r->packed;
        require(device->ops->pack_band(device, NULL, p, 0, 0, rows, &band, &err), &err);
    }
}

static struct replaced *quantize_blocks(const struct oz_scheme *scheme)
{
    int32_t layers = pipeline->transformer.config.layers;
    struct replaced *all = test_calloc((size_t)layers * BLOCK_LINEARS, sizeof *all);
    for (int32_t b = 0; b < layers; b++) {
        for (int i = 0; i < BLOCK_LINEARS; i++) {
            quantize(&block_linear(b, i)->w, scheme, &all[b * BLOCK_LINEARS + i]);
        }
    }
    return all;
}

static void restore_blocks(struct replaced *all)
{
    for (int32_t b = 0; b < pipeline->transformer.config.layers; b++) {
        for (int i = 0; i < BLOCK_LINEARS; i++) {
            struct replaced *r = &all[b * BLOCK_LINEARS + i];
            block_linear(b, i)->w = r->before;
            test_free(r->memory);
            oz_free(r->packed);
        }
    }
    test_free(all);
}

static struct oz_scheme scheme_of(const struct scheme *s)
{
    struct oz_scheme scheme = {.name = s->name,
                               .codec = oz_codec_find(s->codec),
                               .exponent_rule = s->rule,
                               .act_exponent_rule = s->rule,
                               .mode_count = 1,
                               .acts = {s->act}};
    if (s->act == OZ_ACT_MXFP8) {
        scheme.act_exponent_rule = OZ_EXPONENT_CEIL;
    }
    assert_non_null(scheme.codec);
    return scheme;
}

/* ---- distances ---- */

struct watch {
    int index;
    double prediction, latents;
};

static double relative_l2(const struct oz_act *a, int index, const char *name)
{
    char full[96];
    double difference = 0;
    double size = 0;
    const float *got = a->data;
    (void)snprintf(full, sizeof full, "f32.case%d.%s", index, name);
    const struct oz_tensor_view *t = oz_ckpt_find(reference, full, NULL);
    assert_non_null(t);
    assert_int_equal(t->elements, a->rows * a->cols);
    for (int64_t i = 0; i < t->elements; i++) {
        float want;
        memcpy(&want, t->data + 4 * i, sizeof want);
        difference += ((double)got[i] - (double)want) * ((double)got[i] - (double)want);
        size += (double)want * (double)want;
    }
    return sqrt(difference / size);
}

static void on_prediction(void *ctx, const struct oz_sequence *s, const struct oz_act *v)
{
    struct watch *w = ctx;
    if (s->step == 0) {
        w->prediction = relative_l2(v, w->index, "noise_pred.00");
    }
}

static void on_latents(void *ctx, const struct oz_sequence *s, const struct oz_act *latents)
{
    struct watch *w = ctx;
    if (s->step == STEPS - 1) {
        w->latents = relative_l2(latents, w->index, "latents.04");
    }
}

static int stop_after_steps(void *ctx, const struct oz_progress *p)
{
    return p->stage == OZ_STAGE_DENOISE && p->done >= STEPS;
}

static struct watch run_case(int index)
{
    struct oz_error err;
    struct oz_run_stats stats;
    struct watch w = {.index = index};
    const struct oz_run_hooks hooks = {
        .batch = {.prediction = on_prediction, .latents = on_latents, .ctx = &w}};
    const struct oz_run run = {
        .pipeline = pipeline, .max_batch = 1, .hooks = &hooks, .progress = stop_after_steps};
    float *picture;
    enum oz_status status = oz_run_generate(&run, &cases[index].task, 1, &picture, &stats, &err);
    if (status != OZ_ERR_CANCELLED) {
        fail_msg("%s", status == OZ_OK ? "the run was not stopped" : err.message);
    }
    return w;
}

static double expected(const char *scheme, int index, const char *what)
{
    const struct oz_json *rows = oz_json_get(oz_json_get(golden, "schemes"), scheme);
    double d = oz_json_number(oz_json_get(oz_json_at(rows, (size_t)index), what), -1);
    assert_true(d > 0);
    return d;
}

/* Root mean square over the cases, ours over the emulation's. A single case turns on which way a few
 * activations near a tie were rounded; the project's target is 10 % of the whole. */
static void test_schemes(void **state)
{
    for (size_t i = 0; i < SCHEMES; i++) {
        double ours[2] = {0};
        double theirs[2] = {0};
        struct oz_scheme scheme = scheme_of(&schemes[i]);
        struct replaced *before = quantize_blocks(&scheme);
        for (int c = 0; c < CASES; c++) {
            struct watch w = run_case(c);
            double prediction = expected(schemes[i].name, c, "prediction");
            double latents = expected(schemes[i].name, c, "latents");
            print_message("%-34s case %d  prediction %.4f / %.4f  latents %.4f / %.4f\n",
                          schemes[i].name, c, w.prediction, prediction, w.latents, latents);
            ours[0] += w.prediction * w.prediction;
            ours[1] += w.latents * w.latents;
            theirs[0] += prediction * prediction;
            theirs[1] += latents * latents;
        }
        restore_blocks(before);
        for (int j = 0; j < 2; j++) {
            double ratio = sqrt(ours[j] / theirs[j]);
            print_message("%-34s %s %.4f / %.4f: ratio %.3f\n", schemes[i].name,
                          j == 0 ? "prediction" : "latents   ", sqrt(ours[j] / CASES),
                          sqrt(theirs[j] / CASES), ratio);
            /* Five steps of 4-bit activations branch on single ties: three orders of the same sums give
             * .139, .145 and .158 for dual scale where the emulation has .166. So latents must not be
             * worse by more; the lower bound only says that they were quantized. */
            if (!(ratio <= 1.10 && ratio >= (j == 0 ? 0.90 : 0.75))) {
                fail_msg("%s is not the emulation's", schemes[i].name);
            }
        }
    }
}

/* ---- modes in one batch ---- */

static float *picture_of(int32_t max_batch, const struct oz_task *all, int32_t count,
                         float **pictures)
{
    struct oz_error err;
    struct oz_run_stats stats;
    const struct oz_run run = {.pipeline = pipeline, .max_batch = max_batch};
    require(oz_run_generate(&run, all, count, pictures, &stats, &err), &err);
    assert_int_equal(stats.loop_allocs, 0);
    assert_true(stats.used.step <= stats.measured.step);
    assert_int_equal(stats.used.plan, stats.measured.plan);
    return pictures[0];
}

static size_t picture_bytes(const struct oz_task *t)
{
    return 3 * sizeof(float) * (size_t)t->width * (size_t)t->height;
}

/* Requests of other lengths join half-way, so that steps in both modes meet in one batch: the same
 * bytes as alone. The second mode is no idle switch: without it the pictures differ. */
static void test_modes_in_a_batch(void **state)
{
    static const int32_t steps[] = {0, 2, 3};
    static const int32_t lengths[] = {4, 2, 5, 3};
    struct oz_scheme scheme = {.name = "mxfp4",
                               .codec = oz_codec_find("mxfp4"),
                               .mode_count = 2,
                               .acts = {OZ_ACT_MXFP4, OZ_ACT_NVFP4}};
    struct oz_task all[4];
    float *alone[4];
    float *plain[4];
    struct replaced *before = quantize_blocks(&scheme);
    for (int i = 0; i < 4; i++) {
        struct oz_error err;
        all[i] = (struct oz_task){.prompt = cases[i % CASES].prompt,
                                  .negative_prompt = " ",
                                  .width = 32 + 16 * i,
                                  .height = 64,
                                  .steps = lengths[i],
                                  .scale = i % 2 == 0 ? 4.0 : 1.0,
                                  .seed = 100 + (uint64_t)i};
        require(oz_task_resolve(&all[i], pipeline, 0, &err), &err);
    }
    (void)picture_of(1, all, 4, plain);
    pipeline->fallback_steps = steps;
    pipeline->fallback_step_count = 3;
    (void)picture_of(1, all, 4, alone);
    for (int32_t batch = 2; batch <= 4; batch++) {
        float *together[4];
        (void)picture_of(batch, all, 4, together);
        for (int i = 0; i < 4; i++) {
            assert_memory_equal(together[i], alone[i], picture_bytes(&all[i]));
            oz_free(together[i]);
        }
    }
    for (int i = 0; i < 4; i++) {
        assert_memory_not_equal(plain[i], alone[i], picture_bytes(&all[i]));
        oz_free(alone[i]);
        oz_free(plain[i]);
    }
    pipeline->fallback_steps = NULL;
    pipeline->fallback_step_count = 0;
    restore_blocks(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schemes),
        cmocka_unit_test(test_modes_in_a_batch),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
