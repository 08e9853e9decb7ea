/*
 * The encoders of every tier against num/'s: the same bytes, of every bf16 number (and, of f32, of
 * numbers with more bits), of rows of all
 * lengths, of ties, denormals, zeros, and of groups whose scales are at their ends.
 */
#include "test.h"

#include <math.h>

#include "base/alloc.h"
#include "cpu/encode.h"
#include "cpu/kernel.h"
#include "fill.h"
#include "num/bnb.h"
#include "num/float.h"

#define MAX_ROWS 300
#define MAX_COLS 5000
#define CANARY 0xA5

static const struct oz_encoder *encoder;
static const struct oz_codec *codec;
static bool f32;           /* the encoder takes f32 */
static bool finer;         /* with bits that bf16 has not */
static const float *exact; /* f32: these, not x */
static int compared, left_to_num;

/* Planes of one slice, each with a canary behind it. */
static struct oz_weight make_planes(int64_t rows, int64_t cols)
{
    struct oz_weight w = oz_weight_shape(codec, 1, rows, cols);
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        struct oz_plane_view *p = &w.planes[i];
        if (p->present) {
            assert_int_equal(
                oz_weight_plane_bytes(&w, (enum oz_plane)i, &p->bytes, &p->row_stride_bytes),
                OZ_OK);
            p->slice_stride_bytes = p->bytes;
            p->data = oz_alloc((size_t)p->bytes + 64);
            memset(p->data, CANARY, (size_t)p->bytes + 64);
        }
    }
    return w;
}

static void free_planes(struct oz_weight *w)
{
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        oz_free(w->planes[i].data);
    }
}

/* Element i with bits that bf16 has not; zeros stay. */
static float refine(uint16_t h, int64_t i)
{
    float x = oz_bf16_to_f32(h);
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (finer && x != 0) {
        bits |= (uint32_t)(i * 40503 + 1) & 0xFFFFU;
    }
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* As two bands where the codec's scopes allow. */
static bool in_bands(struct oz_weight *w, const void *src, int64_t rows, int64_t cols,
                     struct oz_encode_state *state)
{
    int64_t scope = oz_weight_scope_rows(w);
    int64_t first = rows / 2 / scope * scope;
    const char *rest = (const char *)src + first * cols * (f32 ? 4 : 2);
    return (first == 0 || encoder->encode(w, 0, 0, src, first, cols, state)) &&
           encoder->encode(w, 0, first, rest, rows - first, cols, state);
}

/* Both ways; false: it was left to num/. */
static bool same(const uint16_t *x, int64_t rows, int64_t cols, enum oz_exponent_rule rule)
{
    struct oz_encode_state fast;
    struct oz_encode_state slow;
    struct oz_weight a = make_planes(rows, cols);
    struct oz_weight b = make_planes(rows, cols);
    float *f = oz_alloc((size_t)(rows * cols) * sizeof *f);
    for (int64_t i = 0; i < rows * cols; i++) {
        f[i] = exact != NULL ? exact[i] : refine(x[i], i);
    }
    oz_encode_state_init(&fast);
    fast.exponent_rule = rule;
    slow = fast;
    const void *src = f32 ? (const void *)f : x;
    bool done = true;
    if (codec->observe_passes > 0) {
        done = encoder->observe(&a, 0, src, rows, cols, &fast);
        enum oz_status status = codec->observe(&b, 0, f, rows, cols, &slow);
        assert_true(!done || (status == OZ_OK && fast.amax == slow.amax && fast.sum == slow.sum &&
                              fast.count == slow.count));
        if (status == OZ_OK) {
            codec->begin(&a, 0, &slow);
            codec->begin(&b, 0, &slow);
        }
        done = status == OZ_OK;
    }
    if (done) {
        done = in_bands(&a, src, rows, cols, &fast);
        enum oz_status status = codec->encode(&b, 0, 0, f, rows, cols, &slow);
        assert_true(!done || status == OZ_OK);
    }
    for (int i = 0; i < OZ_PLANE_COUNT && done; i++) {
        if (a.planes[i].present &&
            memcmp(a.planes[i].data, b.planes[i].data, (size_t)a.planes[i].bytes + 64) != 0) {
            fail_msg("%s: plane %d of [%d, %d] differs", encoder->name, i, (int)rows, (int)cols);
        }
    }
    compared += done;
    left_to_num += !done;
    oz_free(f);
    free_planes(&a);
    free_planes(&b);
    return done;
}

static uint16_t draw(uint32_t seed, uint32_t j, double spread)
{
    double v = fill_value(seed, j);
    return oz_f32_to_bf16((float)(v * exp2(spread * fill_value(seed + 99, j / 11))));
}

static void lengths(uint16_t *x, enum oz_exponent_rule rule)
{
    static const int64_t cols[] = {1,  2,  7,  8,   15,  16,  17,  31,  32,  33,   48,
                                   63, 65, 96, 127, 128, 129, 255, 257, 513, 2049, 4128};
    for (size_t c = 0; c < sizeof cols / sizeof *cols; c++) {
        for (int64_t rows = 1; rows < 4; rows++) {
            for (int64_t i = 0; i < rows * cols[c]; i++) {
                x[i] = draw((uint32_t)c, (uint32_t)i, 30);
            }
            assert_true(same(x, rows, cols[c], rule));
        }
    }
}

/* All finite bf16 numbers, in groups of like and of unlike sizes. */
static void all_numbers(uint16_t *x, enum oz_exponent_rule rule)
{
    for (int order = 0; order < 2; order++) {
        int64_t n = 0;
        for (uint32_t h = 0; h < 0x10000; h++) {
            uint32_t u = order == 0 ? h : (h * 40503U) & 0xFFFFU;
            if ((u & 0x7FFFU) < 0x7F80U) {
                x[n++] = (uint16_t)u;
            }
        }
        for (int64_t i = 0; i + 128 <= n; i += 128) {
            (void)same(x + i, 1, 128, rule);
        }
    }
}

/* Ties of the element formats at all scales, zeros of both signs, one number among zeros. */
static void ties_and_zeros(uint16_t *x, enum oz_exponent_rule rule)
{
    for (int e = -126; e < 127; e++) {
        for (int i = 0; i < 64; i++) {
            double v = ldexp(1.0 + i / 32.0, e - 1) * (i % 3 == 0 ? -1 : 1);
            x[i] = i == 0 ? oz_f32_to_bf16((float)ldexp(1.75, e)) : oz_f32_to_bf16((float)v);
        }
        (void)same(x, 1, 64, rule);
        for (int i = 0; i < 64; i++) {
            x[i] = i % 2 == 0 ? 0 : 0x8000;
        }
        assert_true(same(x, 2, 32, rule));
        x[40] = oz_f32_to_bf16((float)ldexp(1.0, e));
        (void)same(x, 2, 32, rule);
    }
}

/* Numbers at the bounds between the values of a table, and next to them. */
static void table_bounds(uint16_t *x)
{
    float block[64] = {1};
    const struct oz_codebook *book = oz_bnb_book(codec);
    exact = block;
    for (int i = 0; i < 15; i++) {
        for (int sign = 0; sign < 2; sign++) {
            float bound = sign ? -book->bounds[i] : book->bounds[i];
            block[1] = bound;
            block[2] = nextafterf(bound, 2);
            block[3] = nextafterf(bound, -2);
            assert_true(same(x, 1, 64, OZ_EXPONENT_DEFAULT));
        }
    }
    exact = NULL;
}

/* Is it the one that the device takes? Then it is the encoder under test. */
static bool choose(const struct oz_device *dev, const struct oz_cpu_encoder *e)
{
    encoder = &e->encoder;
    codec = e->codec;
    f32 = e->stored == OZ_DTYPE_F32;
    finer = false;
    return codec != NULL && oz_cpu_find_encoder(dev, codec, e->stored) == encoder;
}

static void try_encoder(uint16_t *x)
{
    compared = left_to_num = 0;
    bool fp4 = codec->planes[0].dtype == OZ_DTYPE_F4;
    enum oz_exponent_rule last = fp4 ? OZ_EXPONENT_ALG2 : OZ_EXPONENT_FLOOR;
    bool rules = codec->planes[1].dtype == OZ_DTYPE_F8_E8M0;
    for (int rule = 0; rule <= (rules ? (int)last : 0); rule++) {
        lengths(x, (enum oz_exponent_rule)rule);
        all_numbers(x, (enum oz_exponent_rule)rule);
        ties_and_zeros(x, (enum oz_exponent_rule)rule);
    }
    for (int64_t i = 0; i < 300 * 200; i++) { /* blocks of rows, the last ones short */
        x[i] = draw(5, (uint32_t)i, 20);
    }
    assert_true(same(x, 300, 200, OZ_EXPONENT_DEFAULT));
    if (f32 && oz_bnb_is(codec)) {
        table_bounds(x);
    }
    assert_true(compared > 20 * left_to_num);
}

static void every_encoder(void **state)
{
    struct oz_error err;
    struct oz_device *dev;
    uint16_t *x = oz_alloc((size_t)MAX_ROWS * MAX_COLS * sizeof *x);
    assert_int_equal(oz_cpu_open(&dev, 0, NULL, getenv("OUNCE_CPU"), NULL, &err), OZ_OK);
    for (const struct oz_cpu_encoder *const *e = oz_cpu_encoders; *e != NULL; e++) {
        for (int bits = 0; choose(dev, *e) && bits <= f32; bits++) {
            finer = bits > 0;
            try_encoder(x);
        }
    }
    oz_free(x);
    oz_device_close(&dev);
}

static void what_is_not_finite_is_left(void **state)
{
    static const uint16_t odd[] = {0x7F80, 0xFF80, 0x7FC0, 0xFFC1, 0x7F81};
    struct oz_error err;
    struct oz_device *dev;
    uint16_t x[3 * 161];
    assert_int_equal(oz_cpu_open(&dev, 0, NULL, getenv("OUNCE_CPU"), NULL, &err), OZ_OK);
    for (const struct oz_cpu_encoder *const *e = oz_cpu_encoders; *e != NULL; e++) {
        for (int at = 0; choose(dev, *e) && at < 3 * 161; at++) {
            for (int i = 0; i < 3 * 161; i++) {
                x[i] = draw(3, (uint32_t)i, 10);
            }
            x[at] = odd[at % 5];
            assert_false(same(x, 3, 161, OZ_EXPONENT_DEFAULT));
        }
    }
    oz_device_close(&dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_encoder),
                                       cmocka_unit_test(what_is_not_finite_is_left)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
