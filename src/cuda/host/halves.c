/*
 * Biases in bf16, as cuBLASLt wants them behind FP8: rounded once, and kept for as long as nobody writes to
 * where they came from. All that is written to parameters comes through the device's own transfers, and
 * memory that begins another life through its alloc: both tell here. Where there is no room left, they are
 * rounded each time.
 */
#include <stdint.h>

#include "cuda/host/cuda.h"

/* A place in the table for what lies at `from`; full tables give none. */
static struct oz_cuda_half *place_of(struct oz_cuda_halves *h, const void *from, int64_t count)
{
    uint32_t at = (uint32_t)((uintptr_t)from >> 4) * UINT32_C(2654435761);
    for (int32_t i = 0; i < OZ_CUDA_MOST_HALVES; i++) {
        struct oz_cuda_half *e = &h->list[(at + (uint32_t)i) % OZ_CUDA_MOST_HALVES];
        if (e->from == NULL || (e->from == from && e->count == count)) {
            return e;
        }
    }
    return NULL;
}

static enum oz_status halve(const struct oz_op_ctx *ctx, const struct oz_param *b, void *to)
{
    const struct oz_act row = {.data = b->weight.planes[OZ_PLANE_CODES].data,
                               .rows = 1,
                               .cols = b->weight.cols,
                               .stride = b->weight.cols,
                               .spec = {.dtype = OZ_DTYPE_F32}};
    return oz_cuda_check(ctx->dev, "linear",
                         oz_launch_convert(oz_cuda_stream_of(ctx->dev, ctx->queue), &row,
                                           OZ_DTYPE_BF16, to, row.cols));
}

enum oz_status oz_cuda_half_of(const struct oz_op_ctx *ctx, const struct oz_param *b, void *own,
                               const void **half)
{
    struct oz_cuda_halves *h = &oz_cuda_of(ctx->dev)->halves;
    const void *from = b->weight.planes[OZ_PLANE_CODES].data;
    const int64_t count = b->weight.cols;
    const size_t bytes = (size_t)oz_cuda_round(2 * count, 256);
    enum oz_status status = OZ_OK;
    pthread_mutex_lock(&h->lock);
    struct oz_cuda_half *e = place_of(h, from, count);
    if (e != NULL && e->from == NULL && h->room != NULL &&
        h->used + bytes <= OZ_CUDA_HALVES_BYTES) {
        *e = (struct oz_cuda_half){.from = from, .count = count, .to = h->room + h->used};
        h->used += bytes;
    }
    const bool kept = e != NULL && e->from != NULL;
    *half = kept ? e->to : own;
    if (!kept || !e->valid) {
        status = halve(ctx, b, kept ? e->to : own);
    }
    if (kept) {
        e->valid = status == OZ_OK;
    }
    pthread_mutex_unlock(&h->lock);
    return status;
}

void oz_cuda_halves_forget(struct oz_cuda *c, const void *memory, size_t bytes)
{
    struct oz_cuda_halves *h = &c->halves;
    const uintptr_t begin = (uintptr_t)memory;
    pthread_mutex_lock(&h->lock);
    for (int32_t i = 0; i < OZ_CUDA_MOST_HALVES && h->used > 0; i++) {
        struct oz_cuda_half *e = &h->list[i];
        uintptr_t from = (uintptr_t)e->from;
        if (e->valid && from < begin + bytes &&
            begin < from + (uintptr_t)e->count * sizeof(float)) {
            e->valid = false;
        }
    }
    pthread_mutex_unlock(&h->lock);
}
