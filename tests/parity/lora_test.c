/*
 * The bundled model with two adapters merged while it is loaded, against what diffusers and PEFT make
 * of the same files (tests/golden/lora, made by tools/golden/lora.py): rows of the merged weights, bit
 * for bit, and the first noise prediction. Also: with a scheme on top, and the pictures' metadata.
 */
#include "test.h"

#include <math.h>
#include <ounce/ounce.h>

#include "base/alloc.h"
#include "base/pool.h"
#include "cases.h"
#include "ckpt/table.h"
#include "cpu/kernel.h"
#include "ops/param.h"
#include "pipe/find.h"
#include "pipe/generate.h"

/* Both forwards compute in f32 from the same bits: the project's parity target, as for the model
 * without adapters (pipeline_test.c). */
#define PREDICTION_BOUND 1e-4

#define GOLDEN OZ_TEST_DIR "/golden/lora/"
#define ROW 7

static const char *const loras[2] = {GOLDEN "kohya.safetensors:0.0625",
                                     GOLDEN "diffusers.safetensors:-0.125"};

static struct oz_pool *pool;
static struct oz_ckpt *golden, *reference;

static int setup(void **state)
{
    struct oz_error err;
    require(oz_pool_create(&pool, 0, &err), &err);
    require(oz_ckpt_open(&golden, GOLDEN "golden.safetensors", NULL, &err), &err);
    require(oz_ckpt_open(&reference, OZ_TEST_DIR "/parity/reference.safetensors", NULL, &err),
            &err);
    return 0;
}

static int teardown(void **state)
{
    oz_ckpt_close(&reference);
    oz_ckpt_close(&golden);
    oz_pool_destroy(&pool);
    return 0;
}

static struct oz_pipeline *load(struct oz_device *dev, int32_t lora_count)
{
    struct oz_error err;
    struct oz_pipeline *p;
    char *path;
    const struct oz_pipeline_options options = {.loras = loras, .lora_count = lora_count};
    require(oz_model_find(NULL, &path, &err), &err);
    require(oz_pipeline_open(&p, path, &options, &err), &err);
    oz_free(path);
    require(oz_pipeline_load(p, dev, NULL, NULL, &err), &err);
    return p;
}

static void rows_are_bit_for_bit(void **state)
{
    struct oz_error err;
    struct oz_device *dev; /* of the scalar tier: operators read planes, which can be looked at */
    require(oz_cpu_open(&dev, 0, pool, "scalar", NULL, &err), &err);
    struct oz_pipeline *p = load(dev, 2);
    const struct oz_layer_table *t = &p->components[OZ_COMPONENT_TRANSFORMER].table;
    int rows = 0;
    for (int64_t i = 0; i < oz_ckpt_count(golden); i++) {
        const struct oz_tensor_view *want = oz_ckpt_tensor(golden, i);
        if (strncmp(want->name, "row.", 4) != 0) {
            continue;
        }
        const struct oz_layer *layer = oz_layer_find(t, want->name + 4);
        assert_non_null(layer);
        const struct oz_plane_view *codes = &layer->bind->weight.planes[OZ_PLANE_CODES];
        assert_string_equal(layer->bind->weight.codec->name, "bf16");
        assert_int_equal(want->bytes, codes->row_stride_bytes);
        assert_memory_equal((const uint8_t *)codes->data + ROW * codes->row_stride_bytes,
                            want->data, (size_t)want->bytes);
        rows++;
    }
    assert_int_equal(rows, 6);
    oz_pipeline_close(&p);
    oz_device_close(&dev);
}

/* ---- the first prediction ---- */

static void on_prediction(void *ctx, const struct oz_sequence *s, const struct oz_act *v)
{
    double *worst = ctx;
    const float *got = v->data;
    const struct oz_tensor_view *t = oz_ckpt_find(golden, "noise_pred", NULL);
    assert_non_null(t);
    assert_int_equal(t->elements, v->rows * v->cols);
    for (int64_t i = 0; i < t->elements && s->step == 0; i++) {
        float want;
        memcpy(&want, t->data + 4 * i, sizeof want);
        double d = fabs((double)got[i] - (double)want);
        *worst = d > *worst || d != d ? d : *worst;
    }
}

static int stop_after_a_step(void *ctx, const struct oz_progress *p)
{
    return p->stage == OZ_STAGE_DENOISE && p->done >= 1;
}

/* Largest error of the first prediction of the reference's first case. */
static double first_prediction(const struct oz_pipeline *p)
{
    struct oz_error err;
    struct oz_run_stats stats;
    struct reference_case cases[CASES];
    double worst = 0;
    float *picture;
    read_cases(reference, p, cases);
    const struct oz_run_hooks hooks = {.batch = {.prediction = on_prediction, .ctx = &worst}};
    const struct oz_run run = {
        .pipeline = p, .max_batch = 1, .hooks = &hooks, .progress = stop_after_a_step};
    enum oz_status status = oz_run_generate(&run, &cases[0].task, 1, &picture, &stats, &err);
    assert_int_equal(status, OZ_ERR_CANCELLED);
    return worst;
}

static void predicts_as_the_reference(void **state)
{
    struct oz_error err;
    struct oz_device *dev;
    require(oz_device_open(&dev, "cpu", OZ_DEVICE_F32, pool, &err), &err);
    for (int32_t count = 2; count >= 0; count--) {
        struct oz_pipeline *p = load(dev, count);
        double worst = first_prediction(p);
        print_message("%d adapters: largest error %.2e\n", (int)count, worst);
        /* Without one of them it is another picture. */
        assert_true(count == 2 ? worst < PREDICTION_BOUND : worst > 100 * PREDICTION_BOUND);
        oz_pipeline_close(&p);
    }
    oz_device_close(&dev);
}

/* ---- through the library ---- */

static const char *metadata_with(const char *method, struct oz_image **image)
{
    struct oz_error err;
    struct oz_engine *e;
    struct oz_engine_options options;
    struct oz_image_request request;
    oz_engine_options_default(&options);
    options.loras = loras;
    options.lora_count = 2;
    options.quantization = method;
    options.scheduler_config = "{\"shift_terminal\": null}";
    require(oz_engine_open(&e, &options, &err), &err);
    oz_image_request_default(&request);
    request.prompt = "red apple";
    request.width = request.height = 32;
    request.num_inference_steps = 2;
    require(oz_image_generate(e, &request, 1, image, &err), &err);
    oz_engine_close(&e);
    return oz_image_metadata(*image);
}

static void told_in_pictures(void **state)
{
    static const char *const methods[] = {NULL, "int8"};
    for (size_t i = 0; i < 2; i++) {
        struct oz_image *image;
        const char *text = metadata_with(methods[i], &image);
        assert_non_null(strstr(text, "\"loras\":[{\"file\":\"kohya.safetensors\",\"scale\":0.0625},"
                                     "{\"file\":\"diffusers.safetensors\",\"scale\":-0.125}]"));
        assert_non_null(strstr(text, "\"scheduler_config\":\"{\\\"shift_terminal\\\": null}\""));
        oz_image_destroy(&image);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_bit_for_bit),
        cmocka_unit_test(predicts_as_the_reference),
        cmocka_unit_test(told_in_pictures),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
