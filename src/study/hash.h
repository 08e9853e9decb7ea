/* study/hash.h: FNV-1a of 64 bits: tells equal bytes from others, against accidents, not against
 * malice. */
#ifndef OZ_STUDY_HASH_H
#define OZ_STUDY_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define OZ_HASH_START UINT64_C(0xcbf29ce484222325)

/* Goes on from `hash`. */
static inline uint64_t oz_hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* A text with its end; NULL is another thing than "". */
static inline uint64_t oz_hash_text(uint64_t hash, const char *text)
{
    return text != NULL ? oz_hash_bytes(hash, text, strlen(text) + 1)
                        : oz_hash_bytes(hash, "\1", 1);
}

static inline uint64_t oz_hash_integer(uint64_t hash, int64_t value)
{
    return oz_hash_bytes(hash, &value, sizeof value);
}

#endif
