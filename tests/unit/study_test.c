/*
 * Studies of models: the search against all assignments that there are; configs that mean what they were
 * written for; labels; comparisons that are interrupted and go on, that fail half, and whose memory does
 * not grow with the number of candidates.
 */
#define OZ_UNSTABLE
#include "test.h"

#include <math.h>
#include <ounce/ounce.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "dev/device.h"
#include "num/float.h"
#include "pipe/pipeline.h"
#include "pipe/quantize.h"
#include "scratch.h"
#include "study/assignment_text.h"
#include "study/label.h"
#include "study/role_errors.h"
#include "study/search.h"
#include "study/sensitivity.h"
#include "study/variant.h"

#define MODEL OZ_TEST_DIR "/../models/emoji"

static struct oz_error err;

static void ok(enum oz_status status)
{
    if (status != OZ_OK) {
        fail_msg("%s", err.message);
    }
}

static void says(enum oz_status got, enum oz_status want, const char *phrase)
{
    if (got != want || strstr(err.message, phrase) == NULL) {
        fail_msg("status %d, \"%s\" instead of %d, \"%s\"", got, err.message, want, phrase);
    }
}

static uint64_t random_state = 1;

/* In [0, 1). */
static double random_number(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(random_state >> 11) / 9007199254740992.0;
}

/* ---- the search ---- */

enum { UNITS = 6, OPTIONS = 4, ASSIGNMENTS = 4096 };

static void random_options(struct oz_search_option *o)
{
    for (int u = 0; u < UNITS; u++) {
        double bytes = 100 + 900 * random_number(), weight = random_number();
        o[u * OPTIONS] = (struct oz_search_option){bytes, 0};
        for (int i = 1; i < OPTIONS; i++) {
            bytes *= 0.4 + 0.4 * random_number();
            o[u * OPTIONS + i] = (struct oz_search_option){
                bytes, random_number() < 0.1 ? (double)NAN : weight * pow(10, i) * random_number()};
        }
        if (random_number() < 0.2) { /* no picture needs it */
            for (int i = 1; i < OPTIONS; i++) {
                o[u * OPTIONS + i].error = 0;
            }
        }
    }
}

/* The least bytes with at most so much error, or (by_bytes) the least error with at most so many bytes. */
static double best_of_all(const struct oz_search_option *o, double limit, bool by_bytes)
{
    double best = INFINITY;
    for (int a = 0; a < ASSIGNMENTS; a++) {
        double bytes = 0, error = 0;
        for (int u = 0, rest = a; u < UNITS; u++, rest /= OPTIONS) {
            bytes += o[u * OPTIONS + rest % OPTIONS].bytes;
            error += o[u * OPTIONS + rest % OPTIONS].error;
        }
        double held = by_bytes ? bytes : error, wanted = by_bytes ? error : bytes;
        if (!isnan(error) && held <= limit && wanted < best) {
            best = wanted;
        }
    }
    return best;
}

static double most_bytes_of_one(const struct oz_search_option *o)
{
    double most = 0;
    for (int u = 0; u < UNITS; u++) {
        most = o[u * OPTIONS].bytes > most ? o[u * OPTIONS].bytes : most;
    }
    return most;
}

static void check_search(const struct oz_search_option *o, double limit)
{
    int32_t chosen[UNITS];
    struct oz_search s = {.options = o, .units = UNITS, .count = OPTIONS, .chosen = chosen};
    ok(oz_search_run(&s, limit, 0, &err));
    double bytes = 0, error = 0;
    for (int u = 0; u < UNITS; u++) {
        bytes += o[u * OPTIONS + chosen[u]].bytes;
        error += o[u * OPTIONS + chosen[u]].error;
    }
    assert_true(fabs(bytes - s.bytes) < 1e-6 && error <= limit * (1 + 1e-12) + 1e-12);
    double best = best_of_all(o, limit, false);
    if (!(bytes <= best + most_bytes_of_one(o))) {
        fail_msg("limit %g: %g bytes, the best has %g", limit, bytes, best);
    }
    assert_true(bytes >= best - 1e-6);
}

static void search_meets_its_budget(void **state)
{
    struct oz_search_option o[UNITS * OPTIONS];
    (void)state;
    for (int round = 0; round < 50; round++) {
        random_options(o);
        check_search(o, 0);
        for (double limit = 0.01; limit < 10000; limit *= 7) {
            check_search(o, limit);
        }
    }
}

static void search_by_bytes(void **state)
{
    struct oz_search_option o[UNITS * OPTIONS];
    int32_t chosen[UNITS];
    struct oz_search s = {.options = o, .units = UNITS, .count = OPTIONS, .chosen = chosen};
    (void)state;
    for (int round = 0; round < 50; round++) {
        random_options(o);
        double all = 0;
        for (int u = 0; u < UNITS; u++) {
            all += o[u * OPTIONS].bytes;
        }
        enum oz_status status = oz_search_run(&s, -1, 0.6 * all, &err);
        if (isinf(best_of_all(o, 0.6 * all, true))) {
            says(status, OZ_ERR_THRESHOLD, "so few bytes");
        } else if (status == OZ_OK) {
            assert_true(s.bytes <= 0.6 * all && s.error >= best_of_all(o, 0.6 * all, true) - 1e-9);
        }
        ok(oz_search_run(&s, -1, all, &err));
        assert_true(s.error == 0 && s.bytes <= all);
        says(oz_search_run(&s, -1, 1, &err), OZ_ERR_THRESHOLD, "the fewest are");
    }
}

static void budgets(void **state)
{
    struct oz_budget b;
    (void)state;
    ok(oz_budget_parse(&b, NULL, &err));
    assert_int_equal(b.kind, OZ_BUDGET_NONE);
    ok(oz_budget_parse(&b, "psnr=42.5", &err));
    assert_true(b.kind == OZ_BUDGET_PSNR && b.value == 42.5);
    ok(oz_budget_parse(&b, "bytes=1.5GiB", &err));
    assert_true(b.kind == OZ_BUDGET_BYTES && b.value == 1.5 * 1024 * 1024 * 1024);
    ok(oz_budget_parse(&b, "rel-l2=0.01", &err));
    static const char *const wrong[] = {"",         "42",       "psnr=",    "psnr=0",   "psnr=nan",
                                        "psnr=1e9", "bytes=-1", "bytes=1X", "rel-l2=2", "psnr=40 "};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        says(oz_budget_parse(&b, wrong[i], &err), OZ_ERR_ARG, "A budget is");
    }
}

/* ---- labels ---- */

static void labels(void **state)
{
    static const struct {
        const char *text, *label, *request;
    } rows[] = {
        {"int8", "int8", "int8"},
        {"a-b.c=int8", "a-b.c", "int8"},
        {"{\"method\": \"fp8\", \"activation\": null}", "method-fp8-activation-null",
         "{\"method\": \"fp8\", \"activation\": null}"},
        {"x={\"a\": \"b=c\"}", "x", "{\"a\": \"b=c\"}"},
        {"/a/b/mine.json", "mine", "/a/b/mine.json"},
        {"models/emoji-fp8/", "emoji-fp8", "models/emoji-fp8/"},
        {"///", "candidate", "///"},
    };
    char label[OZ_LABEL_BYTES];
    const char *request;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ok(oz_label_split(rows[i].text, label, &request, &err));
        assert_string_equal(label, rows[i].label);
        assert_string_equal(request, rows[i].request);
    }
    says(oz_label_split("", label, &request, &err), OZ_ERR_ARG, "empty");
    says(oz_label_split("=int8", label, &request, &err), OZ_ERR_ARG, "before =");
    says(oz_label_split("..=int8", label, &request, &err), OZ_ERR_ARG, "before =");
    says(oz_label_split("a=", label, &request, &err), OZ_ERR_ARG, "before =");
}

/* ---- configs ---- */

/* The config of random assignments, read and assigned again, is the assignment. */
static void check_config(struct oz_device *dev)
{
    static const char *const values[] = {
        NULL, "\"int8\"", "{\"weight\": \"mxfp8\", \"activation\": \"mxfp8\"}", "\"nvfp4\""};
    static const char *const schemes[] = {"as stored", "int8", "mxfp8", "nvfp4"};
    struct oz_pipeline *p;
    struct oz_request *request;
    struct oz_buf b;
    ok(oz_pipeline_open(&p, MODEL, NULL, &err));
    const struct oz_component *c = &p->components[OZ_COMPONENT_TRANSFORMER];
    const char **wanted = oz_alloc_zero((size_t)c->table.count, sizeof *wanted);
    int *picks = oz_alloc_zero((size_t)c->table.count, sizeof *picks);
    for (int32_t i = 0; i < c->table.count; i++) {
        const struct oz_layer *l = &c->table.rows[i];
        int pick = l->kind != OZ_LAYER_LINEAR ? 0 : (int)(4 * random_number());
        for (int32_t k = 0; k < i && l->fused != NULL && pick >= 0; k++) { /* parts agree */
            if (c->table.rows[k].fused != NULL && strcmp(c->table.rows[k].fused, l->fused) == 0 &&
                l->kind == OZ_LAYER_LINEAR && c->table.rows[k].kind == OZ_LAYER_LINEAR) {
                pick = picks[k];
            }
        }
        picks[i] = pick;
        wanted[i] = values[pick];
    }
    oz_buf_init(&b, OZ_CONFIG_MAX_BYTES);
    ok(oz_assignment_text(&b, &c->table, wanted, &err));
    const struct oz_request_text text = {.config = oz_buf_text(&b)};
    ok(oz_request_create(&request, &text, &err));
    ok(oz_pipeline_assign(p, dev, request, OZ_KEEP_STANDARD, false, &err));
    for (int32_t i = 0; i < c->table.count; i++) {
        assert_string_equal(c->assignment.choices[i].scheme.name, schemes[picks[i]]);
    }
    oz_request_destroy(&request);
    oz_pipeline_close(&p);
    oz_buf_deinit(&b);
    oz_free((void *)wanted);
    oz_free(picks);
}

static void configs_mean_what_they_say(void **state)
{
    struct oz_device *dev;
    (void)state;
    ok(oz_device_open(&dev, "cpu", OZ_DEVICE_PLAN_ONLY, NULL, &err));
    for (int i = 0; i < 10; i++) {
        check_config(dev);
    }
    oz_device_close(&dev);
}

/* ---- comparisons ---- */

struct text {
    char *data;
    size_t bytes;
};

static int take(void *ctx, const char *data, size_t bytes)
{
    struct text *t = ctx;
    free(t->data);
    t->data = malloc(bytes + 1);
    memcpy(t->data, data, bytes);
    t->data[bytes] = '\0';
    t->bytes = bytes;
    return 0;
}

struct stopping {
    int64_t at; /* steps; -1: never */
    bool seen;  /* totals are told */
};

static int stop_at(void *ctx, const struct oz_progress *now)
{
    struct stopping *s = ctx;
    s->seen =
        s->seen || (now->stage == OZ_STAGE_STUDY && now->total > 0 && now->done <= now->total);
    return s->at >= 0 && now->stage == OZ_STAGE_STUDY && now->done >= s->at;
}

static const char *const candidates[] = {
    "int8",  "mxfp8",
    "nvfp4", "fp8_per_channel",
    "mxfp4", "w8={\"method\": \"int8\", \"activation\": null}"};

enum { PICTURES = 2, STEPS = 2 };

/* Compares `count` candidates; small pictures. */
static enum oz_status compare(int32_t count, const char *json, int64_t stop, struct text *out)
{
    struct oz_engine_options engine;
    struct oz_models_options o;
    struct oz_image_request requests[PICTURES];
    struct stopping stopping = {.at = stop};
    oz_engine_options_default(&engine);
    engine.model = MODEL;
    engine.threads = 1;
    engine.progress = stop_at;
    engine.progress_ctx = &stopping;
    for (int i = 0; i < PICTURES; i++) {
        oz_image_request_default(&requests[i]);
        requests[i].prompt = i == 0 ? "red apple" : "pizza";
        requests[i].width = requests[i].height = 32;
        requests[i].num_inference_steps = STEPS;
        requests[i].seed = (uint64_t)i;
    }
    oz_models_options_default(&o);
    o.engine = &engine;
    o.candidate_quantizations = candidates;
    o.candidate_quantization_count = count;
    o.requests = requests;
    o.request_count = PICTURES;
    o.warmup_runs = 0;
    o.output_json = json;
    o.json = 1;
    enum oz_status status = oz_models_compare(&o, take, out, &err);
    assert_true(stopping.seen);
    return status;
}

/* The sums of one role, computed here: int8 with a scale for each row, of all "...net.2.weight". */
static void sum_int8(const struct oz_component *c, enum oz_role role, double *error2,
                     double *reference2)
{
    *error2 = *reference2 = 0;
    for (int32_t i = 0; i < c->table.count; i++) {
        const struct oz_layer *l = &c->table.rows[i];
        const struct oz_tensor_view *t = oz_ckpt_find(c->ckpt, l->name, NULL);
        if (l->role != role || l->kind != OZ_LAYER_LINEAR) {
            continue;
        }
        assert_non_null(t);
        assert_int_equal(t->dtype, OZ_DTYPE_BF16);
        assert_true(t->elements <= 1 << 16); /* then a band is all of it */
        for (int64_t r = 0; r < l->shape[0]; r++) {
            float values[4096], amax = 0;
            for (int64_t k = 0; k < l->shape[1]; k++) {
                uint16_t bits;
                memcpy(&bits, t->data + 2 * (r * l->shape[1] + k), sizeof bits);
                values[k] = oz_bf16_to_f32(bits);
                amax = fmaxf(amax, fabsf(values[k]));
            }
            float scale = amax / 127;
            for (int64_t k = 0; k < l->shape[1] && amax > 0; k++) {
                float code = fmaxf(-128, fminf(127, nearbyintf(values[k] / scale)));
                double lost = (double)(code * scale) - (double)values[k];
                *error2 += lost * lost;
                *reference2 += (double)values[k] * (double)values[k];
            }
        }
    }
}

static void errors_by_role(void **state)
{
    struct oz_pool *pools[2];
    struct oz_device *dev;
    struct oz_variant_run run = {0};
    struct oz_role_errors e[2];
    const struct oz_variant asked = {.label = "x", .model = MODEL, .quantization = "int8"};
    double error2, reference2;
    (void)state;
    ok(oz_pool_create(&pools[0], 1, &err));
    ok(oz_pool_create(&pools[1], 3, &err));
    ok(oz_device_open(&dev, "cpu", 0, pools[0], &err));
    const struct oz_variant_setting how = {.dev = dev};
    ok(oz_variant_open(&run, &asked, &how, &err));
    const struct oz_component *c = &run.pipeline->components[OZ_COMPONENT_TRANSFORMER];
    for (int i = 0; i < 2; i++) {
        ok(oz_role_errors_measure(&e[i], c, pools[i], &err));
    }
    assert_memory_equal(&e[0], &e[1], sizeof e[0]); /* of any number of threads */
    assert_true(e[0].quantized > 0);
    assert_int_equal(e[0].measured, e[0].quantized);
    assert_int_equal(e[0].roles[OZ_ROLE_NORM].layers, 0);
    sum_int8(c, OZ_ROLE_ATTN_OUT, &error2, &reference2);
    const struct oz_role_error *out = &e[0].roles[OZ_ROLE_ATTN_OUT];
    assert_true(out->layers > 0 && fabs(out->reference2 / reference2 - 1) < 1e-12);
    if (fabs(out->error2 / error2 - 1) > 1e-3) { /* a tie may round to the other side */
        fail_msg("attn_out: %.17g lost, not %.17g", out->error2, error2);
    }
    /* A document gives them back. */
    struct oz_buf b;
    struct oz_json *root;
    oz_buf_init(&b, 1 << 20);
    oz_role_errors_json(&e[0], &b);
    ok(oz_json_parse(&root, oz_buf_text(&b), b.bytes, "errors", &err));
    oz_role_errors_read(&e[1], root);
    assert_memory_equal(&e[0], &e[1], sizeof e[0]);
    oz_json_free(root);
    oz_role_errors_read(&e[1], NULL);
    assert_int_equal(e[1].measured, 0);
    assert_true(isnan(oz_role_errors_relative(&e[1].roles[OZ_ROLE_ATTN_OUT])));
    oz_buf_deinit(&b);
    oz_variant_close(&run);
    oz_device_close(&dev);
    oz_pool_destroy(&pools[0]);
    oz_pool_destroy(&pools[1]);
}

/* Coarser codecs lose more, in each role; all schemes are measured. */
static void every_scheme_has_errors(void **state)
{
    struct text out = {0};
    struct oz_json *root;
    (void)state;
    ok(compare(6, NULL, -1, &out));
    ok(oz_json_parse(&root, out.data, strlen(out.data), "a", &err));
    double worst[6] = {0};
    for (size_t i = 0; i < 6; i++) {
        const struct oz_json *e =
            oz_json_get(oz_json_at(oz_json_get(root, "candidates"), i), "role_errors");
        const struct oz_json *roles = oz_json_get(e, "roles");
        assert_true(oz_json_integer(oz_json_get(e, "measured"), -1) ==
                    oz_json_integer(oz_json_get(e, "quantized"), -2));
        assert_true(oz_json_count(roles) >= 4);
        for (size_t k = 0; k < oz_json_count(roles); k++) {
            double lost = oz_json_number(oz_json_get(oz_json_at(roles, k), "relative_l2"), -1);
            assert_true(lost > 0.001 && lost < 0.2);
            worst[i] = fmax(worst[i], lost);
        }
    }
    /* int8, mxfp8, nvfp4, fp8_per_channel, mxfp4 */
    assert_true(worst[0] < worst[3] && worst[3] < worst[2] && worst[2] < worst[4]);
    oz_json_free(root);
    free(out.data);
}

/* Times and memory apart, two documents say the same of candidate i. */
static void same_figures(const char *a_text, const char *b_text, size_t candidate)
{
    struct oz_json *a, *b;
    ok(oz_json_parse(&a, a_text, strlen(a_text), "a", &err));
    ok(oz_json_parse(&b, b_text, strlen(b_text), "b", &err));
    assert_true(oz_json_bool(oz_json_get(b, "complete"), false));
    struct oz_role_errors roles[2];
    oz_role_errors_read(
        &roles[0], oz_json_get(oz_json_at(oz_json_get(a, "candidates"), candidate), "role_errors"));
    oz_role_errors_read(
        &roles[1], oz_json_get(oz_json_at(oz_json_get(b, "candidates"), candidate), "role_errors"));
    assert_true(roles[0].measured > 0);
    assert_memory_equal(&roles[0], &roles[1], sizeof roles[0]);
    const struct oz_json *x = oz_json_at(oz_json_get(a, "candidates"), candidate);
    const struct oz_json *y = oz_json_at(oz_json_get(b, "candidates"), candidate);
    static const char *const sums[] = {"bytes",         "floats",  "first_prediction",
                                       "early_latents", "latents", "trajectory"};
    for (size_t i = 0; i < PICTURES; i++) {
        const struct oz_json *p = oz_json_at(oz_json_get(x, "images"), i);
        const struct oz_json *q = oz_json_at(oz_json_get(y, "images"), i);
        assert_string_equal(oz_json_string(oz_json_get(p, "trajectory_hash"), "p"),
                            oz_json_string(oz_json_get(q, "trajectory_hash"), "q"));
        for (size_t k = 0; k < sizeof sums / sizeof *sums; k++) {
            for (size_t e = 0; e < 8; e++) {
                const struct oz_json *u =
                    oz_json_at(oz_json_get(oz_json_get(p, "sums"), sums[k]), e);
                const struct oz_json *v =
                    oz_json_at(oz_json_get(oz_json_get(q, "sums"), sums[k]), e);
                assert_true(oz_json_number(u, -1) == oz_json_number(v, -2));
            }
        }
    }
    const struct oz_json *mean = oz_json_get(oz_json_get(y, "output_metrics"), "mean_metrics");
    const struct oz_json *old = oz_json_get(oz_json_get(x, "output_metrics"), "mean_metrics");
    double p = oz_json_number(oz_json_get(mean, "psnr_db"), -1);
    double q = oz_json_number(oz_json_get(old, "psnr_db"), -1);
    if (p != q || !(p > 0)) {
        fail_msg("candidate %zu: a mean PSNR of %.17g, and when it was interrupted %.17g",
                 candidate, q, p);
    }
    oz_json_free(a);
    oz_json_free(b);
}

/* Stopped after any number of steps, the same call goes on and ends in the same figures. */
static void interrupted_runs_go_on(void **state)
{
    struct text whole = {0}, resumed = {0};
    (void)state;
    ok(compare(2, NULL, -1, &whole));
    for (int64_t at = 3; at < 3 * PICTURES * STEPS; at += 3) {
        const char *json = scratch_path("stop-%d.json", (int)at);
        says(compare(2, json, at, &resumed), OZ_ERR_CANCELLED, "the same command goes on");
        char *kept = scratch_read(strrchr(json, '/') + 1);
        assert_non_null(strstr(kept, "\"complete\": false"));
        free(kept);
        ok(compare(2, json, -1, &resumed));
        same_figures(whole.data, resumed.data, 0);
        same_figures(whole.data, resumed.data, 1);
    }
    says(compare(2, NULL, 3, &resumed), OZ_ERR_CANCELLED, "nothing is kept");
    free(whole.data);
    free(resumed.data);
}

static void memory_does_not_grow(void **state)
{
    struct text out = {0};
    int64_t peak[2];
    (void)state;
    ok(compare(6, NULL, -1, &out)); /* whatever is taken once has been taken */
    if (!oz_memory_peak_reset("")) {
        skip();
    }
    for (int i = 0; i < 2; i++) {
        /* the largest of the six comes alone first, then among all */
        assert_true(oz_memory_peak_reset(""));
        ok(compare(i == 0 ? 2 : 6, NULL, -1, &out));
        peak[i] = oz_memory_peak("");
    }
    /* a candidate has 14 MiB and more; documents and pages of the allocator far less. A sanitizer keeps
     * what is given back for a while, and counts it. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(peak[1] - peak[0] < (INT64_C(6) << 20));
#else
    (void)peak;
#endif
    free(out.data);
}

static void wrong_calls(void **state)
{
    struct oz_models_options o;
    struct oz_sensitivity_options s;
    struct oz_engine_options engine;
    struct oz_image_request r;
    (void)state;
    oz_engine_options_default(&engine);
    oz_models_options_default(&o);
    says(oz_models_compare(&o, take, NULL, &err), OZ_ERR_ARG, "engine options are missing");
    o.engine = &engine;
    says(oz_models_compare(&o, take, NULL, &err), OZ_ERR_ARG, "0 candidates");
    o.candidate_quantizations = candidates;
    o.candidate_quantization_count = 1;
    says(oz_models_compare(&o, take, NULL, &err), OZ_ERR_ARG, "no request");
    oz_image_request_default(&r);
    r.prompt = "x";
    o.requests = &r;
    o.request_count = 1;
    o.measure_runs = 0;
    says(oz_models_compare(&o, take, NULL, &err), OZ_ERR_ARG, "measured runs");
    o.measure_runs = 1;
    o.min_psnr_db = (double)NAN;
    says(oz_models_compare(&o, take, NULL, &err), OZ_ERR_ARG, "NaN");
    o.min_psnr_db = -1;
    engine.quantization = "int8";
    says(oz_models_compare(&o, take, NULL, &err), OZ_ERR_ARG, "ask for quantization");
    engine.quantization = NULL;
    oz_sensitivity_options_default(&s);
    says(oz_model_sensitivity(&s, take, NULL, &err), OZ_ERR_ARG, "engine options are missing");
    s.engine = &engine;
    s.report = "x.html";
    says(oz_model_sensitivity(&s, take, NULL, &err), OZ_ERR_ARG, "needs a budget");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(search_meets_its_budget),
        cmocka_unit_test(search_by_bytes),
        cmocka_unit_test(budgets),
        cmocka_unit_test(labels),
        cmocka_unit_test(configs_mean_what_they_say),
        cmocka_unit_test(errors_by_role),
        cmocka_unit_test(every_scheme_has_errors),
        cmocka_unit_test(interrupted_runs_go_on),
        cmocka_unit_test(memory_does_not_grow),
        cmocka_unit_test(wrong_calls),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
