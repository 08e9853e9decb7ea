/* num: conversions of 16-bit floats, codecs' geometry, the plain codecs. */
#include "test.h"

#include <float.h>
#include <math.h>

#include "num/codec.h"
#include "num/codec_list.h"
#include "num/float.h"

/* ---- float.h, against arithmetic with ldexp ---- */

/* A float format of 1 sign, `exponent` and `mantissa` bits: its value, or NaN or infinity. */
static double decode(uint32_t code, int exponent, int mantissa)
{
    int bias = (1 << (exponent - 1)) - 1;
    int e = (int)(code >> mantissa) & ((1 << exponent) - 1);
    double m = code & ((1U << mantissa) - 1);
    double sign = code >> (exponent + mantissa) ? -1 : 1;
    if (e == (1 << exponent) - 1) {
        return m != 0 ? NAN : sign * INFINITY;
    }
    return e == 0 ? sign * ldexp(m, 1 - bias - mantissa)
                  : sign * ldexp(m + (double)(1U << mantissa), e - bias - mantissa);
}

static void check_patterns(float (*widen)(uint16_t), uint16_t (*narrow)(float), int exponent,
                           int mantissa)
{
    for (uint32_t code = 0; code < 65536; code++) {
        double want = decode(code, exponent, mantissa);
        float got = widen((uint16_t)code);
        if (isnan(want)) {
            assert_true(isnan(got));
            assert_true(isnan(widen(narrow(got))));
            assert_int_equal(narrow(got) >> 15, code >> 15);
            continue;
        }
        assert_true(got == want && !signbit(got) == !signbit(want));
        assert_int_equal(narrow(got), code);
    }
}

/* Between each pair of neighbours: just below the middle, the middle, just above. */
static void check_rounding(uint16_t (*narrow)(float), int exponent, int mantissa)
{
    uint32_t largest = (((1U << exponent) - 1) << mantissa) - 1; /* finite */
    for (uint32_t code = 0; code < largest; code++) {
        float low = (float)decode(code, exponent, mantissa);
        float high = (float)decode(code + 1, exponent, mantissa);
        float middle =
            (float)((decode(code, exponent, mantissa) + decode(code + 1, exponent, mantissa)) / 2);
        uint32_t even = code % 2 == 0 ? code : code + 1;
        assert_true(middle > low && middle < high);
        assert_int_equal(narrow(middle), even);
        assert_int_equal(narrow(nextafterf(middle, -INFINITY)), code);
        assert_int_equal(narrow(nextafterf(middle, INFINITY)), code + 1);
        assert_int_equal(narrow(-middle), even | 0x8000U);
    }
}

static void f16(void **state)
{
    check_patterns(oz_f16_to_f32, oz_f32_to_f16, 5, 10);
    check_rounding(oz_f32_to_f16, 5, 10);
    assert_int_equal(oz_f32_to_f16(65519.996F), 0x7BFF);
    assert_int_equal(oz_f32_to_f16(65520.0F), 0x7C00); /* the middle: to even, infinity */
    assert_int_equal(oz_f32_to_f16(FLT_MAX), 0x7C00);
    assert_int_equal(oz_f32_to_f16(-INFINITY), 0xFC00);
    assert_int_equal(oz_f32_to_f16(0x1p-25F), 0); /* the middle of 0 and the smallest */
    assert_int_equal(oz_f32_to_f16(nextafterf(0x1p-25F, 1)), 1);
    assert_int_equal(oz_f32_to_f16(FLT_TRUE_MIN), 0);
    assert_int_equal(oz_f32_to_f16(-FLT_TRUE_MIN), 0x8000);
}

static void bf16(void **state)
{
    check_patterns(oz_bf16_to_f32, oz_f32_to_bf16, 8, 7);
    check_rounding(oz_f32_to_bf16, 8, 7);
    assert_int_equal(oz_f32_to_bf16(FLT_MAX), 0x7F80);
    assert_int_equal(oz_f32_to_bf16(oz_f32_from_bits(0x7F7F7FFFU)), 0x7F7F);
    assert_int_equal(oz_f32_to_bf16(oz_f32_from_bits(0x7F800001U)), 0x7FC0); /* stays NaN */
    assert_int_equal(oz_f32_to_bf16(oz_f32_from_bits(0xFFFFFFFFU)), 0xFFFF);
}

/* ---- codecs ---- */

static void names(void **state)
{
    static const struct oz_codec *const all[] = {
#define OZ_CODEC(obj) &obj,
#include "num/codec.inc"
#undef OZ_CODEC
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_ptr_equal(oz_codec_find(all[i]->name), all[i]); /* so names are unique */
        assert_non_null(all[i]->decode);
        assert_non_null(oz_codec_plane(all[i], OZ_PLANE_CODES));
        assert_true(all[i]->col_multiple >= 1);
    }
    assert_null(oz_codec_find("BF16"));
    assert_null(oz_codec_plain(OZ_DTYPE_I8));
    assert_true(oz_codec_is_plain(oz_codec_plain(OZ_DTYPE_BF16)));
    assert_false(oz_codec_is_plain(oz_codec_find("mxfp4")) || oz_codec_is_plain(NULL));
    assert_ptr_equal(oz_codec_plain(OZ_DTYPE_F16), oz_codec_find("f16"));
    assert_null(oz_codec_plane(&oz_codec_f32, OZ_PLANE_SCALES));
    assert_non_null(oz_codec_plane(&oz_codec_f32, OZ_PLANE_SMOOTH));
}

static void expect_bytes(const struct oz_weight *w, enum oz_plane plane, int64_t bytes, int64_t row)
{
    int64_t got = -1;
    int64_t got_row = -1;
    assert_int_equal(oz_weight_plane_bytes(w, plane, &got, &got_row), OZ_OK);
    assert_int_equal(got, bytes);
    assert_int_equal(got_row, row);
}

/* A made-up codec with every kind of cell. */
static const struct oz_plane_spec odd_planes[] = {
    {.plane = OZ_PLANE_CODES, .dtype = OZ_DTYPE_F4, .cell_rows = 1, .cell_cols = 1, .cell_bits = 4},
    {.plane = OZ_PLANE_SCALES,
     .dtype = OZ_DTYPE_F8_E8M0,
     .cell_rows = 1,
     .cell_cols = OZ_CELL_GROUP,
     .cell_bits = 8},
    {.plane = OZ_PLANE_SCALES2,
     .dtype = OZ_DTYPE_F32,
     .cell_rows = 128,
     .cell_cols = 128,
     .cell_bits = 32},
    {.plane = OZ_PLANE_SCALES3, .dtype = OZ_DTYPE_F32, .cell_bits = 32}, /* per tensor */
    {.plane = OZ_PLANE_OFFSETS, .dtype = OZ_DTYPE_F32, .cell_bits = 32, .flat_cells = 64},
    {.plane = OZ_PLANE_CODEBOOK, .dtype = OZ_DTYPE_F32, .cell_bits = 32, .fixed_elements = 16},
    {.plane = OZ_PLANE_ZEROS,
     .dtype = OZ_DTYPE_U8,
     .cell_rows = 1,
     .cell_cols = OZ_CELL_ALL,
     .cell_bits = 8,
     .optional = true},
};
static const struct oz_codec odd = {
    .name = "odd", .scope_rows = 1, .col_multiple = 2, .plane_count = 7, .planes = odd_planes};

static void geometry(void **state)
{
    struct oz_weight w = oz_weight_shape(&odd, 3, 130, 258);
    int64_t bytes;
    int64_t row;
    w.group_cols = 32;
    assert_true(w.planes[OZ_PLANE_CODES].present && !w.planes[OZ_PLANE_ZEROS].present);
    expect_bytes(&w, OZ_PLANE_CODES, 3 * 130 * 129, 129);
    expect_bytes(&w, OZ_PLANE_SCALES, 3 * 130 * 9, 9);     /* a short last group */
    expect_bytes(&w, OZ_PLANE_SCALES2, 3 * 2 * 3 * 4, 12); /* short both ways */
    expect_bytes(&w, OZ_PLANE_SCALES3, 3 * 4, 4);
    expect_bytes(&w, OZ_PLANE_OFFSETS, 3 * 525 * 4, 525 * 4); /* 130 * 258 / 64 */
    expect_bytes(&w, OZ_PLANE_CODEBOOK, 3 * 64, 64);
    expect_bytes(&w, OZ_PLANE_ZEROS, 3 * 130, 1);
    expect_bytes(&w, OZ_PLANE_SMOOTH, 3 * 258 * 4, 258 * 4);
    w.rank = 5;
    w.planes[OZ_PLANE_LOW_RANK_A].dtype = OZ_DTYPE_BF16;
    w.planes[OZ_PLANE_LOW_RANK_B].dtype = OZ_DTYPE_F32;
    expect_bytes(&w, OZ_PLANE_LOW_RANK_A, 3 * 5 * 258 * 2, 516);
    expect_bytes(&w, OZ_PLANE_LOW_RANK_B, 3 * 130 * 5 * 4, 20);
    assert_int_equal(oz_weight_bytes(&w, &bytes), OZ_OK);
    assert_int_equal(bytes, 3 * (130 * 129 + 130 * 9 + 24 + 4 + 525 * 4 + 64));
    w.planes[OZ_PLANE_SCALES3].dtype = OZ_DTYPE_BF16; /* a view may differ from the codec */
    expect_bytes(&w, OZ_PLANE_SCALES3, 3 * 2, 2);
    assert_int_equal(oz_weight_plane_bytes(&w, OZ_PLANE_MINS, &bytes, &row), OZ_ERR_ARG);
    w.cols = 257;
    assert_int_equal(oz_weight_plane_bytes(&w, OZ_PLANE_CODES, &bytes, &row), OZ_ERR_ARG);
    w.cols = -2;
    assert_int_equal(oz_weight_plane_bytes(&w, OZ_PLANE_CODES, &bytes, &row), OZ_ERR_ARG);
}

static void overflow(void **state)
{
    static const int64_t shapes[][3] = {
        {1, 1, INT64_MAX - 1},
        {1, INT64_MAX, 4},
        {INT64_MAX / 2, 2, 16},
        {1LL << 31, 1LL << 31, 1LL << 31},
    };
    int64_t bytes;
    int64_t row;
    for (int i = 0; i < 4; i++) {
        struct oz_weight w =
            oz_weight_shape(&oz_codec_f32, shapes[i][0], shapes[i][1], shapes[i][2]);
        assert_int_equal(oz_weight_plane_bytes(&w, OZ_PLANE_CODES, &bytes, &row), OZ_ERR_FORMAT);
        assert_int_equal(oz_weight_bytes(&w, &bytes), OZ_ERR_FORMAT);
    }
    struct oz_weight w = oz_weight_shape(&odd, 1, 1LL << 40, 1LL << 40);
    w.group_cols = 32;
    assert_int_equal(oz_weight_plane_bytes(&w, OZ_PLANE_OFFSETS, &bytes, &row), OZ_ERR_FORMAT);
}

/* ---- plain codecs ---- */

static void check_plain(enum oz_dtype dtype, float (*rounded)(float))
{
    enum { SLICES = 2, ROWS = 3, COLS = 7, GAP = 5 };
    int64_t size = oz_dtype_bits(dtype) / 8;
    uint8_t memory[1 + SLICES * (ROWS * (COLS * 8 + GAP) + GAP)]; /* begins at an odd address */
    struct oz_weight w = oz_weight_plain(dtype, SLICES, ROWS, COLS, memory + 1);
    struct oz_plane_view *codes = &w.planes[OZ_PLANE_CODES];
    struct oz_encode_state encoding;
    float src[ROWS * (COLS + 1)];
    float dst[COLS + 1];
    memset(memory, 0x5A, sizeof memory);
    assert_int_equal(codes->bytes, SLICES * ROWS * COLS * size);
    codes->row_stride_bytes = COLS * size + GAP;
    codes->slice_stride_bytes = ROWS * codes->row_stride_bytes + GAP;
    for (int i = 0; i < ROWS * (COLS + 1); i++) {
        src[i] = (float)((i * 37) % 23 - 11) * 1.2345678F;
    }
    oz_encode_state_init(&encoding);
    assert_int_equal(w.codec->encode(&w, 1, 0, src, ROWS, COLS + 1, &encoding), OZ_OK);
    for (int r = 0; r < ROWS; r++) {
        for (int col = 0; col < COLS; col++) {
            dst[COLS - col] = -99;
            w.codec->decode(&w, 1, r, col, COLS - col, dst);
            assert_true(dst[0] == rounded(src[r * (COLS + 1) + col]));
            assert_true(dst[COLS - col] == -99);
        }
        assert_int_equal(
            memory[1 + codes->slice_stride_bytes + r * codes->row_stride_bytes + COLS * size],
            0x5A);
    }
    assert_int_equal(memory[1], 0x5A); /* slice 0 was not touched */
    src[COLS + 1 + 4] = -INFINITY;     /* (1, 4) */
    assert_int_equal(w.codec->encode(&w, 0, 0, src, ROWS, COLS + 1, &encoding), OZ_ERR_FORMAT);
    assert_int_equal(encoding.bad_row, 1);
    assert_int_equal(encoding.bad_col, 4);
    encoding.keep_nonfinite = true;
    assert_int_equal(w.codec->encode(&w, 0, 1, src + COLS + 1, 1, COLS + 1, &encoding), OZ_OK);
    w.codec->decode(&w, 0, 1, 4, 1, dst);
    assert_true(dst[0] == -INFINITY);
}

static float same(float x)
{
    return x;
}
static float through_f16(float x)
{
    return oz_f16_to_f32(oz_f32_to_f16(x));
}
static float through_bf16(float x)
{
    return oz_bf16_to_f32(oz_f32_to_bf16(x));
}

static void plain(void **state)
{
    check_plain(OZ_DTYPE_F32, same);
    check_plain(OZ_DTYPE_F64, same);
    check_plain(OZ_DTYPE_F16, through_f16);
    check_plain(OZ_DTYPE_BF16, through_bf16);
}

static void merge(void **state)
{
    struct oz_encode_state a;
    struct oz_encode_state b;
    oz_encode_state_init(&a);
    oz_encode_state_init(&b);
    assert_true(a.amax == 0 && a.bad_row == -1 && a.bad_col == -1);
    a.amax = 2;
    a.sum = 1;
    b.amax = 3;
    b.sum = 0.5;
    b.count = 4;
    oz_encode_state_merge(&a, &b);
    assert_true(a.amax == 3 && a.sum == 1.5 && a.count == 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16),      cmocka_unit_test(bf16),     cmocka_unit_test(names),
        cmocka_unit_test(geometry), cmocka_unit_test(overflow), cmocka_unit_test(plain),
        cmocka_unit_test(merge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
