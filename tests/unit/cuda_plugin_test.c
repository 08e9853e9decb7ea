/* The CUDA backend as far as it goes without a card: opening, planning, scratch, and what is said. */
#include "test.h"

#include "dev/act_spec.h"
#include "dev/device.h"
#include "dev/ops.h"
#include "dev/report.h"
#include "pipe/pipeline.h"
#include "quant/scheme.h"

static struct oz_error err;

static struct oz_device *open_planner(uint32_t flags)
{
    struct oz_device *dev;
    if (oz_device_open(&dev, "cuda", flags | OZ_DEVICE_PLAN_ONLY, NULL, &err) != OZ_OK) {
        fail_msg("%s", err.message);
    }
    return dev;
}

static void opens_for_planning(void **state)
{
    struct oz_device *dev = open_planner(0);
    void *memory;
    assert_string_equal(dev->name, "cuda:0");
    assert_true(dev->plan_only && !dev->host_memory && dev->half_rows);
    assert_int_equal(dev->alloc(dev, 64, &memory, &err), OZ_ERR_DEVICE);
    assert_null(memory);
    assert_non_null(strstr(err.message, "planning only"));
    assert_int_equal(dev->wait(dev, NULL, &err), OZ_ERR_DEVICE);
    struct oz_act x = {.rows = 2, .cols = 8, .stride = 8, .spec = {.dtype = OZ_DTYPE_F32}};
    struct oz_act out = x;
    const struct oz_act_quant_args a = {.x = &x, .out = &out, .rows = 2};
    struct oz_op_ctx ctx = {.dev = dev};
    assert_int_equal(dev->ops->act_quant(&ctx, &a), OZ_ERR_DEVICE);
    oz_device_close(&dev);
}

/* With a driver and a card it opens; without, each lack has its sentence, and auto is the processor. */
static void says_what_is_missing(void **state)
{
    struct oz_device *dev;
    enum oz_status status = oz_device_open(&dev, "cuda", 0, NULL, &err);
    if (status == OZ_OK) {
        oz_device_close(&dev);
        skip();
    }
    assert_int_equal(status, OZ_ERR_DEVICE);
    assert_null(dev);
    assert_non_null(strstr(err.message, "use --device cpu."));
    assert_int_equal(oz_device_open(&dev, "cuda:7", 0, NULL, &err), OZ_ERR_DEVICE);
    assert_int_equal(oz_device_open(&dev, "auto", OZ_DEVICE_PLAN_ONLY, NULL, &err), OZ_OK);
    assert_string_equal(dev->name, "cpu");
    oz_device_close(&dev);
}

static struct oz_param weight(const char *codec, enum oz_act_mode mode)
{
    static const float given = 1;
    struct oz_param p = {.name = "blocks.0.w",
                         .rank = 2,
                         .shape = {256, 512},
                         .act_count = 1,
                         .acts = {oz_act_spec_of(mode, OZ_EXPONENT_DEFAULT, NULL, &given)},
                         .weight = oz_weight_shape(oz_codec_find(codec), 1, 256, 512)};
    return p;
}

/* Every scheme in each of its modes has a kernel; a plain product wants bf16, or f32 where that was asked
 * for. */
static void plans_every_scheme(void **state)
{
    for (uint32_t flags = 0; flags <= OZ_DEVICE_F32; flags += OZ_DEVICE_F32) {
        struct oz_device *dev = open_planner(flags);
        const struct oz_plan_request request = {.use = OZ_USE_LINEAR};
        struct oz_plan_answer answer;
        const struct oz_scheme_info *s;
        assert_int_equal(dev->ops->act_support(dev).native, 0);
        for (int32_t i = 0; (s = oz_scheme_at(i)) != NULL; i++) {
            for (int mode = 0; s->linear && mode < OZ_ACT_MODE_COUNT; mode++) {
                struct oz_param p = weight(s->codec, (enum oz_act_mode)mode);
                if (!(s->acts & OZ_ACT_BIT(mode))) {
                    continue;
                }
                assert_int_equal(dev->ops->plan_param(dev, &p, &request, &answer, &err), OZ_OK);
                assert_non_null(answer.plan);
                assert_int_equal(answer.packed_bytes, 0);
                assert_int_equal(answer.wants.dtype, mode != OZ_ACT_NONE ? p.acts[0].dtype
                                                     : flags != 0        ? OZ_DTYPE_F32
                                                                         : OZ_DTYPE_BF16);
            }
        }
        struct oz_param plain = weight("bf16", OZ_ACT_NONE);
        plain.act_count = 0;
        assert_int_equal(dev->ops->plan_param(dev, &plain, &request, &answer, &err), OZ_OK);
        assert_int_equal(answer.wants.dtype, flags != 0 ? OZ_DTYPE_F32 : OZ_DTYPE_BF16);
        oz_device_close(&dev);
    }
}

/* Every codec that a file may have is decoded there, with all planes that it may have, as a layer's weight
 * and as a table. */
static void plans_every_codec(void **state)
{
    static const char *const codecs[] = {
#define OZ_CODEC(codec) #codec,
#include "num/codec.inc"
#undef OZ_CODEC
    };
    for (uint32_t flags = 0; flags <= OZ_DEVICE_F32; flags += OZ_DEVICE_F32) {
        struct oz_device *dev = open_planner(flags);
        for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
            struct oz_param p = weight(codecs[i] + strlen("oz_codec_"), OZ_ACT_NONE);
            for (int32_t k = 0; k < p.weight.codec->plane_count; k++) {
                const struct oz_plane_spec *spec = &p.weight.codec->planes[k];
                p.weight.planes[spec->plane].present = true;
                p.weight.planes[spec->plane].dtype = spec->dtype;
            }
            p.act_count = 0;
            for (int use = OZ_USE_LINEAR; use <= OZ_USE_EMBED; use++) {
                const struct oz_plan_request request = {.use = (enum oz_param_use)use};
                struct oz_plan_answer answer;
                if ((use == OZ_USE_LINEAR || use == OZ_USE_EMBED) &&
                    dev->ops->plan_param(dev, &p, &request, &answer, &err) != OZ_OK) {
                    fail_msg("%s: %s", codecs[i], err.message);
                }
            }
        }
        oz_device_close(&dev);
    }
}

/* ---- the lists ---- */

struct listed {
    char names[32][64];
    int count, tiers;
};

static void count_tier(void *ctx, const struct oz_tier_row *row)
{
    ((struct listed *)ctx)->tiers += row->in_use;
}

static void keep_kernel(void *ctx, const struct oz_kernel_row *row)
{
    struct listed *l = ctx;
    assert_true(l->count < 32);
    (void)snprintf(l->names[l->count++], sizeof l->names[0], "%s", row->name);
    assert_true((row->proven == NULL) == (row->unusable != NULL)); /* what never ran is not taken */
}

static bool is_listed(const struct listed *l, const char *name)
{
    for (int i = 0; i < l->count; i++) {
        if (strcmp(l->names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Kernels that plans name are in the lists. */
static void lists_kernels(void **state)
{
    struct oz_device *dev = open_planner(0);
    struct listed l = {.count = 0};
    const struct oz_kernel_report report = {.tier = count_tier, .kernel = keep_kernel, .ctx = &l};
    dev->describe(dev, &report);
    assert_int_equal(l.tiers, 1);
    const struct oz_scheme_info *s;
    for (int32_t i = 0; (s = oz_scheme_at(i)) != NULL; i++) {
        for (int mode = 0; s->linear && mode < OZ_ACT_MODE_COUNT; mode++) {
            const struct oz_plan_request request = {.use = OZ_USE_LINEAR};
            struct oz_plan_answer answer;
            struct oz_param p = weight(s->codec, (enum oz_act_mode)mode);
            if (s->acts & OZ_ACT_BIT(mode)) {
                assert_int_equal(dev->ops->plan_param(dev, &p, &request, &answer, &err), OZ_OK);
                assert_true(is_listed(&l, answer.kernel));
            }
        }
    }
    oz_device_close(&dev);
}

static void refuses(void **state)
{
    struct oz_device *dev = open_planner(0);
    struct oz_plan_answer answer;
    struct oz_param p = {.name = "blocks.0.w", .rank = 2, .shape = {4, 8}};
    struct oz_plan_request request = {.use = OZ_USE_LINEAR};
    assert_int_equal(dev->ops->plan_param(dev, &p, &request, &answer, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "blocks.0.w"));
    p = weight("mxfp4", OZ_ACT_NONE);
    request.mode = 1;
    assert_int_equal(dev->ops->plan_param(dev, &p, &request, &answer, &err), OZ_ERR_UNSUPPORTED);
    request.mode = 0;
    request.use = OZ_USE_EXPERTS;
    assert_int_equal(dev->ops->plan_param(dev, &p, &request, &answer, &err), OZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "use --device cpu") != NULL
                        ? err.message
                        : strstr(err.message, "Use --device cpu"));
    request.use = OZ_USE_LINEAR;
    p.weight.planes[OZ_PLANE_LOW_RANK_A].present = true;
    assert_int_equal(dev->ops->plan_param(dev, &p, &request, &answer, &err), OZ_ERR_UNSUPPORTED);
    assert_int_equal(dev->ops->pack_band(dev, NULL, &p, 0, 0, 4, &p.weight, &err), OZ_ERR_INTERNAL);
    oz_device_close(&dev);
}

/* Weights that wait in host memory: a stage's room is smaller than all, that of two blocks smaller still,
 * and as much is pinned as would be resident. */
static void offloads(void **state)
{
    size_t bytes[OZ_OFFLOAD_COUNT];
    for (int mode = 0; mode < OZ_OFFLOAD_COUNT; mode++) {
        struct oz_device *dev = open_planner(0);
        struct oz_pipeline *p;
        const struct oz_pipeline_options how = {.offload = (enum oz_offload_mode)mode,
                                                .dummy = true};
        if (oz_pipeline_open(&p, OZ_TEST_DIR "/../models/emoji", &how, &err) != OZ_OK ||
            oz_pipeline_plan(p, dev, &bytes[mode], &err) != OZ_OK) {
            fail_msg("%s", err.message);
        }
        assert_true(mode == OZ_OFFLOAD_NONE ? p->offload->pinned_bytes == 0
                                            : p->offload->pinned_bytes >= bytes[OZ_OFFLOAD_NONE]);
        oz_pipeline_close(&p);
        oz_device_close(&dev);
    }
    assert_true(bytes[OZ_OFFLOAD_STAGE] < bytes[OZ_OFFLOAD_NONE]);
    assert_true(2 * bytes[OZ_OFFLOAD_BLOCK] < bytes[OZ_OFFLOAD_STAGE]);
}

/* Time embeddings whose linears a file holds quantized, or a user has had quantized, are operators of their
 * own. */
static void quantized_embedders(void **state)
{
    struct oz_device *dev = open_planner(0);
    struct oz_act out = {.rows = 20, .cols = 256, .stride = 256, .spec = {.dtype = OZ_DTYPE_F32}};
    const struct oz_time_embed_args a = {.rows = 20, .dim = 256, .scale = 1, .out = &out};
    assert_int_equal(dev->ops->scratch_bytes(dev, OZ_OP_TIME_EMBED, &a), 0);
    oz_device_close(&dev);
}

/* Scratch follows from shapes: more rows need more, and what overflows says so. */
static void scratch(void **state)
{
    struct oz_device *dev = open_planner(0);
    struct oz_linear w = {.w = weight("fp8_channel", OZ_ACT_FP8_TOKEN)};
    struct oz_act x = {.rows = 64, .cols = 512, .stride = 512, .spec = w.w.acts[0]};
    struct oz_act out = {.rows = 64, .cols = 256, .stride = 256, .spec = {.dtype = OZ_DTYPE_F32}};
    struct oz_linear_args a = {.x = &x, .w = &w, .out = &out};
    size_t few = dev->ops->scratch_bytes(dev, OZ_OP_LINEAR, &a);
    assert_true(few >= 64 * 256 * sizeof(float));
    x.rows = out.rows = 128;
    assert_true(dev->ops->scratch_bytes(dev, OZ_OP_LINEAR, &a) > few);
    x.rows = out.rows = INT64_MAX / 8;
    assert_true(dev->ops->scratch_bytes(dev, OZ_OP_LINEAR, &a) == SIZE_MAX);
    oz_device_close(&dev);
}

/* The host's own encoders serve a card. */
static void encoders(void **state)
{
    struct oz_device *dev = open_planner(0);
    struct oz_device *cpu;
    const struct oz_codec *codec = oz_codec_find("fp8_channel");
    assert_int_equal(oz_device_open(&cpu, "cpu", OZ_DEVICE_PLAN_ONLY, NULL, &err), OZ_OK);
    assert_ptr_equal(dev->ops->find_encoder(dev, codec, OZ_DTYPE_BF16),
                     cpu->ops->find_encoder(cpu, codec, OZ_DTYPE_BF16));
    oz_device_close(&cpu);
    oz_device_close(&dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_for_planning),
        cmocka_unit_test(offloads),
        cmocka_unit_test(says_what_is_missing),
        cmocka_unit_test(plans_every_scheme),
        cmocka_unit_test(plans_every_codec),
        cmocka_unit_test(lists_kernels),
        cmocka_unit_test(refuses),
        cmocka_unit_test(quantized_embedders),
        cmocka_unit_test(scratch),
        cmocka_unit_test(encoders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
