#include "num/noise.h"

#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "num/float.h"
#include "num/randn.h"

#define HALF (OZ_NOISE_NUMBERS / 2)

uint64_t oz_noise_state(uint64_t seed, const char *name)
{
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (; *name != '\0'; name++) {
        h = (h ^ (uint8_t)*name) * UINT64_C(0x100000001B3);
    }
    return oz_noise_mix(seed + OZ_NOISE_STRIDE) ^ h;
}

static float *draw_numbers(void)
{
    float *numbers = oz_alloc(OZ_NOISE_NUMBERS * sizeof *numbers);
    if (numbers != NULL) {
        oz_randn(1, HALF, numbers);
    }
    for (int32_t i = 0; i < HALF && numbers != NULL; i++) {
        numbers[HALF + i] = -numbers[i];
    }
    return numbers;
}

static bool grow(struct oz_noise *n)
{
    if (n->count < n->capacity) {
        return true;
    }
    int32_t more = 2 * n->capacity + 16;
    void *tables = oz_realloc(n->tables, (size_t)more * sizeof *n->tables);
    if (tables == NULL) {
        return false;
    }
    n->tables = tables;
    n->capacity = more;
    return true;
}

const uint16_t *oz_noise_table(struct oz_noise *n, struct oz_filling filling)
{
    for (int32_t i = 0; i < n->count; i++) {
        const struct oz_noise_table *t = &n->tables[i];
        if (t->filling.constant == filling.constant && t->filling.scale == filling.scale) {
            return t->values;
        }
    }
    if (n->numbers == NULL) {
        n->numbers = draw_numbers();
    }
    uint16_t *values =
        n->numbers != NULL && grow(n) ? oz_alloc(OZ_NOISE_NUMBERS * sizeof *values) : NULL;
    if (values == NULL) {
        return NULL;
    }
    for (int32_t i = 0; i < OZ_NOISE_NUMBERS; i++) {
        values[i] = oz_f32_to_bf16(filling.constant + filling.scale * n->numbers[i]);
    }
    n->tables[n->count++] = (struct oz_noise_table){filling, values};
    return values;
}

void oz_noise_trim(struct oz_noise *n)
{
    oz_free(n->numbers);
    n->numbers = NULL;
}

void oz_noise_deinit(struct oz_noise *n)
{
    for (int32_t i = 0; i < n->count; i++) {
        oz_free(n->tables[i].values);
    }
    oz_free(n->tables);
    oz_free(n->numbers);
    *n = (struct oz_noise){0};
}

/* Words [word, word + words): four elements each. */
static void fill_words(const uint16_t *table, uint64_t state, uint64_t word, uint64_t words,
                       uint8_t *out)
{
    for (uint64_t i = 0; i < words; i++) {
        uint64_t four = oz_noise_four(table, state, word + i);
        memcpy(out + 8 * i, &four, sizeof four);
    }
}

void oz_noise_fill(const uint16_t *table, uint64_t state, int64_t first, int64_t count, void *out)
{
    uint8_t *to = out;
    uint64_t at = (uint64_t)first;
    uint64_t end = at + (uint64_t)count;
    while (at < end) {
        uint64_t skip = at % 4;
        uint64_t words = skip == 0 ? (end - at) / 4 : 0;
        if (words > 0) {
            fill_words(table, state, at / 4, words, to);
            to += 8 * words;
            at += 4 * words;
            continue;
        }
        uint8_t four[8];
        uint64_t n = end - at < 4 - skip ? end - at : 4 - skip;
        fill_words(table, state, at / 4, 1, four);
        memcpy(to, four + 2 * skip, 2 * n);
        to += 2 * n;
        at += n;
    }
}
