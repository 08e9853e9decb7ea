/* Packing of weights into panels (layout: cpu/gemm.h). */
#include <assert.h>
#include <string.h>

#include "base/pool.h"
#include "cpu/gemm.h"

#define DEPTH 512                       /* elements of K that are moved together */
#define MAX_NR 32                       /* features of a panel */
#define POOL_BYTES ((size_t)256 * 1024) /* smaller bands are not worth waking threads */

static int64_t padded_depth(const struct oz_gemm_kernel *g, int64_t k)
{
    return oz_gemm_pad(k, g->k_multiple);
}

size_t oz_gemm_panel_bytes(const struct oz_gemm_kernel *g, enum oz_dtype stored, int64_t k)
{
    return (size_t)padded_depth(g, k) * (size_t)g->nr * oz_gemm_element_bytes(stored);
}

size_t oz_gemm_packed_bytes(const struct oz_gemm_kernel *g, enum oz_dtype stored, int64_t n,
                            int64_t k)
{
    size_t bytes;
    size_t panels = (size_t)(oz_gemm_pad(n, g->nr) / g->nr);
    return __builtin_mul_overflow(panels, oz_gemm_panel_bytes(g, stored, k), &bytes) ? SIZE_MAX
                                                                                     : bytes;
}

/* Some columns of a feature. */
union line {
    float f32[DEPTH];
    uint32_t u32[DEPTH]; /* f32, or pairs of bf16 */
    uint16_t u16[DEPTH]; /* bf16 */
};

/* ---- transposes of [nr] lines of `count` units to [count][nr] ---- */

typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef uint32_t u32x4 __attribute__((vector_size(16)));

#define LOW_16(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_16(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW_32(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH_32(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)

/* Eight by eight. Three rounds of interleaving line i with line i + 4 sort by column. */
static void square_16(const union line *from, int64_t at, uint8_t *to, int64_t stride_bytes)
{
    u16x8 a[8];
    u16x8 b[8];
    for (int i = 0; i < 8; i++) {
        memcpy(&a[i], &from[i].u16[at], sizeof a[i]);
    }
    for (int i = 0; i < 4; i++) {
        b[2 * i] = LOW_16(a[i], a[i + 4]);
        b[2 * i + 1] = HIGH_16(a[i], a[i + 4]);
    }
    for (int i = 0; i < 4; i++) {
        a[2 * i] = LOW_16(b[i], b[i + 4]);
        a[2 * i + 1] = HIGH_16(b[i], b[i + 4]);
    }
    for (int i = 0; i < 4; i++) {
        b[2 * i] = LOW_16(a[i], a[i + 4]);
        b[2 * i + 1] = HIGH_16(a[i], a[i + 4]);
    }
    for (int i = 0; i < 8; i++) {
        memcpy(to + i * stride_bytes, &b[i], sizeof b[i]);
    }
}

/* Four by four, likewise. */
static void square_32(const union line *from, int64_t at, uint8_t *to, int64_t stride_bytes)
{
    u32x4 a[4];
    u32x4 b[4];
    for (int i = 0; i < 4; i++) {
        memcpy(&a[i], &from[i].u32[at], sizeof a[i]);
    }
    for (int i = 0; i < 2; i++) {
        b[2 * i] = LOW_32(a[i], a[i + 2]);
        b[2 * i + 1] = HIGH_32(a[i], a[i + 2]);
    }
    for (int i = 0; i < 2; i++) {
        a[2 * i] = LOW_32(b[i], b[i + 2]);
        a[2 * i + 1] = HIGH_32(b[i], b[i + 2]);
    }
    for (int i = 0; i < 4; i++) {
        memcpy(to + i * stride_bytes, &a[i], sizeof a[i]);
    }
}

static void transpose_16(const union line *from, int64_t nr, int64_t count, uint8_t *to)
{
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        for (int64_t f = 0; f < nr; f += 8) {
            square_16(from + f, i, to + (i * nr + f) * 2, nr * 2);
        }
    }
    for (; i < count; i++) {
        for (int64_t f = 0; f < nr; f++) {
            memcpy(to + (i * nr + f) * 2, &from[f].u16[i], 2);
        }
    }
}

static void transpose_32(const union line *from, int64_t nr, int64_t count, uint8_t *to)
{
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        for (int64_t f = 0; f < nr; f += 4) {
            square_32(from + f, i, to + (i * nr + f) * 4, nr * 4);
        }
    }
    for (; i < count; i++) {
        for (int64_t f = 0; f < nr; f++) {
            memcpy(to + (i * nr + f) * 4, &from[f].u32[i], 4);
        }
    }
}

/* ---- panels ---- */

struct pack {
    const struct oz_gemm_kernel *g;
    enum oz_dtype stored;
    const struct oz_weight *w;
    int64_t slice, row0, rows;
    uint8_t *packed;
};

/* Columns [k0, k0 + count) of a row, of which those behind the weight's end are zero. */
static void fill_line(const struct pack *p, int64_t row, int64_t k0, int64_t count,
                      union line *line)
{
    const struct oz_plane_view *codes = &p->w->planes[OZ_PLANE_CODES];
    size_t size = oz_gemm_element_bytes(p->stored);
    int64_t n = p->w->cols - k0 < count ? p->w->cols - k0 : count;
    if (row >= p->row0 + p->rows || n <= 0) {
        memset(line, 0, (size_t)count * size);
        return;
    }
    if (p->stored == OZ_DTYPE_F32) {
        p->w->codec->decode(p->w, p->slice, row, k0, n, line->f32);
    } else {
        memcpy(line,
               (const uint8_t *)codes->data + p->slice * codes->slice_stride_bytes +
                   row * codes->row_stride_bytes + k0 * 2,
               (size_t)n * size);
    }
    memset((uint8_t *)line + (size_t)n * size, 0, (size_t)(count - n) * size);
}

/* Panels of the band, counted from its first. */
static void pack_panels(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct pack *p = ctx;
    int64_t nr = p->g->nr;
    int64_t depth = padded_depth(p->g, p->w->cols);
    size_t size = oz_gemm_element_bytes(p->stored);
    union line lines[MAX_NR];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t panel = p->row0 / nr + i;
        uint8_t *to = p->packed + (size_t)panel * oz_gemm_panel_bytes(p->g, p->stored, p->w->cols);
        for (int64_t k0 = 0; k0 < depth; k0 += DEPTH) {
            int64_t count = depth - k0 < DEPTH ? depth - k0 : DEPTH;
            for (int64_t f = 0; f < nr; f++) {
                fill_line(p, panel * nr + f, k0, count, &lines[f]);
            }
            if (p->stored == OZ_DTYPE_BF16 && p->g->kr == 1) {
                transpose_16(lines, nr, count, to + (size_t)(k0 * nr) * size);
            } else { /* f32, or pairs of bf16 */
                transpose_32(lines, nr, count / p->g->kr, to + (size_t)(k0 * nr) * size);
            }
        }
    }
}

void oz_gemm_pack(struct oz_pool *pool, const struct oz_gemm_kernel *g, enum oz_dtype stored,
                  const struct oz_weight *w, int64_t slice, int64_t row0, int64_t rows,
                  void *packed)
{
    struct pack p = {g, stored, w, slice, row0, rows, packed};
    int64_t panels = oz_gemm_pad(rows, g->nr) / g->nr;
    assert(row0 % g->nr == 0 && g->nr <= MAX_NR && g->nr % 8 == 0);
    assert(g->kr == 1 || (g->kr == 2 && stored == OZ_DTYPE_BF16));
    size_t bytes = (size_t)panels * oz_gemm_panel_bytes(g, stored, w->cols);
    oz_pool_for(bytes < POOL_BYTES ? NULL : pool, panels, 1, pack_panels, &p);
}
