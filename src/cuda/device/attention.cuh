/* cuda/device/attention.cuh: where queries and keys of a sequence lie. */
#ifndef OZ_CUDA_DEVICE_ATTENTION_CUH
#define OZ_CUDA_DEVICE_ATTENTION_CUH

#include "cuda/device/rows.cuh"

/* One sequence as a block of queries sees it. */
struct oz_sequence_view {
    int64_t queries, query_row; /* rows of q and out */
    int64_t first_position;     /* of query 0 */
    int64_t keys, first_keys;   /* in all; in the first segment that offers any */
    int32_t offering[2];        /* segments that offer keys, in order */
    int64_t key_row[2];
    const int32_t *table; /* of pages */
};

static __device__ inline struct oz_sequence_view oz_view_sequence(const struct oz_cuda_attention &a,
                                                                  int32_t sequence)
{
    struct oz_sequence_view v = {};
    int offering = 0;
    int64_t position = 0;
    for (int i = 0; i < a.segment_count; i++) {
        int64_t row = a.segments[i].offsets[sequence];
        int64_t rows = a.segments[i].offsets[sequence + 1] - row;
        bool offers = a.segments[i].k.data != NULL && a.paged_k.data == NULL;
        if (i == a.asking) {
            v.queries = rows;
            v.query_row = row;
            v.first_position = offers ? position : 0;
        }
        if (offers) {
            v.offering[offering] = i;
            v.key_row[offering] = row;
            v.first_keys = offering == 0 ? rows : v.first_keys;
            offering++;
            position += rows;
        }
    }
    v.keys = position;
    if (a.paged_k.data != NULL) {
        v.keys = a.lengths[sequence];
        v.table = a.tables + sequence * a.table_stride;
        v.first_position = v.keys - v.queries;
    }
    return v;
}

/* The rows that key `i` of the sequence is in, and which of them. */
static __device__ inline const struct oz_act &oz_key_rows(const struct oz_cuda_attention &a,
                                                          const struct oz_sequence_view &v,
                                                          bool values, int64_t i, int64_t *row)
{
    if (v.table != NULL) {
        *row = (int64_t)v.table[i / a.page_rows] * a.page_rows + i % a.page_rows;
        return values ? a.paged_v : a.paged_k;
    }
    int which = i < v.first_keys ? 0 : 1;
    *row = v.key_row[which] + (which == 0 ? i : i - v.first_keys);
    int segment = which == 0 ? v.offering[0] : v.offering[1];
    return values ? a.segments[segment].v : a.segments[segment].k;
}

/* Keys [*begin, *end) that a query at a position may see. */
static __device__ inline void oz_visible(const struct oz_cuda_attention &a, int64_t keys,
                                         int64_t position, int64_t *begin, int64_t *end)
{
    *begin = 0;
    *end = keys;
    if (a.mask != OZ_MASK_NONE) {
        *end = position + 1 < keys ? position + 1 : keys;
    }
    if (a.mask == OZ_MASK_WINDOW) {
        int64_t first = position + 1 - a.window;
        first = first > 0 ? first : 0;
        *begin = first < *end ? first : *end;
    }
}

/* The additive bias of a score. */
static __device__ inline float oz_score_bias(const struct oz_cuda_attention &a, int64_t head,
                                             int64_t key, int64_t position)
{
    int64_t reach = (a.bias.cols + 1) / 2;
    return a.bias.data == NULL ? 0.0F : oz_get(a.bias, head, key - position + reach - 1);
}

#endif
