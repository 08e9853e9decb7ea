/*
 * The plan against what happens: arenas to the byte, anonymous memory at the peaks of load and run
 * within 5 % + 8 MiB both ways, on the bundled model and on a synthetic one; and what a plan says:
 * every tensor once, sums, kernels, folded blocks, what fits into a limit.
 */
#include "test.h"

#include <malloc.h>
#define OZ_UNSTABLE
#include <ounce/ounce.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/pool.h"
#include "pipe/quantize.h"
#include "pipe/random_model.h"
#include "plan/describe.h"
#include "plan/fit.h"
#include "plan/plan.h"
#include "sampler.h"
#include "scratch.h"

#define MIB (INT64_C(1) << 20)

static struct oz_error err;
static struct oz_pool *pool;
static struct oz_device *planner, *device;
static const struct oz_task small = {
    .prompt = "red apple", .width = 64, .height = 64, .steps = 2, .scale = 4, .seed = 1};

static void ok(enum oz_status status)
{
    if (status != OZ_OK) {
        fail_msg("%s", err.message);
    }
}

static const char *bundled(void)
{
    return OZ_TEST_DIR "/../models/emoji";
}

static int start(void **state)
{
    /* What is given back goes back to the system, whatever was given back before. A sanitizer's
     * allocator has no such option. */
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 17);
    if (scratch_open(state) != 0) {
        return -1;
    }
    ok(oz_pool_create(&pool, 2, &err));
    ok(oz_device_open(&planner, "cpu", OZ_DEVICE_PLAN_ONLY, pool, &err));
    ok(oz_device_open(&device, "cpu", 0, pool, &err));
    return 0;
}

static int stop(void **state)
{
    oz_device_close(&device);
    oz_device_close(&planner);
    oz_pool_destroy(&pool);
    return scratch_close(state);
}

/* Opens and assigns; config NULL: as stored. */
static struct oz_pipeline *open_in_mode(const char *folder, const char *config,
                                        enum oz_modulation_mode modulation)
{
    struct oz_pipeline *p;
    struct oz_request *q;
    const struct oz_request_text text = {.config = config};
    const struct oz_pipeline_options options = {.modulation = modulation};
    ok(oz_request_create(&q, &text, &err));
    ok(oz_pipeline_open(&p, folder, &options, &err));
    ok(oz_pipeline_assign(p, planner, q, OZ_KEEP_STANDARD, false, &err));
    oz_request_destroy(&q);
    return p;
}

static struct oz_pipeline *open_model(const char *folder, const char *config)
{
    return open_in_mode(folder, config, OZ_MODULATION_RESIDENT);
}

static void make_plan(struct oz_plan *plan, struct oz_pipeline *p, const struct oz_task *tasks,
                      int32_t count)
{
    const struct oz_plan_args args = {
        .pipeline = p, .dev = planner, .tasks = tasks, .task_count = count, .max_batch = 4};
    ok(oz_plan_make(plan, &args, &err));
}

/* ---- memory ---- */

static void near(const char *what, const char *config, int64_t peak, int64_t predicted)
{
    int64_t allowed = predicted / 20 + 8 * MIB;
    print_message("%s of %.60s: anonymous peak %.1f MiB, predicted %.1f\n", what,
                  config != NULL ? config : "what is stored", (double)peak / (double)MIB,
                  (double)predicted / (double)MIB);
    assert_true(peak <= predicted + allowed && peak >= predicted - allowed);
}

static void is_kept_to_in_mode(const char *folder, const char *config, int32_t count,
                               enum oz_modulation_mode modulation)
{
    struct oz_task tasks[4] = {small, small, small, small};
    float *pictures[4];
    struct oz_plan plan;
    struct oz_run_stats stats;
    struct sampler sampler;
    struct oz_pipeline *p = open_in_mode(folder, config, modulation);
    make_plan(&plan, p, tasks, count);
    const struct oz_plan_memory m = plan.memory;
    oz_plan_deinit(&plan);
    oz_pipeline_close(&p);

    p = open_in_mode(folder, config, modulation);
    (void)malloc_trim(0);
    int64_t before = oz_memory_anonymous("");
    sampler_start(&sampler);
    ok(oz_pipeline_load(p, device, NULL, NULL, &err));
    int64_t load = sampler_stop(&sampler) - before;
    assert_int_equal(p->model.used_bytes, m.resident);
    int64_t mapped = 0;
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        mapped += p->components[i].loaded.mapped_bytes;
    }
    assert_int_equal(mapped, m.mapped);
    const struct oz_run run = {.pipeline = p, .max_batch = 4};
    sampler_start(&sampler);
    for (int32_t i = 0; i < count; i++) {
        ok(oz_task_resolve(&tasks[i], p, 0, &err));
    }
    ok(oz_run_generate(&run, tasks, count, pictures, &stats, &err));
    int64_t peak = sampler_stop(&sampler) - before;
    assert_int_equal(stats.used.step, m.run_parts.step);
    assert_int_equal(stats.used.plan, m.run_parts.plan);
    assert_int_equal(stats.used.sequences, m.run_parts.sequences);
    assert_int_equal(stats.used.table, m.run_parts.table);
    for (int32_t i = 0; i < count; i++) {
        oz_free(pictures[i]);
    }
    oz_pipeline_close(&p);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    near("load", config, load, m.load); /* their shadows are anonymous memory too */
    near("run", config, peak, m.run);
#else
    (void)load;
    (void)peak;
#endif
}

static void is_kept_to(const char *folder, const char *config, int32_t count)
{
    is_kept_to_in_mode(folder, config, count, OZ_MODULATION_RESIDENT);
}

static void bundled_model(void **state)
{
    is_kept_to(bundled(), NULL, 1);
    is_kept_to(bundled(), "{\"method\":\"int8\"}", 4);
    is_kept_to(bundled(), "{\"default\":\"mxfp4\",\"vae\":null}", 2);
}

/* Wide enough that 5 % + 8 MiB is a small part of it: 170 MiB as stored. */
static void synthetic_model(void **state)
{
    const struct oz_random_model m = {
        .like = "emoji", .layers = 2, .heads = 16, .head_dim = 64, .seed = 3};
    ok(oz_random_model_write(scratch_path("wide"), &m, &err));
    is_kept_to(scratch_path("wide"), NULL, 1);
    is_kept_to(scratch_path("wide"), "{\"method\":\"int8\"}", 1);
    is_kept_to(scratch_path("wide"), "{\"transformer\":\"nvfp4\",\"text_encoder\":\"fp8\"}", 2);
    is_kept_to_in_mode(scratch_path("wide"), NULL, 1, OZ_MODULATION_SCHEDULE);
    is_kept_to_in_mode(scratch_path("wide"), "{\"method\":\"int8\"}", 2, OZ_MODULATION_GRID);
    scratch_remove("wide");
}

/* ---- what it says ---- */

static void every_tensor_once(void **state)
{
    struct oz_plan plan;
    struct oz_plan_sums scheme;
    struct oz_plan_sums fate;
    struct oz_pipeline *p = open_model(bundled(), "{\"method\":\"int8\"}");
    make_plan(&plan, p, &small, 1);
    int64_t tensors = 0;
    int64_t file_bytes = 0;
    int64_t resident = 0;
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_ckpt *c = p->components[i].ckpt;
        tensors += oz_ckpt_count(c);
        for (int64_t k = 0; k < oz_ckpt_count(c); k++) {
            file_bytes += oz_ckpt_tensor(c, k)->bytes;
        }
    }
    assert_int_equal(plan.count, tensors);
    oz_plan_sum_by_scheme(&plan, OZ_COMPONENT_COUNT, &scheme);
    oz_plan_sum_by_fate(&plan, OZ_COMPONENT_COUNT, &fate);
    int64_t sums[4] = {0};
    for (int32_t i = 0; i < scheme.count; i++) {
        sums[0] += scheme.items[i].file_bytes;
        resident += scheme.items[i].resident_bytes;
        sums[2] += scheme.items[i].tensors;
    }
    for (int32_t i = 0; i < fate.count; i++) {
        sums[1] += fate.items[i].file_bytes;
        sums[3] += fate.items[i].tensors;
    }
    assert_true(sums[0] == file_bytes && sums[1] == file_bytes);
    assert_true(sums[2] == tensors && sums[3] == tensors);
    /* the arena rounds each plane up */
    assert_true(resident <= plan.memory.resident &&
                plan.memory.resident - resident < tensors * 2 * OZ_ARENA_ALIGN);
    int32_t in_groups = 0;
    for (int32_t i = 0; i < plan.group_count; i++) {
        in_groups += plan.groups[i].tensors;
    }
    assert_int_equal(in_groups, tensors);
    int32_t in_kernels = 0;
    for (int32_t i = 0; i < plan.kernel_count; i++) {
        in_kernels += plan.kernels[i].tensors;
    }
    int32_t read = 0;
    for (int32_t i = 0; i < plan.count; i++) {
        read += plan.layers[i].entry->kernel != NULL;
        assert_int_equal(plan.layers[i].kernel >= 0, plan.layers[i].entry->kernel != NULL);
    }
    assert_int_equal(in_kernels, read);
    oz_plan_deinit(&plan);
    oz_pipeline_close(&p);
}

/* What a load makes of the tensors is what the plan-only device said. */
static void the_load_is_the_plan(void **state)
{
    static const char *const config = "{\"transformer\":\"nvfp4\",\"text_encoder\":\"fp8\"}";
    struct oz_plan plan;
    struct oz_pipeline *p = open_model(bundled(), config);
    struct oz_pipeline *loaded = open_model(bundled(), config);
    make_plan(&plan, p, &small, 1);
    ok(oz_pipeline_load(loaded, device, NULL, NULL, &err));
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_component *a = &p->components[i];
        const struct oz_component *b = &loaded->components[i];
        struct oz_buf text[2];
        oz_buf_init(&text[0], 1 << 24);
        oz_buf_init(&text[1], 1 << 24);
        oz_load_report_json(&a->report, &text[0]);
        oz_load_schedule_json(&a->schedule, a->match, &text[0]);
        oz_load_report_json(&b->report, &text[1]);
        oz_load_schedule_json(&b->schedule, b->match, &text[1]);
        assert_string_equal(oz_buf_text(&text[0]), oz_buf_text(&text[1]));
        oz_buf_deinit(&text[0]);
        oz_buf_deinit(&text[1]);
    }
    oz_plan_deinit(&plan);
    oz_pipeline_close(&loaded);
    oz_pipeline_close(&p);
}

static const struct oz_plan_group *group_of(const struct oz_plan *plan, const char *name)
{
    for (int32_t i = 0; i < plan->group_count; i++) {
        const struct oz_plan_layer *l = &plan->layers[plan->groups[i].first];
        if (l->layer != NULL && strcmp(l->layer->name, name) == 0) {
            return &plan->groups[i];
        }
    }
    return NULL;
}

/* Blocks that are equal are one line; a block that differs in a rule has its own. */
static void blocks_are_folded(void **state)
{
    struct oz_plan plan;
    struct oz_pipeline *p =
        open_model(bundled(), "{\"method\":\"mxfp4\",\"ignored_layers\":[\"transformer_blocks.2\"],"
                              "\"w4a8_fallback_steps\":[0]}");
    make_plan(&plan, p, &small, 1);
    const struct oz_plan_group *g = group_of(&plan, "transformer_blocks.0.attn.to_q.weight");
    assert_non_null(g);
    assert_int_equal(g->tensors, 5);
    const struct oz_plan_layer *l = &plan.layers[g->first];
    assert_string_equal(l->entry->scheme, "mxfp4");
    assert_int_equal(l->choice->source, OZ_SOURCE_METHOD);
    /* 32 elements: 16 bytes of codes, one of scale; of 2 bytes each in the file */
    assert_int_equal(g->resident_bytes * 64, g->file_bytes * 17);
    g = group_of(&plan, "transformer_blocks.2.attn.to_q.weight");
    assert_non_null(g);
    assert_int_equal(g->tensors, 1);
    l = &plan.layers[g->first];
    assert_string_equal(l->entry->scheme, "as stored");
    assert_int_equal(l->choice->source, OZ_SOURCE_IGNORE);
    assert_string_equal(l->entry->rule, "transformer_blocks.2");

    struct oz_buf b;
    oz_buf_init(&b, 1 << 20);
    oz_plan_print(&plan, NULL, false, &b);
    const char *line = strstr(oz_buf_text(&b), "   5 transformer_blocks.*.attn.to_q.weight ");
    assert_non_null(line);
    const char *acts = strstr(line, "activations mxfp4, mxfp8 in fallback steps");
    assert_true(acts != NULL && acts < strchr(line, '\n'));
    assert_null(strstr(oz_buf_text(&b), "transformer_blocks.1.attn.to_q.weight"));
    oz_buf_deinit(&b);
    oz_buf_init(&b, 1 << 20);
    oz_plan_print(&plan, NULL, true, &b);
    assert_non_null(strstr(oz_buf_text(&b), "   1 transformer_blocks.1.attn.to_q.weight "));
    oz_buf_deinit(&b);
    oz_plan_deinit(&plan);
    oz_pipeline_close(&p);
}

/* Scales that a checkpoint has beside its codes are told with these, not as weights of their own. */
static void scales_are_with_their_weights(void **state)
{
    struct oz_plan plan;
    struct oz_quantize_options o;
    int32_t tensors = 0;
    int32_t beside = 0;
    int64_t bytes = 0;
    oz_quantize_options_default(&o);
    o.model = bundled();
    o.quantization = "int8";
    ok(oz_model_quantize(scratch_path("int8"), &o, &err));
    struct oz_pipeline *p = open_model(scratch_path("int8"), NULL);
    make_plan(&plan, p, &small, 1);
    const struct oz_plan_group *g = group_of(&plan, "transformer_blocks.0.attn.to_q.weight");
    assert_non_null(g);
    assert_int_equal(g->tensors, 6);
    assert_int_equal(g->beside, 6);
    const int64_t *shape = plan.layers[g->first].layer->shape;
    assert_int_equal(g->file_bytes, 6 * (shape[0] * shape[1] + shape[0] * 4));
    for (int32_t i = 0; i < plan.group_count; i++) {
        tensors += plan.groups[i].tensors;
        beside += plan.groups[i].beside;
        bytes += plan.groups[i].file_bytes;
        assert_false(plan.layers[plan.groups[i].first].beside);
    }
    assert_true(beside > 60);
    assert_int_equal(tensors + beside, plan.count);
    for (int32_t i = 0; i < plan.count; i++) {
        bytes -= plan.layers[i].entry->tensor->bytes;
    }
    assert_int_equal(bytes, 0);

    struct oz_buf b;
    oz_buf_init(&b, 1 << 20);
    oz_plan_print(&plan, NULL, false, &b);
    const char *line = strstr(oz_buf_text(&b), "   6 transformer_blocks.*.attn.to_q.weight ");
    assert_non_null(line);
    const char *with = strstr(line, "; with 6 tensors of scales and the like\n");
    assert_true(with != NULL && with < strchr(line, '\n'));
    assert_null(strstr(strchr(line, '\n'), " transformer_blocks.*.attn.to_q.weight "));
    oz_buf_deinit(&b);
    oz_buf_init(&b, 1 << 20);
    oz_plan_print(&plan, NULL, true, &b);
    assert_non_null(strstr(oz_buf_text(&b), "   1 transformer_blocks.1.attn.to_q.weight "));
    assert_non_null(strstr(oz_buf_text(&b), "   1 transformer_blocks.1.attn.to_q.weight_scale "));
    oz_buf_deinit(&b);
    oz_plan_deinit(&plan);
    oz_pipeline_close(&p);
    scratch_remove("int8");
}

/* ---- activation modes ---- */

/* A device for which the second mode is another matter. */
static enum { REFUSES, OTHER_KERNEL, OTHER_PACKING } second_mode;
static const struct oz_op_table *real_ops;
static int32_t asked[OZ_SCHEME_MODES];

static enum oz_status plan_by_mode(struct oz_device *dev, const struct oz_param *param,
                                   const struct oz_plan_request *request,
                                   struct oz_plan_answer *answer, struct oz_error *error)
{
    asked[request->mode]++;
    if (request->mode == 1 && second_mode == REFUSES) {
        return OZ_FAIL(error, OZ_ERR_UNSUPPORTED, "%s: no kernel for its second mode.",
                       param->name);
    }
    OZ_TRY(real_ops->plan_param(dev, param, request, answer, error));
    if (request->mode == 1) {
        answer->kernel = "oz_linear_of_fallback_steps";
        answer->packed_bytes += second_mode == OTHER_PACKING ? 64 : 0;
        if (request->report != NULL) {
            request->report(request->report_ctx, "oz_linear_best", "it is for other steps");
        }
    }
    return OZ_OK;
}

/* What a step will ask for is planned before anything is loaded, in every mode of every layer. */
static void every_mode_is_planned(void **state)
{
    static const char *const config =
        "{\"method\":\"mxfp4\",\"w4a8_fallback_steps\":[0],"
        "\"w4a8_fallback_layers\":[\"transformer_blocks.1.attn.to_q\"]}";
    struct oz_device dev = *planner;
    struct oz_op_table ops = *planner->ops;
    struct oz_plan plan;
    size_t bytes;
    real_ops = planner->ops;
    ops.plan_param = plan_by_mode;
    dev.ops = &ops;
    struct oz_pipeline *p = open_model(bundled(), config);
    second_mode = REFUSES;
    assert_int_equal(oz_pipeline_plan(p, &dev, &bytes, &err), OZ_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "transformer_blocks.0.attn.to_q.weight: no kernel for its "
                                     "second mode.");
    second_mode = OTHER_PACKING;
    assert_int_equal(oz_pipeline_plan(p, &dev, &bytes, &err), OZ_ERR_INTERNAL);
    assert_non_null(strstr(err.message, "a weight has one packing"));

    second_mode = OTHER_KERNEL;
    memset(asked, 0, sizeof asked);
    const struct oz_plan_args args = {
        .pipeline = p, .dev = &dev, .tasks = &small, .task_count = 1, .max_batch = 4};
    ok(oz_plan_make(&plan, &args, &err));
    assert_true(asked[1] > 2 * 71); /* each layer when it is planned and when it is told */
    int32_t layers = 0;
    for (int32_t i = 0; i < plan.count; i++) {
        const struct oz_plan_layer *l = &plan.layers[i];
        bool two = l->choice != NULL && l->choice->scheme.mode_count == 2;
        assert_int_equal(l->fallback >= 0, two);
        assert_true(!two || plan.kernels[l->fallback].fallbacks > 0);
        layers += two;
    }
    assert_int_equal(layers, 71); /* one takes mxfp8 in every step */
    struct oz_buf b;
    oz_buf_init(&b, 1 << 20);
    oz_plan_print(&plan, NULL, false, &b);
    assert_non_null(strstr(oz_buf_text(&b), "oz_linear_of_fallback_steps: 0 tensors,     0.00 MiB; "
                                            "71 in fallback steps\n       oz_linear_"));
    assert_non_null(strstr(oz_buf_text(&b), "oz_linear_best declines: it is for other steps"));
    oz_buf_deinit(&b);
    oz_buf_init(&b, 1 << 20);
    oz_plan_json(&plan, NULL, &b);
    assert_non_null(strstr(oz_buf_text(&b), "\"fallback_kernel\":\"oz_linear_of_fallback_steps\""));
    oz_buf_deinit(&b);
    oz_plan_deinit(&plan);
    oz_pipeline_close(&p);
}

/* ---- what fits ---- */

static enum oz_status fit(struct oz_plan_fit *out, int64_t limit, struct oz_plan_memory *memory)
{
    struct oz_plan plan;
    struct oz_pipeline *p;
    struct oz_request *q;
    const struct oz_pipeline_options how = {0};
    const struct oz_plan_fit_args args = {.folder = bundled(),
                                          .how = &how,
                                          .dev = planner,
                                          .tasks = &small,
                                          .task_count = 1,
                                          .max_batch = 4,
                                          .process_bytes = MIB,
                                          .limit = limit};
    enum oz_status status = oz_plan_make_fit(&plan, out, &p, &q, &args, &err);
    *memory = plan.memory;
    oz_plan_deinit(&plan);
    oz_pipeline_close(&p);
    oz_request_destroy(&q);
    return status;
}

static void gives_way_in_order(void **state)
{
    struct oz_plan_fit least;
    struct oz_plan_fit f;
    struct oz_plan_memory m;
    assert_int_equal(fit(&least, 1, &m), OZ_ERR_THRESHOLD);
    assert_non_null(strstr(err.message, "The least that would is "));
    assert_int_equal(least.count, 9); /* there are no experts here */
    ok(fit(&f, INT64_MAX, &m));
    assert_int_equal(f.count, 1);
    assert_null(f.config);
    oz_plan_fit_deinit(&f);
    int64_t before = INT64_MAX;
    for (int32_t i = 0; i < least.count; i++) {
        assert_true(least.rungs[i].need < before);
        before = least.rungs[i].need;
    }
    oz_plan_fit_deinit(&least);
}

/* The config that is printed, given back, is the same plan. */
static void its_config_says_the_same(void **state)
{
    struct oz_plan_fit all;
    struct oz_plan_fit f;
    struct oz_plan_memory m;
    assert_int_equal(fit(&all, 1, &m), OZ_ERR_THRESHOLD);
    for (int32_t i = 1; i < all.count; i++) {
        ok(fit(&f, all.rungs[i - 1].need - 1, &m));
        assert_int_equal(f.count, i + 1);
        assert_int_equal(f.rungs[i].need, all.rungs[i].need);
        assert_int_equal(f.rungs[i].run, m.run);
        assert_non_null(f.config);
        struct oz_pipeline *p = open_model(bundled(), f.config);
        struct oz_plan plan;
        make_plan(&plan, p, &small, 1);
        assert_int_equal(plan.memory.resident, m.resident);
        assert_int_equal(plan.memory.run, m.run);
        oz_plan_deinit(&plan);
        oz_pipeline_close(&p);
        oz_plan_fit_deinit(&f);
    }
    oz_plan_fit_deinit(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bundled_model),
        cmocka_unit_test(synthetic_model),
        cmocka_unit_test(every_tensor_once),
        cmocka_unit_test(blocks_are_folded),
        cmocka_unit_test(scales_are_with_their_weights),
        cmocka_unit_test(gives_way_in_order),
        cmocka_unit_test(its_config_says_the_same),
        cmocka_unit_test(the_load_is_the_plan),
        cmocka_unit_test(every_mode_is_planned),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
