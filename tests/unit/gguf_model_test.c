/*
 * The bundled model's weights as GGUF files, made here: opened in place of a component, under the names of
 * several conventions, loaded, and compared with what the files hold; and what does not fit refused.
 */
#include "test.h"

#define OZ_UNSTABLE
#include <math.h>
#include <ounce/ounce.h>
#include <stdlib.h>

#include "dev/backends.h"
#include "gguf_file.h"
#include "num/float.h"
#include "num/gguf.h"
#include "pipe/quantize.h"
#include "scalar_device.h"

enum { F32 = 0, BF16 = 30, Q8_0 = 8, BLOCK = 32, BLOCK_BYTES = 34 };

/* How a tensor of the bundled model gets into the file: a name (NULL: not at all) and a type. */
typedef const char *(*name_fn)(const char *name);
struct recipe {
    name_fn name;
    const char *odd; /* a tensor that has the type `odd_type` */
    uint32_t odd_type;
    const char *turned; /* a tensor whose sizes are exchanged */
};

static uint32_t type_of(const struct recipe *r, const struct oz_tensor_view *t)
{
    if (r->odd != NULL && strcmp(t->name, r->odd) == 0) {
        return r->odd_type;
    }
    return t->rank == 2 && t->elements > 1024 ? Q8_0 : F32;
}

static uint64_t bytes_of(const struct oz_tensor_view *t, uint32_t type)
{
    const struct oz_gguf_type *info = oz_gguf_type_find(type);
    return (uint64_t)(t->elements / info->elements * info->bytes);
}

static float element(const struct oz_tensor_view *t, int64_t i)
{
    uint16_t half;
    float x;
    if (t->dtype == OZ_DTYPE_F32) {
        memcpy(&x, t->data + 4 * i, 4);
        return x;
    }
    memcpy(&half, t->data + 2 * i, 2);
    return oz_bf16_to_f32(half);
}

static void put_block(const struct oz_tensor_view *t, int64_t at)
{
    float amax = 0;
    uint8_t b[BLOCK_BYTES];
    for (int i = 0; i < BLOCK; i++) {
        amax = fmaxf(amax, fabsf(element(t, at + i)));
    }
    uint16_t d = oz_f32_to_f16(amax / 127);
    memcpy(b, &d, 2);
    for (int i = 0; i < BLOCK; i++) {
        float scale = oz_f16_to_f32(d);
        float q = scale > 0 ? roundf(element(t, at + i) / scale) : 0;
        b[2 + i] = (uint8_t)(int8_t)fmaxf(-127, fminf(127, q));
    }
    gguf_put(b, sizeof b);
}

static void put_data(const struct oz_tensor_view *t, uint32_t type)
{
    int64_t step = type == Q8_0 ? BLOCK : 1;
    for (int64_t i = 0; i < t->elements; i += step) {
        float x = element(t, i);
        uint16_t half = oz_f32_to_bf16(x);
        if (type == Q8_0) {
            put_block(t, i);
        } else if (type == BF16) {
            gguf_put(&half, 2);
        } else {
            gguf_put(&x, 4);
        }
    }
    gguf_pad(32);
}

static void put_info(const struct recipe *r, const struct oz_tensor_view *t, uint64_t offset)
{
    bool turned = r->turned != NULL && strcmp(t->name, r->turned) == 0;
    gguf_str(r->name(t->name));
    gguf_u32((uint32_t)t->rank);
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        gguf_u64((uint64_t)t->shape[turned ? t->rank - 1 - i : i]);
    }
    gguf_u32(type_of(r, t));
    gguf_u64(offset);
}

/* A component's checkpoint as `path` in the scratch folder. */
static void write_gguf(const char *path, const char *component, const struct recipe *r)
{
    struct oz_ckpt *c;
    char folder[512];
    uint64_t offset = 0;
    uint64_t count = 0;
    (void)snprintf(folder, sizeof folder, "%s/%s", bundled(), component);
    ok(oz_ckpt_open(&c, folder, NULL, &err));
    for (int64_t i = 0; i < oz_ckpt_count(c); i++) {
        count += r->name(oz_ckpt_tensor(c, i)->name) != NULL;
    }
    gguf_begin(count, 0);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < oz_ckpt_count(c); i++) {
            const struct oz_tensor_view *t = oz_ckpt_tensor(c, i);
            if (r->name(t->name) == NULL) {
                continue;
            }
            if (pass == 0) {
                put_info(r, t, offset);
                offset += (bytes_of(t, type_of(r, t)) + 31) / 32 * 32;
            } else {
                put_data(t, type_of(r, t));
            }
        }
        gguf_pad(32);
    }
    (void)gguf_write(path);
    oz_ckpt_close(&c);
}

/* ---- names ---- */

static const char *as_is(const char *name)
{
    return name;
}

static const char *with_prefix(const char *name)
{
    static char text[256];
    (void)snprintf(text, sizeof text, "model.diffusion_model.%s", name);
    return text;
}

/* llama.cpp's names of the text tower; nothing of the vision tower. */
static const char *llama(const char *name)
{
    static const char *const parts[][2] = {
        {"input_layernorm", "attn_norm"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"},
        {"mlp.gate_proj", "ffn_gate"},
        {"post_attention_layernorm", "ffn_norm"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
    };
    static char text[256];
    const char *layer = strstr(name, "layers.");
    const char *kind = strrchr(name, '.');
    if (strstr(name, "visual") != NULL) {
        return NULL;
    }
    if (layer == NULL) {
        (void)snprintf(text, sizeof text, "%s%s",
                       strstr(name, "embed_tokens") != NULL ? "token_embd" : "output_norm", kind);
        return text;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strstr(name, parts[i][0]) != NULL) {
            (void)snprintf(text, sizeof text, "blk.%d.%s%s", layer[7] - '0', parts[i][1], kind);
            return text;
        }
    }
    fail_msg("%s has no name", name);
    return NULL;
}

/* ---- opening ---- */

static enum oz_status opened(struct oz_pipeline **p, const char *folder, const char *transformer)
{
    const struct oz_pipeline_options o = {.transformer = transformer};
    return oz_pipeline_open(p, folder, &o, &err);
}

static void loaded(struct oz_pipeline *p)
{
    ok(oz_pipeline_check(p, &err));
    ok(oz_pipeline_assign(p, dev, NULL, OZ_KEEP_STANDARD, false, &err));
    ok(oz_pipeline_load(p, dev, NULL, NULL, &err));
}

/* Every coded weight decodes to what the file's blocks say, near the bundled model's. */
static void decodes(const struct oz_component *c, const char *component, int32_t coded)
{
    struct oz_ckpt *plain;
    char folder[512];
    int32_t count = 0;
    (void)snprintf(folder, sizeof folder, "%s/%s", bundled(), component);
    ok(oz_ckpt_open(&plain, folder, NULL, &err));
    for (int32_t i = 0; i < c->table.count; i++) {
        const struct oz_layer *row = &c->table.rows[i];
        const struct oz_scheme *s = &c->assignment.choices[i].scheme;
        const struct oz_tensor_view *t = oz_ckpt_find(plain, row->name, NULL);
        if (s->codec == NULL) {
            continue;
        }
        count++;
        assert_string_equal(s->name, "q8_0");
        assert_int_equal(c->assignment.choices[i].source, OZ_SOURCE_CHECKPOINT);
        const struct oz_weight *w = &row->bind->weight;
        float line[4096];
        assert_true(t != NULL && w->cols <= 4096 && w->rows == row->shape[0]);
        int64_t last = w->rows - 1;
        w->codec->decode(w, 0, last, 0, w->cols, line);
        for (int64_t k = 0; k < w->cols; k++) {
            float amax = 0;
            for (int64_t j = k / BLOCK * BLOCK; j < k / BLOCK * BLOCK + BLOCK; j++) {
                amax = fmaxf(amax, fabsf(element(t, last * w->cols + j)));
            }
            assert_true(fabsf(line[k] - element(t, last * w->cols + k)) <= amax / 250);
        }
    }
    assert_int_equal(count, coded);
    oz_ckpt_close(&plain);
}

static void transformer(void **state)
{
    static const name_fn names[] = {as_is, with_prefix};
    for (int i = 0; i < 2; i++) {
        struct oz_pipeline *p;
        const struct recipe r = {.name = names[i]};
        write_gguf("t.gguf", "transformer", &r);
        ok(opened(&p, bundled(), scratch_path("t.gguf")));
        const struct oz_component *c = &p->components[OZ_COMPONENT_TRANSFORMER];
        assert_string_equal(c->stored.method, "gguf");
        assert_int_equal(c->stored.count, 90);
        if (i == 0) {
            assert_null(c->convention);
        } else {
            assert_string_equal(c->convention, "model.diffusion_model.");
        }
        loaded(p);
        assert_true(c->loaded.mapped_bytes > 14000000); /* blocks are read where they lie */
        decodes(c, "transformer", 90);
        oz_pipeline_close(&p);
    }
}

static void text_encoder(void **state)
{
    struct oz_pipeline *p;
    const struct recipe r = {.name = llama};
    scratch_copy("m", bundled());
    scratch_remove("m/text_encoder/model.safetensors");
    write_gguf("m/text_encoder/any-name.gguf", "text_encoder", &r);
    ok(opened(&p, scratch_path("m"), NULL));
    const struct oz_component *c = &p->components[OZ_COMPONENT_TEXT_ENCODER];
    assert_string_equal(c->convention, "llama.cpp");
    loaded(p);
    decodes(c, "text_encoder", 29);
    oz_pipeline_close(&p);
    scratch_remove("m");
}

/* Every coded weight of a source is plain in a converted model, rounded once. */
static void is_plain(const struct oz_component *from, const struct oz_component *to)
{
    assert_null(to->stored.method);
    assert_null(to->convention);
    for (int32_t i = 0; i < from->table.count; i++) {
        const struct oz_layer *row = &from->table.rows[i];
        const struct oz_weight *w = &row->bind->weight;
        const struct oz_tensor_view *t = oz_ckpt_find(to->ckpt, row->name, NULL);
        float line[4096];
        uint16_t want[4096];
        if (from->assignment.choices[i].scheme.codec == NULL) {
            continue;
        }
        assert_true(t != NULL && t->dtype == OZ_DTYPE_BF16 && w->cols <= 4096);
        for (int64_t r = 0; r < w->rows; r++) {
            w->codec->decode(w, 0, r, 0, w->cols, line);
            for (int64_t k = 0; k < w->cols; k++) {
                want[k] = oz_f32_to_bf16(line[k]);
            }
            assert_memory_equal(want, t->data + 2 * r * w->cols, 2 * (size_t)w->cols);
        }
    }
}

/* Both towers as GGUF, one in the model's folder under llama.cpp's names, become a diffusers folder. */
static void converted(void **state)
{
    struct oz_pipeline *from;
    struct oz_pipeline *to;
    struct oz_convert_options o;
    const struct recipe text = {.name = llama};
    const struct recipe image = {.name = with_prefix};
    scratch_copy("m", bundled());
    scratch_remove("m/text_encoder/model.safetensors");
    write_gguf("m/text_encoder/any-name.gguf", "text_encoder", &text);
    write_gguf("t.gguf", "transformer", &image);
    oz_convert_options_default(&o);
    o.model = scratch_path("m");
    o.transformer = scratch_path("t.gguf");
    ok(oz_model_convert(scratch_path("plain"), &o, &err));
    assert_int_equal(scratch_count("plain/text_encoder"), 3); /* two configs and weights */
    ok(opened(&from, scratch_path("m"), scratch_path("t.gguf")));
    ok(opened(&to, scratch_path("plain"), NULL));
    loaded(from);
    loaded(to);
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        is_plain(&from->components[i], &to->components[i]);
    }
    oz_pipeline_close(&from);
    oz_pipeline_close(&to);
    scratch_remove("plain");
    scratch_remove("m");
}

static void is_refused(const struct recipe *r, enum oz_status status, const char *phrase)
{
    struct oz_pipeline *p = NULL;
    write_gguf("t.gguf", "transformer", r);
    enum oz_status got = opened(&p, bundled(), scratch_path("t.gguf"));
    got = got == OZ_OK ? oz_pipeline_check(p, &err) : got;
    oz_pipeline_close(&p);
    if (got != status || strstr(err.message, phrase) == NULL) {
        fail_msg("status %d, \"%s\" instead of %d, \"%s\"", got, err.message, status, phrase);
    }
}

static const char *without_one(const char *name)
{
    return strcmp(name, "proj_out.weight") == 0 ? NULL : name;
}

static const char *twice(const char *name)
{
    return strcmp(name, "proj_out.weight") == 0 ? "img_in.weight" : name;
}

static void refused(void **state)
{
    const struct recipe shape = {.name = as_is, .turned = "transformer_blocks.0.img_mod.1.weight"};
    const struct recipe vector = {
        .name = as_is, .odd = "transformer_blocks.0.img_mod.1.bias", .odd_type = Q8_0};
    const struct recipe missing = {.name = without_one};
    const struct recipe doubled = {.name = twice};
    is_refused(&shape, OZ_ERR_FORMAT, "is [256, 1536] (Q8_0), but ");
    is_refused(&shape, OZ_ERR_FORMAT, "asks for [1536, 256]");
    is_refused(&vector, OZ_ERR_UNSUPPORTED, "reads linear layers and embeddings");
    is_refused(&missing, OZ_ERR_FORMAT, "1 tensor is missing: proj_out.weight");
    is_refused(&doubled, OZ_ERR_FORMAT, "Tensor img_in.weight is in both");
}

/* Matrices may stay plain; a request that wants to code them again is refused. */
static void plain_too(void **state)
{
    struct oz_pipeline *p;
    struct oz_request *q;
    struct oz_request_text text = {.config = "{\"method\": \"fp8\"}"};
    const struct recipe r = {.name = as_is, .odd = "img_in.weight", .odd_type = BF16};
    write_gguf("t.gguf", "transformer", &r);
    ok(opened(&p, bundled(), scratch_path("t.gguf")));
    assert_int_equal(p->components[OZ_COMPONENT_TRANSFORMER].stored.count, 89);
    loaded(p);
    decodes(&p->components[OZ_COMPONENT_TRANSFORMER], "transformer", 89);
    oz_pipeline_close(&p);
    ok(opened(&p, bundled(), scratch_path("t.gguf")));
    ok(oz_request_create(&q, &text, &err));
    assert_int_equal(oz_pipeline_assign(p, dev, q, OZ_KEEP_STANDARD, false, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "gguf"));
    oz_request_destroy(&q);
    oz_pipeline_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(transformer),
                                       cmocka_unit_test(text_encoder), cmocka_unit_test(converted),
                                       cmocka_unit_test(refused), cmocka_unit_test(plain_too)};
    return cmocka_run_group_tests(tests, start, stop);
}
