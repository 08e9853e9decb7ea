/*
 * cpu/qgemm.h: products of quantized weights as they are stored: codes and scales in panels, decoded
 * block by block into what a micro-kernel multiplies, or as they stream past few rows.
 *
 * What is summed. For s8 rows by s8 weights with a scale each: integers, exactly, and then
 * y = x_scale[row] (w_scale[feature] f32(sum)), as the reference. Else: within each group of K that
 * shares scales, codes are multiplied (exact operands: bf16 in pairs as VDPBF16PS adds them, or
 * doubled e2m1 as integers; values of tables, nf4 and fp4, are rounded to bf16 where bf16 is multiplied, as
 * plain rows are), and then sum = fma(partial x_scale, w_scale, sum), groups in the order
 * of K; without groups there is one partial sum, K from first to last; what spans the whole row or
 * column comes at the end. Kernels in f32 (OZ_QROWS_F32) scale operands of groups before they multiply, as
 * the reference does. So an element's bytes depend on its row and its weight column alone.
 *
 * A packed weight: panels of 32 features, panel after panel. A panel is (each part begins at a
 * multiple of 64 bytes)
 *   f32 [32]                   what multiplies the whole column, where there is such
 *   s32 [32]                   OZ_QCODE_S8: sums of the column's codes
 *   scales [groups][32]        e8m0, e4m3 or f32; f32 [groups] where the panel shares them
 *   f32 [cols / 512][32]       second level of the dual scale
 *   u8 [groups][32]            OZ_QCODE_U4: zero points
 *   struct oz_qbook            OZ_QCODE_NF4, OZ_QCODE_FP4: values of the codes
 *   codes                      K padded with zero codes to `depth`
 * Order of codes: OZ_QCODE_E4M3 in steps of two of K: 64 bytes, of which the 16-byte lane L holds
 * features 4 L .. 4 L + 3, then 16 + 4 L .. 16 + 4 L + 3, two neighbours of K each. OZ_QCODE_S8 in steps
 * of four of K: [32][4] bytes. 4-bit codes in steps of eight of K: [32] words of 32 bits, the even
 * ones of K in the low half, the odd ones in the high half, each from the lowest nibble on.
 */
#ifndef OZ_CPU_QGEMM_H
#define OZ_CPU_QGEMM_H

#include "cpu/gemm.h"

#define OZ_Q_NR 32      /* features of a panel */
#define OZ_Q_GROUPS 256 /* groups of a block, at most */

enum oz_qcode {
    OZ_QCODE_E4M3,
    OZ_QCODE_S8,
    OZ_QCODE_E2M1,
    OZ_QCODE_NF4,
    OZ_QCODE_FP4,
    OZ_QCODE_U4
};

/* Values of a table's codes, and the same rounded to bf16 for kernels that multiply bf16, twice: what
 * looks them up in half words has a fifth bit. */
struct oz_qbook {
    float f32[16];
    uint16_t bf16[32];
};

/* How a weight is packed: from its codec, the planes' dtypes and its shape; never from data. */
struct oz_qlayout {
    enum oz_qcode code;
    int32_t code_bits;
    int32_t group; /* of K; 0: the column has one scale, or none */
    enum oz_dtype scale;
    bool column_scales;
    bool shared_scale; /* one for a panel and group */
    bool dual;         /* f32 for each 512 of K under the groups */
    int64_t rows, cols, depth;
    size_t sums, scales, scales2, zeros, book, codes, panel_bytes; /* parts of a panel */
    const struct oz_qbook *values; /* of a packed weight: its table, where its code has one */
};

/* Floats of a group's scales, as kernels have them: U4 has its zero points behind them. */
static inline int64_t oz_qcode_scale_floats(enum oz_qcode code)
{
    return code == OZ_QCODE_U4 ? 2 * OZ_Q_NR : OZ_Q_NR;
}

static inline bool oz_qcode_has_book(enum oz_qcode code)
{
    return code == OZ_QCODE_NF4 || code == OZ_QCODE_FP4;
}

/* False: it is not packed so. The weight's codec and its present planes' dtypes are read. */
bool oz_qlayout_of(const struct oz_weight *w, struct oz_qlayout *l);

/* Why a weight is not packed so, as a phrase, or NULL. */
const char *oz_qlayout_reject(const struct oz_weight *w);

/* Of all panels; SIZE_MAX when it overflows. */
size_t oz_qlayout_bytes(const struct oz_qlayout *l);

/* As oz_gemm_pack: rows [row0, row0 + rows) of a band, from a multiple of OZ_Q_NR. */
void oz_qgemm_pack(struct oz_pool *pool, const struct oz_qlayout *l, const struct oz_weight *band,
                   int64_t row0, int64_t rows, void *packed);

/* Rows as a kernel multiplies them. */
enum oz_qrows {
    OZ_QROWS_BF16, /* codes of BF16, F8_E4M3 */
    OZ_QROWS_F32, /* values of any format, scales applied (exactly, or with the reference's rounding) */
    OZ_QROWS_U8,     /* s8 codes + 128 */
    OZ_QROWS_S16,    /* s8 codes */
    OZ_QROWS_DOUBLE, /* e2m1 codes, doubled, s8; of eight of K in the order 0 4 1 5 2 6 3 7, as the
                      * nibbles of a packed word come out */
    OZ_QROWS_S8,     /* s8 codes; over tiles */
    OZ_QROWS_FOLDED, /* bf16 of codes times scales that keep them exact; over tiles (cpu/qgemm_tiles.h) */
};

/* One call of a micro-kernel. Rows lie lda elements apart, their scales and offsets scale_ld; k is a
 * multiple of `group` (0: the call has no groups). */
struct oz_qblock {
    int64_t k, group;
    const void *a;
    int64_t lda;
    const float *a_scales; /* [rows][k / group]; NULL: ones */
    const int32_t
        *a_offsets; /* [rows][k / group]; DOUBLE: -12 times the sum of the group's codes */
    int64_t scale_ld;
    const float *w_scales; /* [k / w_group][32], U4 [k / w_group][64]; NULL: ones */
    int64_t w_group;       /* of K under a scale of the weight; as `group` where that is not 0 */
    const struct oz_qbook *values; /* as the layout's */
    float *c;                      /* [rows][32], or s32 for U8 */
    bool first;                    /* c is written, not added to */
    /* run_few, panels side by side: how far apart they lie. */
    int64_t panels;      /* 1, or the kernel's few_panels */
    int64_t panel_bytes; /* codes */
    int64_t w_ld;        /* w_scales */
    int64_t c_ld;        /* c */
};

struct oz_qgemm_kernel {
    int32_t mr;        /* rows of a call without groups */
    int32_t group_mr;  /* with groups; 0: it takes none */
    int32_t k_block;   /* multiple of every group */
    int32_t row_block; /* rows of a task, at most; a multiple of mr and group_mr */
    enum oz_qrows rows;
    int32_t step_bytes; /* of a decoded step of four of K: 32 features */
    bool books;         /* it decodes codes by tables, too */
    /* Codes of a block to the form of `run`; with F32 rows times their scales, as w_scales (NULL: none).
     * NULL: they are in it. */
    void (*decode)(const struct oz_qlayout *l, const float *scales, const uint8_t *codes, int64_t k,
                   void *block);
    /* rows in 1..mr (group_mr with groups); b: a decoded block. */
    void (*run)(int64_t rows, const struct oz_qblock *q, const void *b);
    /* The same from codes as they are packed, for rows in 1..few; 0: none. few_panels: so many panels at
     * once, too, where that is not 0. */
    int32_t few;
    int32_t few_panels;
    void (*run_few)(int64_t rows, const struct oz_qblock *q, enum oz_qcode code,
                    const uint8_t *codes);
    /* Columns [k0, k0 + n) of a row to dst, zeros behind them up to `padded`; scales and offsets of
     * its groups (where group is not 0 and the pointers not NULL). */
    void (*bring)(const struct oz_act *x, int64_t row, int64_t k0, int64_t n, int64_t padded,
                  int64_t group, void *dst, float *scales, int32_t *offsets);
    /* Scales of groups [first, first + count) of a panel with groups, second level and all, in f32, as
     * w_scales. */
    void (*scales)(const struct oz_qlayout *l, const uint8_t *panel, int64_t first, int64_t count,
                   float *dst);
    /* Sums [rows][32] to values: y = row_scales[r] (col_scales[c] (c - 128 col_sums[c])); NULL: ones, no
     * sums. All NULL is not asked for. */
    void (*finish)(int64_t rows, const float *row_scales, const float *col_scales,
                   const int32_t *col_sums, float *c);
    void (*store)(const struct oz_gemm_epilogue *e, int64_t row0, int64_t rows, int64_t col0,
                  int64_t cols, float *y, float *up, int64_t ld);
    /* Kernels over tiles have, in the place of what comes before `bring`, these two; NULL: none. `block`:
     * columns [k0, k0 + count) of a panel as they are multiplied, in place or in room, zeros behind K; of
     * groups whose scales are not in them [count / group][32] scales. streams: as cpu/tiles.h. */
    const struct oz_tile_kernel *tiles;
    const uint8_t *(*block)(const struct oz_qlayout *l, const uint8_t *panel, int64_t k0,
                            int64_t count, int64_t group, bool streams, uint8_t *room,
                            float *scales);
    /* One row by neighbouring panels as they stream, to the same bytes; NULL: as any number of rows. row: f32,
     * over all of K; scales: of its groups, or NULL: ones; y [panels][32]; room: [1 + panels][groups][32]. */
    void (*row)(const struct oz_qlayout *l, const uint8_t *panel, int64_t panels, const float *row,
                const float *scales, int64_t group, float *room, float *y);
};

/* Why a kernel does not multiply rows in a format by such a weight, or NULL. */
const char *oz_qgemm_decline(const struct oz_qgemm_kernel *k, const struct oz_act_spec *x,
                             const struct oz_qlayout *l);

/* `scratch`, `reject` and `run` of list entries. */
size_t oz_qgemm_linear_scratch(const struct oz_device *dev, const struct oz_linear_args *a,
                               const struct oz_cpu_kernel *k);
const char *oz_qgemm_linear_reject(const struct oz_device *dev, const struct oz_linear_args *a,
                                   const struct oz_cpu_kernel *k);
OZ_MUST_USE enum oz_status oz_qgemm_linear(const struct oz_op_ctx *ctx,
                                           const struct oz_linear_args *a,
                                           const struct oz_cpu_kernel *k);

#endif
