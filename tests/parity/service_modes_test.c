/*
 * A service on an engine whose modulation weights do not stay: from the grid it draws what the engine draws
 * alone; from a table that is made for one schedule after the other it does not serve.
 */
#include "test.h"

#define OZ_UNSTABLE
#include <ounce/ounce.h>

#define MODEL OZ_TEST_DIR "/../models/emoji"

static struct oz_error err;

static void ok(enum oz_status status)
{
    if (status != OZ_OK) {
        fail_msg("%s", err.message);
    }
}

static struct oz_engine *open_engine(const char *modulation)
{
    struct oz_engine *engine;
    struct oz_engine_options o;
    oz_engine_options_default(&o);
    o.model = MODEL;
    o.threads = 2;
    o.modulation = modulation;
    ok(oz_engine_open(&engine, &o, &err));
    return engine;
}

static void schedule(void **state)
{
    struct oz_engine *engine = open_engine("schedule");
    struct oz_service *s;
    assert_int_equal(oz_service_open(&s, engine, NULL, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "\"resident\" or \"grid\""));
    assert_null(s);
    oz_engine_close(&engine);
}

static void grid(void **state)
{
    enum { KINDS = 2, JOBS = 5 };
    struct oz_engine *engine = open_engine("grid");
    struct oz_image_request r[KINDS];
    struct oz_image *want[KINDS];
    struct oz_service *s;
    struct oz_service_options o;
    uint64_t ids[JOBS];
    for (int i = 0; i < KINDS; i++) {
        oz_image_request_default(&r[i]);
        r[i].prompt = i == 0 ? "red apple" : "ghost";
        r[i].width = 64;
        r[i].height = i == 0 ? 64 : 96;
        r[i].num_inference_steps = 3 + 2 * i;
        r[i].true_cfg_scale = i == 0 ? 4 : 1;
        r[i].seed = (uint64_t)i + 1;
        ok(oz_image_generate(engine, &r[i], 1, &want[i], &err));
    }
    oz_service_options_default(&o);
    o.max_num_seqs = 2;
    ok(oz_service_open(&s, engine, &o, &err));
    for (int i = 0; i < JOBS; i++) {
        ok(oz_service_submit(s, &r[i % KINDS], 1, NULL, &ids[i], &err));
    }
    for (int i = 0; i < JOBS; i++) {
        struct oz_image *image;
        ok(oz_service_wait(s, ids[i], -1, &err));
        ok(oz_service_take(s, ids[i], &image, &err));
        assert_memory_equal(oz_image_pixels(image), oz_image_pixels(want[i % KINDS]),
                            3 * (size_t)r[i % KINDS].width * (size_t)r[i % KINDS].height);
        assert_string_equal(oz_image_metadata(image), oz_image_metadata(want[i % KINDS]));
        assert_non_null(strstr(oz_image_metadata(image), "\"modulation\":\"grid\""));
        oz_image_destroy(&image);
    }
    oz_service_close(&s);
    for (int i = 0; i < KINDS; i++) {
        oz_image_destroy(&want[i]);
    }
    oz_engine_close(&engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(schedule), cmocka_unit_test(grid)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
