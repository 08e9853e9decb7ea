/*
 * cpu/kern/x86/row_vec.h: what operators over rows share, over vec_avx2.h or vec_avx512.h: four
 * vectors at a time, sums of a row in double, which activations they take, and the grain.
 *
 * A row is walked in steps of OZ_STEP columns; the last step may be short and goes through partial
 * loads and stores of the same arithmetic. What happens to a column depends on the column and the
 * row's length only.
 */
#ifndef OZ_CPU_KERN_X86_ROW_VEC_H
#define OZ_CPU_KERN_X86_ROW_VEC_H

#include "cpu/kern/ref/ref.h"
#include "cpu/kern/x86/math_vec.h"
#include "cpu/kernel.h"

#define OZ_ALWAYS static inline __attribute__((always_inline))

/* A struct, since GCC keeps arrays of vectors in memory. */
struct v4 {
    vf a, b, c, d;
};

#define OZ_AT(place) ((int64_t)(place)*OZ_VL) /* first column of a vector of a step */
#define OZ_STEP OZ_AT(4)

/* Does `step` for whole steps of n columns and once more for what is left. `step` is an expression
 * of col (the first column), left (columns from it on, >= 1) and whole (a constant). */
#define OZ_EACH_STEP(n, step)                          \
    do {                                               \
        int64_t col = 0;                               \
        for (; col + OZ_STEP <= (n); col += OZ_STEP) { \
            const bool whole = true;                   \
            const int64_t left = OZ_STEP;              \
            step;                                      \
        }                                              \
        if (col < (n)) {                               \
            const bool whole = false;                  \
            const int64_t left = (n)-col;              \
            step;                                      \
        }                                              \
    } while (0)

/* Of `left` columns, those in vector `place` of a step: 0 to OZ_VL. */
OZ_ALWAYS int64_t v_share(int64_t left, int64_t place)
{
    int64_t n = left - place * OZ_VL;
    return n < 0 ? 0 : (n < OZ_VL ? n : OZ_VL);
}

OZ_ALWAYS struct v4 v4_load(const float *p, int64_t left, bool whole)
{
    if (whole) {
        return (struct v4){v_load(p), v_load(p + OZ_VL), v_load(p + OZ_AT(2)),
                           v_load(p + OZ_AT(3))};
    }
    return (struct v4){v_load_n(p, v_share(left, 0)), v_load_n(p + OZ_VL, v_share(left, 1)),
                       v_load_n(p + OZ_AT(2), v_share(left, 2)),
                       v_load_n(p + OZ_AT(3), v_share(left, 3))};
}

/* A masked store costs many times a plain one on some processors. */
OZ_ALWAYS void v_store_part(float *p, vf x, int64_t n)
{
    if (n == OZ_VL) {
        v_store(p, x);
    } else if (n > 0) {
        v_store_n(p, x, n);
    }
}

OZ_ALWAYS void v4_store(float *p, struct v4 x, int64_t left, bool whole)
{
    v_store_part(p, x.a, whole ? OZ_VL : v_share(left, 0));
    v_store_part(p + OZ_VL, x.b, whole ? OZ_VL : v_share(left, 1));
    v_store_part(p + OZ_AT(2), x.c, whole ? OZ_VL : v_share(left, 2));
    v_store_part(p + OZ_AT(3), x.d, whole ? OZ_VL : v_share(left, 3));
}

/* p may be of any alignment, as weights are. */
OZ_ALWAYS vf v_load_bf16_part(const uint16_t *p, int64_t n)
{
    uint16_t lanes[OZ_VL] = {0};
    if (n == OZ_VL) {
        return v_load_bf16(p);
    }
    memcpy(lanes, p, (size_t)n * sizeof *lanes);
    return v_load_bf16(lanes);
}

OZ_ALWAYS void v_store_bf16_part(uint16_t *p, vf x, int64_t n)
{
    uint16_t lanes[OZ_VL];
    if (n == OZ_VL) {
        v_store_bf16(p, x);
        return;
    }
    v_store_bf16(lanes, x);
    memcpy(p, lanes, (size_t)n * sizeof *lanes);
}

OZ_ALWAYS struct v4 v4_load_bf16(const uint16_t *p, int64_t left, bool whole)
{
    return (struct v4){v_load_bf16_part(p, whole ? OZ_VL : v_share(left, 0)),
                       v_load_bf16_part(p + OZ_VL, whole ? OZ_VL : v_share(left, 1)),
                       v_load_bf16_part(p + OZ_AT(2), whole ? OZ_VL : v_share(left, 2)),
                       v_load_bf16_part(p + OZ_AT(3), whole ? OZ_VL : v_share(left, 3))};
}

OZ_ALWAYS void v4_store_bf16(uint16_t *p, struct v4 x, int64_t left, bool whole)
{
    v_store_bf16_part(p, x.a, whole ? OZ_VL : v_share(left, 0));
    v_store_bf16_part(p + OZ_VL, x.b, whole ? OZ_VL : v_share(left, 1));
    v_store_bf16_part(p + OZ_AT(2), x.c, whole ? OZ_VL : v_share(left, 2));
    v_store_bf16_part(p + OZ_AT(3), x.d, whole ? OZ_VL : v_share(left, 3));
}

/* To column col of a row of an F32 or BF16 activation. */
OZ_ALWAYS void v4_store_act(const struct oz_act *out, int64_t row, int64_t col, struct v4 x,
                            int64_t left, bool whole)
{
    if (out->spec.dtype == OZ_DTYPE_BF16) {
        v4_store_bf16(oz_ref_bf16(out, row, col), x, left, whole);
    } else {
        v4_store(oz_ref_f32(out, row, col), x, left, whole);
    }
}

OZ_ALWAYS struct v4 v4_set(float x)
{
    vf v = v_set(x);
    return (struct v4){v, v, v, v};
}
OZ_ALWAYS struct v4 v4_add(struct v4 x, struct v4 y)
{
    return (struct v4){v_add(x.a, y.a), v_add(x.b, y.b), v_add(x.c, y.c), v_add(x.d, y.d)};
}
OZ_ALWAYS struct v4 v4_sub(struct v4 x, struct v4 y)
{
    return (struct v4){v_sub(x.a, y.a), v_sub(x.b, y.b), v_sub(x.c, y.c), v_sub(x.d, y.d)};
}
OZ_ALWAYS struct v4 v4_mul(struct v4 x, struct v4 y)
{
    return (struct v4){v_mul(x.a, y.a), v_mul(x.b, y.b), v_mul(x.c, y.c), v_mul(x.d, y.d)};
}
OZ_ALWAYS struct v4 v4_fma(struct v4 x, struct v4 y, struct v4 z) /* x y + z */
{
    return (struct v4){v_fma(x.a, y.a, z.a), v_fma(x.b, y.b, z.b), v_fma(x.c, y.c, z.c),
                       v_fma(x.d, y.d, z.d)};
}
OZ_ALWAYS struct v4 v4_sigmoid(struct v4 x)
{
    return (struct v4){v_sigmoid(x.a), v_sigmoid(x.b), v_sigmoid(x.c), v_sigmoid(x.d)};
}
/* All but GELU_ERF, which has no vector form. */
OZ_ALWAYS struct v4 v4_fn(enum oz_fn fn, struct v4 x)
{
    switch (fn) {
    case OZ_FN_SILU: return v4_mul(x, v4_sigmoid(x));
    case OZ_FN_SIGMOID: return v4_sigmoid(x);
    case OZ_FN_GELU_TANH:
        return (struct v4){v_gelu_tanh(x.a), v_gelu_tanh(x.b), v_gelu_tanh(x.c), v_gelu_tanh(x.d)};
    case OZ_FN_GELU_ERF:
    case OZ_FN_NONE: break;
    }
    return x;
}

/* Sums of a row in double. Which lane a column goes to, and the order in which lanes join, depend on
 * n alone. */
static inline double v_row_squares(const float *x, int64_t n)
{
    const int64_t half = OZ_VL / 2;
    vd q0 = vd_set(0);
    vd q1 = q0;
    vd q2 = q0;
    vd q3 = q0;
    int64_t c = 0;
    for (; c + 4 * half <= n; c += 4 * half) {
        vd d0 = vd_load(x + c);
        vd d1 = vd_load(x + c + half);
        vd d2 = vd_load(x + c + 2 * half);
        vd d3 = vd_load(x + c + 3 * half);
        q0 = vd_fma(d0, d0, q0);
        q1 = vd_fma(d1, d1, q1);
        q2 = vd_fma(d2, d2, q2);
        q3 = vd_fma(d3, d3, q3);
    }
    for (; c + half <= n; c += half) {
        vd d = vd_load(x + c);
        q0 = vd_fma(d, d, q0);
    }
    double squares = vd_sum(vd_add(vd_add(q0, q1), vd_add(q2, q3)));
    for (; c < n; c++) {
        squares += (double)x[c] * x[c];
    }
    return squares;
}

/* Of x - shift and of its square. */
struct v_sums {
    double sum, squares;
};

static inline struct v_sums v_row_sums(const float *x, int64_t n, double shift)
{
    const int64_t half = OZ_VL / 2;
    vd k = vd_set(shift);
    vd s0 = vd_set(0);
    vd s1 = s0;
    vd s2 = s0;
    vd s3 = s0;
    vd q0 = s0;
    vd q1 = s0;
    vd q2 = s0;
    vd q3 = s0;
    int64_t c = 0;
    for (; c + 4 * half <= n; c += 4 * half) {
        vd d0 = vd_sub(vd_load(x + c), k);
        vd d1 = vd_sub(vd_load(x + c + half), k);
        vd d2 = vd_sub(vd_load(x + c + 2 * half), k);
        vd d3 = vd_sub(vd_load(x + c + 3 * half), k);
        s0 = vd_add(s0, d0);
        s1 = vd_add(s1, d1);
        s2 = vd_add(s2, d2);
        s3 = vd_add(s3, d3);
        q0 = vd_fma(d0, d0, q0);
        q1 = vd_fma(d1, d1, q1);
        q2 = vd_fma(d2, d2, q2);
        q3 = vd_fma(d3, d3, q3);
    }
    for (; c + half <= n; c += half) {
        vd d = vd_sub(vd_load(x + c), k);
        s0 = vd_add(s0, d);
        q0 = vd_fma(d, d, q0);
    }
    struct v_sums sums = {.sum = vd_sum(vd_add(vd_add(s0, s1), vd_add(s2, s3))),
                          .squares = vd_sum(vd_add(vd_add(q0, q1), vd_add(q2, q3)))};
    for (; c < n; c++) {
        double d = x[c] - shift;
        sums.sum += d;
        sums.squares += d * d;
    }
    return sums;
}

/* ---- what they take ---- */

/* Why an operand does not fit, or NULL; `bf16`: BF16 is taken too. */
static inline const char *v_reject_act(const struct oz_act *a, bool bf16)
{
    if (a == NULL) {
        return NULL;
    }
    const struct oz_act_spec *s = &a->spec;
    if (s->dtype != OZ_DTYPE_F32 && !(bf16 && s->dtype == OZ_DTYPE_BF16)) {
        return bf16 ? "an operand is neither F32 nor BF16" : "an operand is not F32";
    }
    if (s->scale_count != 0 || s->smooth != NULL || s->rotate_cols != 0 || s->low_rank_a != NULL) {
        return "an operand has scales, smoothing, a rotation or a low-rank branch";
    }
    return NULL;
}

/* A [1, n] parameter as f32: its own memory where it lies so, else decoded to `room`. */
static inline const float *v_vector(const struct oz_param *p, int64_t n, float *room)
{
    if (p != NULL && p->name != NULL && p->weight.codec == oz_codec_plain(OZ_DTYPE_F32)) {
        return p->weight.planes[OZ_PLANE_CODES].data;
    }
    return oz_ref_vector(p, n, room);
}

/* Grain of a loop over rows: as the reference's, but all rows at once, on the calling thread, up to
 * 32768 elements: some 10 us of work, less than it may take to wake another thread. */
static inline int64_t v_grain(int64_t rows, int64_t cols)
{
    int64_t elems = oz_ref_times(rows, cols);
    return elems >= 0 && elems <= 32768 ? oz_ref_max(rows, 1) : oz_ref_grain(cols);
}

#endif
