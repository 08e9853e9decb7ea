/* Drawn weights: their numbers, any piece of them, and the checkpoint without files that they make. */
#include "test.h"

#include <math.h>

#include "base/alloc.h"
#include "ckpt/drawn.h"
#include "num/float.h"
#include "num/noise.h"
#include "pipe/load_format.h"

#define COUNT 300001

static double value(const uint16_t *v, int64_t i)
{
    return oz_bf16_to_f32(v[i]);
}

/* Mean, variance and kurtosis within five deviations of what so many normal numbers give. */
static void numbers_are_normal(void **state)
{
    struct oz_noise noise = {0};
    uint16_t *v = oz_alloc(COUNT * sizeof *v);
    const uint16_t *table = oz_noise_table(&noise, (struct oz_filling){.constant = 3, .scale = 2});
    assert_non_null(v);
    assert_non_null(table);
    double sum = 0;
    double squares = 0;
    double fourths = 0;
    oz_noise_fill(table, oz_noise_state(42, "a.weight"), 0, COUNT, v);
    for (int64_t i = 0; i < COUNT; i++) {
        double x = (value(v, i) - 3) / 2;
        assert_true(fabs(x) < 4.5);
        sum += x;
        squares += x * x;
        fourths += x * x * x * x;
    }
    assert_true(fabs(sum / COUNT) < 5 / sqrt(COUNT));
    assert_true(fabs(squares / COUNT - 1) < 5 * sqrt(2.0 / COUNT));
    assert_true(fabs(fourths / COUNT - 3) < 5 * sqrt(96.0 / COUNT));
    oz_noise_deinit(&noise);
    oz_free(v);
}

/* Every piece is what it is in the whole. */
static void pieces(void **state)
{
    struct oz_noise noise = {0};
    uint16_t whole[64];
    uint8_t piece[2 * 64 + 1];
    const uint16_t *table = oz_noise_table(&noise, (struct oz_filling){.scale = 1});
    uint64_t seed = oz_noise_state(7, "b.weight");
    assert_non_null(table);
    oz_noise_fill(table, seed, 0, 64, whole);
    for (int64_t first = 0; first < 64; first++) {
        for (int64_t count = 0; first + count <= 64; count++) {
            memset(piece, 0xA5, sizeof piece);
            oz_noise_fill(table, seed, first, count, piece + 1); /* unaligned */
            assert_memory_equal(piece + 1, whole + first, 2 * (size_t)count);
            assert_int_equal(piece[0], 0xA5);
            if (first + count < 64 || count < 64) {
                assert_int_equal(piece[1 + 2 * count], 0xA5);
            }
        }
    }
    /* far behind: the counter is 64 bits wide */
    oz_noise_fill(table, seed, INT64_C(1) << 40, 8, whole);
    oz_noise_fill(table, seed, (INT64_C(1) << 40) + 3, 2, piece);
    assert_memory_equal(piece, whole + 3, 4);
    oz_noise_deinit(&noise);
}

static void tables(void **state)
{
    struct oz_noise noise = {0};
    uint16_t v[8];
    const uint16_t *ones = oz_noise_table(&noise, (struct oz_filling){.constant = 1});
    const uint16_t *other = oz_noise_table(&noise, (struct oz_filling){.scale = 1});
    assert_ptr_not_equal(ones, other);
    assert_ptr_equal(oz_noise_table(&noise, (struct oz_filling){.constant = 1}), ones);
    oz_noise_trim(&noise);
    assert_ptr_equal(oz_noise_table(&noise, (struct oz_filling){.scale = 1}), other);
    assert_non_null(oz_noise_table(&noise, (struct oz_filling){.scale = 2})); /* drawn again */
    oz_noise_fill(ones, oz_noise_state(1, "norm"), 0, 8, v);
    for (int i = 0; i < 8; i++) {
        assert_true(value(v, i) == 1);
    }
    assert_true(oz_noise_state(1, "a") != oz_noise_state(1, "b"));
    assert_true(oz_noise_state(1, "a") != oz_noise_state(2, "a"));
    oz_noise_deinit(&noise);
}

/* ---- the checkpoint ---- */

static const struct oz_ckpt_spec specs[] = {
    {.name = "z.weight", .dtype = OZ_DTYPE_BF16, .rank = 2, .shape = {33, 7}},
    {.name = "a.bias", .dtype = OZ_DTYPE_BF16, .rank = 1, .shape = {33}},
    {.name = "empty", .dtype = OZ_DTYPE_BF16, .rank = 2, .shape = {0, 4}},
};
static const struct oz_filling fillings[] = {{.scale = 0.5F}, {.constant = 1}, {.scale = 1}};

static struct oz_ckpt_drawing drawing(void)
{
    return (struct oz_ckpt_drawing){
        .specs = specs, .fillings = fillings, .count = 3, .seed = 42, .name = "a test"};
}

static void a_checkpoint_without_files(void **state)
{
    struct oz_ckpt *c;
    struct oz_error err;
    struct oz_ckpt_drawing d = drawing();
    assert_int_equal(oz_ckpt_draw(&c, &d, &err), OZ_OK);
    assert_true(oz_ckpt_is_drawn(c));
    assert_int_equal(oz_ckpt_count(c), 3);
    assert_string_equal(oz_ckpt_tensor(c, 0)->name, "a.bias");
    assert_int_equal(oz_ckpt_file_count(c), 1);
    assert_string_equal(oz_ckpt_file(c, 0)->path, "dummy weights of a test");
    assert_int_equal(oz_ckpt_file(c, 0)->bytes, 2 * (33 * 7 + 33));
    const struct oz_tensor_view *t = oz_ckpt_find(c, "z.weight", NULL);
    assert_non_null(t);
    assert_null(t->data);
    assert_int_equal(t->bytes, 2 * 33 * 7);
    uint8_t whole[2 * 33 * 7];
    uint8_t piece[2 * 33 * 7];
    assert_int_equal(oz_ckpt_read(c, t, 0, t->bytes, whole, &err), OZ_OK);
    for (int64_t at = 0; at < 24; at++) {
        for (int64_t n = 0; n < 24; n++) { /* elements may be cut */
            assert_int_equal(oz_ckpt_read(c, t, at, n, piece, &err), OZ_OK);
            assert_memory_equal(piece, whole + at, (size_t)n);
        }
    }
    assert_int_equal(oz_ckpt_read(c, t, 1, t->bytes, piece, &err), OZ_ERR_ARG);
    assert_int_equal(oz_ckpt_read(c, oz_ckpt_find(c, "empty", NULL), 0, 0, piece, &err), OZ_OK);
    oz_ckpt_advise(c, 0, 0, 100);
    oz_ckpt_forget(c, t);
    assert_int_equal(oz_ckpt_check(c, &err), OZ_OK);
    oz_ckpt_close(&c);
}

static void what_cannot_be_drawn(void **state)
{
    struct oz_ckpt *c;
    struct oz_error err;
    struct oz_ckpt_spec other[] = {specs[0], specs[0]};
    struct oz_ckpt_drawing d = drawing();
    d.specs = other;
    d.count = 2;
    assert_int_equal(oz_ckpt_draw(&c, &d, &err), OZ_ERR_FORMAT);
    assert_null(c);
    other[1] = specs[1];
    other[1].dtype = OZ_DTYPE_F32;
    assert_int_equal(oz_ckpt_draw(&c, &d, &err), OZ_ERR_INTERNAL);
    other[1].dtype = OZ_DTYPE_BF16;
    other[1].rank = 3;
    other[1].shape[0] = other[1].shape[1] = other[1].shape[2] = INT64_C(1) << 30;
    assert_int_equal(oz_ckpt_draw(&c, &d, &err), OZ_ERR_UNSUPPORTED);
}

/* ---- load formats ---- */

static void formats(void **state)
{
    const struct oz_load_format *f;
    struct oz_error err;
    assert_int_equal(oz_load_format_find(&f, NULL, &err), OZ_OK);
    assert_true(!f->dummy && f->meaning == NULL);
    assert_int_equal(oz_load_format_find(&f, "", &err), OZ_OK);
    assert_string_equal(f->name, "auto");
    assert_int_equal(oz_load_format_find(&f, "DUMMY", &err), OZ_OK);
    assert_true(f->dummy);
    assert_int_equal(oz_load_format_find(&f, "safetensors", &err), OZ_OK);
    assert_true(!f->dummy && f->meaning != NULL);
    assert_int_equal(oz_load_format_find(&f, "sharded-state", &err), OZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "one rank's part"));
    assert_int_equal(oz_load_format_find(&f, "dumy", &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "did you mean dummy?"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_normal),
        cmocka_unit_test(pieces),
        cmocka_unit_test(tables),
        cmocka_unit_test(a_checkpoint_without_files),
        cmocka_unit_test(what_cannot_be_drawn),
        cmocka_unit_test(formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
