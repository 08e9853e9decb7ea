/* num/act.h: rows of activations to codes and scales: formulas, layouts, static scales, NaN. */
#include "test.h"

#include <float.h>
#include <math.h>

#include "num/act.h"
#include "num/codec_list.h"
#include "num/float.h"
#include "num/group.h"

enum { COLS = 1100 };

#define F8(...)                                  \
    {                                            \
        .element = OZ_DTYPE_F8_E4M3, __VA_ARGS__ \
    }
#define S8(...)                             \
    {                                       \
        .element = OZ_DTYPE_I8, __VA_ARGS__ \
    }
#define F4(...)                             \
    {                                       \
        .element = OZ_DTYPE_F4, __VA_ARGS__ \
    }
#define SCALES(n, ...) .scale_count = (n), .scale = {__VA_ARGS__}

/* The formats that share their definition with a codec's rows. */
static const struct {
    struct oz_act_format format;
    const struct oz_codec *codec;
} twins[] = {
    {F8(SCALES(1, {OZ_DTYPE_F32, 0})), &oz_codec_fp8_channel},
    {S8(SCALES(1, {OZ_DTYPE_F32, 0})), &oz_codec_int8_channel},
    {F8(SCALES(1, {OZ_DTYPE_F8_E8M0, 32})), &oz_codec_mxfp8},
    {F4(SCALES(1, {OZ_DTYPE_F8_E8M0, 32})), &oz_codec_mxfp4},
    {F4(SCALES(2, {OZ_DTYPE_F8_E8M0, 32}, {OZ_DTYPE_F32, 512})), &oz_codec_mxfp4_dualscale},
    {F4(SCALES(2, {OZ_DTYPE_F8_E4M3, 16}, {OZ_DTYPE_F32, 0})), &oz_codec_nvfp4},
};

static void fill(float *x, int64_t n)
{
    uint32_t seed = 7;
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525U + 1013904223U;
        x[i] = ((float)(seed >> 8) * 0x1p-24F - 0.5F) * ldexpf(1, (int)(i / 16 % 9) - 4);
    }
}

/* Codes and scales equal the codec's, in rows and in columns of scales; any range decodes. */
static void same_as_weights(void **state)
{
    static float x[COLS];
    static float want[COLS];
    static float got[COLS];
    fill(x, COLS);
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++) {
        const struct oz_act_format *f = &twins[i].format;
        static uint8_t planes[3][COLS * 4];
        static uint8_t codes[COLS];
        static uint8_t scales[2][3 * COLS * 4];
        struct oz_weight w = oz_weight_shape(twins[i].codec, 1, 1, COLS);
        struct oz_encode_state s;
        for (int p = 0; p < 3; p++) {
            w.planes[p].data = planes[p];
        }
        oz_encode_state_init(&s);
        if (w.codec->observe != NULL) {
            assert_int_equal(w.codec->observe(&w, 0, x, 1, COLS, &s), OZ_OK);
            w.codec->begin(&w, 0, &s);
        }
        assert_int_equal(w.codec->encode(&w, 0, 0, x, 1, COLS, &s), OZ_OK);
        w.codec->decode(&w, 0, 0, 0, COLS, want);
        assert_true(oz_act_format_known(f));
        assert_int_equal(oz_act_needs_amax(f), w.codec->observe != NULL);
        for (int64_t stride = 1; stride <= 3; stride += 2) {
            struct oz_act_given given = {.amax = s.amax};
            struct oz_act_row row = {codes, {scales[0], scales[1]}, {stride, stride}};
            memset(scales, 0xA5, sizeof scales);
            oz_act_encode_row(f, &given, x, COLS, &row);
            int64_t bits = (int64_t)COLS * oz_dtype_bits(f->element);
            assert_memory_equal(codes, planes[0], (size_t)bits / 8);
            for (int level = 0; level < f->scale_count; level++) {
                size_t size = (size_t)oz_dtype_bits(f->scale[level].dtype) / 8;
                for (int64_t g = 0; g < oz_act_groups(f, level, COLS); g++) {
                    assert_memory_equal(scales[level] + (size_t)(g * stride) * size,
                                        planes[1 + level] + (size_t)g * size, size);
                }
            }
            if (stride == 3) { /* nothing in between */
                assert_int_equal(scales[0][f->scale[0].dtype == OZ_DTYPE_F32 ? 4 : 1], 0xA5);
            }
            oz_act_decode_row(f, &given, &row, 0, COLS, got);
            assert_memory_equal(got, want, sizeof got);
            oz_act_decode_row(f, &given, &row, 501, 77, got);
            assert_memory_equal(got, want + 501, 77 * sizeof *got);
        }
    }
}

/* 1x128: its own floor, a short last group. */
static void groups_of_128(void **state)
{
    static const struct oz_act_format f = F8(SCALES(1, {OZ_DTYPE_F32, 128}));
    static float x[300];
    static float y[300];
    uint8_t codes[300];
    float scales[3];
    struct oz_act_row row = {codes, {scales, NULL}, {1, 0}};
    x[5] = 3;
    x[6] = -1;
    x[299] = 1e-12F;
    oz_act_encode_row(&f, &(struct oz_act_given){0}, x, 300, &row);
    assert_true(scales[0] == 3.0F / 448 && scales[1] == 1e-10F / 448 && scales[2] == 1e-10F / 448);
    assert_int_equal(codes[5], 0x7E);
    assert_int_equal(codes[6], oz_f32_to_e4m3(-1 / (3.0F / 448)));
    assert_int_equal(codes[299], oz_f32_to_e4m3(1e-12F / (1e-10F / 448)));
    oz_act_decode_row(&f, &(struct oz_act_given){0}, &row, 0, 300, y);
    assert_true(y[5] == 448 * (3.0F / 448) && y[200] == 0);
}

/* vLLM's floor per token; division, not the inverse's product. */
static void per_token(void **state)
{
    static const struct oz_act_format f = F8(SCALES(1, {OZ_DTYPE_F32, 0}));
    static const float x[] = {1.625F, 1.21875F};
    static const float tiny[] = {1e-6F, 0};
    uint8_t codes[2];
    float scale;
    struct oz_act_row row = {codes, {&scale, NULL}, {1, 0}};
    oz_act_encode_row(&f, &(struct oz_act_given){0}, x, 2, &row);
    assert_int_equal(codes[1], 0x7A);
    oz_act_encode_row(&f, &(struct oz_act_given){0}, tiny, 2, &row);
    assert_int_equal(oz_f32_bits(scale), 0x36924925U);
}

static void static_scales(void **state)
{
    static const struct oz_act_format fp8 = F8(.static_scale = true);
    static const struct oz_act_format int8 = S8(.static_scale = true);
    static const struct oz_act_format nvfp4 =
        F4(SCALES(1, {OZ_DTYPE_F8_E4M3, 16}), .static_scale = true);
    static const float x[] = {0, 1, -3, 1000, -1000, 0.3F};
    uint8_t codes[6];
    uint8_t scale;
    float y[6];
    struct oz_act_given given = {.scale = 0.5F, .offset = -20};
    struct oz_act_row row = {codes, {NULL, NULL}, {0, 0}};
    oz_act_encode_row(&fp8, &given, x, 6, &row);
    oz_act_decode_row(&fp8, &given, &row, 0, 6, y);
    assert_true(y[1] == 1 && y[2] == -3 && y[3] == 224 && y[4] == -224);
    oz_act_encode_row(&int8, &given, x, 6, &row);
    assert_memory_equal(codes, ((const int8_t[]){-20, -18, -26, 127, -128, -19}), 6);
    oz_act_decode_row(&int8, &given, &row, 0, 6, y);
    assert_true(y[0] == 0 && y[2] == -3 && y[3] == 73.5F && y[4] == -54 && y[5] == 0.5F);
    row.scales[0] = &scale;
    row.scale_stride[0] = 1;
    given.scale = 1000.0F / 2688;
    oz_act_encode_row(&nvfp4, &given, x, 6, &row);
    assert_int_equal(scale, 0x7E);
    oz_act_decode_row(&nvfp4, &given, &row, 3, 2, y);
    assert_true(fabsf(y[0] - 1000) < 1e-3F && y[1] == -y[0]);
}

static void unknown_formats(void **state)
{
    static const struct oz_act_format bad[] = {
        {.element = OZ_DTYPE_F32},
        F8(.scale_count = 0),
        F8(SCALES(1, {OZ_DTYPE_F8_E8M0, 16})),
        F8(SCALES(1, {OZ_DTYPE_F32, -1})),
        F8(SCALES(1, {OZ_DTYPE_F8_E8M0, 32}), .exponent_rule = OZ_EXPONENT_ALG2),
        F8(SCALES(1, {OZ_DTYPE_F32, 0}), .static_scale = true),
        S8(SCALES(1, {OZ_DTYPE_F32, 128})),
        F4(SCALES(1, {OZ_DTYPE_F8_E4M3, 16})),
        F4(SCALES(1, {OZ_DTYPE_F32, 0})),
        F4(SCALES(2, {OZ_DTYPE_F8_E8M0, 32}, {OZ_DTYPE_F32, 0})),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(oz_act_format_known(&bad[i]));
    }
}

/* NaN stays NaN: its own code in e4m3, else its group; other groups are untouched. */
static void nonfinite(void **state)
{
    static float x[COLS];
    static float clean[COLS];
    static float y[COLS];
    static uint8_t codes[COLS];
    static uint8_t scales[2][COLS * 4];
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++) {
        const struct oz_act_format *f = &twins[i].format;
        struct oz_act_given given = {.amax = 8};
        struct oz_act_row row = {codes, {scales[0], scales[1]}, {1, 1}};
        fill(x, COLS);
        x[1000] = 0;
        oz_act_encode_row(f, &given, x, COLS, &row);
        oz_act_decode_row(f, &given, &row, 0, COLS, clean);
        x[1000] = i % 2 ? NAN : -INFINITY;
        oz_act_encode_row(f, &given, x, COLS, &row);
        oz_act_decode_row(f, &given, &row, 0, COLS, y);
        assert_true(isnan(y[1000]));
        if (f->element == OZ_DTYPE_F8_E4M3) {
            assert_memory_equal(y, clean, 1000 * sizeof *y);
            assert_memory_equal(y + 1001, clean + 1001, (COLS - 1001) * sizeof *y);
        } else if (f->element == OZ_DTYPE_F4) { /* 32 x 31 .. */
            assert_memory_equal(y, clean, 992 * sizeof *y);
            assert_true(isfinite(y[1024]));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_weights), cmocka_unit_test(groups_of_128),
        cmocka_unit_test(per_token),       cmocka_unit_test(static_scales),
        cmocka_unit_test(unknown_formats), cmocka_unit_test(nonfinite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
