#include "num/unpack.h"

#include <stdbool.h>
#include <string.h>

static uint32_t word_at(const uint8_t *line, int64_t i)
{
    const uint8_t *b = line + 4 * i;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Where output feature e of eight stands in a word. */
static uint32_t awq_nibble(uint32_t word, int64_t e)
{
    static const uint8_t places[] = {0, 4, 1, 5, 2, 6, 3, 7};
    return word >> 4 * places[e] & 15U;
}

void oz_unpack_word_column(const uint8_t *line, int64_t count, uint8_t *dst, int64_t stride)
{
    for (int64_t i = 0; i < count; i++) {
        memcpy(dst + i * stride, line + 4 * i, 4);
    }
}

void oz_unpack_awq_codes(const uint8_t *line, int64_t first, int64_t count, int64_t col,
                         uint8_t *dst, int64_t stride)
{
    for (int64_t i = 0; i < count; i++) {
        uint8_t *b = dst + i * stride + col / 2;
        uint32_t q = awq_nibble(word_at(line, (first + i) / 8), (first + i) % 8);
        *b = (uint8_t)(col % 2 == 0 ? (*b & 0xF0U) | q : (*b & 15U) | q << 4);
    }
}

/* Puts bits into a row, the lowest at bit `at`. */
static void put_bits(uint8_t *row, int64_t at, int bits, uint32_t x)
{
    uint8_t *b = row + at / 8;
    int shift = (int)(at % 8);
    uint32_t mask = ((1U << bits) - 1) << shift;
    x = x << shift & mask;
    b[0] = (uint8_t)((b[0] & ~mask) | x);
    if (shift + bits > 8) {
        b[1] = (uint8_t)((b[1] & ~(mask >> 8)) | x >> 8);
    }
}

void oz_unpack_awq_zeros(const uint8_t *line, int64_t first, int64_t count, int64_t group,
                         uint8_t *dst, int64_t stride)
{
    for (int64_t i = 0; i < count; i++) {
        put_bits(dst + i * stride, group * 4, 4,
                 awq_nibble(word_at(line, (first + i) / 8), (first + i) % 8));
    }
}

/* Widths of the planes of fields, the low one first. */
static const int *planes_of(int bits)
{
    static const int widths[9][4] = {
        [2] = {2}, [3] = {2, 1}, [4] = {4}, [5] = {4, 1}, [6] = {4, 2}, [7] = {4, 2, 1}, [8] = {8}};
    return widths[bits];
}

/* Field i of words that are there from the 32 fields on that hold it. */
static uint32_t planar_field(const uint8_t *line, int64_t i, int bits)
{
    const uint8_t *words = line + i / 32 * bits * 4;
    uint32_t x = 0;
    int low = 0;
    for (const int *width = planes_of(bits); low < bits; width++) {
        int64_t fields = 32 / *width;
        uint32_t word = word_at(words, low + i % 32 / fields);
        x |= (word >> i % fields * *width & ((1U << *width) - 1)) << low;
        low += *width;
    }
    return x;
}

static uint32_t dense_field(const uint8_t *line, int64_t i, int bits)
{
    int64_t at = i * bits;
    uint64_t x = word_at(line, at / 32);
    if (at % 32 + bits > 32) {
        x |= (uint64_t)word_at(line, at / 32 + 1) << 32;
    }
    return (uint32_t)(x >> at % 32) & ((1U << bits) - 1);
}

int64_t oz_unpack_gptq_zeros(const uint8_t *line, int64_t first, int64_t count, int bits,
                             enum oz_fields fields, int one_less, int64_t group, uint8_t *dst,
                             int64_t stride)
{
    uint32_t most = (1U << bits) - 1;
    uint32_t ones = one_less != 0 ? UINT32_MAX / most : 0; /* 1 in every field of a word */
    bool whole = 32 % bits == 0;
    int64_t zeros = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = first + i;
        uint32_t z;
        if (whole) {
            int64_t in_word = 32 / bits;
            z = word_at(line, at / in_word) + ones;
            z = z >> at % in_word * bits & most;
        } else {
            z = fields == OZ_FIELDS_PLANAR ? planar_field(line, at, bits)
                                           : dense_field(line, at, bits);
            z = (z + (one_less != 0 ? 1U : 0U)) & most;
        }
        put_bits(dst + i * stride, group * bits, bits, z);
        zeros += z == 0;
    }
    return one_less != 0 ? zeros : 0;
}

void oz_unpack_planar_column(const uint8_t *line, int64_t count, int64_t index, int bits,
                             uint8_t *dst, int64_t stride)
{
    int word = (int)(index % bits);
    int low = 0;
    const int *width = planes_of(bits);
    while (low + *width <= word) {
        low += *width++;
    }
    int64_t fields = 32 / *width;
    int64_t first = index / bits * 32 + (word - low) * fields;
    for (int64_t i = 0; i < count; i++) {
        uint32_t x = word_at(line, i);
        for (int64_t k = 0; k < fields; k++) {
            put_bits(dst + i * stride, (first + k) * bits + low, *width, x >> k * *width);
        }
    }
}
