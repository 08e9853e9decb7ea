#include "faults/scenarios.h"

#include "test.h"

#define OZ_UNSTABLE
#include <ounce/ounce.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/pool.h"
#include "base/regex.h"
#include "base/unicode.h"
#include "ckpt/table.h"
#include "ckpt/writer.h"
#include "media/png.h"
#include "pipe/pipeline.h"
#include "scratch.h"
#include "text/template.h"
#include "text/tokenizer.h"
#include "unit/dialect_model.h"

#define GOLDEN OZ_TEST_DIR "/golden"

static void add(uint64_t *digest, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++) {
        *digest = (*digest ^ p[i]) * UINT64_C(0x100000001B3);
    }
}

static void add_number(uint64_t *digest, int64_t n)
{
    add(digest, &n, sizeof n);
}

static enum oz_status run_json(uint64_t *digest, struct oz_error *err)
{
    struct oz_json *v;
    OZ_TRY(oz_json_parse_file(&v, GOLDEN "/tokenizer/qwen2_files/vocab.json", 1 << 24, err));
    for (void *it = oz_json_first(v); it != NULL; it = oz_json_next(v, it)) {
        add(digest, oz_json_key(it), strlen(oz_json_key(it)));
        add_number(digest, oz_json_integer(oz_json_value(it), -1));
    }
    oz_json_free(v);
    return OZ_OK;
}

static enum oz_status read_all(struct oz_ckpt *c, uint64_t *digest, struct oz_error *err)
{
    for (int64_t i = 0; i < oz_ckpt_count(c); i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(c, i);
        static uint8_t bytes[1 << 16];
        int64_t n = t->bytes < (int64_t)sizeof bytes ? t->bytes : (int64_t)sizeof bytes;
        OZ_TRY(oz_ckpt_read(c, t, 0, n, bytes, err));
        add(digest, t->name, strlen(t->name));
        add(digest, bytes, (size_t)n);
    }
    return oz_ckpt_check(c, err);
}

static enum oz_status run_ckpt(uint64_t *digest, struct oz_error *err)
{
    static const char *const stems[] = {"model", NULL};
    struct oz_ckpt *c;
    OZ_TRY(oz_ckpt_open(&c, GOLDEN "/ckpt/shards", stems, err));
    enum oz_status status = read_all(c, digest, err);
    oz_ckpt_close(&c);
    return status;
}

static bool other_name(void *ctx, const char *name, struct oz_buf *out)
{
    (void)ctx;
    oz_buf_printf(out, "z.%s", name);
    return true;
}

static int add_text(void *ctx, const char *text, size_t bytes)
{
    add(ctx, text, bytes);
    return 0;
}

/* A GGUF file: opened under other names, and inspected by itself. */
static enum oz_status run_gguf(uint64_t *digest, struct oz_error *err)
{
    struct oz_ckpt *c;
    struct oz_inspect_options o;
    OZ_TRY(oz_ckpt_open(&c, GOLDEN "/gguf/blocks.gguf", NULL, err));
    enum oz_status status = oz_ckpt_rename(c, other_name, NULL, err);
    status = status == OZ_OK ? read_all(c, digest, err) : status;
    oz_ckpt_close(&c);
    OZ_TRY(status);
    oz_inspect_options_default(&o);
    o.tensors = 1;
    return oz_model_inspect(GOLDEN "/gguf/blocks.gguf", &o, add_text, digest, err);
}

/* A checkpoint of another toolchain, which has layers fused, moved and apart from what they are worth. */
static enum oz_status run_dialect(uint64_t *digest, struct oz_error *err)
{
    struct dialect_model m;
    enum oz_status status = dialect_open(&m, GOLDEN "/dialects/nunchaku_fused_int4",
                                         GOLDEN "/dialects/nunchaku_fused_int4/"
                                                "expected.safetensors",
                                         err);
    status = status == OZ_OK ? dialect_load(&m, err) : status;
    for (int32_t i = 0; i < m.table.count && status == OZ_OK; i++) {
        const struct oz_weight *w = &m.table.rows[i].bind->weight;
        const struct oz_plane_view *v = &w->planes[OZ_PLANE_CODES];
        add(digest, v->data, (size_t)v->bytes);
    }
    dialect_close(&m);
    return status;
}

static enum oz_status run_tokenizer(uint64_t *digest, struct oz_error *err)
{
    static const char text[] = "a red apple, \xE7\x8C\xAB <|im_end|> caf\x65\xCC\x81 12345";
    struct oz_tokenizer *tok;
    struct oz_token_list ids;
    struct oz_buf back;
    OZ_TRY(oz_tokenizer_open(&tok, GOLDEN "/tokenizer/qwen2_files", err));
    oz_token_list_init(&ids, 1000);
    oz_buf_init(&back, 1000);
    enum oz_status status = oz_tokenizer_encode(tok, text, sizeof text - 1, NULL, 0, &ids, err);
    if (status == OZ_OK) {
        status = oz_tokenizer_decode(tok, ids.ids, ids.count, &back, err);
    }
    if (status == OZ_OK) {
        add(digest, ids.ids, ids.count * sizeof *ids.ids);
        add(digest, back.data, back.bytes);
    }
    oz_buf_deinit(&back);
    oz_token_list_deinit(&ids);
    oz_tokenizer_close(&tok);
    return status;
}

static enum oz_status run_png(uint64_t *digest, struct oz_error *err)
{
    static const uint8_t rgb[4 * 4 * 3] = {1, 2, 3, 250, 251, 252};
    static const struct oz_png_text texts[] = {{"ounce", "{\"prompt\":\"x\"}"},
                                               {"other", "\xE7\x8C\xAB"}};
    struct oz_buf out;
    struct oz_png png;
    oz_buf_init(&out, 1 << 16);
    enum oz_status status = oz_png_encode(rgb, 4, 4, texts, 2, &out, err);
    if (status == OZ_OK) {
        status = oz_png_decode(out.data, out.bytes, 1 << 20, &png, err);
    }
    if (status == OZ_OK) {
        add(digest, png.rgb, sizeof rgb);
        add_number(digest, (int64_t)png.text_count);
        oz_png_deinit(&png);
    }
    oz_buf_deinit(&out);
    return status;
}

static enum oz_status run_file(uint64_t *digest, struct oz_error *err)
{
    char *data;
    size_t bytes;
    char *path = oz_file_join(scratch_path("out"), "written");
    if (path == NULL) {
        return OZ_FAIL_NOMEM(err, "a path");
    }
    enum oz_status status = oz_file_write(path, "some bytes", 10, err);
    if (status == OZ_OK) {
        status = oz_file_read(path, 100, &data, &bytes, err);
    }
    if (status == OZ_OK) {
        add(digest, data, bytes);
        oz_free(data);
    }
    oz_free(path);
    return status;
}

static void square(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    int64_t *values = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        values[i] = i * i;
    }
}

static enum oz_status run_pool(uint64_t *digest, struct oz_error *err)
{
    struct oz_pool *pool;
    int64_t values[64];
    OZ_TRY(oz_pool_create(&pool, 3, err));
    oz_pool_for(pool, 64, 1, square, values);
    add(digest, values, sizeof values);
    oz_pool_destroy(&pool);
    return OZ_OK;
}

/* The smallest model that there is. */
static enum oz_status write_tiny(const char *folder, struct oz_error *err)
{
    struct oz_random_options o;
    oz_random_options_default(&o);
    o.layers = 1;
    o.heads = 2;
    o.head_dim = 16;
    o.text_layers = 1;
    o.vae_base_dim = 4;
    return oz_model_random(folder, &o, err);
}

static enum oz_status run_random_model(uint64_t *digest, struct oz_error *err)
{
    scratch_remove("out/model");
    OZ_TRY(write_tiny(scratch_path("out/model"), err));
    struct oz_ckpt *c;
    OZ_TRY(oz_ckpt_open(&c, scratch_path("out/model/transformer"), NULL, err));
    enum oz_status status = read_all(c, digest, err);
    oz_ckpt_close(&c);
    return status;
}

static int count_text(void *ctx, const char *text, size_t bytes)
{
    add(ctx, text, bytes);
    return 0;
}

static enum oz_status run_inspect(uint64_t *digest, struct oz_error *err)
{
    struct oz_inspect_options o;
    oz_inspect_options_default(&o);
    o.json = o.tensors = 1;
    return oz_model_inspect(scratch_path("tiny"), &o, count_text, digest, err);
}

/* Lines: the memory of the process, which is among them, is another one each time. */
static int count_lines(void *ctx, const char *text, size_t bytes)
{
    uint64_t *lines = ctx;
    for (size_t i = 0; i < bytes; i++) {
        *lines += text[i] == '\n';
    }
    return 0;
}

static enum oz_status run_plan(uint64_t *digest, struct oz_error *err)
{
    struct oz_engine_options e;
    struct oz_plan_options o;
    oz_engine_options_default(&e);
    oz_plan_options_default(&o);
    e.model = scratch_path("tiny");
    e.threads = 2;
    e.quantization = "mxfp4";
    OZ_TRY(oz_model_plan(&e, &o, count_lines, digest, err));
    e.quantization = NULL;
    o.json = 1;
    o.fit_bytes = INT64_MAX;
    return oz_model_plan(&e, &o, count_lines, digest, err);
}

static enum oz_status draw(const struct oz_engine_options *o, int32_t steps, uint64_t *digest,
                           struct oz_error *err)
{
    struct oz_engine *e;
    struct oz_image *image = NULL;
    struct oz_image_request r;
    oz_image_request_default(&r);
    r.prompt = "red apple";
    r.width = r.height = 32;
    r.num_inference_steps = steps;
    OZ_TRY(oz_engine_open(&e, o, err));
    enum oz_status status = oz_image_generate(e, &r, 1, &image, err);
    if (status == OZ_OK) {
        add(digest, oz_image_pixels(image), 3 * 32 * 32);
        status = oz_image_write_png(image, scratch_path("out/picture.png"), NULL, err);
    }
    oz_image_destroy(&image);
    oz_engine_close(&e);
    return status;
}

/* Two pictures of one call, served together, one with previews. */
static enum oz_status serve(struct oz_engine *e, uint64_t *digest, struct oz_error *err)
{
    struct oz_service *s;
    struct oz_image_request r[2];
    struct oz_job_options o;
    uint64_t ids[2];
    oz_job_options_default(&o);
    o.preview_every = 1;
    for (int i = 0; i < 2; i++) {
        oz_image_request_default(&r[i]);
        r[i].prompt = "red apple";
        r[i].width = r[i].height = 32 + 16 * i;
        r[i].num_inference_steps = 2 + i;
        r[i].true_cfg_scale = 1 + 3 * i;
    }
    OZ_TRY(oz_service_open(&s, e, NULL, err));
    enum oz_status status = oz_service_submit(s, r, 2, &o, ids, err);
    for (int i = 0; i < 2 && status == OZ_OK; i++) {
        struct oz_image *image;
        status = oz_service_wait(s, ids[i], -1, err);
        if (status == OZ_OK) {
            status = oz_service_take(s, ids[i], &image, err);
        }
        if (status == OZ_OK) {
            add(digest, oz_image_pixels(image), 3 * (size_t)(r[i].width * r[i].height));
            oz_image_destroy(&image);
        }
    }
    oz_service_close(&s);
    return status;
}

static enum oz_status run_service(uint64_t *digest, struct oz_error *err)
{
    struct oz_engine *e;
    struct oz_engine_options o;
    oz_engine_options_default(&o);
    o.model = scratch_path("tiny");
    o.threads = 2;
    OZ_TRY(oz_engine_open(&e, &o, err));
    enum oz_status status = serve(e, digest, err);
    oz_engine_close(&e);
    return status;
}

bool scenarios_resume;

static enum oz_status run_generate(uint64_t *digest, struct oz_error *err)
{
    struct oz_engine_options o;
    oz_engine_options_default(&o);
    o.model = scratch_path("tiny");
    o.threads = 2;
    return draw(&o, 2, digest, err);
}

/* Weights that no file holds. */
static enum oz_status run_dummy(uint64_t *digest, struct oz_error *err)
{
    struct oz_engine_options o;
    oz_engine_options_default(&o);
    o.model = scratch_path("tiny");
    o.threads = 2;
    o.quantization = "fp8_per_channel";
    o.load_format = "dummy";
    return draw(&o, 1, digest, err);
}

/* An adapter of rank 2 for a layer [out, in]: its factors under these two names. */
static enum oz_status write_adapter(const char *folder, const char *stem,
                                    const struct oz_ckpt_spec specs[2], struct oz_error *err)
{
    struct oz_ckpt_writer *w;
    const struct oz_ckpt_writer_options o = {.folder = folder, .stem = stem};
    OZ_TRY(oz_ckpt_writer_create(&w, &o, specs, 2, err));
    enum oz_status status = OZ_OK;
    for (int32_t i; status == OZ_OK && (i = oz_ckpt_writer_next(w)) >= 0;) {
        for (int64_t j = 0; status == OZ_OK && j < specs[i].shape[0] * specs[i].shape[1]; j++) {
            float x = (float)((j * 7 + i) % 11) - 5;
            status = oz_ckpt_writer_put(w, &x, sizeof x, err);
        }
    }
    if (status == OZ_OK) {
        status = oz_ckpt_writer_finish(w, err);
    }
    oz_ckpt_writer_destroy(&w);
    return status;
}

/* For the tiny model: one of PEFT with its config beside, for a layer that is quantized, and one of
 * kohya for a layer that stays as it is. */
static enum oz_status write_adapters(struct oz_error *err)
{
    static const struct oz_ckpt_spec peft[2] = {
        {"base_model.model.transformer_blocks.0.attn.to_q.lora_A.weight", OZ_DTYPE_F32, 2, {2, 32}},
        {"base_model.model.transformer_blocks.0.attn.to_q.lora_B.weight", OZ_DTYPE_F32, 2, {32, 2}},
    };
    static const struct oz_ckpt_spec kohya[2] = {
        {"lora_unet_transformer_blocks_0_img_mod_1.lora_down.weight", OZ_DTYPE_F32, 2, {2, 32}},
        {"lora_unet_transformer_blocks_0_img_mod_1.lora_up.weight", OZ_DTYPE_F32, 2, {192, 2}},
    };
    scratch_folder("lora");
    scratch_text("lora/adapter_config.json", "{\"r\":2,\"lora_alpha\":1,"
                                             "\"alpha_pattern\":{\"attn.to_q\":0.5}}");
    OZ_TRY(write_adapter(scratch_path("lora"), "adapter_model", peft, err));
    return write_adapter(scratch_path("lora"), "kohya", kohya, err);
}

/* With so many of them. */
static enum oz_status draw_adapted(int32_t count, uint64_t *digest, struct oz_error *err)
{
    struct oz_engine_options o;
    char kohya[512];
    const char *loras[2] = {scratch_path("lora"), kohya};
    (void)snprintf(kohya, sizeof kohya, "%s:0.25", scratch_path("lora/kohya.safetensors"));
    oz_engine_options_default(&o);
    o.model = scratch_path("tiny");
    o.threads = 2;
    o.quantization = "int8";
    o.modulation = "schedule"; /* one of the adapters is for a layer that passes by */
    o.loras = loras;
    o.lora_count = count;
    return draw(&o, 1, digest, err);
}

static enum oz_status run_lora(uint64_t *digest, struct oz_error *err)
{
    return draw_adapted(2, digest, err);
}

/* Each adapter changes the picture, so the digest tells when one is lost. */
static enum oz_status check_adapters(struct oz_error *err)
{
    uint64_t digests[3] = {0};
    for (int32_t i = 0; i < 3; i++) {
        OZ_TRY(draw_adapted(i, &digests[i], err));
    }
    return digests[0] != digests[1] && digests[1] != digests[2] && digests[0] != digests[2]
               ? OZ_OK
               : OZ_FAIL(err, OZ_ERR_INTERNAL, "an adapter changes nothing");
}

/* Written with quantized weights, opened again. */
static enum oz_status run_quantize(uint64_t *digest, struct oz_error *err)
{
    struct oz_quantize_options o;
    struct oz_ckpt *c;
    oz_quantize_options_default(&o);
    o.model = scratch_path("tiny");
    o.quantization = "nvfp4";
    o.threads = 2;
    o.max_shard_bytes = 100000;
    scratch_remove("out/quantized");
    if (!scenarios_resume) {
        scratch_remove("out/quantized.ounce-part");
    }
    OZ_TRY(oz_model_quantize(scratch_path("out/quantized"), &o, err));
    enum oz_status status = oz_ckpt_open(&c, scratch_path("out/quantized/transformer"), NULL, err);
    if (status == OZ_OK) {
        status = read_all(c, digest, err);
        oz_ckpt_close(&c);
    }
    scratch_remove("out/quantized");
    return status;
}

/* A quantized model, converted. */
static enum oz_status run_convert(uint64_t *digest, struct oz_error *err)
{
    struct oz_convert_options o;
    struct oz_ckpt *c;
    oz_convert_options_default(&o);
    o.model = scratch_path("coded");
    o.threads = 2;
    o.max_shard_bytes = 100000;
    scratch_remove("out/converted");
    if (!scenarios_resume) {
        scratch_remove("out/converted.ounce-part");
    }
    OZ_TRY(oz_model_convert(scratch_path("out/converted"), &o, err));
    enum oz_status status = oz_ckpt_open(&c, scratch_path("out/converted/transformer"), NULL, err);
    if (status == OZ_OK) {
        status = read_all(c, digest, err);
        oz_ckpt_close(&c);
    }
    scratch_remove("out/converted");
    return status;
}

static enum oz_status write_coded(struct oz_error *err)
{
    struct oz_quantize_options o;
    oz_quantize_options_default(&o);
    o.model = scratch_path("tiny");
    o.quantization = "mxfp4";
    return oz_model_quantize(scratch_path("coded"), &o, err);
}

const struct scenario scenarios[] = {
    {"json", run_json, false},
    {"ckpt", run_ckpt, false},
    {"dialect", run_dialect, false},
    {"gguf", run_gguf, false},
    {"tokenizer", run_tokenizer, false},
    {"png", run_png, false},
    {"file", run_file, false},
    {"pool", run_pool, false},
    {"random_model", run_random_model, true},
    {"inspect", run_inspect, true},
    {"plan", run_plan, true},
    {"generate", run_generate, true},
    {"service", run_service, true},
    {"lora", run_lora, true},
    {"quantize", run_quantize, true},
    {"convert", run_convert, true},
    {"dummy", run_dummy, true},
};
const int scenario_count = sizeof scenarios / sizeof *scenarios;

int scenarios_open(void **state)
{
    struct oz_error err;
    if (scratch_open(state) != 0) {
        return 1;
    }
    scratch_folder("out");
    if (write_tiny(scratch_path("tiny"), &err) != OZ_OK || write_adapters(&err) != OZ_OK ||
        check_adapters(&err) != OZ_OK || write_coded(&err) != OZ_OK) {
        print_error("%s\n", err.message);
        return 1;
    }
    return 0;
}

int scenarios_close(void **state)
{
    return scratch_close(state);
}

bool scenarios_full(void)
{
    const char *value = getenv("OUNCE_FAULTS");
    return value != NULL && strcmp(value, "full") == 0;
}
