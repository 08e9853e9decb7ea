/*
 * pipe/quantize.h and the public options: requests against the bundled model, from headers alone, and
 * methods that a program registers.
 */
#include "test.h"

#define OZ_UNSTABLE
#include <ounce/ounce.h>

#include "dev/ops.h"
#include "pipe/quantize.h"
#include "scratch.h"

static struct oz_error err;
static struct oz_pipeline *pipeline;
static struct oz_device *cpu;
static const struct oz_device *dev; /* that is asked; NULL: the CPU */

static const char *bundled(void)
{
    return OZ_TEST_DIR "/../models/emoji";
}

/* Assigns a config to a fresh pipeline. */
static enum oz_status assign(const char *config, enum oz_keep keep)
{
    struct oz_request *q;
    struct oz_request_text text = {.config = config};
    oz_pipeline_close(&pipeline);
    if (oz_pipeline_open(&pipeline, bundled(), NULL, &err) != OZ_OK ||
        oz_request_create(&q, &text, &err) != OZ_OK) {
        print_error("%s\n", err.message);
        fail();
    }
    err.message[0] = '\0';
    enum oz_status status =
        oz_pipeline_assign(pipeline, dev != NULL ? dev : cpu, q, keep, false, &err);
    oz_request_destroy(&q);
    return status;
}

static int32_t quantized(enum oz_component_id id)
{
    return pipeline->components[id].assignment.quantized;
}

/* Linears of a block: two modulations, q, k, v and output of two streams, two MLPs of two. */
enum { LAYERS = 6, LINEARS = 14, KEPT = 2, CONSERVATIVE = 4, OUTSIDE = 6, TEXT_LINEARS = 7 };

static void the_transformer_alone(void **state)
{
    assert_int_equal(assign("{\"method\":\"fp8\"}", OZ_KEEP_STANDARD), OZ_OK);
    assert_int_equal(quantized(OZ_COMPONENT_TRANSFORMER), LAYERS * (LINEARS - KEPT));
    assert_int_equal(quantized(OZ_COMPONENT_TEXT_ENCODER), 0);
    assert_int_equal(quantized(OZ_COMPONENT_VAE), 0);
    /* the family's advice */
    const struct oz_assignment *a = &pipeline->components[OZ_COMPONENT_TRANSFORMER].assignment;
    assert_int_equal(a->note_count, 1);
    assert_string_equal(a->notes[0].what, "img_mlp");
    assert_int_equal(assign("{\"method\":\"fp8\"}", OZ_KEEP_CONSERVATIVE), OZ_OK);
    assert_int_equal(quantized(OZ_COMPONENT_TRANSFORMER), LAYERS * (LINEARS - KEPT - CONSERVATIVE));
    assert_int_equal(assign("{\"method\":\"fp8\"}", OZ_KEEP_NONE), OZ_OK);
    assert_int_equal(quantized(OZ_COMPONENT_TRANSFORMER), LAYERS * LINEARS + OUTSIDE);
    assert_int_equal(oz_pipeline_quantized(pipeline), LAYERS * LINEARS + OUTSIDE);
}

static void components_by_name(void **state)
{
    assert_int_equal(assign("{\"text_encoder\":\"int8\"}", OZ_KEEP_STANDARD), OZ_OK);
    assert_int_equal(quantized(OZ_COMPONENT_TRANSFORMER), 0);
    int32_t text = quantized(OZ_COMPONENT_TEXT_ENCODER);
    assert_true(text > 0 && text % TEXT_LINEARS == 0);
    assert_int_equal(assign("{\"default\":\"int8\",\"transformer\":null}", OZ_KEEP_STANDARD),
                     OZ_OK);
    assert_int_equal(quantized(OZ_COMPONENT_TRANSFORMER), 0);
    assert_int_equal(quantized(OZ_COMPONENT_TEXT_ENCODER), text);
    assert_int_equal(assign("{\"default\":\"nvfp4_per_token\"}", OZ_KEEP_STANDARD), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "quantizes nothing in any component"));
    assert_int_equal(assign("{\"vae\":null}", OZ_KEEP_STANDARD), OZ_OK); /* asks for nothing */
    assert_int_equal(assign("{\"talker\":\"int8\"}", OZ_KEEP_STANDARD), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "text_encoder, transformer, vae, default"));
    assert_int_equal(
        assign("{\"method\":\"fp8\",\"ignored_layers\":[\"vae.encoder\"]}", OZ_KEEP_STANDARD),
        OZ_ERR_ARG);
}

/* Every method that quantizes while loading has an assignment for this model, or says why not. */
static void every_method(void **state)
{
    const struct oz_method *m;
    for (int32_t i = 0; (m = oz_method_at(OZ_METHOD_ONLINE, i)) != NULL; i++) {
        char config[128];
        (void)snprintf(config, sizeof config, "{\"method\":\"%s\",\"num_bf16_fallback_layers\":0}",
                       m->name);
        enum oz_status status = assign(config, OZ_KEEP_STANDARD);
        assert_int_equal(status, m->linear != NULL ? OZ_OK : OZ_ERR_ARG);
        if (status == OZ_OK) {
            assert_int_equal(quantized(OZ_COMPONENT_TRANSFORMER), LAYERS * (LINEARS - KEPT));
        }
    }
}

static enum oz_act_mode act_of(int32_t mode)
{
    const struct oz_component *c = &pipeline->components[OZ_COMPONENT_TRANSFORMER];
    const struct oz_layer *row = oz_layer_find(&c->table, "transformer_blocks.5.attn.to_q.weight");
    assert_non_null(row);
    return c->assignment.choices[row - c->table.rows].scheme.acts[mode];
}

static struct oz_act_support other_support(const struct oz_device *device)
{
    (void)device;
    return (struct oz_act_support){.native = OZ_ACT_BIT(OZ_ACT_MXFP8),
                                   .possible = OZ_ACT_BIT(OZ_ACT_NONE) | OZ_ACT_BIT(OZ_ACT_MXFP8)};
}

/* What activations are possible, and which are the default, is the device's. */
static void activations_of_the_device(void **state)
{
    struct oz_device other = *cpu;
    struct oz_op_table ops = *cpu->ops;
    ops.act_support = other_support;
    other.ops = &ops;
    assert_int_equal(assign("{\"method\":\"mxfp8\"}", OZ_KEEP_STANDARD), OZ_OK);
    assert_int_equal(act_of(0), OZ_ACT_NONE);
    assert_int_equal(assign("{\"method\":\"int8\"}", OZ_KEEP_STANDARD), OZ_OK);
    assert_int_equal(act_of(0), OZ_ACT_INT8_TOKEN);
    dev = &other;
    assert_int_equal(assign("{\"method\":\"mxfp8\"}", OZ_KEEP_STANDARD), OZ_OK);
    assert_int_equal(act_of(0), OZ_ACT_MXFP8);
    assert_int_equal(assign("{\"method\":\"int8\"}", OZ_KEEP_STANDARD), OZ_OK);
    assert_int_equal(act_of(0), OZ_ACT_NONE);
    const struct oz_assignment *a = &pipeline->components[OZ_COMPONENT_TRANSFORMER].assignment;
    assert_string_equal(a->notes[0].what, "int8");
    assert_string_equal(a->notes[0].why,
                        "is weight-only: the device has no kernel for its activations");
    assert_int_equal(assign("{\"method\":\"mxfp4\",\"w4a8_fallback_steps\":[0]}", OZ_KEEP_STANDARD),
                     OZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "no kernel for mxfp4 activations"));
    dev = NULL;
    assert_int_equal(assign("{\"method\":\"mxfp4\",\"w4a8_fallback_steps\":[0]}", OZ_KEEP_STANDARD),
                     OZ_OK);
    assert_int_equal(act_of(1), OZ_ACT_MXFP8);
}

/* ---- through the public interface ---- */

static enum oz_status open_with(struct oz_engine_options *options)
{
    struct oz_engine *engine = NULL;
    options->model = bundled();
    options->log = scratch_log_line;
    scratch_log_clear();
    err.message[0] = '\0';
    enum oz_status status = oz_engine_open(&engine, options, &err);
    assert_true((status == OZ_OK) == (engine != NULL));
    oz_engine_close(&engine);
    return status;
}

static void options_of_an_engine(void **state)
{
    static const char *const keys[] = {"linear.activation=mxfp8"};
    static const char *const ignored[] = {"img_mlp", "attn.to_out"};
    struct oz_engine_options o;
    oz_engine_options_default(&o);
    o.quantization = "mxfp4";
    o.quantization_keys = keys;
    o.quantization_key_count = 1;
    assert_int_equal(open_with(&o), OZ_OK);
    assert_non_null(strstr(scratch_log, "Quantized 72 layers of types: attn.add_k_proj: 6"));
    assert_non_null(strstr(scratch_log, "attn.to_q: 6 (from linear: mxfp4)"));
    oz_engine_options_default(&o);
    o.quantization = "fp8";
    o.ignored_layers = ignored;
    o.ignored_layer_count = 2;
    o.keep = "none";
    assert_int_equal(open_with(&o), OZ_OK);
    assert_non_null(strstr(scratch_log, "Quantized 72 layers")); /* 90 less 3 of each block */
    o.ignored_layers = (const char *const[]){"img_mlp", "to_p"};
    assert_int_equal(open_with(&o), OZ_ERR_ARG);
    o.allow_unmatched = 1;
    assert_int_equal(open_with(&o), OZ_OK);
    assert_non_null(strstr(scratch_log, "ignored_layers entry \"to_p\""));
    o.ignored_layer_count = -1;
    assert_int_equal(open_with(&o), OZ_ERR_ARG);
    oz_engine_options_default(&o);
    o.quantization = "none";
    assert_int_equal(open_with(&o), OZ_OK);
    o.quantization = "fp9";
    assert_int_equal(open_with(&o), OZ_ERR_ARG);
    oz_engine_options_default(&o);
    o.keep = "some";
    assert_int_equal(open_with(&o), OZ_ERR_ARG);
    o.keep = "none";
    assert_int_equal(open_with(&o), OZ_ERR_ARG); /* of nothing */
    o.keep = "";
    assert_int_equal(open_with(&o), OZ_OK);
}

/* A program built before these options existed passes a shorter struct. */
static void older_programs(void **state)
{
    struct oz_engine_options o;
    oz_engine_options_default(&o);
    o.struct_size = offsetof(struct oz_engine_options, quantization);
    o.quantization = "fp9"; /* beyond its struct: not looked at */
    assert_int_equal(open_with(&o), OZ_OK);
}

static void registered_methods(void **state)
{
    struct oz_method_options m;
    struct oz_engine_options o;
    oz_engine_options_default(&o);
    o.quantization = "house-w4a8";
    assert_int_equal(open_with(&o), OZ_ERR_ARG);
    oz_method_options_default(&m);
    m.name = "house_w4a8";
    m.linear = "mxfp4";
    m.activation = "mxfp8";
    m.num_bf16_fallback_layers = 2;
    assert_int_equal(oz_method_register(&m, &err), OZ_OK);
    assert_int_equal(oz_method_register(&m, &err), OZ_ERR_ARG);
    assert_int_equal(open_with(&o), OZ_OK);
    assert_non_null(strstr(scratch_log, "Quantized 48 layers")); /* four blocks of twelve */
    assert_int_equal(assign("{\"method\":\"house_w4a8\"}", OZ_KEEP_STANDARD), OZ_OK);
    assert_int_equal(act_of(0), OZ_ACT_MXFP8);
    m.name = "other";
    m.activation = "mxfp9";
    assert_int_equal(oz_method_register(&m, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "\"mxfp9\""));
}

static int open_all(void **state)
{
    return oz_device_open(&cpu, "cpu", OZ_DEVICE_PLAN_ONLY, NULL, &err) != OZ_OK ||
           scratch_open(state) != 0;
}

static int close_all(void **state)
{
    oz_pipeline_close(&pipeline);
    oz_device_close(&cpu);
    return scratch_close(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_transformer_alone),
        cmocka_unit_test(components_by_name),
        cmocka_unit_test(every_method),
        cmocka_unit_test(options_of_an_engine),
        cmocka_unit_test(older_programs),
        cmocka_unit_test(registered_methods),
        cmocka_unit_test(activations_of_the_device),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
