/*
 * GGUF's types over grids (IQ1, IQ2, IQ3): a code is the number of a vector of eight or four small
 * integers, with a bit of sign for each; groups of them share a scale. ggml's arithmetic.
 */
#include "num/gguf_block.h"
#include "num/gguf_grid.h"

#define K 256 /* elements of a super-block */
#define IQ1_DELTA 0.125F

/* Seven bits say eight signs: their number is even. */
static uint8_t even_signs(uint32_t bits)
{
    bits &= 127;
    return (uint8_t)(bits | (uint32_t)(__builtin_popcount(bits) & 1) << 7);
}

static float signed_value(float x, uint8_t signs, int i)
{
    return (signs >> i & 1) != 0 ? -x : x;
}

/* Eight elements of an entry of two bits each. */
static void grid_2(uint16_t entry, float scale, uint8_t signs, float *y)
{
    static const float values[] = {8, 25, 43, 0};
    for (int i = 0; i < 8; i++) {
        y[i] = signed_value(scale * values[entry >> 2 * i & 3], signs, i);
    }
}

/* Four elements of three bits, whose signs begin at bit `at`. */
static void grid_3(uint16_t entry, const float *values, float scale, uint8_t signs, int at,
                   float *y)
{
    for (int i = 0; i < 4; i++) {
        y[i] = signed_value(scale * values[entry >> 3 * i & 7], signs, at + i);
    }
}

static void grid_1(uint16_t entry, float scale, float delta, float *y)
{
    for (int i = 0; i < 8; i++) {
        y[i] = scale * ((float)(entry >> 2 * i & 3) - 1 + delta);
    }
}

/* 32 elements in two words: four codes; four signs of seven bits and the scale. */
static void block_iq2_xxs(const uint8_t *b, float *y)
{
    float d = oz_gguf_half(b);
    for (int g = 0; g < 8; g++) {
        const uint8_t *codes = b + 2 + 8 * g;
        uint32_t rest = oz_gguf_u32(codes + 4);
        float scale = d * (0.5F + (float)(rest >> 28)) * 0.25F;
        for (int i = 0; i < 4; i++) {
            grid_2(oz_gguf_grid_iq2_xxs[codes[i]], scale, even_signs(rest >> 7 * i),
                   y + 32 * g + 8 * i);
        }
    }
}

/* The scale of 16 elements from a nibble. */
static float nibble_scale(const uint8_t *scales, int group, float d)
{
    return d * (0.5F + (float)(scales[group / 2] >> group % 2 * 4 & 15)) * 0.25F;
}

static void block_iq2_xs(const uint8_t *b, float *y)
{
    float d = oz_gguf_half(b);
    for (int i = 0; i < 32; i++) { /* 9 bits of code, 7 of signs */
        uint32_t q = oz_gguf_u16(b + 2 + 2 * i);
        grid_2(oz_gguf_grid_iq2_xs[q & 511U], nibble_scale(b + 66, i / 2, d), even_signs(q >> 9),
               y + 8 * i);
    }
}

static void block_iq2_s(const uint8_t *b, float *y)
{
    float d = oz_gguf_half(b);
    for (int i = 0; i < 32; i++) { /* codes, signs, two more bits of codes, scales */
        uint32_t q = b[2 + i] | (uint32_t)(b[66 + i / 4] >> i % 4 * 2 & 3) << 8;
        grid_2(oz_gguf_grid_iq2_s[q], nibble_scale(b + 74, i / 2, d), b[34 + i], y + 8 * i);
    }
}

static void block_iq3_xxs(const uint8_t *b, float *y)
{
    static const float values[] = {4, 12, 20, 28, 36, 44, 52, 62};
    float d = oz_gguf_half(b);
    for (int i = 0; i < 64; i++) { /* codes; for each 32 elements four signs and a scale */
        uint32_t rest = oz_gguf_u32(b + 66 + 4 * (i / 8));
        float scale = d * (0.5F + (float)(rest >> 28)) * 0.5F;
        grid_3(oz_gguf_grid_iq3_xxs[b[2 + i]], values, scale, even_signs(rest >> 7 * (i % 8 / 2)),
               i % 2 * 4, y + 4 * i);
    }
}

static void block_iq3_s(const uint8_t *b, float *y)
{
    static const float values[] = {1, 3, 5, 7, 9, 11, 13, 15};
    float d = oz_gguf_half(b);
    for (int i = 0; i < 64; i++) { /* codes, their ninth bits, signs, scales of 32 elements */
        uint32_t q = b[2 + i] | (uint32_t)(b[66 + i / 8] >> i % 8 & 1) << 8;
        int scale = b[106 + i / 16] >> i / 8 % 2 * 4 & 15;
        grid_3(oz_gguf_grid_iq3_s[q], values, d * (float)(1 + 2 * scale), b[74 + i / 2], i % 2 * 4,
               y + 4 * i);
    }
}

static void block_iq1_s(const uint8_t *b, float *y)
{
    float d = oz_gguf_half(b);
    for (int i = 0; i < 32; i++) { /* codes; for each four of them high bits, scale, shift */
        uint32_t high = oz_gguf_u16(b + 34 + 2 * (i / 4));
        uint32_t q = b[2 + i] | (high >> i % 4 * 3 & 7U) << 8;
        float scale = d * (float)(2 * (high >> 12 & 7U) + 1);
        grid_1(oz_gguf_grid_iq1[q], scale, (high & 0x8000U) != 0 ? -IQ1_DELTA : IQ1_DELTA,
               y + 8 * i);
    }
}

/* Its d is the four top bits of each of the words of scales. */
static void block_iq1_m(const uint8_t *b, float *y)
{
    const uint8_t *scales = b + 48;
    uint32_t half = 0;
    for (int i = 0; i < 4; i++) {
        half |= (uint32_t)(oz_gguf_u16(scales + 2 * i) >> 12) << 4 * i;
    }
    float d = oz_f16_to_f32((uint16_t)half);
    for (int i = 0; i < 32; i++) {
        uint32_t high = b[32 + i / 2] >> i % 2 * 4 & 15U;
        uint32_t q = b[i] | (high & 7U) << 8;
        uint32_t scale = (uint32_t)oz_gguf_u16(scales + 2 * (i / 8)) >> i % 8 / 2 * 3 & 7U;
        grid_1(oz_gguf_grid_iq1[q], d * (float)(2 * scale + 1),
               (high & 8U) != 0 ? -IQ1_DELTA : IQ1_DELTA, y + 8 * i);
    }
}

OZ_GGUF_CODEC(iq2_xxs, K, 66)
OZ_GGUF_CODEC(iq2_xs, K, 74)
OZ_GGUF_CODEC(iq2_s, K, 82)
OZ_GGUF_CODEC(iq3_xxs, K, 98)
OZ_GGUF_CODEC(iq3_s, K, 110)
OZ_GGUF_CODEC(iq1_s, K, 50)
OZ_GGUF_CODEC(iq1_m, K, 56)
