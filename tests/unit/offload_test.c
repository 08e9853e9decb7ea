/*
 * Offloaded weights, on a device with memory of its own whose uploads are late (late_device.h): a weight
 * that is read before its upload was awaited is another block's, and one that is overwritten too early
 * is noticed.
 */
#include "test.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/pool.h"
#include "dev/device.h"
#include "late_device.h"
#include "pipe/generate.h"
#include "pipe/pipeline.h"

#define MODEL OZ_TEST_DIR "/../models/emoji"
static struct oz_pool *pool;
static struct oz_device *cpu;
static struct oz_device far;
static struct oz_error err;

static void require(enum oz_status status)
{
    if (status != OZ_OK) {
        fail_msg("%s", err.message);
    }
}

static int start(void **state)
{
    (void)state;
    if (oz_pool_create(&pool, 2, &err) != OZ_OK ||
        oz_device_open(&cpu, "cpu", 0, pool, &err) != OZ_OK) {
        return 1;
    }
    late_device_init(&far, cpu);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    oz_device_close(&cpu);
    oz_pool_destroy(&pool);
    return 0;
}

/* ---- pictures ---- */

static struct oz_pipeline *open_model(struct oz_pipeline_options how)
{
    struct oz_pipeline *p;
    require(oz_pipeline_open(&p, MODEL, &how, &err));
    return p;
}

#define PICTURES 3
#define VALUES ((size_t)3 * 32 * 32)

static enum oz_status draw(const struct oz_pipeline *p, int32_t together, float **pictures)
{
    struct oz_task tasks[PICTURES];
    struct oz_run_stats stats;
    const struct oz_run run = {.pipeline = p, .max_batch = together};
    for (int i = 0; i < PICTURES; i++) {
        tasks[i] = (struct oz_task){.prompt = i == 0 ? "red apple" : "a dog",
                                    .width = 32,
                                    .height = 32,
                                    .steps = 2 + (i == 1),
                                    .scale = i == 2 ? 1 : 4,
                                    .seed = 7 + (uint64_t)i};
        require(oz_task_resolve(&tasks[i], p, 0, &err));
    }
    OZ_TRY(oz_run_generate(&run, tasks, PICTURES, pictures, &stats, &err));
    assert_int_equal(stats.loop_allocs, 0);
    assert_true((stats.upload_s > 0) == oz_offload_is_on(p));
    return OZ_OK;
}

static void expect_same(float **got, float **want)
{
    for (int i = 0; i < PICTURES; i++) {
        assert_memory_equal(got[i], want[i], VALUES * sizeof(float));
        oz_free(got[i]);
    }
}

/* All modes, one by one: the same pictures, in a second call, too; memory as planned. */
static void compare_modes(struct oz_pipeline_options how)
{
    float *want[PICTURES];
    size_t all = 0;
    for (int mode = 0; mode < OZ_OFFLOAD_COUNT; mode++) {
        size_t planned;
        how.offload = (enum oz_offload_mode)mode;
        struct oz_pipeline *p = open_model(how);
        require(oz_pipeline_plan(p, &far, &planned, &err));
        assert_int_equal(late_device_taken(), 0); /* nothing is taken by planning */
        require(oz_pipeline_load(p, &far, NULL, NULL, &err));
        assert_int_equal(late_device_taken(), planned);
        assert_int_equal(late_device_pinned(), p->offload->pinned_bytes);
        late_device.uploads = 0;
        for (int32_t together = 1; together <= PICTURES; together += PICTURES - 1) {
            float *got[PICTURES];
            require(draw(p, together, got));
            if (mode == OZ_OFFLOAD_NONE && together == 1) {
                memcpy((void *)want, (void *)got, sizeof want);
                continue;
            }
            expect_same(got, want);
        }
        if (mode == OZ_OFFLOAD_NONE) {
            all = planned;
        } else {
            assert_true(planned < all);
            assert_true(p->offload->pinned_bytes >= all - OZ_DEVICE_ALIGN * 64);
        }
        assert_true((late_device.uploads > 0) == (mode == OZ_OFFLOAD_BLOCK));
        assert_int_equal(late_device.queues, mode == OZ_OFFLOAD_BLOCK);
        oz_pipeline_close(&p);
        assert_int_equal(late_device_taken() + late_device_pinned(), 0);
        assert_int_equal(late_device.queues + late_device.events, 0);
    }
    for (int i = 0; i < PICTURES; i++) {
        oz_free(want[i]);
    }
}

static void modes(void **state)
{
    compare_modes((struct oz_pipeline_options){0});
}

static void with_modulation_that_passes(void **state)
{
    compare_modes((struct oz_pipeline_options){.modulation = OZ_MODULATION_SCHEDULE});
}

static void with_dummies(void **state)
{
    compare_modes((struct oz_pipeline_options){.dummy = true});
}

/* With blocks two at a time there is less on the device than with stages. */
static void less_and_less(void **state)
{
    size_t bytes[OZ_OFFLOAD_COUNT];
    for (int mode = 0; mode < OZ_OFFLOAD_COUNT; mode++) {
        struct oz_pipeline *p =
            open_model((struct oz_pipeline_options){.offload = (enum oz_offload_mode)mode});
        require(oz_pipeline_plan(p, &far, &bytes[mode], &err));
        require(oz_pipeline_plan(p, &far, &bytes[mode], &err)); /* again */
        oz_pipeline_close(&p);
    }
    assert_true(bytes[OZ_OFFLOAD_STAGE] < bytes[OZ_OFFLOAD_NONE]);
    assert_true(2 * bytes[OZ_OFFLOAD_BLOCK] < bytes[OZ_OFFLOAD_STAGE]);
}

/* ---- what goes wrong ---- */

static void of_the_host(void **state)
{
    size_t bytes;
    struct oz_pipeline *p = open_model((struct oz_pipeline_options){.offload = OZ_OFFLOAD_STAGE});
    assert_int_equal(oz_pipeline_plan(p, cpu, &bytes, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "\"stage\" has nothing to do on device cpu"));
    oz_pipeline_close(&p);
}

/* Any upload may fail: it is said, and nothing is lost. The next call goes on. */
static void failing_uploads(void **state)
{
    for (int mode = OZ_OFFLOAD_STAGE; mode < OZ_OFFLOAD_COUNT; mode++) {
        float *want[PICTURES];
        float *got[PICTURES];
        struct oz_pipeline *p =
            open_model((struct oz_pipeline_options){.offload = (enum oz_offload_mode)mode});
        late_device.uploads_left = 3;
        assert_int_equal(oz_pipeline_load(p, &far, NULL, NULL, &err), OZ_ERR_DEVICE);
        oz_pipeline_close(&p);
        assert_int_equal(late_device_taken() + late_device_pinned(), 0);
        late_device.uploads_left = -1;
        p = open_model((struct oz_pipeline_options){.offload = (enum oz_offload_mode)mode});
        require(oz_pipeline_load(p, &far, NULL, NULL, &err));
        size_t taken_then = late_device_taken();
        require(draw(p, PICTURES, want));
        for (int32_t n = 0; n < 60; n += 7) {
            late_device.uploads_left = n;
            assert_int_equal(draw(p, PICTURES, got), OZ_ERR_DEVICE);
            assert_string_equal(err.message, "The upload fails.");
            assert_int_equal(late_device_taken(), taken_then);
            late_device.uploads_left = -1;
            require(draw(p, PICTURES, got));
            expect_same(got, want);
        }
        for (int i = 0; i < PICTURES; i++) {
            oz_free(want[i]);
        }
        oz_pipeline_close(&p);
        assert_int_equal(late_device.queues + late_device.events, 0);
    }
}

/* Allocations of loading and of a call fail, one in each run: it is said, and nothing is lost. */
static void failing_allocations(void **state)
{
    uint64_t calls = 0;
    int refused = 0;
    for (uint64_t n = 0; n <= calls; n += 1 + n / 2) { /* first: how many there are */
        float *got[PICTURES];
        struct oz_pipeline *p = open_model((struct oz_pipeline_options){
            .modulation = OZ_MODULATION_SCHEDULE, .offload = OZ_OFFLOAD_BLOCK});
        uint64_t before = oz_alloc_calls();
        oz_alloc_fail_at(n, 0);
        enum oz_status status = oz_pipeline_load(p, &far, NULL, NULL, &err);
        if (status == OZ_OK) {
            status = draw(p, PICTURES, got);
        }
        oz_alloc_fail_at(0, 0);
        calls = n == 0 ? oz_alloc_calls() - before : calls;
        assert_true(status == OZ_OK || status == OZ_ERR_NOMEM);
        for (int i = 0; i < PICTURES && status == OZ_OK; i++) {
            oz_free(got[i]);
        }
        refused += status != OZ_OK;
        oz_pipeline_close(&p);
        assert_int_equal(late_device_taken() + late_device_pinned(), 0);
        assert_int_equal(late_device.queues + late_device.events, 0);
    }
    assert_true(refused > 10);
}

static void names(void **state)
{
    enum oz_offload_mode mode;
    assert_int_equal(oz_offload_parse(&mode, NULL, &err), OZ_OK);
    assert_int_equal(mode, OZ_OFFLOAD_NONE);
    assert_int_equal(oz_offload_parse(&mode, "Block", &err), OZ_OK);
    assert_int_equal(mode, OZ_OFFLOAD_BLOCK);
    assert_string_equal(oz_offload_name(OZ_OFFLOAD_STAGE), "stage");
    assert_string_equal(oz_offload_name(OZ_OFFLOAD_COUNT), "?");
    assert_int_equal(oz_offload_parse(&mode, "layer", &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "none, stage and block"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes),
        cmocka_unit_test(with_modulation_that_passes),
        cmocka_unit_test(with_dummies),
        cmocka_unit_test(less_and_less),
        cmocka_unit_test(of_the_host),
        cmocka_unit_test(failing_uploads),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
