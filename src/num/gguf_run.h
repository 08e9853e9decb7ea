/*
 * num/gguf_run.h: elements of GGUF's blocks, with ggml's arithmetic (f32, each operation rounded, in the
 * makers' order): the one definition, of which the codecs and the kernels of devices are made. A block is d
 * (f16, first or last), in some types a second factor for minima, scales of sub-blocks, then codes. What the
 * formulas are: docs/formats/gguf.md.
 *
 * oz_gguf_run_<type>: elements [at, at + count) of block b. count is a multiple of 8 that divides the type's
 * run (elements that have a scale and a place in the bytes in common: codec_gguf.c names it), at is a multiple
 * of count.
 */
#ifndef OZ_NUM_GGUF_RUN_H
#define OZ_NUM_GGUF_RUN_H

#include "num/float.h"

/* Units of a device have their own copies of the tables; then these functions are the device's alone. */
#if defined(__CUDACC__)
#define OZ_RUN static __device__ inline
#define OZ_RUN_TABLE static __device__ const
#define OZ_RUN_OUT float *__restrict__
#include "num/gguf_grid_table.c"
#else
#define OZ_RUN static inline
#define OZ_RUN_TABLE static const
#define OZ_RUN_OUT float *restrict
#include "num/gguf_grid.h"
#endif

OZ_INLINE uint16_t oz_gguf_u16(const uint8_t *b)
{
    return (uint16_t)(b[0] | b[1] << 8);
}

OZ_INLINE uint32_t oz_gguf_u32(const uint8_t *b)
{
    return (uint32_t)oz_gguf_u16(b) | (uint32_t)oz_gguf_u16(b + 2) << 16;
}

OZ_INLINE float oz_gguf_half(const uint8_t *b)
{
    return oz_f16_to_f32(oz_gguf_u16(b));
}

/* ---- 32 elements under one d ---- */

/* Codes of 4 bits: the low nibbles are the first half of the elements, the high ones the second. */
OZ_RUN void oz_gguf_run_q4_0(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    float d = oz_gguf_half(b);
    const uint8_t *q = b + 2 + at % 16;
    for (int i = 0; i < count; i++) {
        y[i] = d * (float)((q[i] >> at / 16 * 4 & 15) - 8);
    }
}

OZ_RUN void oz_gguf_run_q4_1(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    float d = oz_gguf_half(b);
    float m = oz_gguf_half(b + 2);
    const uint8_t *q = b + 4 + at % 16;
    for (int i = 0; i < count; i++) {
        y[i] = d * (float)(q[i] >> at / 16 * 4 & 15) + m;
    }
}

/* The fifth bits of all codes are one word. */
OZ_RUN void oz_gguf_run_q5_0(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    float d = oz_gguf_half(b);
    const uint8_t *high = b + 2 + at / 8;
    const uint8_t *q = b + 6 + at % 16;
    for (int i = 0; i < count; i++) {
        int code = (q[i] >> at / 16 * 4 & 15) | (high[i / 8] >> i % 8 & 1) << 4;
        y[i] = d * (float)(code - 16);
    }
}

OZ_RUN void oz_gguf_run_q5_1(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    float d = oz_gguf_half(b);
    float m = oz_gguf_half(b + 2);
    const uint8_t *high = b + 4 + at / 8;
    const uint8_t *q = b + 8 + at % 16;
    for (int i = 0; i < count; i++) {
        int code = (q[i] >> at / 16 * 4 & 15) | (high[i / 8] >> i % 8 & 1) << 4;
        y[i] = d * (float)code + m;
    }
}

OZ_RUN void oz_gguf_bytes_times(const uint8_t *q, int count, float d, OZ_RUN_OUT y)
{
    for (int i = 0; i < count; i++) {
        y[i] = d * (float)(int8_t)q[i];
    }
}

OZ_RUN void oz_gguf_run_q8_0(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    oz_gguf_bytes_times(b + 2 + at, count, oz_gguf_half(b), y);
}

/* With the sum of the codes times d, which products of integers use. */
OZ_RUN void oz_gguf_run_q8_1(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    oz_gguf_bytes_times(b + 4 + at, count, oz_gguf_half(b), y);
}

OZ_RUN void oz_gguf_run_q8_k(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    oz_gguf_bytes_times(b + 4 + at, count, oz_f32_from_bits(oz_gguf_u32(b)), y);
}

/* ---- one and two bits under one d ---- */

OZ_RUN void oz_gguf_run_q1_0(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    float d = oz_gguf_half(b);
    for (int i = 0; i < count; i++) {
        y[i] = (b[2 + (at + i) / 8] >> i % 8 & 1) != 0 ? d : -d;
    }
}

OZ_RUN void oz_gguf_run_q2_0(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    float d = oz_gguf_half(b);
    for (int i = 0; i < count; i++) {
        y[i] = d * (float)((b[2 + (at + i) / 4] >> i % 4 * 2 & 3) - 1);
    }
}

/* Ternary, five digits in a byte: the byte times 3^n, without what overflows, has the n-th on top. */
OZ_RUN float oz_gguf_digit(uint8_t byte, int n, float d)
{
    int power = n == 0 ? 1 : n == 1 ? 3 : n == 2 ? 9 : n == 3 ? 27 : 81;
    uint8_t q = (uint8_t)(byte * power);
    return d * (float)((q * 3 >> 8) - 1);
}

/* 32 bytes of five digits for five times 32 elements, 16 for five times 16, 4 of four for four times 4. */
OZ_RUN void oz_gguf_run_tq1_0(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    float d = oz_gguf_half(b + 52);
    const uint8_t *q = at < 160 ? b + at % 32 : b + 32 + at % 16;
    int n = at < 160 ? at / 32 : (at - 160) / 16;
    for (int i = 0; i < count && at < 240; i++) {
        y[i] = oz_gguf_digit(q[i], n, d);
    }
    for (int i = 0; i < count && at >= 240; i++) {
        y[i] = oz_gguf_digit(b[48 + i % 4], (at - 240 + i) / 4, d);
    }
}

/* Codes of two bits as in Q2_K: 32 bytes for 128 elements, the first 32 in the lowest bits. */
OZ_RUN void oz_gguf_run_tq2_0(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    float d = oz_gguf_half(b + 64);
    const uint8_t *q = b + at / 128 * 32 + at % 32;
    for (int i = 0; i < count; i++) {
        y[i] = d * (float)((q[i] >> at % 128 / 32 * 2 & 3) - 1);
    }
}

/* ---- super-blocks of 256 ---- */

/* Sub-blocks of 16, each with a scale and a minimum of 4 bits. */
OZ_RUN void oz_gguf_run_q2_k(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    uint8_t scale = b[at / 16];
    float d = oz_gguf_half(b + 80) * (float)(scale & 15);
    float min = oz_gguf_half(b + 82) * (float)(scale >> 4);
    const uint8_t *q = b + 16 + at / 128 * 32 + at % 32;
    for (int i = 0; i < count; i++) {
        y[i] = d * (float)(q[i] >> at % 128 / 32 * 2 & 3) - min;
    }
}

/* Sub-blocks of 16 with scales of 6 bits; the third bits of codes stand apart. */
OZ_RUN void oz_gguf_run_q3_k(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    const uint8_t *scales = b + 96;
    int n = at / 16;
    int scale = (scales[n % 8] >> n / 8 * 4 & 15) | (scales[8 + n % 4] >> n / 4 * 2 & 3) << 4;
    float d = oz_gguf_half(b + 108) * (float)(scale - 32);
    const uint8_t *q = b + 32 + at / 128 * 32 + at % 32;
    const uint8_t *high = b + at % 32;
    for (int i = 0; i < count; i++) {
        int code = (q[i] >> at % 128 / 32 * 2 & 3) | (high[i] >> at / 32 & 1) << 2;
        y[i] = d * (float)(code - 4);
    }
}

/* Sub-blocks of 32, each with a scale and a minimum of 6 bits, in 12 bytes: factors of Q4_K, Q5_K. */
OZ_RUN void oz_gguf_k_factors(const uint8_t *b, int n, float *scale, float *min)
{
    const uint8_t *s = b + 4;
    int q = n < 4 ? s[n] & 63 : (s[n + 4] & 15) | s[n - 4] >> 6 << 4;
    int m = n < 4 ? s[n + 4] & 63 : s[n + 4] >> 4 | s[n] >> 6 << 4;
    *scale = oz_gguf_half(b) * (float)q;
    *min = oz_gguf_half(b + 2) * (float)m;
}

OZ_RUN void oz_gguf_run_q4_k(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    float scale;
    float min;
    const uint8_t *q = b + 16 + at / 64 * 32 + at % 32;
    oz_gguf_k_factors(b, at / 32, &scale, &min);
    for (int i = 0; i < count; i++) {
        y[i] = scale * (float)(q[i] >> at / 32 % 2 * 4 & 15) - min;
    }
}

OZ_RUN void oz_gguf_run_q5_k(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    float scale;
    float min;
    const uint8_t *q = b + 48 + at / 64 * 32 + at % 32;
    const uint8_t *high = b + 16 + at % 32;
    oz_gguf_k_factors(b, at / 32, &scale, &min);
    for (int i = 0; i < count; i++) {
        int code = (q[i] >> at / 32 % 2 * 4 & 15) | (high[i] >> at / 32 & 1) << 4;
        y[i] = scale * (float)code - min;
    }
}

/* Two halves of four parts of 32 elements; sub-blocks of 16. */
OZ_RUN void oz_gguf_run_q6_k(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    int half = at / 128;
    int part = at % 128 / 32;
    float d = oz_gguf_half(b + 208) * (float)(int8_t)b[192 + at / 16];
    const uint8_t *q = b + half * 64 + part % 2 * 32 + at % 32;
    const uint8_t *high = b + 128 + half * 32 + at % 32;
    for (int i = 0; i < count; i++) {
        int code = (q[i] >> part / 2 * 4 & 15) | (high[i] >> part * 2 & 3) << 4;
        y[i] = d * (float)(code - 32);
    }
}

/* ---- codes that are values of tables ---- */

OZ_RUN_TABLE int8_t oz_gguf_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};
OZ_RUN_TABLE int8_t oz_gguf_e2m1_doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                0, -1, -2, -3, -4, -6, -8, -12};

OZ_RUN void oz_gguf_table_times(const uint8_t *q, int shift, const int8_t *table, float d,
                                int count, OZ_RUN_OUT y)
{
    for (int i = 0; i < count; i++) {
        y[i] = d * (float)table[q[i] >> shift & 15];
    }
}

OZ_RUN void oz_gguf_run_iq4_nl(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    oz_gguf_table_times(b + 2 + at % 16, at / 16 * 4, oz_gguf_iq4_values, oz_gguf_half(b), count,
                        y);
}

OZ_RUN void oz_gguf_run_iq4_xs(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    int n = at / 32;
    int scale = (b[4 + n / 2] >> n % 2 * 4 & 15) | (oz_gguf_u16(b + 2) >> 2 * n & 3) << 4;
    oz_gguf_table_times(b + 8 + 16 * n + at % 16, at % 32 / 16 * 4, oz_gguf_iq4_values,
                        oz_gguf_half(b) * (float)(scale - 32), count, y);
}

/* Half of 2^(e - 127), for the table is doubled; ggml has no NaN here. */
OZ_RUN void oz_gguf_run_gguf_mxfp4(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    uint32_t bits = b[0] < 2 ? UINT32_C(0x00200000) << b[0] : (uint32_t)(b[0] - 1) << 23;
    oz_gguf_table_times(b + 1 + at % 16, at / 16 * 4, oz_gguf_e2m1_doubled, oz_f32_from_bits(bits),
                        count, y);
}

/* Half of an e4m3 without sign, in which the NaN's code is zero. */
OZ_RUN float oz_gguf_ue4m3_half(uint8_t code)
{
    int exponent = code >> 3 & 15;
    float mantissa = (float)(code & 7);
    if (code == 0x7F) {
        return 0;
    }
    return exponent == 0 ? mantissa * 0x1p-10F
                         : (1 + mantissa / 8) * oz_f32_from_bits((uint32_t)(exponent + 119) << 23);
}

OZ_RUN void oz_gguf_run_gguf_nvfp4(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    oz_gguf_table_times(b + 4 + at / 16 * 8, at % 16 / 8 * 4, oz_gguf_e2m1_doubled,
                        oz_gguf_ue4m3_half(b[at / 16]), count, y);
}

/* ---- codes that are rows of grids, eight or four small integers, with a bit of sign for each ---- */

#define OZ_GGUF_IQ1_DELTA 0.125F

/* Seven bits say eight signs: their number is even. */
OZ_RUN uint32_t oz_gguf_even_signs(uint32_t bits)
{
    bits &= 127U;
    return bits | (0x6996U >> (bits >> 4 ^ (bits & 15U)) & 1U) << 7;
}

/* Elements of an entry of two bits each. */
OZ_RUN_TABLE float oz_gguf_iq2_values[4] = {8, 25, 43, 0};

OZ_RUN void oz_gguf_grid_2(uint32_t entry, float scale, uint32_t signs, OZ_RUN_OUT y)
{
    for (int i = 0; i < 8; i++) {
        float x = scale * oz_gguf_iq2_values[entry >> 2 * i & 3U];
        y[i] = (signs >> i & 1U) != 0 ? -x : x;
    }
}

OZ_RUN void oz_gguf_grid_1(uint32_t entry, float scale, float delta, OZ_RUN_OUT y)
{
    for (int i = 0; i < 8; i++) {
        y[i] = scale * ((float)(int32_t)(entry >> 2 * i & 3U) - 1 + delta);
    }
}

/* 32 elements in two words: four codes; four signs of seven bits and the scale. */
OZ_RUN void oz_gguf_run_iq2_xxs(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    int n = at / 8;
    (void)count;
    const uint8_t *codes = b + 2 + n / 4 * 8;
    uint32_t rest = oz_gguf_u32(codes + 4);
    float scale = oz_gguf_half(b) * (0.5F + (float)(int32_t)(rest >> 28)) * 0.25F;
    oz_gguf_grid_2(oz_gguf_grid_iq2_xxs[codes[n % 4]], scale, oz_gguf_even_signs(rest >> n % 4 * 7),
                   y);
}

/* The scale of 16 elements from a nibble. */
OZ_RUN float oz_gguf_nibble_scale(const uint8_t *scales, int n, float d)
{
    return d * (0.5F + (float)(scales[n / 4] >> n / 2 % 2 * 4 & 15)) * 0.25F;
}

/* 9 bits of code, 7 of signs. */
OZ_RUN void oz_gguf_run_iq2_xs(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    int n = at / 8;
    (void)count;
    uint32_t q = oz_gguf_u16(b + 2 + 2 * n);
    oz_gguf_grid_2(oz_gguf_grid_iq2_xs[q & 511U], oz_gguf_nibble_scale(b + 66, n, oz_gguf_half(b)),
                   oz_gguf_even_signs(q >> 9), y);
}

/* Codes, signs, two more bits of codes, scales. */
OZ_RUN void oz_gguf_run_iq2_s(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    int n = at / 8;
    (void)count;
    uint32_t q = b[2 + n] | (uint32_t)(b[66 + n / 4] >> n % 4 * 2 & 3) << 8;
    oz_gguf_grid_2(oz_gguf_grid_iq2_s[q], oz_gguf_nibble_scale(b + 74, n, oz_gguf_half(b)),
                   b[34 + n], y);
}

/* Codes of four; for each 32 elements four signs and a scale. Of three bits: 4, 12 .. 52, 62. */
OZ_RUN void oz_gguf_run_iq3_xxs(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    int n = at / 8;
    (void)count;
    uint32_t rest = oz_gguf_u32(b + 66 + n / 4 * 4);
    float scale = oz_gguf_half(b) * (0.5F + (float)(int32_t)(rest >> 28)) * 0.5F;
    uint32_t signs = oz_gguf_even_signs(rest >> n % 4 * 7);
    uint32_t entries =
        oz_gguf_grid_iq3_xxs[b[2 + 2 * n]] | (uint32_t)oz_gguf_grid_iq3_xxs[b[3 + 2 * n]] << 12;
    for (int i = 0; i < 8; i++) {
        int32_t q = (int32_t)(entries >> 3 * i & 7U);
        float x = scale * (float)(q == 7 ? 62 : 4 + 8 * q);
        y[i] = (signs >> i & 1U) != 0 ? -x : x;
    }
}

/* Codes, their ninth bits, signs, scales of 32 elements. Of three bits: 1, 3 .. 15. */
OZ_RUN void oz_gguf_run_iq3_s(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    int n = at / 8;
    (void)count;
    uint32_t high = (uint32_t)b[66 + n / 4] >> n % 4 * 2;
    int scale = b[106 + n / 8] >> n / 4 % 2 * 4 & 15;
    float d = oz_gguf_half(b) * (float)(1 + 2 * scale);
    uint32_t first = oz_gguf_grid_iq3_s[b[2 + 2 * n] | (high & 1U) << 8];
    uint32_t second = oz_gguf_grid_iq3_s[b[3 + 2 * n] | (high >> 1 & 1U) << 8];
    uint32_t entries = first | second << 12;
    for (int i = 0; i < 8; i++) {
        float x = d * (float)(int32_t)(1 + 2 * (entries >> 3 * i & 7U));
        y[i] = (b[74 + n] >> i & 1) != 0 ? -x : x;
    }
}

/* Codes; for each four of them high bits, scale, shift. */
OZ_RUN void oz_gguf_run_iq1_s(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    int n = at / 8;
    (void)count;
    uint32_t high = oz_gguf_u16(b + 34 + n / 4 * 2);
    uint32_t q = b[2 + n] | (high >> n % 4 * 3 & 7U) << 8;
    float scale = oz_gguf_half(b) * (float)(int32_t)(2 * (high >> 12 & 7U) + 1);
    oz_gguf_grid_1(oz_gguf_grid_iq1[q], scale,
                   (high & 0x8000U) != 0 ? -OZ_GGUF_IQ1_DELTA : OZ_GGUF_IQ1_DELTA, y);
}

/* Its d is the four top bits of each of the words of scales. */
OZ_RUN void oz_gguf_run_iq1_m(const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    int n = at / 8;
    (void)count;
    const uint8_t *scales = b + 48;
    uint32_t half = 0;
    for (int i = 0; i < 4; i++) {
        half |= (uint32_t)(oz_gguf_u16(scales + 2 * i) >> 12) << 4 * i;
    }
    uint32_t high = (uint32_t)b[32 + n / 2] >> n % 2 * 4 & 15U;
    uint32_t q = b[n] | (high & 7U) << 8;
    uint32_t scale = (uint32_t)oz_gguf_u16(scales + n / 8 * 2) >> n % 8 / 2 * 3 & 7U;
    oz_gguf_grid_1(oz_gguf_grid_iq1[q],
                   oz_f16_to_f32((uint16_t)half) * (float)(int32_t)(2 * scale + 1),
                   (high & 8U) != 0 ? -OZ_GGUF_IQ1_DELTA : OZ_GGUF_IQ1_DELTA, y);
}

/* The run of the type of that number in a file (num/gguf.inc); of no other number is it asked. */
OZ_RUN void oz_gguf_run(uint32_t number, const uint8_t *b, int at, int count, OZ_RUN_OUT y)
{
    switch (number) {
#define OZ_GGUF_PLAIN(number_, name_, dtype_, bytes_)
#define OZ_GGUF_BLOCK(number_, name_, codec_, elements_, bytes_, first_, second_) \
    case (number_):                                                               \
        oz_gguf_run_##codec_(b, at, count, y);                                    \
        break;
#include "num/gguf.inc"
#undef OZ_GGUF_PLAIN
#undef OZ_GGUF_BLOCK
    default: break;
    }
}

#endif
