/*
 * cpu/kern/x86/strip_amx.h: the micro-kernel of products over tiles with AMX (cpu/tiles.h): a strip of
 * 32 rows by a panel of 32 columns in four tiles of sums, bf16 or s8. Beside vec_avx2.h or vec_avx512.h.
 *
 * Order of a sum in bf16: tile_amx.h's; with groups a partial sum begins at zero in each of them. Sums of
 * s8 are exact.
 */
#ifndef OZ_CPU_KERN_X86_STRIP_AMX_H
#define OZ_CPU_KERN_X86_STRIP_AMX_H

#include "cpu/kern/x86/amx.h"
#include "cpu/tiles.h"

#define STRIP_INLINE static inline __attribute__((always_inline))
#define STRIP_LINE 64
#define STRIP_LD (OZ_TILE_STRIP * 4)              /* bytes from row to row of sums and panels */
#define STRIP_DOWN (OZ_TILE_SIDE * OZ_TILE_STRIP) /* sums of half a strip */
#define STRIP_ROWS_ASKED (2 * OZ_TILE_STRIP)      /* lines of the sums of a strip */

/* Products of a step, the panel from the first cache, the rows from the second past it: tiles 0 and 1 sum rows 0 to 15, 2 and 3 rows 16 to 31; rows are in 4 and 5, the
 * panel in 6 and 7. */
STRIP_INLINE void strip_step(const uint8_t *a, const uint8_t *b, bool both, bool s8)
{
    AMX_LOAD(6, b, STRIP_LD);
    AMX_LOAD_ONCE(4, a, STRIP_LINE);
    AMX_LOAD(7, b + STRIP_LINE, STRIP_LD);
    if (s8) {
        AMX_DP_S8(0, 4, 6);
        AMX_DP_S8(1, 4, 7);
    } else {
        AMX_DP_BF16(0, 4, 6);
        AMX_DP_BF16(1, 4, 7);
    }
    if (!both) {
        return;
    }
    AMX_LOAD_ONCE(5, a + OZ_TILE_BYTES, STRIP_LINE);
    if (s8) {
        AMX_DP_S8(2, 5, 6);
        AMX_DP_S8(3, 5, 7);
    } else {
        AMX_DP_BF16(2, 5, 6);
        AMX_DP_BF16(3, 5, 7);
    }
}

STRIP_INLINE void strip_zero(void)
{
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
}

STRIP_INLINE void strip_load(const float *c, bool both)
{
    AMX_LOAD(0, c, STRIP_LD);
    AMX_LOAD(1, c + OZ_TILE_SIDE, STRIP_LD);
    if (both) {
        AMX_LOAD(2, c + STRIP_DOWN, STRIP_LD);
        AMX_LOAD(3, c + STRIP_DOWN + OZ_TILE_SIDE, STRIP_LD);
    }
}

STRIP_INLINE void strip_store(float *c, bool both)
{
    AMX_STORE(0, c, STRIP_LD);
    AMX_STORE(1, c + OZ_TILE_SIDE, STRIP_LD);
    if (both) {
        AMX_STORE(2, c + STRIP_DOWN, STRIP_LD);
        AMX_STORE(3, c + STRIP_DOWN + OZ_TILE_SIDE, STRIP_LD);
    }
}

/* What a step asks for. */
struct strip_ask {
    const uint8_t *far, *rows, *sums;
    int64_t far_lines, row_lines, sum_lines;
};

static inline struct strip_ask strip_asks(const struct oz_tile_call *q)
{
    const uint8_t *sums = (const uint8_t *)(const void *)q->c_next;
    return (struct strip_ask){.far = q->far.from,
                              .rows = q->rows_far.from,
                              .sums = sums,
                              .far_lines = q->far.from != NULL ? q->far.lines : 0,
                              .row_lines = q->rows_far.from != NULL ? q->rows_far.lines : 0,
                              .sum_lines =
                                  sums != NULL ? (STRIP_ROWS_ASKED + q->steps - 1) / q->steps : 0};
}

STRIP_INLINE void strip_ask(struct strip_ask *s)
{
    for (int64_t i = 0; i < s->far_lines; i++, s->far += STRIP_LINE) {
        __builtin_prefetch(s->far, 0, 2);
    }
    for (int64_t i = 0; i < s->row_lines; i++, s->rows += STRIP_LINE) {
        __builtin_prefetch(s->rows, 0, 2);
    }
    for (int64_t i = 0; i < s->sum_lines; i++, s->sums += STRIP_LINE) {
        __builtin_prefetch(s->sums, 0, 3);
    }
}

STRIP_INLINE void strip_plain(const struct oz_tile_call *q, bool both, bool s8)
{
    struct strip_ask ask = strip_asks(q);
    const uint8_t *a = q->a;
    const uint8_t *b = q->b;
    const int64_t a_step = q->a_step;
    strip_zero();
    if (!q->first) {
        strip_load(q->c, both);
    }
    for (int64_t i = 0; i < q->steps; i++, a += a_step, b += OZ_TILE_STEP) {
        strip_step(a, b, both, s8);
        strip_ask(&ask);
    }
    strip_store(q->c, both);
}

/* c = fma(partial scale of the row, scale of the column, c). Apart from the tiles' code: compilers do not
 * order plain loads and stores against theirs. */
static __attribute__((noinline)) void strip_scale(const struct oz_tile_call *q, int64_t group,
                                                  const float *partial)
{
    const float *w = q->w_scales != NULL ? q->w_scales + group * OZ_TILE_STRIP : NULL;
    bool first = q->first && group == 0;
    for (int64_t f = 0; f < OZ_TILE_STRIP; f += OZ_VL) {
        vf scale = w != NULL ? v_load(w + f) : v_set(1);
        for (int64_t r = 0; r < q->rows; r++) {
            int64_t at = r * OZ_TILE_STRIP + f;
            vf sum = first ? v_zero() : v_load(q->c + at);
            vf x = v_load(partial + at);
            if (q->a_scales != NULL) {
                x = v_mul(x, v_set(q->a_scales[r * q->scale_ld + group]));
            }
            v_store(q->c + at, v_fma(x, scale, sum));
        }
    }
}

STRIP_INLINE void strip_groups(const struct oz_tile_call *q, bool both)
{
    _Alignas(STRIP_LINE) float partial[OZ_TILE_SUMS];
    struct strip_ask ask = strip_asks(q);
    const uint8_t *a = q->a;
    const uint8_t *b = q->b;
    for (int64_t i = 0, group = 0; i < q->steps; group++) {
        int64_t end = i + q->group_steps < q->steps ? i + q->group_steps : q->steps;
        strip_zero();
        for (; i < end; i++, a += q->a_step, b += OZ_TILE_STEP) {
            strip_step(a, b, both, false);
            strip_ask(&ask);
        }
        strip_store(partial, both);
        strip_scale(q, group, partial);
    }
}

static inline void strip_run_bf16(const struct oz_tile_call *q)
{
    bool both = q->rows > OZ_TILE_SIDE;
    if (q->group_steps > 0) {
        if (both) {
            strip_groups(q, true);
        } else {
            strip_groups(q, false);
        }
    } else if (both) {
        strip_plain(q, true, false);
    } else {
        strip_plain(q, false, false);
    }
}

/* Without groups. */
static inline void strip_run_s8(const struct oz_tile_call *q)
{
    if (q->rows > OZ_TILE_SIDE) {
        strip_plain(q, true, true);
    } else {
        strip_plain(q, false, true);
    }
}

/* For caches of 48 KiB and 2 MiB, of which a neighbour on the core may take half. A panel's block takes
 * 32 KiB; sums of a task 576 KiB, its rows of a block 384 KiB. */
#define STRIP_TUNING                                                                          \
    {                                                                                         \
        .row_block = 384, .col_block = 384, .steps = 16, .panels = 1, .whole_bytes = 1 << 19, \
        .ask_sums = true, .ask_rows = true, .pack_bytes = 32 << 20, .least_work = 64000000,   \
        .least_weights = 1 << 20,                                                             \
    }

/* step: of K; bytes: of one of K. */
#define STRIP_KERNEL(step, bytes, run_, begin_)                                      \
    {                                                                                \
        .tuning = STRIP_TUNING, .k_step = (step), .element = (bytes), .run = (run_), \
        .begin = (begin_), .end = amx_end,                                           \
    }

#endif
