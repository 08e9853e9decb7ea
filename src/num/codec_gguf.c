/*
 * GGUF's blocks: the types of llama.cpp and its relatives. What a block's elements are is in gguf_run.h;
 * here the blocks of a row are, and the list of types. Read only.
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

OZ_GGUF_CODEC(q4_0, 32, 18, 16)
OZ_GGUF_CODEC(q4_1, 32, 20, 16)
OZ_GGUF_CODEC(q5_0, 32, 22, 16)
OZ_GGUF_CODEC(q5_1, 32, 24, 16)
OZ_GGUF_CODEC(q8_0, 32, 34, 32)
OZ_GGUF_CODEC(q8_1, 32, 36, 32)
OZ_GGUF_CODEC(q8_k, K, 292, 32)
OZ_GGUF_CODEC(q2_k, K, 84, 16)
OZ_GGUF_CODEC(q3_k, K, 110, 16)
OZ_GGUF_CODEC(q4_k, K, 144, 32)
OZ_GGUF_CODEC(q5_k, K, 176, 32)
OZ_GGUF_CODEC(q6_k, K, 210, 16)
OZ_GGUF_CODEC(q1_0, 128, 18, 32)
OZ_GGUF_CODEC(q2_0, 64, 18, 64)
OZ_GGUF_CODEC(tq1_0, K, 54, 16)
OZ_GGUF_CODEC(tq2_0, K, 66, 32)
OZ_GGUF_CODEC(iq4_nl, 32, 18, 16)
OZ_GGUF_CODEC(iq4_xs, K, 136, 16)
OZ_GGUF_CODEC(gguf_mxfp4, 32, 17, 16)
OZ_GGUF_CODEC(gguf_nvfp4, 64, 36, 8)
OZ_GGUF_CODEC(iq2_xxs, K, 66, 8)
OZ_GGUF_CODEC(iq2_xs, K, 74, 8)
OZ_GGUF_CODEC(iq2_s, K, 82, 8)
OZ_GGUF_CODEC(iq3_xxs, K, 98, 8)
OZ_GGUF_CODEC(iq3_s, K, 110, 8)
OZ_GGUF_CODEC(iq1_s, K, 50, 8)
OZ_GGUF_CODEC(iq1_m, K, 56, 8)

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
