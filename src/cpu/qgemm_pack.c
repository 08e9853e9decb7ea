/* Packing of quantized weights into panels (layout: cpu/qgemm.h). */
#include <assert.h>
#include <string.h>

#include "base/pool.h"
#include "cpu/qgemm.h"
#include "num/plane.h"

#define LINE 64
#define DUAL 512
#define POOL_BYTES ((size_t)256 * 1024) /* smaller bands are not worth waking threads */

static size_t part(size_t *total, size_t bytes)
{
    size_t at = *total;
    *total += (bytes + LINE - 1) / LINE * LINE;
    return at;
}

static int64_t groups_of(const struct oz_qlayout *l)
{
    return l->group > 0 ? l->depth / l->group : 0;
}

/* ---- layout ---- */

static bool code_of(const struct oz_weight *w, struct oz_qlayout *l)
{
    static const struct {
        const char *codec;
        enum oz_qcode code;
        int32_t bits;
    } known[] = {
        {"fp8_tensor", OZ_QCODE_E4M3, 8},      {"fp8_channel", OZ_QCODE_E4M3, 8},
        {"fp8_block", OZ_QCODE_E4M3, 8},       {"int8_channel", OZ_QCODE_S8, 8},
        {"int8_channel_bf16", OZ_QCODE_S8, 8}, {"mxfp8", OZ_QCODE_E4M3, 8},
        {"mxfp4", OZ_QCODE_E2M1, 4},           {"mxfp4_dualscale", OZ_QCODE_E2M1, 4},
        {"nvfp4", OZ_QCODE_E2M1, 4},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(w->codec->name, known[i].codec) == 0) {
            l->code = known[i].code;
            l->code_bits = known[i].bits;
            return true;
        }
    }
    return false;
}

/* What the scales' plane says: groups of K, of one row or of more than a panel has; or the column. */
static bool groups_from(const struct oz_weight *w, struct oz_qlayout *l)
{
    const struct oz_plane_spec *s = oz_codec_plane(w->codec, OZ_PLANE_SCALES);
    const struct oz_plane_spec *second = oz_codec_plane(w->codec, OZ_PLANE_SCALES2);
    enum oz_dtype dtype = w->planes[OZ_PLANE_SCALES].dtype;
    if (s == NULL ||
        w->planes[OZ_PLANE_CODES].dtype != oz_codec_plane(w->codec, OZ_PLANE_CODES)->dtype) {
        return false;
    }
    l->scale = dtype == OZ_DTYPE_F8_E8M0 || dtype == OZ_DTYPE_F8_E4M3 ? dtype : OZ_DTYPE_F32;
    if (s->cell_cols == OZ_CELL_ALL) {
        l->group = 0;
    } else {
        l->group = s->cell_cols;
        l->shared_scale = s->cell_rows % OZ_Q_NR == 0;
        if (!l->shared_scale && s->cell_rows != 1) {
            return false;
        }
    }
    l->dual = second != NULL && second->cell_cols == DUAL;
    return second == NULL || l->dual || second->cell_cols == OZ_CELL_ALL;
}

static bool second_level(const struct oz_weight *w)
{
    return oz_codec_plane(w->codec, OZ_PLANE_SCALES2) != NULL;
}

bool oz_qlayout_of(const struct oz_weight *w, struct oz_qlayout *l)
{
    *l = (struct oz_qlayout){.rows = w->rows, .cols = w->cols};
    if (w->codec == NULL || w->slices != 1 || w->rows < 1 || w->cols < 1 ||
        w->cols > INT64_C(1) << 40 || !code_of(w, l) || !groups_from(w, l)) {
        return false;
    }
    l->depth = oz_gemm_pad(l->cols, l->group > 0 ? l->group : 8);
    size_t total = 0;
    size_t scale = l->scale == OZ_DTYPE_F32 ? sizeof(float) : 1;
    size_t groups = (size_t)groups_of(l);
    l->column_scales = l->group == 0 || (second_level(w) && !l->dual);
    part(&total, l->column_scales ? OZ_Q_NR * sizeof(float) : 0);
    l->sums = part(&total, l->code == OZ_QCODE_S8 ? OZ_Q_NR * sizeof(int32_t) : 0);
    l->scales = part(&total, groups * scale * (l->shared_scale ? 1 : OZ_Q_NR));
    l->scales2 = part(
        &total, l->dual ? (size_t)oz_gemm_pad(l->depth, DUAL) / DUAL * OZ_Q_NR * sizeof(float) : 0);
    l->codes = part(&total, (size_t)l->depth * OZ_Q_NR * (size_t)l->code_bits / 8);
    l->panel_bytes = total;
    return true;
}

size_t oz_qlayout_bytes(const struct oz_qlayout *l)
{
    size_t bytes;
    size_t panels = (size_t)(oz_gemm_pad(l->rows, OZ_Q_NR) / OZ_Q_NR);
    return __builtin_mul_overflow(panels, l->panel_bytes, &bytes) ? SIZE_MAX : bytes;
}

/* ---- packing ---- */

struct pack {
    const struct oz_qlayout *l;
    const struct oz_weight *w;
    int64_t row0, rows;
    uint8_t *packed;
};

static const uint8_t *codes_of(const struct pack *p, int64_t row)
{
    return row < p->row0 + p->rows ? oz_plane_row(p->w, OZ_PLANE_CODES, 0, row) : NULL;
}

/* Up to `size` bytes of a row's codes from byte `at` on; zeros behind its end. */
static uint32_t load_codes(const uint8_t *row, size_t at, size_t end, size_t size)
{
    uint8_t bytes[4] = {0};
    uint32_t u;
    if (row != NULL && at < end) {
        memcpy(bytes, row + at, end - at < size ? end - at : size);
    }
    memcpy(&u, bytes, sizeof u);
    return u;
}

static void pack_pairs(const struct pack *p, int64_t row0, uint8_t *codes)
{
    int64_t steps = p->l->depth / 2;
    for (int64_t f = 0; f < OZ_Q_NR; f++) {
        const uint8_t *row = codes_of(p, row0 + f);
        uint8_t *to = codes + f % 16 / 4 * 16 + f / 16 * 8 + f % 4 * 2;
        int64_t whole = row != NULL ? p->l->cols / 2 : 0;
        for (int64_t s = 0; s < whole; s++) {
            memcpy(to + s * 64, row + 2 * s, 2);
        }
        for (int64_t s = whole; s < steps; s++) {
            uint32_t u = load_codes(row, (size_t)(2 * s), (size_t)p->l->cols, 2);
            memcpy(to + s * 64, &u, 2);
        }
    }
}

static void pack_quads(const struct pack *p, int64_t row0, uint8_t *codes, int32_t *sums)
{
    int64_t steps = p->l->depth / 4;
    for (int64_t f = 0; f < OZ_Q_NR; f++) {
        const uint8_t *row = codes_of(p, row0 + f);
        int64_t whole = row != NULL ? p->l->cols / 4 : 0;
        int32_t sum = 0;
        for (int64_t i = 0; row != NULL && i < p->l->cols; i++) {
            sum += (int8_t)row[i];
        }
        sums[f] = sum;
        for (int64_t s = 0; s < whole; s++) {
            memcpy(codes + s * 128 + f * 4, row + 4 * s, 4);
        }
        for (int64_t s = whole; s < steps; s++) {
            uint32_t u = load_codes(row, (size_t)(4 * s), (size_t)p->l->cols, 4);
            memcpy(codes + s * 128 + f * 4, &u, 4);
        }
    }
}

/* The four even nibbles of a word, together. */
static inline uint32_t evens(uint32_t u)
{
    u &= 0x0F0F0F0FU;
    u = (u | u >> 4) & 0x00FF00FFU;
    return (u | u >> 8) & 0xFFFFU;
}

static void pack_nibbles(const struct pack *p, int64_t row0, uint8_t *codes)
{
    int64_t steps = p->l->depth / 8;
    size_t end = (size_t)(p->l->cols + 1) / 2;
    for (int64_t f = 0; f < OZ_Q_NR; f++) {
        const uint8_t *row = codes_of(p, row0 + f);
        int64_t whole = row != NULL ? p->l->cols / 8 : 0;
        for (int64_t s = 0; s < steps; s++) {
            uint32_t u;
            if (s < whole) {
                memcpy(&u, row + 4 * s, sizeof u);
            } else { /* a nibble behind an odd end is no code */
                int64_t left = p->l->cols - 8 * s;
                u = left > 0 ? load_codes(row, (size_t)(4 * s), end, 4) & ((1U << 4 * left) - 1U)
                             : 0;
            }
            u = evens(u) | evens(u >> 4) << 16;
            memcpy(codes + s * 128 + f * 4, &u, sizeof u);
        }
    }
}

/* The scale of a group of a row, or of all of it. */
static float scale_of(const struct pack *p, enum oz_plane plane, int64_t row, int64_t cell)
{
    const struct oz_plane_spec *s = oz_codec_plane(p->w->codec, plane);
    int64_t cell_row = s->cell_rows == OZ_CELL_ALL ? 0 : row / s->cell_rows;
    return oz_plane_get(p->w->planes[plane].dtype, oz_plane_row(p->w, plane, 0, cell_row), cell);
}

/* What multiplies the whole column. */
static float column_scale(const struct pack *p, int64_t row)
{
    return scale_of(p, p->l->group == 0 ? OZ_PLANE_SCALES : OZ_PLANE_SCALES2, row, 0);
}

/* Groups behind the weight's end repeat nothing: their scales are zero, and their codes too. */
static void pack_scales(const struct pack *p, int64_t row0, uint8_t *panel)
{
    const struct oz_qlayout *l = p->l;
    int64_t used = (l->cols + l->group - 1) / l->group;
    int64_t last = oz_min_count(OZ_Q_NR, p->row0 + p->rows - row0);
    float *f32 = (float *)(void *)(panel + l->scales);
    for (int64_t f = 0; f < (l->shared_scale ? 1 : last); f++) {
        if (l->scale == OZ_DTYPE_F32) {
            for (int64_t g = 0; g < used; g++) {
                f32[l->shared_scale ? g : g * OZ_Q_NR + f] =
                    scale_of(p, OZ_PLANE_SCALES, row0 + f, g);
            }
            continue;
        }
        const uint8_t *from = oz_plane_row(p->w, OZ_PLANE_SCALES, 0, row0 + f);
        for (int64_t g = 0; g < used; g++) {
            panel[l->scales + (size_t)(g * OZ_Q_NR + f)] = from[g];
        }
    }
    float *second = (float *)(void *)(panel + l->scales2);
    for (int64_t f = 0; l->dual && f < last; f++) {
        for (int64_t g = 0; g * DUAL < l->cols; g++) {
            second[g * OZ_Q_NR + f] = scale_of(p, OZ_PLANE_SCALES2, row0 + f, g);
        }
    }
}

static void pack_panels(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct pack *p = ctx;
    const struct oz_qlayout *l = p->l;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t row0 = p->row0 + i * OZ_Q_NR;
        uint8_t *panel = p->packed + (size_t)(row0 / OZ_Q_NR) * l->panel_bytes;
        float *column = (float *)(void *)panel;
        memset(panel, 0, l->codes);
        for (int64_t f = 0; l->column_scales && f < oz_min_count(OZ_Q_NR, p->row0 + p->rows - row0);
             f++) {
            column[f] = column_scale(p, row0 + f);
        }
        if (l->group > 0) {
            pack_scales(p, row0, panel);
        }
        if (l->code == OZ_QCODE_E4M3) {
            pack_pairs(p, row0, panel + l->codes);
        } else if (l->code == OZ_QCODE_S8) {
            pack_quads(p, row0, panel + l->codes, (int32_t *)(void *)(panel + l->sums));
        } else {
            pack_nibbles(p, row0, panel + l->codes);
        }
        size_t used = l->codes + (size_t)l->depth * OZ_Q_NR * (size_t)l->code_bits / 8;
        memset(panel + used, 0, l->panel_bytes - used);
    }
}

void oz_qgemm_pack(struct oz_pool *pool, const struct oz_qlayout *l, const struct oz_weight *band,
                   int64_t row0, int64_t rows, void *packed)
{
    struct pack p = {l, band, row0, rows, packed};
    int64_t panels = oz_gemm_pad(rows, OZ_Q_NR) / OZ_Q_NR;
    assert(row0 % OZ_Q_NR == 0);
    oz_pool_for((size_t)panels * l->panel_bytes < POOL_BYTES ? NULL : pool, panels, 1, pack_panels,
                &p);
}
