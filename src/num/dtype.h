/*
 * num/dtype.h: element types as containers name them. A dtype says how bits are read; what blocks
 * and scales make of them is a codec's business (num/codec.h).
 */
#ifndef OZ_NUM_DTYPE_H
#define OZ_NUM_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

/* enum value, name in safetensors headers, bits an element. */
#define OZ_DTYPE_MAP(X)                       \
    X(OZ_DTYPE_BOOL, "BOOL", 8)               \
    X(OZ_DTYPE_U8, "U8", 8)                   \
    X(OZ_DTYPE_I8, "I8", 8)                   \
    X(OZ_DTYPE_I16, "I16", 16)                \
    X(OZ_DTYPE_U16, "U16", 16)                \
    X(OZ_DTYPE_I32, "I32", 32)                \
    X(OZ_DTYPE_U32, "U32", 32)                \
    X(OZ_DTYPE_I64, "I64", 64)                \
    X(OZ_DTYPE_U64, "U64", 64)                \
    X(OZ_DTYPE_F16, "F16", 16)                \
    X(OZ_DTYPE_BF16, "BF16", 16)              \
    X(OZ_DTYPE_F32, "F32", 32)                \
    X(OZ_DTYPE_F64, "F64", 64)                \
    X(OZ_DTYPE_C64, "C64", 64)                \
    X(OZ_DTYPE_F8_E4M3, "F8_E4M3", 8)         \
    X(OZ_DTYPE_F8_E5M2, "F8_E5M2", 8)         \
    X(OZ_DTYPE_F8_E8M0, "F8_E8M0", 8)         \
    X(OZ_DTYPE_F8_E4M3FNUZ, "F8_E4M3FNUZ", 8) \
    X(OZ_DTYPE_F8_E5M2FNUZ, "F8_E5M2FNUZ", 8) \
    X(OZ_DTYPE_F6_E2M3, "F6_E2M3", 6)         \
    X(OZ_DTYPE_F6_E3M2, "F6_E3M2", 6)         \
    X(OZ_DTYPE_F4, "F4", 4)

enum oz_dtype {
#define OZ_DTYPE_ENUM(id, name, bits) id,
    OZ_DTYPE_MAP(OZ_DTYPE_ENUM)
#undef OZ_DTYPE_ENUM
        OZ_DTYPE_COUNT
};

/* Bits an element; 0 for a value outside the enum. */
int32_t oz_dtype_bits(enum oz_dtype dtype);

/* Name as in a safetensors header ("BF16"); "?" for a value outside the enum. */
const char *oz_dtype_name(enum oz_dtype dtype);

/* Finds a dtype by its safetensors name (exact case). Returns false when there is none. */
bool oz_dtype_find(const char *name, enum oz_dtype *dtype);

/*
 * Bytes of `count` elements, packed without gaps. Returns false when the product overflows, when
 * count is negative, or when the bits do not fill whole bytes (odd counts of 4-bit elements).
 */
bool oz_dtype_bytes(enum oz_dtype dtype, int64_t count, int64_t *bytes);

#endif
