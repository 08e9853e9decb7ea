#include "num/unpack.h"

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

void oz_unpack_awq_zeros(const uint8_t *line, int64_t first, int64_t count, uint8_t *dst,
                         int64_t stride)
{
    for (int64_t i = 0; i < count; i++) {
        dst[i * stride] = (uint8_t)awq_nibble(word_at(line, (first + i) / 8), (first + i) % 8);
    }
}

int64_t oz_unpack_gptq_zeros(const uint8_t *line, int64_t first, int64_t count, int bits,
                             int one_less, uint8_t *dst, int64_t stride)
{
    uint32_t most = (1U << bits) - 1;
    uint32_t ones = one_less != 0 ? UINT32_MAX / most : 0; /* 1 in every field */
    int64_t fields = 32 / bits;
    int64_t zeros = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t word = word_at(line, (first + i) / fields) + ones;
        uint8_t z = (uint8_t)(word >> (first + i) % fields * bits & most);
        dst[i * stride] = z;
        zeros += z == 0;
    }
    return one_less != 0 ? zeros : 0;
}
