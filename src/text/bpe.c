#include "text/bpe.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

#define NONE UINT32_MAX

/* A piece is a doubly linked list of symbols; a merge puts the result in the left one and takes the
 * right one out. */
struct oz_bpe_symbol {
    int32_t id; /* -1: taken out */
    uint32_t previous, next;
};

/* A merge that was possible when it was pushed; stale ones are recognised when they come up. */
struct oz_bpe_candidate {
    uint32_t rank, at, result;
};

enum oz_status oz_bpe_init(struct oz_bpe *bpe, size_t merges, struct oz_error *err)
{
    *bpe = (struct oz_bpe){0};
    return oz_pair_map_init(&bpe->merges, merges, err);
}

void oz_bpe_deinit(struct oz_bpe *bpe)
{
    oz_pair_map_deinit(&bpe->merges);
    *bpe = (struct oz_bpe){0};
}

enum oz_status oz_bpe_add(struct oz_bpe *bpe, const struct oz_vocab *v, const char *left,
                          size_t left_bytes, const char *right, size_t right_bytes,
                          const char *file, struct oz_error *err)
{
    /* The written result, and behind it room to decode it. */
    char small[256];
    size_t bytes = left_bytes + right_bytes;
    char *text = 2 * bytes <= sizeof small ? small : oz_alloc(2 * bytes);
    if (text == NULL) {
        return OZ_FAIL_NOMEM(err, "a merge");
    }
    memcpy(text, left, left_bytes);
    memcpy(text + left_bytes, right, right_bytes);
    int32_t a = oz_vocab_find_written(v, left, left_bytes, text + bytes);
    int32_t b = oz_vocab_find_written(v, right, right_bytes, text + bytes);
    int32_t result = oz_vocab_find_written(v, text, bytes, text + bytes);
    if (text != small) {
        oz_free(text);
    }
    uint32_t rank = bpe->rank_count++;
    if (a < 0 || b < 0 || result < 0) {
        const char *what = a < 0 ? "left half" : b < 0 ? "right half" : "result";
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: merge %u, \"%.*s\" + \"%.*s\": its %s is not in the vocabulary.", file,
                       rank + 1, (int)left_bytes, left, (int)right_bytes, right, what);
    }
    oz_pair_map_put(&bpe->merges, (uint32_t)a, (uint32_t)b, rank, (uint32_t)result);
    return OZ_OK;
}

void oz_bpe_scratch_deinit(struct oz_bpe_scratch *s)
{
    oz_free(s->symbols);
    oz_free(s->heap);
    *s = (struct oz_bpe_scratch){0};
}

/* Makes room for `need` elements of a scratch array. False: no memory. */
static bool reserve(void **data, size_t *capacity, size_t need, size_t elem_bytes)
{
    if (need <= *capacity) {
        return true;
    }
    size_t n = *capacity + *capacity / 2 + 64;
    n = n < need ? need : n;
    void *grown = oz_realloc(*data, n * elem_bytes);
    if (grown == NULL) {
        return false;
    }
    *data = grown;
    *capacity = n;
    return true;
}

/* Lower rank first; at equal rank the leftmost. */
static bool before(const struct oz_bpe_candidate *a, const struct oz_bpe_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static bool push(struct oz_bpe_scratch *s, struct oz_bpe_candidate c)
{
    void *heap = s->heap;
    bool room = reserve(&heap, &s->heap_capacity, s->heap_count + 1, sizeof c);
    s->heap = heap;
    if (!room) {
        return false;
    }
    size_t i = s->heap_count++;
    while (i > 0 && before(&c, &s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = c;
    return true;
}

static struct oz_bpe_candidate pop(struct oz_bpe_scratch *s)
{
    struct oz_bpe_candidate top = s->heap[0];
    struct oz_bpe_candidate last = s->heap[--s->heap_count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < s->heap_count; i = child) {
        if (child + 1 < s->heap_count && before(&s->heap[child + 1], &s->heap[child])) {
            child++;
        }
        if (!before(&s->heap[child], &last)) {
            break;
        }
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    return top;
}

/* The merge of symbol `at` with the one behind it, or NULL. */
static const struct oz_pair_slot *merge_at(const struct oz_bpe *bpe,
                                           const struct oz_bpe_symbol *symbols, uint32_t at)
{
    if (symbols[at].id < 0 || symbols[at].next == NONE) {
        return NULL;
    }
    return oz_pair_map_get(&bpe->merges, (uint32_t)symbols[at].id,
                           (uint32_t)symbols[symbols[at].next].id);
}

/* Pushes that merge, if there is one. False: no memory. */
static bool consider(const struct oz_bpe *bpe, struct oz_bpe_scratch *s, uint32_t at)
{
    const struct oz_pair_slot *m = merge_at(bpe, s->symbols, at);
    return m == NULL ||
           push(s, (struct oz_bpe_candidate){.rank = m->first, .at = at, .result = m->second});
}

/* The bytes of a piece as symbols. */
static enum oz_status split_bytes(const struct oz_vocab *v, const char *piece, size_t bytes,
                                  struct oz_bpe_scratch *s, struct oz_error *err)
{
    void *symbols = s->symbols;
    bool room = reserve(&symbols, &s->symbol_capacity, bytes, sizeof *s->symbols);
    s->symbols = symbols;
    if (!room) {
        return OZ_FAIL_NOMEM(err, "a text");
    }
    for (size_t i = 0; i < bytes; i++) {
        int32_t id = v->byte_id[(unsigned char)piece[i]];
        if (id < 0) {
            return OZ_FAIL(err, OZ_ERR_ARG, "The vocabulary has no token for the byte 0x%02X.",
                           (unsigned char)piece[i]);
        }
        s->symbols[i] = (struct oz_bpe_symbol){.id = id,
                                               .previous = (uint32_t)i - 1, /* NONE for the first */
                                               .next = i + 1 < bytes ? (uint32_t)i + 1 : NONE};
    }
    return OZ_OK;
}

/* Does all merges of the symbols. False: no memory. */
static bool merge_all(const struct oz_bpe *bpe, size_t bytes, struct oz_bpe_scratch *s)
{
    struct oz_bpe_symbol *symbols = s->symbols;
    s->heap_count = 0;
    for (uint32_t i = 0; i + 1 < bytes; i++) {
        if (!consider(bpe, s, i)) {
            return false;
        }
    }
    while (s->heap_count > 0) {
        struct oz_bpe_candidate c = pop(s);
        const struct oz_pair_slot *m = merge_at(bpe, symbols, c.at);
        if (m == NULL || m->second != c.result) {
            continue; /* one of its halves has changed since */
        }
        struct oz_bpe_symbol *left = &symbols[c.at];
        struct oz_bpe_symbol *right = &symbols[left->next];
        left->id = (int32_t)c.result;
        left->next = right->next;
        right->id = -1;
        if (left->next != NONE) {
            symbols[left->next].previous = c.at;
        }
        if ((left->previous != NONE && !consider(bpe, s, left->previous)) ||
            !consider(bpe, s, c.at)) {
            return false;
        }
    }
    return true;
}

enum oz_status oz_bpe_encode(const struct oz_bpe *bpe, const struct oz_vocab *v, const char *piece,
                             size_t bytes, struct oz_bpe_scratch *s, struct oz_token_list *out,
                             struct oz_error *err)
{
    if (bytes == 0) {
        return OZ_OK;
    }
    if (bpe->ignore_merges || bytes == 1) {
        int32_t id = oz_string_map_get(&v->by_bytes, piece, bytes, -1);
        if (id >= 0) {
            return oz_token_list_push(out, id, err);
        }
    }
    OZ_TRY(split_bytes(v, piece, bytes, s, err));
    if (!merge_all(bpe, bytes, s)) {
        return OZ_FAIL_NOMEM(err, "a text");
    }
    for (uint32_t i = 0; i != NONE; i = s->symbols[i].next) {
        OZ_TRY(oz_token_list_push(out, s->symbols[i].id, err));
    }
    return OZ_OK;
}
