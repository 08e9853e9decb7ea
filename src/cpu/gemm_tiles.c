/* Large products of cpu/gemm.h over tiles: what cpu/tiles.h asks for, from rows and packed weights. */
#include <string.h>

#include "cpu/gemm.h"
#include "cpu/tiles.h"

bool oz_gemm_tiled(const struct oz_gemm *p)
{
    return p->kernel->tiles != NULL && p->row_scales == NULL &&
           oz_tiles_pay(p->kernel->tiles, p->m, p->n, p->k);
}

static void bring(const void *ctx, int64_t row0, int64_t rows, int64_t k0, int64_t count,
                  uint8_t *dst, int64_t stride, float *scales, int64_t scale_ld, void *room)
{
    const struct oz_gemm *p = ctx;
    size_t size = oz_gemm_element_bytes(p->kernel->a_dtype);
    int64_t n = p->k - k0 < count ? p->k - k0 : count;
    float *values = room;
    (void)scales;
    (void)scale_ld;
    if (p->fetch != NULL) {
        p->fetch(p->fetch_ctx, row0, rows, k0, n, values, count);
    }
    for (int64_t r = 0; r < rows; r++) {
        uint8_t *to = dst + r * stride;
        if (p->fetch != NULL) {
            p->kernel->convert(values + r * count, n, to);
        } else {
            memcpy(to, (const uint8_t *)p->a + (size_t)((row0 + r) * p->lda + k0) * size,
                   (size_t)n * size);
        }
        memset(to + (size_t)n * size, 0, (size_t)(count - n) * size);
    }
}

static const uint8_t *stored(const void *ctx, int32_t weight, int64_t panel, int64_t k0)
{
    const struct oz_gemm *p = ctx;
    return (const uint8_t *)(weight == 0 ? p->packed : p->packed_up) +
           (size_t)panel * oz_gemm_panel_bytes(p->kernel, p->stored, p->k) +
           (size_t)(k0 * p->kernel->nr) * oz_gemm_element_bytes(p->stored);
}

static const uint8_t *panel_block(const void *ctx, int32_t weight, int64_t panel, int64_t k0,
                                  int64_t count, bool streams, uint8_t *room, float *scales)
{
    (void)streams;
    (void)count;
    (void)room;
    (void)scales;
    return stored(ctx, weight, panel, k0);
}

static void finish(const void *ctx, int64_t row0, int64_t rows, int64_t panel, float *y, float *up)
{
    const struct oz_gemm *p = ctx;
    int64_t col0 = panel * OZ_TILE_STRIP;
    int64_t cols = p->n - col0 < OZ_TILE_STRIP ? p->n - col0 : OZ_TILE_STRIP;
    p->kernel->store(p->epilogue, row0, rows, col0, cols, y, up, OZ_TILE_STRIP);
}

static struct oz_tiles tiles_of(const struct oz_gemm *p)
{
    const struct oz_tile_kernel *k = p->kernel->tiles;
    int64_t block = (int64_t)k->tuning.steps * k->k_step;
    return (struct oz_tiles){
        .kernel = k,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .weights = p->packed_up != NULL ? 2 : 1,
        .k_bytes = (int32_t)(p->kernel->nr * (int64_t)oz_gemm_element_bytes(p->stored)),
        .room_bytes = p->fetch != NULL ? (size_t)(OZ_TILE_SIDE * block) * sizeof(float) : 0,
        .ctx = p,
        .bring = bring,
        .panel = panel_block,
        .stored = stored,
        .finish = finish};
}

size_t oz_gemm_tiles_scratch(const struct oz_device *dev, const struct oz_gemm *p)
{
    struct oz_tiles t = tiles_of(p);
    return oz_tiles_scratch(dev, &t);
}

void oz_gemm_tiles_run(const struct oz_op_ctx *ctx, const struct oz_gemm *p)
{
    struct oz_tiles t = tiles_of(p);
    oz_tiles_run(ctx, &t);
}
