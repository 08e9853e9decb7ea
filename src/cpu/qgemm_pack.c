/* Packing of quantized weights into panels (layout: cpu/qgemm.h). */
#include <assert.h>
#include <string.h>

#include "base/pool.h"
#include "cpu/qgemm.h"
#include "num/bnb.h"
#include "num/float.h"
#include "num/int_group.h"
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
        {"nvfp4", OZ_QCODE_E2M1, 4},           {"nf4", OZ_QCODE_NF4, 4},
        {"nf4_nested", OZ_QCODE_NF4, 4},       {"fp4_bnb", OZ_QCODE_FP4, 4},
        {"fp4_bnb_nested", OZ_QCODE_FP4, 4},   {"u4_group", OZ_QCODE_U4, 4},
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

/* Why blocks that are counted through all rows are not groups of one row each, or NULL. 64 and 128 divide
 * the blocks of K of every kernel. */
static const char *reject_flat(const struct oz_weight *w)
{
    return w->group_cols != 64 && w->group_cols != 128 ? "its blocks are neither of 64 nor of 128"
           : w->cols % w->group_cols != 0              ? "its blocks run on from row to row"
                                                       : NULL;
}

/* Why integers in groups have no panels, or NULL. */
static const char *reject_integers(const struct oz_weight *w)
{
    return w->planes[OZ_PLANE_PERM].present   ? "its columns belong to groups one by one"
           : w->planes[OZ_PLANE_MINS].present ? "its groups have minima"
           : w->group_cols != 32 && w->group_cols != 64 && w->group_cols != 128
               ? "its groups are of none of 32, 64 and 128"
           : w->cols % w->group_cols != 0 ? "its last group is short"
                                          : NULL;
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
    if (s->flat_cells != 0) { /* absmax, un-nested */
        l->scale = OZ_DTYPE_F32;
        l->group = w->group_cols;
        return reject_flat(w) == NULL;
    }
    if (l->code == OZ_QCODE_U4) {
        l->scale = OZ_DTYPE_F32;
        l->group = w->group_cols;
        return reject_integers(w) == NULL;
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
    l->column_scales =
        l->group == 0 || (second_level(w) && !l->dual && !oz_qcode_has_book(l->code));
    part(&total, l->column_scales ? OZ_Q_NR * sizeof(float) : 0);
    l->sums = part(&total, l->code == OZ_QCODE_S8 ? OZ_Q_NR * sizeof(int32_t) : 0);
    l->scales = part(&total, groups * scale * (l->shared_scale ? 1 : OZ_Q_NR));
    l->scales2 = part(
        &total, l->dual ? (size_t)oz_gemm_pad(l->depth, DUAL) / DUAL * OZ_Q_NR * sizeof(float) : 0);
    l->zeros = part(&total, l->code == OZ_QCODE_U4 ? groups * OZ_Q_NR : 0);
    l->book = part(&total, oz_qcode_has_book(l->code) ? sizeof(struct oz_qbook) : 0);
    l->codes = part(&total, (size_t)l->depth * OZ_Q_NR * (size_t)l->code_bits / 8);
    l->panel_bytes = total;
    return true;
}

const char *oz_qlayout_reject(const struct oz_weight *w)
{
    struct oz_qlayout l;
    if (oz_qlayout_of(w, &l)) {
        return NULL;
    }
    const char *why = NULL;
    if (w->codec != NULL && oz_bnb_is(w->codec)) {
        why = reject_flat(w);
    } else if (w->codec != NULL && code_of(w, &l) && l.code == OZ_QCODE_U4) {
        why = reject_integers(w);
    }
    return why != NULL ? why : "it does not know such codes";
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

/* Four rows of four words, or eight of eight half words, are transposed at once. */
typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));

/* Interleaving line i with line i + half, again and again, sorts by column. */
static inline void square_32(u32x4 a[4])
{
    u32x4 b[4];
    for (int i = 0; i < 2; i++) {
        b[2 * i] = __builtin_shufflevector(a[i], a[i + 2], 0, 4, 1, 5);
        b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 2], 2, 6, 3, 7);
    }
    for (int i = 0; i < 2; i++) {
        a[2 * i] = __builtin_shufflevector(b[i], b[i + 2], 0, 4, 1, 5);
        a[2 * i + 1] = __builtin_shufflevector(b[i], b[i + 2], 2, 6, 3, 7);
    }
}

static inline void interleave_16(const u16x8 from[8], u16x8 to[8])
{
    for (int i = 0; i < 4; i++) {
        to[2 * i] = __builtin_shufflevector(from[i], from[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
        to[2 * i + 1] = __builtin_shufflevector(from[i], from[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
}

#define BLOCK 256 /* of K: what is read and written stays in the first cache */

/* The place of feature f in a step of pairs. */
static inline int64_t pair_at(int64_t f)
{
    return f % 16 / 4 * 16 + f / 16 * 8 + f % 4 * 2;
}

/* Eight features from f on, sixteen of K. */
static void square_pairs(const uint8_t *const *rows, int64_t f, int64_t k, uint8_t *codes)
{
    u16x8 a[8];
    u16x8 b[8];
    for (int i = 0; i < 8; i++) {
        memcpy(&a[i], rows[f + i] + k, sizeof a[i]);
    }
    interleave_16(a, b);
    interleave_16(b, a);
    interleave_16(a, b);
    for (int i = 0; i < 8; i++) {
        uint8_t *to = codes + (k / 2 + i) * 64;
        memcpy(to + pair_at(f), &b[i], 8);
        memcpy(to + pair_at(f + 4), (const uint8_t *)&b[i] + 8, 8);
    }
}

static void pack_pairs(const struct pack *p, const uint8_t *const *rows, bool all, uint8_t *codes)
{
    int64_t whole = all ? p->l->cols / 16 * 16 : 0;
    for (int64_t k0 = 0; k0 < whole; k0 += BLOCK) {
        for (int64_t f = 0; f < OZ_Q_NR; f += 8) {
            for (int64_t k = k0; k < oz_min_count(k0 + BLOCK, whole); k += 16) {
                square_pairs(rows, f, k, codes);
            }
        }
    }
    for (int64_t f = 0; f < OZ_Q_NR; f++) {
        for (int64_t k = whole; k < p->l->depth; k += 2) {
            uint32_t u = load_codes(rows[f], (size_t)k, (size_t)p->l->cols, 2);
            memcpy(codes + k / 2 * 64 + pair_at(f), &u, 2);
        }
    }
}

/* The four even nibbles of each word, together. */
static inline u32x4 evens(u32x4 u)
{
    u &= 0x0F0F0F0FU;
    u = (u | u >> 4) & 0x00FF00FFU;
    return (u | u >> 8) & 0xFFFFU;
}

static inline u32x4 unzip(u32x4 u)
{
    return evens(u) | evens(u >> 4) << 16;
}

/* Words of 32 bits, `per` of K each: as they are (s8), or their nibbles unzipped. */
static void pack_words(const struct pack *p, const uint8_t *const *rows, bool all, bool nibbles,
                       uint8_t *codes)
{
    int64_t per = nibbles ? 8 : 4;
    int64_t whole = all ? p->l->cols / (4 * per) * (4 * per) : 0;
    for (int64_t k0 = 0; k0 < whole; k0 += BLOCK) {
        for (int64_t f = 0; f < OZ_Q_NR; f += 4) {
            for (int64_t k = k0; k < oz_min_count(k0 + BLOCK, whole); k += 4 * per) {
                u32x4 a[4];
                for (int i = 0; i < 4; i++) {
                    memcpy(&a[i], rows[f + i] + k / per * 4, sizeof a[i]);
                    a[i] = nibbles ? unzip(a[i]) : a[i];
                }
                square_32(a);
                for (int i = 0; i < 4; i++) {
                    memcpy(codes + (k / per + i) * 128 + f * 4, &a[i], sizeof a[i]);
                }
            }
        }
    }
    size_t end = (size_t)(nibbles ? (p->l->cols + 1) / 2 : p->l->cols);
    for (int64_t f = 0; f < OZ_Q_NR; f++) {
        for (int64_t k = whole; k < p->l->depth; k += per) {
            u32x4 u = {load_codes(rows[f], (size_t)(k / per * 4), end, 4)};
            if (nibbles) { /* one behind an odd end is no code */
                int64_t left = p->l->cols - k;
                u[0] &= left >= 8 ? ~0U : left > 0 ? (1U << 4 * left) - 1U : 0;
                u = unzip(u);
            }
            memcpy(codes + k / per * 128 + f * 4, &u, sizeof u[0]);
        }
    }
}

#define SUM_LINES 128 /* of two codes each, that a lane of 16 bits holds */

/* Sum of signed codes: of the even and the odd bytes of half words, counted from -128 on. */
static int32_t sum_codes(const uint8_t *codes, int64_t count)
{
    int64_t sum = 0;
    int64_t i = 0;
    while (i + 16 <= count) {
        int64_t end = oz_min_count(i + SUM_LINES * 16, count);
        u16x8 lanes = {0};
        for (; i + 16 <= end; i += 16) {
            u16x8 x;
            memcpy(&x, codes + i, sizeof x);
            x ^= 0x8080;
            lanes += (x & 0xFF) + (x >> 8);
        }
        for (int j = 0; j < 8; j++) {
            sum += lanes[j];
        }
    }
    sum -= 128 * i;
    for (; i < count; i++) {
        sum += (int8_t)codes[i];
    }
    return (int32_t)sum;
}

static void add_codes(const struct pack *p, const uint8_t *const *rows, int32_t *sums)
{
    for (int64_t f = 0; f < OZ_Q_NR; f++) {
        sums[f] = rows[f] != NULL ? sum_codes(rows[f], p->l->cols) : 0;
    }
}

static void pack_codes(const struct pack *p, int64_t row0, uint8_t *panel)
{
    const uint8_t *rows[OZ_Q_NR];
    uint8_t *codes = panel + p->l->codes;
    for (int64_t f = 0; f < OZ_Q_NR; f++) {
        rows[f] = codes_of(p, row0 + f);
    }
    bool all = rows[OZ_Q_NR - 1] != NULL;
    if (p->l->code == OZ_QCODE_E4M3) {
        pack_pairs(p, rows, all, codes);
        return;
    }
    if (p->l->code == OZ_QCODE_S8) {
        add_codes(p, rows, (int32_t *)(void *)(panel + p->l->sums));
    }
    pack_words(p, rows, all, p->l->code_bits == 4, codes);
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

/* absmax of the groups of each row, and the values of the codes. */
static void pack_flat(const struct pack *p, int64_t row0, uint8_t *panel)
{
    const struct oz_qlayout *l = p->l;
    int64_t groups = l->cols / l->group;
    float *absmax = (float *)(void *)(panel + l->scales);
    struct oz_qbook *book = (struct oz_qbook *)(void *)(panel + l->book);
    for (int64_t f = 0; f < oz_min_count(OZ_Q_NR, p->row0 + p->rows - row0); f++) {
        for (int64_t g = 0; g < groups; g++) {
            absmax[g * OZ_Q_NR + f] = oz_bnb_absmax(p->w, 0, (row0 + f) * groups + g);
        }
    }
    oz_bnb_values(p->w, 0, book->f32);
    for (int i = 0; i < 32; i++) {
        book->bf16[i] = oz_f32_to_bf16(book->f32[i % 16]);
    }
}

/* Zero points of the groups of each row; where there is no plane of them, the middle of the codes. */
static void pack_zeros(const struct pack *p, int64_t row0, uint8_t *panel)
{
    const struct oz_qlayout *l = p->l;
    uint8_t *to = panel + l->zeros;
    for (int64_t f = 0; f < oz_min_count(OZ_Q_NR, p->row0 + p->rows - row0); f++) {
        const uint8_t *zeros = p->w->planes[OZ_PLANE_ZEROS].present
                                   ? oz_plane_row(p->w, OZ_PLANE_ZEROS, 0, row0 + f)
                                   : NULL;
        for (int64_t g = 0; g < groups_of(l); g++) {
            to[g * OZ_Q_NR + f] = zeros != NULL ? (uint8_t)oz_int_group_field(zeros, g, 4) : 8;
        }
    }
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
        if (oz_qcode_has_book(l->code)) {
            pack_flat(p, row0, panel);
        } else if (l->group > 0) {
            pack_scales(p, row0, panel);
        }
        if (l->code == OZ_QCODE_U4) {
            pack_zeros(p, row0, panel);
        }
        pack_codes(p, row0, panel);
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
