/* num: 8- and 4-bit elements, all codes and all places where rounding turns; tables of codebooks.
 */
#include "test.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "num/codebook.h"
#include "num/float4.h"
#include "num/float8.h"
#include "num/integer.h"

/* What a code of a small float is, by ldexp; infinity and NaN apart. */
static double value(uint32_t code, int exponent, int mantissa)
{
    int bias = (1 << (exponent - 1)) - 1;
    int e = (int)(code >> mantissa) & ((1 << exponent) - 1);
    double m = code & ((1U << mantissa) - 1);
    double sign = code >> (exponent + mantissa) ? -1 : 1;
    return e == 0 ? sign * ldexp(m, 1 - bias - mantissa)
                  : sign * ldexp(m + (double)(1U << mantissa), e - bias - mantissa);
}

static bool same(float a, float b)
{
    return oz_f32_bits(a) == oz_f32_bits(b);
}

struct format {
    float (*widen)(uint8_t code);
    uint8_t (*narrow)(float x);
    int exponent, mantissa;
    uint8_t largest; /* code of the largest finite value */
};

static void check_narrow(const struct format *f, float x, uint8_t code)
{
    uint8_t sign = (uint8_t)(1U << (f->exponent + f->mantissa));
    assert_int_equal(f->narrow(x), code);
    assert_int_equal(f->narrow(-x), code | sign);
}

static void check_format(const struct format *f)
{
    uint8_t sign = (uint8_t)(1U << (f->exponent + f->mantissa));
    for (uint8_t code = 0; code <= f->largest; code++) {
        float x = (float)value(code, f->exponent, f->mantissa);
        assert_true(same(f->widen(code), x));
        assert_true(same(f->widen(code | sign), -x));
        check_narrow(f, x, code);
        if (code == f->largest) {
            break;
        }
        double next = value(code + 1U, f->exponent, f->mantissa);
        float middle = (float)((x + next) / 2);
        check_narrow(f, middle, code % 2 == 0 ? code : (uint8_t)(code + 1));
        check_narrow(f, nextafterf(middle, 0), code);
        check_narrow(f, nextafterf(middle, INFINITY), (uint8_t)(code + 1));
        check_narrow(f, nextafterf(x, INFINITY), code);
        check_narrow(f, nextafterf((float)next, 0), (uint8_t)(code + 1));
    }
    check_narrow(f, FLT_TRUE_MIN, 0);
    check_narrow(f, FLT_MIN, 0);
    check_narrow(f, f->widen(f->largest) * 1.03F, f->largest);
    check_narrow(f, FLT_MAX, f->largest);
    check_narrow(f, INFINITY, f->largest);
}

static const struct format e4m3 = {oz_e4m3_to_f32, oz_f32_to_e4m3, 4, 3, 0x7E};
static const struct format e5m2 = {oz_e5m2_to_f32, oz_f32_to_e5m2, 5, 2, 0x7B};
static const struct format e2m1 = {oz_e2m1_to_f32, oz_f32_to_e2m1, 2, 1, 7};

static void floats(void **state)
{
    check_format(&e4m3);
    check_format(&e5m2);
    check_format(&e2m1);
    assert_true(oz_e4m3_to_f32(0x7E) == OZ_E4M3_MAX && oz_e5m2_to_f32(0x7B) == OZ_E5M2_MAX);
    assert_true(oz_e2m1_to_f32(7) == OZ_E2M1_MAX);
    assert_true(isnan(oz_e4m3_to_f32(0x7F)) && isnan(oz_e4m3_to_f32(0xFF)));
    assert_true(signbit(oz_e4m3_to_f32(0xFF)) && !signbit(oz_e4m3_to_f32(0x7F)));
    assert_int_equal(oz_f32_to_e4m3(NAN), 0x7F);
    assert_int_equal(oz_f32_to_e4m3(-NAN), 0xFF);
    assert_true(oz_e5m2_to_f32(0x7C) == INFINITY && oz_e5m2_to_f32(0xFC) == -INFINITY);
    for (uint8_t m = 1; m < 4; m++) {
        assert_true(isnan(oz_e5m2_to_f32(0x7C | m)) && isnan(oz_e5m2_to_f32(0xFC | m)));
    }
    assert_int_equal(oz_f32_to_e5m2(NAN), 0x7F);
    assert_int_equal(oz_f32_to_e2m1(NAN), 7);
    assert_int_equal(oz_f32_to_e2m1(-NAN), 7);
    assert_true(same(oz_e2m1_to_f32(0xF3), 1.5F)); /* the low four bits alone */
}

/* All 2^32 inputs would take a minute; every 977th, and the monotony of the code over them. */
static void floats_are_monotone(void **state)
{
    const struct format *formats[] = {&e4m3, &e5m2, &e2m1};
    for (int i = 0; i < 3; i++) {
        const struct format *f = formats[i];
        uint8_t last = 0;
        for (uint32_t u = 0; u < 0x7F800000U; u += 977) {
            float x = oz_f32_from_bits(u);
            uint8_t code = f->narrow(x);
            assert_true(code >= last && code <= f->largest);
            last = code;
            if (x < f->widen(f->largest)) { /* nearest: not farther than the neighbours */
                double error = fabs(f->widen(code) - (double)x);
                assert_true(code == 0 || error <= fabs(f->widen((uint8_t)(code - 1)) - (double)x));
                assert_true(code == f->largest ||
                            error <= fabs(f->widen((uint8_t)(code + 1)) - (double)x));
            }
        }
        assert_int_equal(last, f->largest);
    }
}

static void e8m0(void **state)
{
    for (int code = 0; code < 255; code++) {
        assert_true(oz_e8m0_to_f32((uint8_t)code) == ldexpf(1, code - 127));
        assert_true(oz_e8m0_inverse((uint8_t)code) == ldexpf(1, 127 - code));
    }
    assert_true(isnan(oz_e8m0_to_f32(255)));
}

static void integers(void **state)
{
    for (int i = -127; i <= 127; i++) {
        float x = (float)i;
        assert_int_equal(oz_f32_to_s8(x), i);
        assert_int_equal(oz_f32_to_s8(nextafterf(x + 0.5F, -200)), i);
        assert_int_equal(oz_f32_to_s8(nextafterf(x - 0.5F, 200)), i);
        if (i < 127) {
            assert_int_equal(oz_f32_to_s8(x + 0.5F), i % 2 == 0 ? i : i + 1);
        }
    }
    assert_int_equal(oz_f32_to_s8(-0.0F), 0);
    assert_int_equal(oz_f32_to_s8(FLT_TRUE_MIN), 0);
    assert_int_equal(oz_f32_to_s8(127.5F), 127);
    assert_int_equal(oz_f32_to_s8(-127.5F), -127);
    assert_int_equal(oz_f32_to_s8(-128), -127);
    assert_int_equal(oz_f32_to_s8(1e30F), 127);
    assert_int_equal(oz_f32_to_s8(-INFINITY), -127);
    assert_int_equal(oz_f32_to_s8(NAN), 0);
    assert_int_equal(oz_f32_to_int(-300, -128, 127), -128);
    for (int i = -8; i < 8; i++) {
        assert_int_equal(oz_s4_to_int((uint8_t)i), i);
        if (i > -8) {
            assert_int_equal(oz_s4_to_int(oz_f32_to_s4((float)i)), i);
        }
        assert_int_equal(oz_f32_to_u4((float)(i + 8)), i + 8);
    }
    assert_int_equal(oz_f32_to_s4(-8), 9); /* -7 */
    assert_int_equal(oz_f32_to_u4(-1), 0);
    assert_int_equal(oz_f32_to_u4(15.6F), 15);
    assert_int_equal(oz_f32_to_u4(2.5F), 2);
}

static void nibbles(void **state)
{
    uint8_t row[3] = {0xFF, 0xFF, 0xFF};
    for (int64_t i = 0; i < 5; i++) {
        oz_nibble_put(row, i, (uint8_t)(i + 9));
    }
    assert_int_equal(row[0], 0xA9);
    assert_int_equal(row[2], 0x0D); /* what is left of a byte is zero */
    for (int64_t i = 0; i < 5; i++) {
        assert_int_equal(oz_nibble_get(row, i), i + 9);
    }
}

/* Every value is its own code, bounds are half-way in f32, and just above one the next code. */
static void check_book(const struct oz_codebook *b)
{
    uint8_t seen[256] = {0};
    for (int i = 0; i < b->count; i++) {
        uint8_t code = b->order != NULL ? b->order[i] : (uint8_t)i;
        uint8_t after = b->order != NULL ? b->order[(i + 1) % b->count] : (uint8_t)(i + 1);
        float x = b->values[code];
        assert_int_equal(seen[code]++, 0);
        assert_true(b->values[oz_codebook_code(b, x)] == x);
        if (i + 1 == b->count) {
            break;
        }
        float bound = b->bounds[i];
        assert_int_equal(oz_codebook_code(b, bound), code);
        assert_int_equal(oz_codebook_code(b, nextafterf(bound, 2)), after);
        if (x != b->values[after]) {
            assert_true(x < b->values[after]);
            assert_true(bound == (x + b->values[after]) / 2);
        }
    }
    assert_int_equal(oz_codebook_code(b, -1), b->order != NULL ? b->order[0] : 0);
    assert_true(b->values[oz_codebook_code(b, 1)] == 1);
    (void)oz_codebook_code(b, NAN);
}

static void codebooks(void **state)
{
    check_book(&oz_codebook_nf4);
    check_book(&oz_codebook_fp4_bnb);
    check_book(&oz_codebook_dynamic8);
    assert_int_equal(oz_codebook_fp4_bnb.count, 16);
    assert_int_equal(oz_codebook_dynamic8.count, 256);
    assert_int_equal(oz_codebook_code(&oz_codebook_fp4_bnb, 0.0F), 0);
    assert_int_equal(oz_codebook_code(&oz_codebook_fp4_bnb, -0.0F), 0);
    assert_int_equal(oz_codebook_code(&oz_codebook_fp4_bnb, -1e-6F), 8);
    assert_int_equal(oz_codebook_code(&oz_codebook_nf4, 0.0F), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats),  cmocka_unit_test(floats_are_monotone),
        cmocka_unit_test(e8m0),    cmocka_unit_test(integers),
        cmocka_unit_test(nibbles), cmocka_unit_test(codebooks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
