/* Model folders with one thing wrong: what oz_engine_open says of each. */
#include "test.h"

#include <ounce/ounce.h>

#include "scratch.h"

#define MODEL OZ_TEST_DIR "/../models/emoji"

static struct oz_error err;

static enum oz_status open_model(const char *path)
{
    struct oz_engine *e = (struct oz_engine *)&err;
    struct oz_engine_options o;
    oz_engine_options_default(&o);
    o.model = path;
    o.threads = 1;
    o.log = scratch_log_line;
    scratch_log_clear();
    enum oz_status status = oz_engine_open(&e, &o, &err);
    if (status != OZ_OK) {
        assert_null(e);
        assert_int_equal(err.code, status);
    }
    oz_engine_close(&e);
    return status;
}

static void is_refused(const char *path, enum oz_status want, const char *phrase)
{
    enum oz_status got = open_model(path);
    if (got != want || strstr(err.message, phrase) == NULL) {
        fail_msg("status %d, \"%s\" instead of %d, \"%s\"", got,
                 got != OZ_OK ? err.message : "opened", want, phrase);
    }
}

/* A fresh copy of the bundled model, large files linked. */
static const char *fresh(void)
{
    scratch_remove("m");
    scratch_copy("m", MODEL);
    return scratch_path("m");
}

static void no_such_model(void **state)
{
    is_refused(scratch_path("absent"), OZ_ERR_NO_MODEL, "No such model");
    assert_non_null(strstr(err.message, "absent"));
    is_refused("no-such-name", OZ_ERR_NO_MODEL, "no-such-name");
    scratch_folder("empty");
    is_refused(scratch_path("empty"), OZ_ERR_NO_MODEL, "no model_index.json");
    is_refused(MODEL "/model_index.json", OZ_ERR_UNSUPPORTED, "is a file");
    assert_int_equal(setenv("OUNCE_MODELS", scratch_path("nowhere"), 1), 0);
    is_refused("zzz", OZ_ERR_NO_MODEL, "nowhere/zzz");
    assert_int_equal(setenv("OUNCE_MODELS", MODEL "/..", 1), 0);
    assert_int_equal(open_model("emoji"), OZ_OK);
    assert_int_equal(open_model(""), OZ_OK);
}

static void the_copy_opens(void **state)
{
    assert_int_equal(open_model(fresh()), OZ_OK);
    scratch_text("m/vae/old.safetensors", "");
    assert_int_equal(open_model(scratch_path("m")), OZ_OK);
    assert_non_null(strstr(scratch_log, "vae/old.safetensors is not part of the model"));
    scratch_remove("m/ounce.json");
    assert_int_equal(open_model(scratch_path("m")), OZ_OK);
}

/* Keys that no config of the family has are named, in each component and in the text's own part. */
static void unknown_keys(void **state)
{
    static const struct {
        const char *file, *old, *new_text, *phrase;
    } keys[] = {
        {"text_encoder/config.json", "\"model_type\": \"qwen2_5_vl\"",
         "\"model_typo\": 1, \"model_type\": \"qwen2_5_vl\"",
         "the key \"model_typo\" is not known"},
        {"text_encoder/config.json", "\"hidden_act\"", "\"hidden_atc\": 1, \"hidden_act\"",
         "config.json (text_config): the key \"hidden_atc\" is not known and has no effect "
         "(nearest: "
         "\"hidden_act\")"},
        {"text_encoder/config.json", "\"rope_type\"", "\"ropetype\": \"x\", \"rope_type\"",
         "the key \"ropetype\""},
        {"transformer/config.json", "\"num_layers\"", "\"layers\": 1, \"num_layers\"",
         "transformer/config.json: the key \"layers\""},
        {"vae/config.json", "\"z_dim\"", "\"z_dimm\": 1, \"z_dim\"",
         "vae/config.json: the key \"z_dimm\""},
        {"scheduler/scheduler_config.json", "\"shift\"", "\"shitf\": 1, \"shift\"",
         "the key \"shitf\""},
    };
    assert_int_equal(open_model(fresh()), OZ_OK);
    assert_null(strstr(scratch_log, "is not known"));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char file[256];
        const char *path = fresh();
        (void)snprintf(file, sizeof file, "m/%s", keys[i].file);
        scratch_edit(file, keys[i].old, keys[i].new_text);
        assert_int_equal(open_model(path), OZ_OK);
        if (strstr(scratch_log, keys[i].phrase) == NULL) {
            fail_msg("\"%s\" is not in \"%s\"", keys[i].phrase, scratch_log);
        }
    }
}

/* One edit of one file, and what is said. */
static const struct {
    const char *file, *old, *new_text;
    enum oz_status status;
    const char *phrase;
} edits[] = {
    {"model_index.json", "\"QwenImagePipeline\"", "\"FluxPipeline\"", OZ_ERR_UNSUPPORTED,
     "the pipeline is \"FluxPipeline\"; this version runs QwenImagePipeline"},
    {"model_index.json", "\"AutoencoderKLQwenImage\"", "\"AutoencoderKL\"", OZ_ERR_UNSUPPORTED,
     "the component vae is AutoencoderKL"},
    {"model_index.json", "\"vae\"", "\"vea\"", OZ_ERR_UNSUPPORTED, "the component vae is absent"},
    {"model_index.json", "\"FlowMatchEulerDiscreteScheduler\"", "\"DDIMScheduler\"",
     OZ_ERR_UNSUPPORTED, "the scheduler is DDIMScheduler"},
    {"model_index.json", "\"scheduler\"", "\"schedular\"", OZ_ERR_UNSUPPORTED,
     "the scheduler is absent"},
    {"model_index.json", "{", "[", OZ_ERR_FORMAT, "not valid JSON"},
    {"model_index.json", "\"QwenImagePipeline\"", "7", OZ_ERR_FORMAT, "must be a string"},
    {"ounce.json", "\"height\"", "\"hieght\"", OZ_ERR_FORMAT,
     "the key \"hieght\" is not known; did you mean \"height\"?"},
    {"ounce.json", "\"height\"", "\"something_else\"", OZ_ERR_FORMAT,
     "the key \"something_else\" is not known."},
    {"ounce.json", "20", "\"20\"", OZ_ERR_FORMAT, "must be an integer, not a string"},
    {"ounce.json", "20", "0", OZ_ERR_FORMAT, "\"num_inference_steps\" is 0; it must lie in 1"},
    {"ounce.json", "{", "[{", OZ_ERR_FORMAT, "ounce.json"},
    {"ounce.json", "128", "100", OZ_ERR_FORMAT, "no multiple of 16"},
    {"ounce.json", "4.0", "-4.0", OZ_ERR_FORMAT, "true_cfg_scale"},
    {"ounce.json", "\" \"", "7", OZ_ERR_FORMAT, "\"negative_prompt\" must be a string"},
    {"scheduler/scheduler_config.json", "\"exponential\"", "\"zigzag\"", OZ_ERR_UNSUPPORTED,
     "zigzag"},
    {"transformer/config.json", "\"num_layers\": 6", "\"num_layers\": 7", OZ_ERR_FORMAT,
     "are missing: transformer_blocks.6."},
    {"transformer/config.json", "\"num_layers\": 6", "\"num_layers\": 5", OZ_ERR_FORMAT,
     "are unexpected: transformer_blocks.5."},
    {"transformer/config.json", "\"num_layers\": 6", "\"num_layers\": -1", OZ_ERR_FORMAT,
     "\"num_layers\" is -1"},
    {"transformer/config.json", "\"num_attention_heads\": 4", "\"num_attention_heads\": 8",
     OZ_ERR_FORMAT, "where the config asks for"},
    {"text_encoder/config.json", "\"hidden_size\": 256", "\"hidden_size\": 512", OZ_ERR_FORMAT, ""},
};

static void one_thing_wrong(void **state)
{
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char file[256];
        const char *path = fresh();
        (void)snprintf(file, sizeof file, "m/%s", edits[i].file);
        print_message("%s: %s -> %s\n", edits[i].file, edits[i].old, edits[i].new_text);
        scratch_edit(file, edits[i].old, edits[i].new_text);
        is_refused(path, edits[i].status, edits[i].phrase);
    }
}

static void missing_files(void **state)
{
    static const struct {
        const char *file;
        enum oz_status status;
        const char *phrase;
    } cases[] = {
        {"transformer", OZ_ERR_IO, "transformer/config.json"},
        {"transformer/config.json", OZ_ERR_IO, "transformer/config.json"},
        {"transformer/diffusion_pytorch_model-00002-of-00002.safetensors", OZ_ERR_FORMAT,
         "diffusion_pytorch_model-00002-of-00002.safetensors"},
        {"transformer/diffusion_pytorch_model.safetensors.index.json", OZ_ERR_IO,
         "holds no checkpoint"},
        {"vae/diffusion_pytorch_model.safetensors", OZ_ERR_IO, "holds no checkpoint"},
        {"text_encoder/model.safetensors", OZ_ERR_IO, "holds no checkpoint"},
        {"scheduler/scheduler_config.json", OZ_ERR_IO, "scheduler_config.json"},
        {"tokenizer", OZ_ERR_IO, "tokenizer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char file[256];
        const char *path = fresh();
        (void)snprintf(file, sizeof file, "m/%s", cases[i].file);
        print_message("without %s\n", cases[i].file);
        scratch_remove(file);
        is_refused(path, cases[i].status, cases[i].phrase);
    }
}

/* A clone without its large files. */
static void lfs_pointers(void **state)
{
    static const char *const files[] = {"transformer/config.json",
                                        "vae/diffusion_pytorch_model.safetensors",
                                        "tokenizer/tokenizer.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char file[256];
        const char *path = fresh();
        (void)snprintf(file, sizeof file, "m/%s", files[i]);
        scratch_remove(file);
        scratch_text(file, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
        is_refused(path, OZ_ERR_FORMAT, "is a Git LFS pointer, not the file itself");
        assert_non_null(strstr(err.message, files[i]));
    }
}

static void a_checkpoint_with_one_tensor(void **state)
{
    static const char header[] =
        "{\"proj_out.bias\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
    uint8_t file[256] = {sizeof header - 1};
    const char *path = fresh();
    memcpy(file + 8, header, sizeof header - 1);
    scratch_remove("m/vae/diffusion_pytorch_model.safetensors");
    scratch_write("m/vae/diffusion_pytorch_model.safetensors", file, 8 + sizeof header - 1 + 4);
    is_refused(path, OZ_ERR_FORMAT, "does not fit its config.");
    assert_non_null(strstr(err.message, "m/vae"));
    assert_non_null(strstr(err.message, "tensors are missing: "));
    assert_non_null(strstr(err.message, "1 tensor is unexpected: proj_out.bias."));
    assert_non_null(strstr(scratch_log, "error load: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_such_model),
        cmocka_unit_test(the_copy_opens),
        cmocka_unit_test(unknown_keys),
        cmocka_unit_test(one_thing_wrong),
        cmocka_unit_test(missing_files),
        cmocka_unit_test(lfs_pointers),
        cmocka_unit_test(a_checkpoint_with_one_tensor),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
