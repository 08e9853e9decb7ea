/* The public interface against models that are wrong, callers that are careless, and little memory. */
#include "test.h"

#include <ounce/ounce.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/pool.h"
#include "pipe/find.h"
#include "pipe/generate.h"
#include "scratch.h"

static struct oz_error err;

static void require(enum oz_status status)
{
    if (status != OZ_OK) {
        fail_msg("%s (%s:%d)", err.message, err.file, err.line);
    }
}

static const char *bundled(void)
{
    return OZ_TEST_DIR "/../models/emoji";
}

static struct oz_engine *open_model(const char *model)
{
    struct oz_engine_options options;
    struct oz_engine *engine;
    oz_engine_options_default(&options);
    options.model = model;
    options.log = scratch_log_line;
    scratch_log_clear();
    require(oz_engine_open(&engine, &options, &err));
    return engine;
}

/* What opening says of a copy of the model in which one text was replaced. */
static void edited(const char *file, const char *old, const char *new_text, enum oz_status status,
                   const char *says)
{
    struct oz_engine_options options;
    struct oz_engine *engine;
    char name[256];
    scratch_remove("edited");
    scratch_copy("edited", bundled());
    (void)snprintf(name, sizeof name, "edited/%s", file);
    scratch_edit(name, old, new_text);
    oz_engine_options_default(&options);
    options.model = scratch_path("edited");
    assert_int_equal(oz_engine_open(&engine, &options, &err), status);
    if (status == OZ_OK) {
        oz_engine_close(&engine);
    } else {
        assert_null(engine);
        assert_non_null(strstr(err.message, says));
    }
}

static void small_request(struct oz_image_request *request, const char *prompt)
{
    oz_image_request_default(request);
    request->prompt = prompt;
    request->width = 32;
    request->height = 32;
    request->num_inference_steps = 1;
}

static void zero_is_the_default(void **state)
{
    struct oz_engine_options options = {.struct_size = sizeof options};
    struct oz_engine *engine;
    options.model = bundled();
    require(oz_engine_open(&engine, &options, &err));
    oz_engine_close(&engine);
    options.precision = (enum oz_precision)77;
    assert_int_equal(oz_engine_open(&engine, &options, &err), OZ_ERR_ARG);
    assert_null(engine);
}

static void the_log_ends_with_its_engine(void **state)
{
    struct oz_engine *first = open_model(bundled());
    struct oz_engine *second = open_model(bundled());
    oz_log(OZ_LOG_WARN, "test", "both");
    oz_engine_close(&first);
    oz_log(OZ_LOG_WARN, "test", "the last one opened");
    oz_engine_close(&second);
    oz_log(OZ_LOG_WARN, "test", "nobody");
    assert_non_null(strstr(scratch_log, "both"));
    assert_non_null(strstr(scratch_log, "the last one opened"));
    assert_null(strstr(scratch_log, "nobody"));
}

static void a_failed_opening_keeps_no_log(void **state)
{
    struct oz_engine_options options;
    struct oz_engine *engine;
    oz_engine_options_default(&options);
    options.model = "/nonexistent/model";
    options.log = scratch_log_line;
    scratch_log_clear();
    assert_int_equal(oz_engine_open(&engine, &options, &err), OZ_ERR_NO_MODEL);
    oz_log(OZ_LOG_WARN, "test", "nobody");
    assert_null(strstr(scratch_log, "nobody"));
}

static void long_lines_are_whole(void **state)
{
    char text[10000];
    uint64_t number = oz_log_set(scratch_log_line, NULL);
    memset(text, 'a', sizeof text - 1);
    memcpy(text + sizeof text - 4, "end", 4);
    scratch_log_clear();
    oz_log(OZ_LOG_WARN, "test", "%s", text);
    assert_non_null(strstr(scratch_log, text));
    oz_log_unset(number);
}

static void a_long_prompt_is_cut(void **state)
{
    struct oz_engine *engine = open_model(bundled());
    struct oz_image_request request;
    struct oz_image *image;
    static char prompt[16000];
    size_t n = 0;
    for (int i = 0; i < 900; i++) {
        n += (size_t)snprintf(prompt + n, sizeof prompt - n, "word%d ", i);
    }
    (void)snprintf(prompt + n, sizeof prompt - n, "the last");
    small_request(&request, prompt);
    request.true_cfg_scale = 1;
    require(oz_image_generate(engine, &request, 1, &image, &err));
    oz_image_destroy(&image);
    char *warning = strstr(scratch_log, "longer than 512 tokens");
    assert_non_null(warning);
    assert_non_null(strstr(warning, "word899 the last\""));
    assert_null(strstr(warning + 1, "longer than 512 tokens"));
    oz_engine_close(&engine);
}

static void a_prompt_beyond_all_measure(void **state)
{
    struct oz_engine *engine = open_model(bundled());
    struct oz_image_request request;
    char *prompt = malloc(OZ_TASK_MAX_TEXT_BYTES + 2);
    assert_non_null(prompt);
    memset(prompt, 'a', OZ_TASK_MAX_TEXT_BYTES + 1);
    prompt[OZ_TASK_MAX_TEXT_BYTES + 1] = '\0';
    small_request(&request, prompt);
    assert_int_equal(oz_image_check(engine, &request, 1, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "the prompt has 262145 bytes"));
    prompt[OZ_TASK_MAX_TEXT_BYTES] = '\0';
    require(oz_image_check(engine, &request, 1, &err));
    free(prompt);
    oz_engine_close(&engine);
}

/* Weights that are no numbers make no numbers, and somebody says so. */
static void spoilt_pictures_are_named(void **state)
{
    static const char file[] = "spoilt/vae/diffusion_pytorch_model.safetensors";
    struct stat st;
    uint64_t header;
    struct oz_image_request request;
    struct oz_image *image;
    scratch_copy("spoilt", bundled());
    char *data = scratch_read(file);
    assert_int_equal(stat(scratch_path("%s", file), &st), 0);
    memcpy(&header, data, sizeof header);
    memset(data + 8 + header, 0xFF, (size_t)st.st_size - 8 - (size_t)header);
    scratch_remove(file);
    scratch_write(file, data, (size_t)st.st_size);
    free(data);
    struct oz_engine *engine = open_model(scratch_path("spoilt"));
    small_request(&request, "red apple");
    require(oz_image_generate(engine, &request, 1, &image, &err));
    assert_non_null(strstr(scratch_log, "3072 of the 3072 values of picture 1"));
    oz_image_destroy(&image);
    oz_engine_close(&engine);
}

static void defaults_out_of_bounds(void **state)
{
    edited("ounce.json", "\"width\": 128", "\"width\": 65536", OZ_ERR_FORMAT, "1 to 16384");
    edited("ounce.json", "\"width\": 128", "\"width\": 120", OZ_ERR_FORMAT, "120 x 128");
    edited("ounce.json", "\"true_cfg_scale\": 4.0", "\"true_cfg_scale\": -4.0", OZ_ERR_FORMAT,
           "true_cfg_scale");
    edited("vae/config.json", "AutoencoderKLQwenImage", "AutoencoderKLWan", OZ_ERR_UNSUPPORTED,
           "AutoencoderKLWan");
}

/* Both broken components are named in one message. */
static void every_component_is_named(void **state)
{
    static const char name[] = "edited/text_encoder/model.safetensors";
    edited("vae/config.json", "\"base_dim\": 24", "\"base_dim\": 32", OZ_ERR_FORMAT, "edited/vae");
    char *data = scratch_read(name);
    struct stat st;
    assert_int_equal(stat(scratch_path("%s", name), &st), 0);
    char *tensor = NULL;
    for (char *p = data; p < data + 10000 && tensor == NULL; p++) {
        tensor = memcmp(p, "layers.1.mlp.up_proj", 20) == 0 ? p : NULL;
    }
    assert_non_null(tensor);
    tensor[7] = '9';
    scratch_remove(name);
    scratch_write(name, data, (size_t)st.st_size);
    free(data);
    struct oz_engine_options options;
    struct oz_engine *engine;
    oz_engine_options_default(&options);
    options.model = scratch_path("edited");
    assert_int_equal(oz_engine_open(&engine, &options, &err), OZ_ERR_FORMAT);
    assert_non_null(strstr(err.message, "layers.1.mlp.up_proj"));
    assert_non_null(strstr(err.message, "layers.9.mlp.up_proj"));
    assert_non_null(strstr(err.message, "edited/vae does not fit"));
}

static enum oz_status little_memory(struct oz_device *dev, int64_t *free_bytes,
                                    int64_t *total_bytes, struct oz_error *error)
{
    *free_bytes = 1 << 20;
    *total_bytes = 2 << 20;
    return OZ_OK;
}

/* What the system would promise and not keep is refused before anything is taken. */
static void too_little_memory(void **state)
{
    struct oz_pool *pool;
    struct oz_device *dev;
    struct oz_pipeline *pipeline;
    struct oz_run_stats stats;
    float *picture;
    require(oz_pool_create(&pool, 1, &err));
    require(oz_device_open(&dev, "cpu", 0, pool, &err));
    require(oz_pipeline_open(&pipeline, bundled(), NULL, &err));
    require(oz_pipeline_load(pipeline, dev, NULL, NULL, &err));
    struct oz_task task = {.prompt = "red apple", .width = 1024, .height = 1024, .steps = 1};
    require(oz_task_resolve(&task, pipeline, 0, &err));
    struct oz_run run = {.pipeline = pipeline, .max_batch = 1};
    dev->memory = little_memory;
    assert_int_equal(oz_run_generate(&run, &task, 1, &picture, &stats, &err), OZ_ERR_NOMEM);
    assert_non_null(strstr(err.message, "1048576 are available of 2097152"));
    assert_null(picture);
    oz_pipeline_close(&pipeline);
    oz_device_close(&dev);
    oz_pool_destroy(&pool);
}

static void a_trace_that_cannot_be_written(void **state)
{
    struct oz_engine_options options;
    struct oz_engine *engine;
    oz_engine_options_default(&options);
    options.model = bundled();
    (void)setenv("OUNCE_TRACE", "/nonexistent/trace.json", 1);
    enum oz_status status = oz_engine_open(&engine, &options, &err);
    (void)unsetenv("OUNCE_TRACE");
    assert_int_equal(status, OZ_ERR_IO);
    assert_null(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_is_the_default),
        cmocka_unit_test(the_log_ends_with_its_engine),
        cmocka_unit_test(a_failed_opening_keeps_no_log),
        cmocka_unit_test(long_lines_are_whole),
        cmocka_unit_test(a_long_prompt_is_cut),
        cmocka_unit_test(a_prompt_beyond_all_measure),
        cmocka_unit_test(spoilt_pictures_are_named),
        cmocka_unit_test(defaults_out_of_bounds),
        cmocka_unit_test(every_component_is_named),
        cmocka_unit_test(too_little_memory),
        cmocka_unit_test(a_trace_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
