/*
 * GGUF's blocks: the types of llama.cpp and its relatives, decoded with ggml's arithmetic (f32, each
 * operation rounded, in the makers' order). A block is d (f16, first or last), in some types a second
 * factor for minima, scales of sub-blocks, then codes. What the formulas are: docs/formats/gguf.md.
 * Types over grids of values: codec_gguf_iq.c. Read only.
 */
#include "num/gguf_block.h"

#include <math.h>

#define K 256 /* elements of a super-block */

void oz_gguf_decode(const struct oz_weight *w, int64_t slice, int64_t row, int64_t col,
                    int64_t count, float *dst, oz_gguf_block_fn block, int32_t elements,
                    int32_t bytes)
{
    const uint8_t *line = oz_plane_row(w, OZ_PLANE_CODES, slice, row);
    assert(row >= 0 && row < w->rows && col >= 0 && count <= w->cols - col);
    while (count > 0) {
        int64_t at = col % elements;
        int64_t n = oz_min_count(elements - at, count);
        const uint8_t *b = line + col / elements * bytes;
        if (n == elements) {
            block(b, dst);
        } else {
            float y[OZ_GGUF_MOST_ELEMENTS];
            block(b, y);
            memcpy(dst, y + at, (size_t)n * sizeof *y);
        }
        dst += n;
        col += n;
        count -= n;
    }
}

/* ---- 32 elements under one d ---- */

/* Codes of 4 bits: the low nibbles are the first half of the elements, the high ones the second. */
static void block_q4_0(const uint8_t *b, float *y)
{
    float d = oz_gguf_half(b);
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)((b[2 + j] & 15) - 8);
        y[j + 16] = d * (float)((b[2 + j] >> 4) - 8);
    }
}

static void block_q4_1(const uint8_t *b, float *y)
{
    float d = oz_gguf_half(b);
    float m = oz_gguf_half(b + 2);
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)(b[4 + j] & 15) + m;
        y[j + 16] = d * (float)(b[4 + j] >> 4) + m;
    }
}

/* The fifth bits of all codes are one word. */
static void block_q5_0(const uint8_t *b, float *y)
{
    float d = oz_gguf_half(b);
    uint32_t high = oz_gguf_u32(b + 2);
    for (int j = 0; j < 16; j++) {
        uint32_t low = (b[6 + j] & 15U) | (high >> j & 1U) << 4;
        uint32_t second = (uint32_t)(b[6 + j] >> 4) | (high >> (j + 16) & 1U) << 4;
        y[j] = d * (float)((int32_t)low - 16);
        y[j + 16] = d * (float)((int32_t)second - 16);
    }
}

static void block_q5_1(const uint8_t *b, float *y)
{
    float d = oz_gguf_half(b);
    float m = oz_gguf_half(b + 2);
    uint32_t high = oz_gguf_u32(b + 4);
    for (int j = 0; j < 16; j++) {
        uint32_t low = (b[8 + j] & 15U) | (high >> j & 1U) << 4;
        uint32_t second = (uint32_t)(b[8 + j] >> 4) | (high >> (j + 16) & 1U) << 4;
        y[j] = d * (float)low + m;
        y[j + 16] = d * (float)second + m;
    }
}

static void bytes_times(const uint8_t *q, int n, float d, float *y)
{
    for (int j = 0; j < n; j++) {
        y[j] = d * (float)(int8_t)q[j];
    }
}

static void block_q8_0(const uint8_t *b, float *y)
{
    bytes_times(b + 2, 32, oz_gguf_half(b), y);
}

/* With the sum of the codes times d, which products of integers use. */
static void block_q8_1(const uint8_t *b, float *y)
{
    bytes_times(b + 4, 32, oz_gguf_half(b), y);
}

static void block_q8_k(const uint8_t *b, float *y)
{
    bytes_times(b + 4, K, oz_f32_from_bits(oz_gguf_u32(b)), y);
}

/* ---- one and two bits under one d ---- */

static void block_q1_0(const uint8_t *b, float *y)
{
    float d = oz_gguf_half(b);
    for (int j = 0; j < 128; j++) {
        y[j] = (b[2 + j / 8] >> j % 8 & 1) != 0 ? d : -d;
    }
}

static void block_q2_0(const uint8_t *b, float *y)
{
    float d = oz_gguf_half(b);
    for (int j = 0; j < 64; j++) {
        y[j] = d * (float)((b[2 + j / 4] >> j % 4 * 2 & 3) - 1);
    }
}

/* Ternary, five digits in a byte: the byte times 3^n, without what overflows, has the n-th on top. */
static float digit(uint8_t byte, int n, float d)
{
    static const uint8_t powers[] = {1, 3, 9, 27, 81};
    uint8_t q = (uint8_t)(byte * powers[n]);
    return d * (float)((q * 3 >> 8) - 1);
}

static void block_tq1_0(const uint8_t *b, float *y)
{
    float d = oz_gguf_half(b + 52);
    for (int n = 0; n < 5; n++) {
        for (int j = 0; j < 32; j++) {
            y[n * 32 + j] = digit(b[j], n, d);
        }
        for (int j = 0; j < 16; j++) {
            y[160 + n * 16 + j] = digit(b[32 + j], n, d);
        }
    }
    for (int n = 0; n < 4; n++) {
        for (int j = 0; j < 4; j++) {
            y[240 + n * 4 + j] = digit(b[48 + j], n, d);
        }
    }
}

static void block_tq2_0(const uint8_t *b, float *y)
{
    float d = oz_gguf_half(b + 64);
    for (int j = 0; j < K; j++) {
        uint8_t q = b[j / 128 * 32 + j % 32];
        y[j] = d * (float)((q >> j % 128 / 32 * 2 & 3) - 1);
    }
}

/* ---- super-blocks of 256 ---- */

/* Sub-blocks of 16, each with a scale and a minimum of 4 bits. */
static void block_q2_k(const uint8_t *b, float *y)
{
    float d = oz_gguf_half(b + 80);
    float min = oz_gguf_half(b + 82);
    for (int j = 0; j < K; j++) {
        uint8_t scale = b[j / 16];
        uint8_t q = b[16 + j / 128 * 32 + j % 32];
        y[j] = d * (float)(scale & 15) * (float)(q >> j % 128 / 32 * 2 & 3) -
               min * (float)(scale >> 4);
    }
}

/* Sub-blocks of 16 with scales of 6 bits; the third bits of codes stand apart. */
static void block_q3_k(const uint8_t *b, float *y)
{
    const uint8_t *scales = b + 96;
    float d = oz_gguf_half(b + 108);
    float dl[16];
    for (int i = 0; i < 16; i++) {
        int low = scales[i % 8] >> (i < 8 ? 0 : 4) & 15;
        int high = scales[8 + i % 4] >> i / 4 * 2 & 3;
        dl[i] = d * (float)((low | high << 4) - 32);
    }
    for (int j = 0; j < K; j++) {
        int low = b[32 + j / 128 * 32 + j % 32] >> j % 128 / 32 * 2 & 3;
        int high = b[j % 32] >> j / 32 & 1;
        y[j] = dl[j / 16] * (float)((low | high << 2) - 4);
    }
}

/* Sub-blocks of 32, each with a scale and a minimum of 6 bits, in 12 bytes: factors of Q4_K, Q5_K. */
static void k_scales(const uint8_t *b, float scales[8], float mins[8])
{
    const uint8_t *s = b + 4;
    float d = oz_gguf_half(b);
    float min = oz_gguf_half(b + 2);
    for (int i = 0; i < 8; i++) {
        int scale = i < 4 ? s[i] & 63 : (s[i + 4] & 15) | s[i - 4] >> 6 << 4;
        int m = i < 4 ? s[i + 4] & 63 : s[i + 4] >> 4 | s[i] >> 6 << 4;
        scales[i] = d * (float)scale;
        mins[i] = min * (float)m;
    }
}

static void block_q4_k(const uint8_t *b, float *y)
{
    float scales[8];
    float mins[8];
    k_scales(b, scales, mins);
    for (int i = 0; i < 8; i++) {
        const uint8_t *q = b + 16 + i / 2 * 32;
        for (int j = 0; j < 32; j++) {
            y[i * 32 + j] = scales[i] * (float)(q[j] >> i % 2 * 4 & 15) - mins[i];
        }
    }
}

static void block_q5_k(const uint8_t *b, float *y)
{
    float scales[8];
    float mins[8];
    k_scales(b, scales, mins);
    for (int i = 0; i < 8; i++) {
        const uint8_t *q = b + 48 + i / 2 * 32;
        for (int j = 0; j < 32; j++) {
            int code = (q[j] >> i % 2 * 4 & 15) | (b[16 + j] >> i & 1) << 4;
            y[i * 32 + j] = scales[i] * (float)code - mins[i];
        }
    }
}

static void block_q6_k(const uint8_t *b, float *y)
{
    float d = oz_gguf_half(b + 208);
    for (int j = 0; j < K; j++) {
        int half = j / 128;
        int part = j % 128 / 32; /* of the half */
        int low = b[half * 64 + part % 2 * 32 + j % 32] >> part / 2 * 4 & 15;
        int high = b[128 + half * 32 + j % 32] >> part * 2 & 3;
        y[j] = d * (float)(int8_t)b[192 + j / 16] * (float)((low | high << 4) - 32);
    }
}

/* ---- codes that are values of tables ---- */

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 2 n elements: the low nibbles, then the high ones. */
static void table_times(const uint8_t *q, int n, const int8_t *table, float d, float *y)
{
    for (int j = 0; j < n; j++) {
        y[j] = d * (float)table[q[j] & 15];
        y[j + n] = d * (float)table[q[j] >> 4];
    }
}

static void block_iq4_nl(const uint8_t *b, float *y)
{
    table_times(b + 2, 16, iq4_values, oz_gguf_half(b), y);
}

static void block_iq4_xs(const uint8_t *b, float *y)
{
    float d = oz_gguf_half(b);
    uint32_t high = oz_gguf_u16(b + 2);
    for (int i = 0; i < 8; i++) {
        int scale = (b[4 + i / 2] >> i % 2 * 4 & 15) | (int)(high >> 2 * i & 3U) << 4;
        table_times(b + 8 + 16 * i, 16, iq4_values, d * (float)(scale - 32), y + 32 * i);
    }
}

/* Half of 2^(e - 127), for the table is doubled; ggml has no NaN here. */
static void block_gguf_mxfp4(const uint8_t *b, float *y)
{
    uint32_t bits = b[0] < 2 ? UINT32_C(0x00200000) << b[0] : (uint32_t)(b[0] - 1) << 23;
    table_times(b + 1, 16, e2m1_doubled, oz_f32_from_bits(bits), y);
}

/* Half of an e4m3 without sign, in which the NaN's code is zero. */
static float ue4m3_half(uint8_t code)
{
    int exponent = code >> 3 & 15;
    float mantissa = (float)(code & 7);
    if (code == 0x7F) {
        return 0;
    }
    return exponent == 0 ? mantissa * 0x1p-10F
                         : (1 + mantissa / 8) * oz_f32_from_bits((uint32_t)(exponent + 119) << 23);
}

static void block_gguf_nvfp4(const uint8_t *b, float *y)
{
    for (int i = 0; i < 4; i++) {
        table_times(b + 4 + 8 * i, 8, e2m1_doubled, ue4m3_half(b[i]), y + 16 * i);
    }
}

OZ_GGUF_CODEC(q4_0, 32, 18)
OZ_GGUF_CODEC(q4_1, 32, 20)
OZ_GGUF_CODEC(q5_0, 32, 22)
OZ_GGUF_CODEC(q5_1, 32, 24)
OZ_GGUF_CODEC(q8_0, 32, 34)
OZ_GGUF_CODEC(q8_1, 32, 36)
OZ_GGUF_CODEC(q8_k, K, 292)
OZ_GGUF_CODEC(q2_k, K, 84)
OZ_GGUF_CODEC(q3_k, K, 110)
OZ_GGUF_CODEC(q4_k, K, 144)
OZ_GGUF_CODEC(q5_k, K, 176)
OZ_GGUF_CODEC(q6_k, K, 210)
OZ_GGUF_CODEC(q1_0, 128, 18)
OZ_GGUF_CODEC(q2_0, 64, 18)
OZ_GGUF_CODEC(tq1_0, K, 54)
OZ_GGUF_CODEC(tq2_0, K, 66)
OZ_GGUF_CODEC(iq4_nl, 32, 18)
OZ_GGUF_CODEC(iq4_xs, K, 136)
OZ_GGUF_CODEC(gguf_mxfp4, 32, 17)
OZ_GGUF_CODEC(gguf_nvfp4, 64, 36)

/* ---- the list ---- */

static const struct oz_gguf_type types[] = {
#define OZ_GGUF_PLAIN(number_, name_, dtype_, bytes_) \
    {.number = (number_),                             \
     .name = (name_),                                 \
     .elements = 1,                                   \
     .bytes = (bytes_),                               \
     .dtype = (dtype_),                               \
     .factors = {OZ_GGUF_NONE, OZ_GGUF_NONE}},
#define OZ_GGUF_BLOCK(number_, name_, codec_, elements_, bytes_, first_, second_) \
    {.number = (number_),                                                         \
     .name = (name_),                                                             \
     .elements = (elements_),                                                     \
     .bytes = (bytes_),                                                           \
     .dtype = OZ_DTYPE_U8,                                                        \
     .codec = &oz_codec_##codec_,                                                 \
     .factors = {(first_), (second_)}},
#include "num/gguf.inc"
#undef OZ_GGUF_PLAIN
#undef OZ_GGUF_BLOCK
};
#define TYPES (sizeof types / sizeof *types)

const struct oz_gguf_type *oz_gguf_type_find(uint32_t number)
{
    for (size_t i = 0; i < TYPES; i++) {
        if (types[i].number == number) {
            return &types[i];
        }
    }
    return NULL;
}

const struct oz_gguf_type *oz_gguf_type_of(const struct oz_codec *codec)
{
    for (size_t i = 0; i < TYPES && codec != NULL; i++) {
        if (types[i].codec == codec) {
            return &types[i];
        }
    }
    return NULL;
}

/* Is an f16 NaN or infinite? */
static bool is_bad_half(uint32_t half)
{
    return (half & 0x7C00) == 0x7C00;
}

static bool is_bad(const struct oz_gguf_type *type, int factor, const uint8_t *b)
{
    uint32_t half = 0;
    switch (factor) {
    case OZ_GGUF_NONE: return false;
    case OZ_GGUF_F32: return !(fabsf(oz_f32_from_bits(oz_gguf_u32(b))) <= 0x1p120F);
    case OZ_GGUF_E8M0: return b[0] > 252; /* 6 * 2^(253 - 127) is no f32 */
    case OZ_GGUF_WORDS:
        for (int i = 0; i < 4; i++) {
            half |= (uint32_t)(oz_gguf_u16(b + type->bytes - 8 + 2 * i) >> 12) << 4 * i;
        }
        return is_bad_half(half);
    default: return is_bad_half(oz_gguf_u16(b + factor));
    }
}

int64_t oz_gguf_find_bad(const struct oz_gguf_type *type, const uint8_t *blocks, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *b = blocks + i * type->bytes;
        if (is_bad(type, type->factors[0], b) || is_bad(type, type->factors[1], b)) {
            return i;
        }
    }
    return -1;
}
