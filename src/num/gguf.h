/*
 * num/gguf.h: the types of GGUF: which block of how many elements is how many bytes, and the codec
 * that decodes it. Block types have one plane, OZ_PLANE_CODES, of whole blocks: scales and codes lie
 * together, a row after the other, as the file has them.
 */
#ifndef OZ_NUM_GGUF_H
#define OZ_NUM_GGUF_H

#include "num/codec.h"

struct oz_gguf_type {
    uint32_t number;              /* in the file */
    const char *name;             /* "Q4_K", as the makers write it */
    int32_t elements;             /* of a block; 1: a plain type */
    int32_t bytes;                /* of a block */
    enum oz_dtype dtype;          /* of a plain type; U8 for blocks */
    const struct oz_codec *codec; /* of blocks; NULL: a plain type */
};

#define OZ_GGUF_MOST_ELEMENTS 256 /* of a block */

/* The type of that number, or NULL. */
const struct oz_gguf_type *oz_gguf_type_find(uint32_t number);

/* The type whose blocks a codec decodes, or NULL: the codec is not one of GGUF's. */
const struct oz_gguf_type *oz_gguf_type_of(const struct oz_codec *codec);

#endif
