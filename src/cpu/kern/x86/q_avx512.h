/*
 * cpu/kern/x86/q_avx512.h: what the kernels of codes share on AVX-512: groups. Beside vec_avx512.h.
 */
#ifndef OZ_CPU_KERN_X86_Q_AVX512_H
#define OZ_CPU_KERN_X86_Q_AVX512_H

#include "cpu/kern/x86/q_end_vec.h"

/* ---- groups ---- */

/*
 * Rows by a decoded block, in groups: six rows by 32 columns have twelve partial sums and twelve sums. A unit
 * defines, before it includes this file with Q_GROUPS: Q_KR, q_v, q_set, q_get(b, lane), q_dot, and
 * q_begin(offset pointer or NULL), q_value (a partial sum in f32).
 */
#if defined(Q_GROUPS)

#define Q_A_BYTES 4 /* of a row in a step */
#define Q_UNROLL 4

#define Q_LOAD(r)                                             \
    vf lo##r = q->first ? v_zero() : v_load(c + (r)*OZ_Q_NR); \
    vf hi##r = q->first ? v_zero() : v_load(c + (r)*OZ_Q_NR + OZ_VL);
#define Q_BEGIN(r)                                                                         \
    vf plo##r = q_begin(q->a_offsets != NULL ? q->a_offsets + (r)*q->scale_ld + g : NULL); \
    vf phi##r = plo##r;
#define Q_ROW(r)                                            \
    x = q_set((r) < 3 ? a + (r)*row : far + ((r)-3) * row); \
    plo##r = q_dot(plo##r, x, b0);                          \
    phi##r = q_dot(phi##r, x, b1);
#define Q_SCALE(r)                                          \
    {                                                       \
        vf v0 = q_value(plo##r);                            \
        vf v1 = q_value(phi##r);                            \
        if (q->a_scales != NULL) {                          \
            vf s = v_set(q->a_scales[(r)*q->scale_ld + g]); \
            v0 = v_mul(v0, s);                              \
            v1 = v_mul(v1, s);                              \
        }                                                   \
        lo##r = v_fma(v0, w0, lo##r);                       \
        hi##r = v_fma(v1, w1, hi##r);                       \
    }
#define Q_STORE(r)                   \
    v_store(c + (r)*OZ_Q_NR, lo##r); \
    v_store(c + (r)*OZ_Q_NR + OZ_VL, hi##r);

#define Q_ROWS_1(X) X(0)
#define Q_ROWS_2(X) Q_ROWS_1(X) X(1)
#define Q_ROWS_3(X) Q_ROWS_2(X) X(2)
#define Q_ROWS_4(X) Q_ROWS_3(X) X(3)
#define Q_ROWS_5(X) Q_ROWS_4(X) X(4)
#define Q_ROWS_6(X) Q_ROWS_5(X) X(5)

#define Q_GROUP_TILE(name, ROWS)                                                                \
    OZ_Q_INLINE void name(const struct oz_qblock *q, const uint8_t *b)                          \
    {                                                                                           \
        const int64_t row = q->lda * (Q_A_BYTES / Q_KR);                                        \
        const uint8_t *a = q->a;                                                                \
        const uint8_t *far = a + 3 * row;                                                       \
        float *c = q->c;                                                                        \
        int64_t g = 0;                                                                          \
        ROWS(Q_LOAD)                                                                            \
        for (int64_t k = 0; k < q->k; k += q->group, g++) {                                     \
            vf w0 = q->w_scales != NULL ? v_load(q->w_scales + g * OZ_Q_NR) : v_set(1);         \
            vf w1 = q->w_scales != NULL ? v_load(q->w_scales + g * OZ_Q_NR + OZ_VL) : v_set(1); \
            ROWS(Q_BEGIN)                                                                       \
            for (int64_t i = 0; i < q->group; i += Q_UNROLL * Q_KR) {                           \
                _Pragma("GCC unroll 4") for (int j = 0; j < Q_UNROLL; j++)                      \
                {                                                                               \
                    q_v x;                                                                      \
                    q_v b0 = q_get(b, 0);                                                       \
                    q_v b1 = q_get(b, 1);                                                       \
                    ROWS(Q_ROW)                                                                 \
                    b += 128;                                                                   \
                    a += Q_A_BYTES;                                                             \
                    far += Q_A_BYTES;                                                           \
                }                                                                               \
            }                                                                                   \
            ROWS(Q_SCALE)                                                                       \
        }                                                                                       \
        ROWS(Q_STORE)                                                                           \
    }

Q_GROUP_TILE(q_group_1, Q_ROWS_1)
Q_GROUP_TILE(q_group_2, Q_ROWS_2)
Q_GROUP_TILE(q_group_3, Q_ROWS_3)
Q_GROUP_TILE(q_group_4, Q_ROWS_4)
Q_GROUP_TILE(q_group_5, Q_ROWS_5)
Q_GROUP_TILE(q_group_6, Q_ROWS_6)
#define Q_GROUP_MR 6

/* The end of a group of a single row, as Q_SCALE: partial sums to sums. scaled: both have scales. */
OZ_Q_INLINE void q_add_group(bool scaled, const float *row, const float *weight, int64_t g, vf plo,
                             vf phi, vf *lo, vf *hi)
{
    vf v0 = q_value(plo);
    vf v1 = q_value(phi);
    vf one = v_set(1);
    if (scaled || row != NULL) {
        v0 = v_mul(v0, v_set(row[g]));
        v1 = v_mul(v1, v_set(row[g]));
    }
    bool weighted = scaled || weight != NULL;
    *lo = v_fma(v0, weighted ? v_load(weight + g * OZ_Q_NR) : one, *lo);
    *hi = v_fma(v1, weighted ? v_load(weight + g * OZ_Q_NR + OZ_VL) : one, *hi);
}

/* 128 bytes of codes by one row: to the partial sums of features 0 to 15 and 16 to 31. */
typedef void (*q_step_fn)(const void *tables, const uint8_t *codes, const uint8_t *a, vf *lo,
                          vf *hi);

/* How one row walks through groups of codes. */
struct q_few_shape {
    int64_t groups, group_bytes, row_bytes, steps, a_step;
};

OZ_Q_INLINE struct q_few_shape q_few_shape(const struct oz_qblock *q, int64_t code_bits)
{
    struct q_few_shape s = {.groups = q->k / q->group,
                            .group_bytes = q->group * OZ_Q_NR * code_bits / 8,
                            .row_bytes = q->group * Q_A_BYTES / Q_KR};
    s.steps = s.group_bytes / 128;
    s.a_step = s.row_bytes / s.steps;
    return s;
}

#define Q_FEW_BEGIN(i)                                             \
    vf p##i = q_begin(offsets != NULL ? offsets + g + (i) : NULL); \
    vf r##i = p##i;
#define Q_FEW_STEP(i)                        \
    q_ahead(codes + (i)*s.group_bytes);      \
    q_ahead(codes + (i)*s.group_bytes + 64); \
    step(tables, codes + (i)*s.group_bytes, a + (i)*s.row_bytes, &p##i, &r##i);
#define Q_FEW_END(i) q_add_group(scaled, row, weight, g + (i), p##i, r##i, &lo, &hi);

/* Groups side by side, as long as there are so many. */
#define Q_FEW_GROUPS(count, ROWS)                                                              \
    for (; g + (count) <= s.groups;                                                            \
         g += (count), codes += ((count)-1) * s.group_bytes, a += ((count)-1) * s.row_bytes) { \
        ROWS(Q_FEW_BEGIN)                                                                      \
        for (int64_t i = 0; i < s.steps; i++, codes += 128, a += s.a_step) {                   \
            ROWS(Q_FEW_STEP)                                                                   \
        }                                                                                      \
        ROWS(Q_FEW_END)                                                                        \
    }

/* Panels side by side. */
#define Q_PANEL_LOAD(i)                                          \
    vf lo##i = q->first ? v_zero() : v_load(q->c + (i)*q->c_ld); \
    vf hi##i = q->first ? v_zero() : v_load(q->c + (i)*q->c_ld + OZ_VL);
#define Q_PANEL_BEGIN(i)                                     \
    vf p##i = q_begin(offsets != NULL ? offsets + g : NULL); \
    vf r##i = p##i;
#define Q_PANEL_NEAR(i)                 \
    q_near(codes + (i)*q->panel_bytes); \
    q_near(codes + (i)*q->panel_bytes + 64);
#define Q_PANEL_STEP(i) \
    Q_PANEL_NEAR(i)     \
    step(tables, codes + (i)*q->panel_bytes, a, &p##i, &r##i);
#define Q_WHOLE_STEP(i) \
    Q_PANEL_NEAR(i)     \
    step(tables, codes + (i)*q->panel_bytes, a, &lo##i, &hi##i);
#define Q_PANEL_END(i)                                                                            \
    q_add_group(scaled, row, weight != NULL ? weight + (i)*q->w_ld : NULL, g, p##i, r##i, &lo##i, \
                &hi##i);
#define Q_PANEL_STORE(i)                \
    v_store(q->c + (i)*q->c_ld, lo##i); \
    v_store(q->c + (i)*q->c_ld + OZ_VL, hi##i);

OZ_Q_INLINE void q_few_panels(const struct oz_qblock *q, const uint8_t *codes, int64_t code_bits,
                              bool scaled, q_step_fn step, const void *tables)
{
    const uint8_t *a = q->a;
    const float *const row = q->a_scales;
    const float *const weight = q->w_scales;
    const int32_t *const offsets = q->a_offsets;
    const struct q_few_shape s = q_few_shape(q, code_bits);
    Q_ROWS_4(Q_PANEL_LOAD)
    for (int64_t g = 0; g < s.groups; g++) {
        Q_ROWS_4(Q_PANEL_BEGIN)
        for (int64_t i = 0; i < s.steps; i++, codes += 128, a += s.a_step) {
            Q_ROWS_4(Q_PANEL_STEP)
        }
        Q_ROWS_4(Q_PANEL_END)
    }
    Q_ROWS_4(Q_PANEL_STORE)
}

/*
 * One row, codes as they stream, in groups; the same sums as q_group_1. Of one panel four groups at once: the
 * products of one wait for one another, and what a core sees ahead is hardly more than the next. But not so
 * many that what one asks for ahead is what another reads. scaled: do rows and weights both have scales,
 * always?
 */
OZ_Q_INLINE void q_few_groups(const struct oz_qblock *q, const uint8_t *codes, int64_t code_bits,
                              bool scaled, q_step_fn step, const void *tables)
{
    if (q->panels == Q_PANELS) {
        q_few_panels(q, codes, code_bits, scaled, step, tables);
        return;
    }
    const uint8_t *a = q->a;
    const float *const row = q->a_scales;
    const float *const weight = q->w_scales;
    const int32_t *const offsets = q->a_offsets;
    const struct q_few_shape s = q_few_shape(q, code_bits);
    vf lo = q->first ? v_zero() : v_load(q->c);
    vf hi = q->first ? v_zero() : v_load(q->c + OZ_VL);
    int64_t g = 0;
    if (4 * s.group_bytes <= Q_AHEAD) {
        Q_FEW_GROUPS(4, Q_ROWS_4)
    }
    Q_FEW_GROUPS(2, Q_ROWS_2)
    Q_FEW_GROUPS(1, Q_ROWS_1)
    v_store(q->c, lo);
    v_store(q->c + OZ_VL, hi);
}

/* The same without groups: sums of all of K, first to last. k_step: of K in a step. */
OZ_Q_INLINE void q_few_whole(const struct oz_qblock *q, const uint8_t *codes, int64_t k_step,
                             q_step_fn step, const void *tables)
{
    const uint8_t *a = q->a;
    const int64_t a_step = k_step * Q_A_BYTES / Q_KR;
    if (q->panels == Q_PANELS) {
        Q_ROWS_4(Q_PANEL_LOAD)
        for (int64_t k = 0; k < q->k; k += k_step, codes += 128, a += a_step) {
            Q_ROWS_4(Q_WHOLE_STEP)
        }
        Q_ROWS_4(Q_PANEL_STORE)
        return;
    }
    vf lo = q->first ? v_zero() : v_load(q->c);
    vf hi = q->first ? v_zero() : v_load(q->c + OZ_VL);
    for (int64_t k = 0; k < q->k; k += k_step, codes += 128, a += a_step) {
        q_ahead(codes);
        q_ahead(codes + 64);
        step(tables, codes, a, &lo, &hi);
    }
    v_store(q->c, lo);
    v_store(q->c + OZ_VL, hi);
}

static void q_run_groups(int64_t rows, const struct oz_qblock *q, const void *b)
{
    switch (rows) {
    case 1: q_group_1(q, b); break;
    case 2: q_group_2(q, b); break;
    case 3: q_group_3(q, b); break;
    case 4: q_group_4(q, b); break;
    case 5: q_group_5(q, b); break;
    default: q_group_6(q, b); break;
    }
}
#endif

#endif
