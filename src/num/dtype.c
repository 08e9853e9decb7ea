#include "num/dtype.h"

#include <string.h>

#define ROW(id, name, bits) {name, bits},
static const struct {
    const char *name;
    int32_t bits;
} rows[] = {OZ_DTYPE_MAP(ROW)};

int32_t oz_dtype_bits(enum oz_dtype dtype)
{
    return (unsigned)dtype < OZ_DTYPE_COUNT ? rows[dtype].bits : 0;
}

const char *oz_dtype_name(enum oz_dtype dtype)
{
    return (unsigned)dtype < OZ_DTYPE_COUNT ? rows[dtype].name : "?";
}

bool oz_dtype_find(const char *name, enum oz_dtype *dtype)
{
    for (int i = 0; i < OZ_DTYPE_COUNT; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            *dtype = (enum oz_dtype)i;
            return true;
        }
    }
    return false;
}

bool oz_dtype_bytes(enum oz_dtype dtype, int64_t count, int64_t *bytes)
{
    int64_t bits;
    if (count < 0 || __builtin_mul_overflow(count, (int64_t)oz_dtype_bits(dtype), &bits) ||
        bits % 8 != 0) {
        return false;
    }
    *bytes = bits / 8;
    return true;
}
