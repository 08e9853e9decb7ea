/*
 * base/map.h: two hash maps of a size fixed at the start (open addressing): strings to numbers, and
 * pairs of numbers to a pair of numbers. Nothing is ever removed. Zeroed storage is an empty map
 * that may be deinitialised.
 */
#ifndef OZ_BASE_MAP_H
#define OZ_BASE_MAP_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct oz_string_slot {
    const char *text; /* NULL: free */
    uint32_t bytes;
    int32_t value;
};

struct oz_string_map {
    struct oz_string_slot *slots;
    size_t mask, count, max_count;
};

/* Room for max_count strings of less than 4 GiB. OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_string_map_init(struct oz_string_map *map, size_t max_count,
                                              struct oz_error *err);
void oz_string_map_deinit(struct oz_string_map *map);
/* Adds a string, which must outlive the map. False, and nothing changed, when it is there already.
 * More than max_count strings are our own bug (asserted, then ignored). */
bool oz_string_map_put(struct oz_string_map *map, const char *text, size_t bytes, int32_t value);
/* The value of a string, or `fallback`. */
int32_t oz_string_map_get(const struct oz_string_map *map, const char *text, size_t bytes,
                          int32_t fallback);

struct oz_pair_slot {
    uint64_t key; /* a in the high half, b in the low one; UINT64_MAX: free */
    uint32_t first, second;
};

struct oz_pair_map {
    struct oz_pair_slot *slots;
    size_t mask, count, max_count;
};

/* Room for max_count pairs. OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_pair_map_init(struct oz_pair_map *map, size_t max_count,
                                            struct oz_error *err);
void oz_pair_map_deinit(struct oz_pair_map *map);
/* Sets the values of (a, b); the last call counts. a < UINT32_MAX. As for max_count: see above. */
void oz_pair_map_put(struct oz_pair_map *map, uint32_t a, uint32_t b, uint32_t first,
                     uint32_t second);
/* The slot of (a, b), or NULL; valid until the next put. */
const struct oz_pair_slot *oz_pair_map_get(const struct oz_pair_map *map, uint32_t a, uint32_t b);

#endif
