/* The registry and the CPU device. */
#include "test.h"

#include "base/alloc.h"
#include "base/pool.h"
#include "cpu/kernel.h"
#include "dev/act_spec.h"
#include "dev/device.h"
#include "dev/linear_backend.h"
#include "dev/ops.h"
#include "scratch.h"

static struct oz_error err;

static void names(void **state)
{
    static const char *const good[] = {"cpu", "cpu:0", "auto"};
    struct oz_device *dev;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(oz_device_open(&dev, good[i], 0, NULL, &err), OZ_OK);
        assert_string_equal(dev->name, "cpu");
        assert_non_null(dev->tier);
        assert_true(dev->host_memory && !dev->plan_only);
        oz_device_close(&dev);
        assert_null(dev);
    }
    oz_device_close(&dev); /* NULL is fine */
}

static void fails(const char *name, uint32_t flags, enum oz_status status, const char *text)
{
    struct oz_device *dev;
    assert_int_equal(oz_device_open(&dev, name, flags, NULL, &err), status);
    assert_null(dev);
    if (strstr(err.message, text) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", err.message, text);
    }
}

static void wrong_names(void **state)
{
    fails("cpi", 0, OZ_ERR_ARG, "did you mean \"cpu\"?");
    fails("tpu9000", 0, OZ_ERR_ARG, "Devices of this build: cuda, cpu, auto.");
    fails("", 0, OZ_ERR_ARG, "Devices of this build");
    fails("cpu:", 0, OZ_ERR_ARG, "a number from 0");
    fails("cpu:x", 0, OZ_ERR_ARG, "a number from 0");
    fails("cpu:0x", 0, OZ_ERR_ARG, "a number from 0");
    fails("cpu:99999999999999999999", 0, OZ_ERR_ARG, "a number from 0");
    fails("cpu:1", 0, OZ_ERR_DEVICE, "cpu:1 does not exist");
    fails("cpu", 64, OZ_ERR_ARG, "unknown flags 0x40");
    fails("cpu", OZ_DEVICE_LINEAR_VENDOR, OZ_ERR_ARG, "\"cublaslt\" is of CUDA devices");
    fails("cpu", OZ_DEVICE_LINEAR_OWN, OZ_ERR_ARG, "\"own\" is of CUDA devices");
}

/* Names of linear backends: case, dashes, families; what is unknown is refused with the list. */
static void linear_backends(void **state)
{
    static const struct {
        const char *asked, *name;
        uint32_t flags;
        bool weight_only;
    } cases[] = {{NULL, "auto", 0, false},
                 {"", "auto", 0, false},
                 {"Auto", "auto", 0, false},
                 {"ref", "ref", OZ_DEVICE_LINEAR_REF, false},
                 {"CPU", "cpu", OZ_DEVICE_LINEAR_CPU, false},
                 {"cuBLASLt", "cublaslt", OZ_DEVICE_LINEAR_VENDOR, false},
                 {"own", "own", OZ_DEVICE_LINEAR_OWN, false},
                 {"cutlass", "cutlass", 0, false},
                 {"FlashInfer-TRTLLM", "flashinfer", 0, false},
                 {"flashinfer", "flashinfer", 0, false},
                 {"marlin", "marlin", 0, true},
                 {"xpu-woq", "xpu_woq", 0, true}};
    static const char *const wrong[] = {"triton", "flashinfer_", "flashinferx",
                                        "aut",    "auto ",       "-"};
    const struct oz_linear_backend *b;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(oz_linear_backend_find(&b, cases[i].asked, "--x", &err), OZ_OK);
        assert_string_equal(b->name, cases[i].name);
        assert_int_equal(b->flags, cases[i].flags);
        assert_int_equal(b->weight_only, cases[i].weight_only);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(oz_linear_backend_find(&b, wrong[i], "--x", &err), OZ_ERR_ARG);
        assert_non_null(strstr(err.message, "there are auto, ref, cpu, cublaslt, own, "));
    }
}

/* With "ref" the scalar kernel is the only one for linear layers, and nothing can force another. */
static void linear_ref(void **state)
{
    struct oz_device *dev;
    assert_int_equal(oz_cpu_open(&dev, OZ_DEVICE_LINEAR_REF, NULL, NULL, NULL, &err), OZ_OK);
    const struct oz_cpu_kernel *const *k = oz_cpu_of(dev)->usable[OZ_OP_LINEAR];
    assert_non_null(*k);
    for (; *k != NULL; k++) {
        assert_int_equal((*k)->tier, OZ_TIER_SCALAR);
    }
    oz_device_close(&dev);
    const char *fast = oz_cpu_kernels(OZ_OP_LINEAR)[0]->name;
    if (oz_cpu_kernels(OZ_OP_LINEAR)[0]->tier != OZ_TIER_SCALAR) {
        assert_int_equal(oz_cpu_open(&dev, OZ_DEVICE_LINEAR_REF, NULL, NULL, fast, &err),
                         OZ_ERR_ARG);
        assert_non_null(strstr(err.message, "the linear backend is \"ref\""));
    }
}

/* A plug-in that is not there, and files that are none; where there is none, auto is the processor. */
static void plugins(void **state)
{
    struct oz_device *dev;
    assert_int_equal(setenv("OUNCE_PLUGINS", "/nonexistent", 1), 0);
    fails("cuda", 0, OZ_ERR_DEVICE, "/nonexistent/libounce-cuda.so is not installed");
    fails("cuda:1", OZ_DEVICE_PLAN_ONLY, OZ_ERR_DEVICE, "use --device cpu");
    fails("cuda:", 0, OZ_ERR_ARG, "a number from 0");
    assert_int_equal(oz_device_open(&dev, "auto", 0, NULL, &err), OZ_OK);
    assert_string_equal(dev->name, "cpu");
    oz_device_close(&dev);
    assert_int_equal(oz_device_open(&dev, "auto", OZ_DEVICE_PLAN_ONLY, NULL, NULL), OZ_OK);
    oz_device_close(&dev);
    scratch_text("libounce-cuda.so", "no library");
    assert_int_equal(setenv("OUNCE_PLUGINS", scratch_path("."), 1), 0);
    fails("cuda", 0, OZ_ERR_DEVICE, "does not open");
    assert_int_equal(unsetenv("OUNCE_PLUGINS"), 0);
}

static void memory(void **state)
{
    struct oz_device *dev;
    void *a;
    void *b;
    int64_t free_bytes;
    int64_t total_bytes;
    assert_int_equal(oz_device_open(&dev, "cpu", 0, NULL, &err), OZ_OK);
    assert_int_equal(dev->memory(dev, &free_bytes, &total_bytes, &err), OZ_OK);
    assert_true(free_bytes > 0 && free_bytes <= total_bytes);
    assert_int_equal(dev->alloc(dev, 1, &a, &err), OZ_OK);
    assert_int_equal(dev->alloc_host(dev, 1000, &b, &err), OZ_OK);
    assert_int_equal((uintptr_t)a % OZ_DEVICE_ALIGN, 0);
    dev->free(dev, a);
    dev->free_host(dev, b);
    dev->free(dev, NULL);
    assert_int_equal(dev->alloc(dev, SIZE_MAX, &a, &err), OZ_ERR_NOMEM);
    assert_null(a);
    assert_non_null(strstr(err.message, "bytes asked"));
    oz_alloc_fail_at(1, 0);
    assert_int_equal(dev->alloc(dev, 64, &a, &err), OZ_ERR_NOMEM);
    oz_alloc_fail_at(0, 0);
    assert_null(a);
    oz_device_close(&dev);
    oz_alloc_fail_at(1, 0);
    assert_int_equal(oz_device_open(&dev, "cpu", 0, NULL, &err), OZ_ERR_NOMEM);
    oz_alloc_fail_at(0, 0);
    assert_null(dev);
}

static void transfers(void **state)
{
    struct oz_device *dev;
    struct oz_queue *queue;
    struct oz_event *event = NULL;
    char text[] = "seven bytes";
    char back[sizeof text];
    void *a;
    void *b;
    assert_int_equal(oz_device_open(&dev, "cpu", 0, NULL, &err), OZ_OK);
    assert_int_equal(dev->alloc(dev, sizeof text, &a, &err), OZ_OK);
    assert_int_equal(dev->alloc(dev, sizeof text, &b, &err), OZ_OK);
    assert_int_equal(dev->queue_create(dev, &queue, &err), OZ_OK);
    assert_non_null(queue);
    assert_int_equal(dev->upload(dev, queue, a, text, sizeof text, &err), OZ_OK);
    assert_int_equal(dev->record(dev, queue, &event, &err), OZ_OK);
    assert_int_equal(dev->await(dev, NULL, event, &err), OZ_OK);
    assert_int_equal(dev->record(dev, queue, &event, &err), OZ_OK); /* again */
    assert_int_equal(dev->copy(dev, NULL, b, a, sizeof text, &err), OZ_OK);
    assert_int_equal(dev->download(dev, NULL, back, b, sizeof text, &err), OZ_OK);
    assert_int_equal(dev->wait(dev, NULL, &err), OZ_OK);
    assert_memory_equal(back, text, sizeof text);
    dev->event_destroy(dev, event);
    dev->queue_destroy(dev, queue);
    dev->free(dev, a);
    dev->free(dev, b);
    oz_device_close(&dev);
}

static void plan_only(void **state)
{
    struct oz_device *dev;
    void *memory;
    int64_t bytes;
    struct oz_act x = {.rows = 2, .cols = 8, .stride = 8, .spec = {.dtype = OZ_DTYPE_F32}};
    struct oz_act out = x;
    struct oz_act_quant_args a = {.x = &x, .out = &out, .rows = 2};
    struct oz_linear w = {.w = {.name = "w"}};
    struct oz_linear_args linear = {.x = &x, .w = &w, .out = &out};
    assert_int_equal(oz_device_open(&dev, "cpu", OZ_DEVICE_PLAN_ONLY, NULL, &err), OZ_OK);
    assert_true(dev->plan_only);
    assert_int_equal(dev->alloc(dev, 64, &memory, &err), OZ_ERR_DEVICE);
    assert_null(memory);
    assert_non_null(strstr(err.message, "planning only"));
    assert_int_equal(dev->memory(dev, &bytes, &bytes, &err), OZ_ERR_DEVICE);
    assert_int_equal(dev->wait(dev, NULL, &err), OZ_ERR_DEVICE);
    assert_true(dev->ops->scratch_bytes(dev, OZ_OP_LINEAR, &linear) > 0);
    struct oz_op_ctx ctx = {.dev = dev};
    assert_int_equal(dev->ops->act_quant(&ctx, &a), OZ_ERR_DEVICE);
    oz_device_close(&dev);
}

static void plan_param(void **state)
{
    struct oz_device *dev;
    struct oz_plan_answer answer;
    struct oz_plan_request request = {.use = OZ_USE_LINEAR};
    struct oz_param p = {.name = "blocks.0.w", .rank = 2, .shape = {4, 8}};
    assert_int_equal(oz_device_open(&dev, "cpu", OZ_DEVICE_PLAN_ONLY, NULL, &err), OZ_OK);
    assert_int_equal(dev->ops->plan_param(dev, &p, &request, &answer, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "blocks.0.w"));
    p.weight = oz_weight_shape(oz_codec_find("bf16"), 1, 4, 8);
    assert_int_equal(dev->ops->plan_param(dev, &p, &request, &answer, &err), OZ_OK);
    assert_non_null(answer.plan);
    assert_non_null(answer.kernel);
    request.mode = 1;
    assert_int_equal(dev->ops->plan_param(dev, &p, &request, &answer, &err), OZ_ERR_UNSUPPORTED);
    request.mode = 0;
    assert_int_equal(dev->ops->pack_band(dev, NULL, &p, 0, 0, 4, &p.weight, &err), OZ_ERR_INTERNAL);
    p.weight.planes[OZ_PLANE_SMOOTH].present = true;
    assert_int_equal(dev->ops->plan_param(dev, &p, &request, &answer, &err), OZ_ERR_UNSUPPORTED);
    assert_null(answer.plan);
    oz_device_close(&dev);
}

/* What the device says of activation modes is what it plans: for every scheme, mode and kind of layer. */
static void act_support(void **state)
{
    static const float given = 1;
    static const char *const tiers[] = {"scalar", NULL};
    for (size_t t = 0; t < 2; t++) {
        struct oz_device *dev;
        uint32_t seen = 0;
        assert_int_equal(oz_cpu_open(&dev, OZ_DEVICE_PLAN_ONLY, NULL, tiers[t], NULL, &err), OZ_OK);
        struct oz_act_support support = dev->ops->act_support(dev);
        assert_int_equal(support.native, 0);
        const struct oz_scheme_info *s;
        for (int32_t i = 0; (s = oz_scheme_at(i)) != NULL; i++) {
            for (int mode = 0; mode < OZ_ACT_MODE_COUNT * 2; mode++) {
                bool experts = mode >= OZ_ACT_MODE_COUNT;
                enum oz_act_mode act = (enum oz_act_mode)(mode % OZ_ACT_MODE_COUNT);
                if (!(s->acts & OZ_ACT_BIT(act)) || !(experts ? s->experts : s->linear)) {
                    continue;
                }
                struct oz_plan_answer answer;
                const struct oz_plan_request request = {.use = experts ? OZ_USE_EXPERTS
                                                                       : OZ_USE_LINEAR};
                struct oz_param p = {
                    .name = "w",
                    .rank = 2,
                    .shape = {256, 512},
                    .act_count = 1,
                    .acts = {oz_act_spec_of(act, OZ_EXPONENT_DEFAULT, NULL, &given)},
                    .weight = oz_weight_shape(oz_codec_find(s->codec), 1, 256, 512)};
                enum oz_status status = dev->ops->plan_param(dev, &p, &request, &answer, &err);
                assert_int_equal(status == OZ_OK, (support.possible & OZ_ACT_BIT(act)) != 0);
                seen |= OZ_ACT_BIT(act);
            }
        }
        assert_int_equal(seen, OZ_ACT_BIT(OZ_ACT_MODE_COUNT) - 1); /* some scheme has each */
        oz_device_close(&dev);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),           cmocka_unit_test(wrong_names),
        cmocka_unit_test(linear_backends), cmocka_unit_test(linear_ref),
        cmocka_unit_test(plugins),         cmocka_unit_test(memory),
        cmocka_unit_test(transfers),       cmocka_unit_test(plan_only),
        cmocka_unit_test(plan_param),      cmocka_unit_test(act_support),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
