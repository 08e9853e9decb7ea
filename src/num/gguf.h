/*
 * num/gguf.h: the types of GGUF: which block of how many elements is how many bytes, and the codec
 * that decodes it. Block types have one plane, OZ_PLANE_CODES, of whole blocks: scales and codes lie
 * together, a row after the other, as the file has them.
 */
#ifndef OZ_NUM_GGUF_H
#define OZ_NUM_GGUF_H

#include "num/codec.h"

/* Factors that are no f16 in a place of their own. */
enum oz_gguf_factor {
    OZ_GGUF_NONE = -1,
    OZ_GGUF_F32 = -2,   /* an f32 in front */
    OZ_GGUF_WORDS = -3, /* an f16 in the top bits of the four words that end the block */
    OZ_GGUF_E8M0 = -4,  /* an exponent in front */
};

struct oz_gguf_type {
    uint32_t number;              /* in the file */
    const char *name;             /* "Q4_K", as the makers write it */
    int32_t elements;             /* of a block; 1: a plain type */
    int32_t bytes;                /* of a block */
    enum oz_dtype dtype;          /* of a plain type; U8 for blocks */
    const struct oz_codec *codec; /* of blocks; NULL: a plain type */
    int16_t factors[2]; /* where a block has an f16 that multiplies it, or enum oz_gguf_factor */
};

/*
 * The first of `count` blocks whose factors make values that are no numbers: NaN, infinite, or so large that
 * the largest code would be. -1: none; other scales of blocks are integers. Far cheaper than decoding.
 */
int64_t oz_gguf_find_bad(const struct oz_gguf_type *type, const uint8_t *blocks, int64_t count);

#define OZ_GGUF_MOST_ELEMENTS 256 /* of a block */

/* The type of that number, or NULL. */
const struct oz_gguf_type *oz_gguf_type_find(uint32_t number);

/* The type whose blocks a codec decodes, or NULL: the codec is not one of GGUF's. */
const struct oz_gguf_type *oz_gguf_type_of(const struct oz_codec *codec);

#endif
