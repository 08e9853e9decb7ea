#include "text/added.h"

#include <string.h>

#include "base/error.h"
#include "base/unicode.h"

#define LSTRIP 1U
#define RSTRIP 2U

/* Unicode's White_Space. */
static bool is_white_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

enum oz_status oz_added_init(struct oz_added *a, const struct oz_added_token *tokens, size_t count,
                             struct oz_error *err)
{
    size_t bytes = 0;
    *a = (struct oz_added){.nodes = 1};
    for (size_t i = 0; i < count; i++) {
        bytes += strlen(tokens[i].content);
    }
    OZ_TRY(oz_pair_map_init(&a->edges, bytes, err));
    OZ_TRY(oz_pair_map_init(&a->terminals, count, err));
    for (size_t i = 0; i < count; i++) {
        const struct oz_added_token *t = &tokens[i];
        uint32_t node = 0;
        a->first[(unsigned char)t->content[0]] = true;
        for (const char *p = t->content; *p != '\0'; p++) {
            const struct oz_pair_slot *edge = oz_pair_map_get(&a->edges, node, (unsigned char)*p);
            uint32_t next = edge != NULL ? edge->first : a->nodes++;
            if (edge == NULL) {
                oz_pair_map_put(&a->edges, node, (unsigned char)*p, next, 0);
            }
            node = next;
        }
        oz_pair_map_put(&a->terminals, node, 0, (uint32_t)t->id,
                        (t->lstrip ? LSTRIP : 0) | (t->rstrip ? RSTRIP : 0));
    }
    return OZ_OK;
}

void oz_added_deinit(struct oz_added *a)
{
    oz_pair_map_deinit(&a->edges);
    oz_pair_map_deinit(&a->terminals);
    *a = (struct oz_added){0};
}

/* The longest token that begins at `at`; NULL: none. */
static const struct oz_pair_slot *longest_at(const struct oz_added *a, const char *text, size_t at,
                                             size_t bytes, size_t *end)
{
    const struct oz_pair_slot *best = NULL;
    uint32_t node = 0;
    while (at < bytes) {
        const struct oz_pair_slot *edge = oz_pair_map_get(&a->edges, node, (unsigned char)text[at]);
        if (edge == NULL) {
            break;
        }
        node = edge->first;
        at++;
        const struct oz_pair_slot *terminal = oz_pair_map_get(&a->terminals, node, 0);
        if (terminal != NULL) {
            best = terminal;
            *end = at;
        }
    }
    return best;
}

bool oz_added_find(const struct oz_added *a, const char *text, size_t from, size_t bytes,
                   struct oz_added_match *match)
{
    const struct oz_pair_slot *t = NULL;
    size_t begin = from;
    size_t end = from;
    while (begin < bytes && t == NULL) {
        if (a->first[(unsigned char)text[begin]]) {
            t = longest_at(a, text, begin, bytes, &end);
        }
        begin += t == NULL;
    }
    if (t == NULL) {
        return false;
    }
    while ((t->second & LSTRIP) != 0 && begin > from) {
        size_t before = begin - 1;
        size_t used;
        while (before > from && ((unsigned char)text[before] & 0xC0) == 0x80) {
            before--;
        }
        if (!is_white_space(oz_utf8_decode(text + before, begin - before, &used))) {
            break;
        }
        begin = before;
    }
    while ((t->second & RSTRIP) != 0 && end < bytes) {
        size_t used;
        if (!is_white_space(oz_utf8_decode(text + end, bytes - end, &used))) {
            break;
        }
        end += used;
    }
    *match = (struct oz_added_match){.begin = begin, .end = end, .id = (int32_t)t->first};
    return true;
}
