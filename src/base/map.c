#include "base/map.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

/* A power of two that keeps at least a quarter of the slots free; 0 when there is none. */
static size_t capacity_for(size_t max_count)
{
    size_t capacity = 16;
    while (capacity - capacity / 4 <= max_count) {
        if (capacity > SIZE_MAX / 64) {
            return 0;
        }
        capacity *= 2;
    }
    return capacity;
}

/* splitmix64's finaliser. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9U;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBU;
    return x ^ x >> 31;
}

/* Differs from run to run, so that nobody can write a file whose names all meet in one slot. */
static uint64_t seed(void)
{
    static atomic_uint_fast64_t value;
    uint64_t s = atomic_load_explicit(&value, memory_order_relaxed);
    if (s == 0) {
        uint64_t fresh = 0;
        if (getrandom(&fresh, sizeof fresh, GRND_NONBLOCK) != (ssize_t)sizeof fresh) {
            fresh = mix((uint64_t)(uintptr_t)&value) ^ (uint64_t)(1e9 * oz_clock_seconds());
        }
        uint64_t none = 0; /* several threads: the first one's counts */
        (void)atomic_compare_exchange_strong(&value, &none, fresh | 1);
        s = atomic_load(&value);
    }
    return s;
}

static uint64_t hash_text(const char *text, size_t bytes)
{
    uint64_t h = bytes ^ seed();
    while (bytes > 0) {
        uint64_t word = 0;
        size_t n = bytes < 8 ? bytes : 8;
        memcpy(&word, text, n);
        h = mix(h ^ word) + 0x9E3779B97F4A7C15U;
        text += n;
        bytes -= n;
    }
    return mix(h);
}

enum oz_status oz_string_map_init(struct oz_string_map *map, size_t max_count, struct oz_error *err)
{
    size_t capacity = capacity_for(max_count);
    *map = (struct oz_string_map){.mask = capacity - 1, .max_count = max_count};
    map->slots = capacity > 0 ? oz_alloc_zero(capacity, sizeof *map->slots) : NULL;
    return map->slots != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "a table of strings");
}

void oz_string_map_deinit(struct oz_string_map *map)
{
    oz_free(map->slots);
    *map = (struct oz_string_map){0};
}

/* The slot that holds the text, or the free one where it would go. */
static struct oz_string_slot *string_slot(const struct oz_string_map *map, const char *text,
                                          size_t bytes)
{
    size_t i = (size_t)hash_text(text, bytes) & map->mask;
    for (;; i = (i + 1) & map->mask) {
        struct oz_string_slot *s = &map->slots[i];
        if (s->text == NULL || (s->bytes == bytes && memcmp(s->text, text, bytes) == 0)) {
            return s;
        }
    }
}

bool oz_string_map_put(struct oz_string_map *map, const char *text, size_t bytes, int32_t value)
{
    struct oz_string_slot *s = string_slot(map, text, bytes);
    if (s->text != NULL) {
        return false;
    }
    assert(bytes < UINT32_MAX && map->count < map->max_count);
    if (map->count >= map->max_count) {
        return false;
    }
    *s = (struct oz_string_slot){.text = text, .bytes = (uint32_t)bytes, .value = value};
    map->count++;
    return true;
}

int32_t oz_string_map_get(const struct oz_string_map *map, const char *text, size_t bytes,
                          int32_t fallback)
{
    if (map->slots == NULL) {
        return fallback;
    }
    const struct oz_string_slot *s = string_slot(map, text, bytes);
    return s->text != NULL ? s->value : fallback;
}

enum oz_status oz_pair_map_init(struct oz_pair_map *map, size_t max_count, struct oz_error *err)
{
    size_t capacity = capacity_for(max_count);
    *map = (struct oz_pair_map){.mask = capacity - 1, .max_count = max_count};
    map->slots = capacity > 0 ? oz_alloc(capacity * sizeof *map->slots) : NULL;
    if (map->slots == NULL) {
        return OZ_FAIL_NOMEM(err, "a table of pairs");
    }
    for (size_t i = 0; i < capacity; i++) {
        map->slots[i].key = UINT64_MAX;
    }
    return OZ_OK;
}

void oz_pair_map_deinit(struct oz_pair_map *map)
{
    oz_free(map->slots);
    *map = (struct oz_pair_map){0};
}

static struct oz_pair_slot *pair_slot(const struct oz_pair_map *map, uint32_t a, uint32_t b)
{
    uint64_t key = (uint64_t)a << 32 | b;
    size_t i = (size_t)mix(key) & map->mask;
    while (map->slots[i].key != key && map->slots[i].key != UINT64_MAX) {
        i = (i + 1) & map->mask;
    }
    return &map->slots[i];
}

void oz_pair_map_put(struct oz_pair_map *map, uint32_t a, uint32_t b, uint32_t first,
                     uint32_t second)
{
    struct oz_pair_slot *s = pair_slot(map, a, b);
    assert(a < UINT32_MAX);
    if (s->key == UINT64_MAX) {
        assert(map->count < map->max_count);
        if (map->count >= map->max_count) {
            return;
        }
        map->count++;
        s->key = (uint64_t)a << 32 | b;
    }
    s->first = first;
    s->second = second;
}

const struct oz_pair_slot *oz_pair_map_get(const struct oz_pair_map *map, uint32_t a, uint32_t b)
{
    if (map->slots == NULL) {
        return NULL;
    }
    const struct oz_pair_slot *s = pair_slot(map, a, b);
    return s->key != UINT64_MAX ? s : NULL;
}
