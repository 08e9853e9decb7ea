/*
 * study/: every metric against numpy and scikit-image (tests/golden/metrics, made by
 * tools/golden/metrics.py), and comparisons of files: means, identical pictures, thresholds, refusals.
 */
#include "test.h"

#include <math.h>
#define OZ_UNSTABLE
#include <ounce/ounce.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "ckpt/table.h"
#include "media/png.h"
#include "scratch.h"
#include "study/compare.h"
#include "study/metrics.h"
#include "study/ssim.h"

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

/* ---- against numpy and scikit-image ---- */

static void near_golden(const char *name, const struct oz_json *want, const char *key, double got,
                        double relative)
{
    const struct oz_json *v = oz_json_get(want, key);
    if (oz_json_type(v) == OZ_JSON_NULL) {
        if (isfinite(got)) {
            fail_msg("%s: %s is %.17g, and should not be finite", name, key, got);
        }
        return;
    }
    double golden = oz_json_number(v, (double)NAN);
    double bound = relative * fabs(golden);
    if (!(fabs(got - golden) <= bound)) {
        fail_msg("%s: %s is %.17g, not %.17g", name, key, got, golden);
    }
}

static void *copy_of(const struct oz_tensor_view *t)
{
    void *copy = test_malloc((size_t)t->bytes);
    memcpy(copy, t->data, (size_t)t->bytes);
    return copy;
}

static void check_ssim(const char *name, const struct oz_json *want, const struct oz_pixels *a,
                       const struct oz_pixels *b)
{
    double got;
    ok(oz_ssim(a, b, OZ_SSIM_GAUSSIAN, &got, &err));
    near_golden(name, want, "ssim", got, 1e-6);
    ok(oz_ssim(a, b, OZ_SSIM_UNIFORM, &got, &err));
    near_golden(name, want, "ssim_uniform", got, 1e-6);
}

static void check_case(const struct oz_ckpt *file, const char *name, const struct oz_json *want)
{
    char full[96];
    struct oz_distance d = {0};
    (void)snprintf(full, sizeof full, "%s.reference", name);
    const struct oz_tensor_view *t = oz_ckpt_find(file, full, NULL);
    (void)snprintf(full, sizeof full, "%s.candidate", name);
    const struct oz_tensor_view *u = oz_ckpt_find(file, full, NULL);
    assert_non_null(t);
    assert_non_null(u);
    void *a = copy_of(t);
    void *b = copy_of(u);
    if (t->dtype == OZ_DTYPE_U8) {
        struct oz_pixels x = oz_pixels_rgb(a, t->shape[0], t->shape[1]);
        struct oz_pixels y = oz_pixels_rgb(b, t->shape[0], t->shape[1]);
        oz_distance_add_u8(&d, a, b, (size_t)t->elements);
        check_ssim(name, want, &x, &y);
    } else {
        assert_int_equal(t->dtype, OZ_DTYPE_F32);
        oz_distance_add_f32(&d, a, b, (size_t)t->elements);
        if (t->rank == 3) {
            struct oz_pixels x = oz_pixels_planes(a, t->shape[1], t->shape[2]);
            struct oz_pixels y = oz_pixels_planes(b, t->shape[1], t->shape[2]);
            check_ssim(name, want, &x, &y);
        }
    }
    struct oz_metrics m =
        oz_distance_metrics(&d, oz_json_number(oz_json_get(want, "data_range"), -1));
    assert_int_equal(m.identical, oz_json_bool(oz_json_get(want, "identical"), !m.identical));
    near_golden(name, want, "cosine_similarity", m.cosine_similarity, 1e-6);
    near_golden(name, want, "mae", m.mae, 1e-6);
    near_golden(name, want, "mse", m.mse, 1e-6);
    near_golden(name, want, "rmse", m.rmse, 1e-6);
    near_golden(name, want, "max_abs", m.max_abs, 1e-6);
    near_golden(name, want, "l2", m.l2, 1e-6);
    near_golden(name, want, "relative_l2", m.relative_l2, 1e-6);
    near_golden(name, want, "psnr_db", m.psnr_db, 1e-6);
    test_free(a);
    test_free(b);
}

static void test_golden(void **state)
{
    struct oz_ckpt *file;
    struct oz_json *golden;
    int cases = 0;
    ok(oz_ckpt_open(&file, OZ_TEST_DIR "/golden/metrics/pictures.safetensors", NULL, &err));
    ok(oz_json_parse_file(&golden, OZ_TEST_DIR "/golden/metrics/expected.json", 1 << 20, &err));
    const struct oz_json *all = oz_json_get(golden, "cases");
    for (void *it = oz_json_first(all); it != NULL; it = oz_json_next(all, it)) {
        check_case(file, oz_json_key(it), oz_json_value(it));
        cases++;
    }
    assert_int_equal(2 * cases, oz_ckpt_count(file));
    assert_true(cases >= 18);
    oz_json_free(golden);
    oz_ckpt_close(&file);
}

/* Sums go on where they were, and bytes are summed exactly across the runs of 32768. */
static void test_sums(void **state)
{
    enum { COUNT = 100001 };
    uint8_t *a = test_malloc(COUNT);
    uint8_t *b = test_malloc(COUNT);
    struct oz_distance whole = {0};
    struct oz_distance parts = {0};
    struct oz_distance tail = {0};
    double squares = 0;
    for (size_t i = 0; i < COUNT; i++) {
        a[i] = (uint8_t)(i * 7);
        b[i] = (uint8_t)(i % 3 == 0 ? 255 : 0);
        squares += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    }
    oz_distance_add_u8(&whole, a, b, COUNT);
    oz_distance_add_u8(&parts, a, b, 70000);
    oz_distance_add_u8(&tail, a + 70000, b + 70000, COUNT - 70000);
    oz_distance_add(&parts, &tail);
    assert_true(whole.sum_squares == squares);
    assert_true(parts.sum_squares == squares && parts.dot == whole.dot);
    assert_int_equal(parts.elements, COUNT);
    assert_true(parts.max_abs == whole.max_abs && parts.differs);
    memset(a, 255, COUNT); /* the largest sums that a run can have */
    memset(b, 0, COUNT);
    whole = (struct oz_distance){0};
    oz_distance_add_u8(&whole, a, b, COUNT);
    assert_true(whole.sum_squares == 65025.0 * COUNT);
    test_free(a);
    test_free(b);
}

/* NaN is not lost in a maximum, equals nothing, and leaves no figure finite that it takes part in. */
static void test_not_finite(void **state)
{
    const float a[] = {1, (float)NAN, 3};
    const float b[] = {1, (float)NAN, 2};
    struct oz_distance d = {0};
    oz_distance_add_f32(&d, a, b, 3);
    struct oz_metrics m = oz_distance_metrics(&d, 1);
    assert_true(isnan(m.max_abs) && isnan(m.mse) && isnan(m.psnr_db) && isnan(m.l2));
    assert_false(m.identical);
    d = (struct oz_distance){0};
    oz_distance_add_f32(&d, a + 1, b + 1, 1);
    assert_false(oz_distance_metrics(&d, 1).identical);
    d = (struct oz_distance){0};
    m = oz_distance_metrics(&d, 1); /* of nothing */
    assert_true(m.identical && m.mse == 0 && m.cosine_similarity == 1 && m.relative_l2 == 0);
}

/* ---- files ---- */

enum { SIDE = 16 };

/* A picture of one colour, in which `wrong` values are one level higher. */
static void write_png(const char *name, uint32_t width, uint32_t height, uint8_t value, int wrong)
{
    struct oz_buf png;
    size_t count = (size_t)width * height * 3;
    uint8_t *rgb = test_malloc(count);
    memset(rgb, value, count);
    for (int i = 0; i < wrong; i++) {
        rgb[i]++;
    }
    oz_buf_init(&png, 1 << 20);
    ok(oz_png_encode(rgb, width, height, NULL, 0, &png, &err));
    scratch_write(name, png.data, png.bytes);
    oz_buf_deinit(&png);
    test_free(rgb);
}

static enum oz_status compare(struct oz_comparison **out, const char *reference, const char *a,
                              const char *b)
{
    const char *candidates[] = {scratch_path("%s", a), b != NULL ? scratch_path("%s", b) : NULL};
    return oz_pictures_compare(out, scratch_path("%s", reference), candidates, b != NULL ? 2 : 1,
                               &err);
}

static int collect(void *ctx, const char *text, size_t bytes)
{
    oz_buf_append(ctx, text, bytes);
    return 0;
}

/* The JSON of a comparison, parsed: strict, for the parser is. */
static struct oz_json *json_of(const struct oz_comparison *c,
                               const struct oz_compare_options *options, enum oz_status want)
{
    struct oz_compare_options o = *options;
    struct oz_buf b;
    struct oz_json *root;
    oz_buf_init(&b, 1 << 20);
    o.json = 1;
    enum oz_status got = oz_comparison_describe(c, &o, collect, &b, &err);
    if (got != want) {
        fail_msg("status %d instead of %d: %s", got, want, err.message);
    }
    ok(oz_json_parse(&root, b.data, b.bytes, "comparison", &err));
    oz_buf_deinit(&b);
    return root;
}

static const struct oz_json *at(const struct oz_json *root, const char *a, size_t i, const char *b)
{
    return oz_json_get(oz_json_at(oz_json_get(root, a), i), b);
}

static void test_files(void **state)
{
    struct oz_comparison *c;
    struct oz_compare_options o;
    write_png("reference.png", SIDE, SIDE, 100, 0);
    write_png("same.png", SIDE, SIDE, 100, 0);
    write_png("one.png", SIDE, SIDE, 100, 1);
    ok(compare(&c, "reference.png", "same.png", "one.png"));
    oz_compare_options_default(&o);
    struct oz_json *root = json_of(c, &o, OZ_OK);
    assert_true(oz_json_bool(at(root, "candidates", 0, "identical"), false));
    const struct oz_json *same =
        oz_json_get(at(root, "candidates", 0, "output_metrics"), "all_images_metrics");
    assert_true(oz_json_bool(oz_json_get(same, "identical"), false));
    assert_int_equal(oz_json_type(oz_json_get(same, "psnr_db")), OZ_JSON_NULL);
    assert_true(oz_json_number(oz_json_get(same, "ssim"), 0) == 1);
    assert_false(oz_json_bool(at(root, "candidates", 1, "identical"), true));
    const struct oz_json *one =
        oz_json_get(at(root, "candidates", 1, "output_metrics"), "mean_metrics");
    double psnr = 20 * log10(255) + 10 * log10(3.0 * SIDE * SIDE);
    assert_true(fabs(oz_json_number(oz_json_get(one, "psnr_db"), 0) - psnr) < 1e-9);
    assert_true(oz_json_number(oz_json_get(one, "max_abs"), 0) == 1);
    oz_json_free(root);

    /* at the threshold is enough, above it is not; identical passes whatever is asked */
    o.min_psnr_db = psnr - 1e-9;
    o.min_ssim = 0.5;
    root = json_of(c, &o, OZ_OK);
    assert_true(oz_json_bool(at(root, "candidates", 1, "passes"), false));
    oz_json_free(root);
    o.min_psnr_db = psnr + 1e-6;
    root = json_of(c, &o, OZ_ERR_THRESHOLD);
    says(err.code, OZ_ERR_THRESHOLD, "1 of 2 candidates missed a threshold: ");
    assert_non_null(strstr(err.message, "one.png has a PSNR of"));
    assert_true(oz_json_bool(at(root, "candidates", 0, "passes"), false));
    assert_false(oz_json_bool(at(root, "candidates", 1, "passes"), true));
    oz_json_free(root);
    o.min_psnr_db = -1;
    o.min_ssim = 1;
    oz_json_free(json_of(c, &o, OZ_ERR_THRESHOLD));
    says(err.code, OZ_ERR_THRESHOLD, "one.png has an SSIM of");
    oz_comparison_close(&c);
    assert_null(c);
}

/* Folders: by name, means over the pictures; of PSNR over those that differ. */
static void test_folders(void **state)
{
    struct oz_comparison *c;
    struct oz_compare_options o;
    scratch_folder("a/deeper");
    scratch_folder("b");
    for (int i = 0; i < 3; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "a/%d.png", i);
        write_png(name, SIDE, SIDE, 100, 0);
        name[0] = 'b';
        write_png(name, SIDE, SIDE, 100, i * 4); /* 0, 4 and 8 of 768 values differ */
    }
    write_png("a/deeper/9.png", SIDE, SIDE, 1, 0); /* neither folders nor other files count */
    scratch_text("b/notes.txt", "x");
    ok(compare(&c, "a", "b", NULL));
    oz_compare_options_default(&o);
    struct oz_json *root = json_of(c, &o, OZ_OK);
    const struct oz_json *metrics = at(root, "candidates", 0, "output_metrics");
    const struct oz_json *mean = oz_json_get(metrics, "mean_metrics");
    const struct oz_json *all = oz_json_get(metrics, "all_images_metrics");
    double n = 3.0 * SIDE * SIDE;
    double psnr = 20 * log10(255) - 5 * (log10(4 / n) + log10(8 / n));
    assert_int_equal(oz_json_integer(oz_json_get(metrics, "num_images"), 0), 3);
    assert_int_equal(oz_json_integer(at(root, "candidates", 0, "num_identical"), 0), 1);
    assert_false(oz_json_bool(at(root, "candidates", 0, "identical"), true));
    assert_true(fabs(oz_json_number(oz_json_get(mean, "psnr_db"), 0) - psnr) < 1e-9);
    assert_true(fabs(oz_json_number(oz_json_get(mean, "mse"), 0) - 4 / n) < 1e-15);
    assert_true(fabs(oz_json_number(oz_json_get(all, "mse"), 0) - 4 / n) < 1e-15);
    assert_true(fabs(oz_json_number(oz_json_get(all, "l2"), 0) - sqrt(12)) < 1e-12);
    assert_int_equal(oz_json_integer(oz_json_get(metrics, "worst_image_index"), 0), 2);
    assert_int_equal(oz_json_count(at(root, "candidates", 0, "images")), 3);
    oz_json_free(root);
    oz_comparison_close(&c);

    write_png("b/3.png", SIDE, SIDE, 1, 0);
    says(compare(&c, "a", "b", NULL), OZ_ERR_ARG, "b holds 3.png, which ");
    scratch_remove("b/1.png");
    says(compare(&c, "a", "b", NULL), OZ_ERR_ARG, "a holds 1.png, which ");
    scratch_folder("empty");
    says(compare(&c, "a", "empty", NULL), OZ_ERR_ARG, "empty holds no .png file");
    says(compare(&c, "a", "reference.png", NULL), OZ_ERR_ARG, "is a file, but the reference ");
    says(compare(&c, "reference.png", "a", NULL), OZ_ERR_ARG, "is a folder, but the reference ");
    assert_null(c);
}

static void test_refusals(void **state)
{
    struct oz_comparison *c;
    struct oz_compare_options o;
    write_png("small.png", 8, SIDE, 100, 0);
    write_png("small_too.png", 8, SIDE, 101, 0);
    scratch_text("text.png", "no picture");
    says(compare(&c, "reference.png", "small.png", NULL), OZ_ERR_ARG,
         "small.png is 8 x 16 pixels, but the reference ");
    says(compare(&c, "reference.png", "text.png", NULL), OZ_ERR_FORMAT, "text.png: ");
    says(compare(&c, "text.png", "reference.png", NULL), OZ_ERR_FORMAT, "text.png: ");
    says(compare(&c, "reference.png", "nowhere.png", NULL), OZ_ERR_IO, "nowhere.png");
    says(compare(&c, "nowhere.png", "reference.png", NULL), OZ_ERR_IO, "nowhere.png");
    says(oz_pictures_compare(&c, "x", NULL, 0, &err), OZ_ERR_ARG, "at least one candidate");
    assert_null(c);

    /* no window fits: there is no SSIM, and none can be asked for */
    ok(compare(&c, "small.png", "small_too.png", NULL));
    oz_compare_options_default(&o);
    struct oz_json *root = json_of(c, &o, OZ_OK);
    const struct oz_json *all =
        oz_json_get(at(root, "candidates", 0, "output_metrics"), "all_images_metrics");
    assert_int_equal(oz_json_type(oz_json_get(all, "ssim")), OZ_JSON_NULL);
    assert_true(oz_json_number(oz_json_get(all, "ssim_uniform"), 0) > 0.9);
    oz_json_free(root);
    o.min_ssim = 0.5;
    oz_json_free(json_of(c, &o, OZ_ERR_ARG));
    says(err.code, OZ_ERR_ARG, "small.png: 8 x 16");
    o.min_ssim = (double)NAN;
    says(oz_comparison_describe(c, &o, collect, NULL, &err), OZ_ERR_ARG, "NaN");
    oz_comparison_close(&c);
    oz_comparison_close(NULL);
}

/* The file is the document, and a name that is no UTF-8 leaves it valid. */
static void test_saved(void **state)
{
    struct oz_comparison *c;
    struct oz_json *root;
    write_png("odd\xff.png", SIDE, SIDE, 100, 3);
    ok(compare(&c, "reference.png", "odd\xff.png", NULL));
    ok(oz_comparison_save(c, scratch_path("saved.json"), NULL, &err));
    ok(oz_json_parse_file(&root, scratch_path("saved.json"), 1 << 20, &err));
    const char *name = oz_json_string(at(root, "candidates", 0, "candidate"), "");
    assert_non_null(strstr(name, "odd?.png"));
    oz_json_free(root);
    says(oz_comparison_save(c, scratch_path("no/such/folder.json"), NULL, &err), OZ_ERR_IO,
         "folder.json");
    oz_comparison_close(&c);
}

/* Each allocation fails once: an error, and nothing is left. */
static void test_memory(void **state)
{
    for (uint64_t n = 1;; n++) {
        struct oz_comparison *c;
        struct oz_buf b;
        oz_buf_init(&b, 1 << 20);
        oz_alloc_fail_at(n, 0);
        enum oz_status status = compare(&c, "a", "c", NULL);
        if (status == OZ_OK) {
            status = oz_comparison_describe(
                c, &(struct oz_compare_options){sizeof(struct oz_compare_options), 1, -1, -1},
                collect, &b, &err);
        }
        oz_alloc_fail_at(0, 0);
        oz_comparison_close(&c);
        bool lost = b.status != OZ_OK;
        oz_buf_deinit(&b);
        if (status == OZ_OK && !lost) {
            assert_true(n > 20);
            return;
        }
        assert_true(lost || status == OZ_ERR_NOMEM);
    }
}

static int setup(void **state)
{
    int status = scratch_open(state);
    scratch_folder("c");
    for (int i = 0; i < 3 && status == 0; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "c/%d.png", i);
        write_png(name, SIDE, SIDE, 90, i);
    }
    write_png("reference.png", SIDE, SIDE, 100, 0);
    return status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),     cmocka_unit_test(test_sums),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_files),
        cmocka_unit_test(test_folders),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_saved),      cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, setup, scratch_close);
}
