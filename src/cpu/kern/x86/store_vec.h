/*
 * cpu/kern/x86/store_vec.h: the epilogue of linear and conv over a tile of sums (cpu/gemm.h), over
 * vec_avx2.h or vec_avx512.h. Whole vectors; the last columns of a matrix go through a copy.
 */
#ifndef OZ_CPU_KERN_X86_STORE_VEC_H
#define OZ_CPU_KERN_X86_STORE_VEC_H

#include <string.h>

#include "cpu/gemm.h"
#include "cpu/kern/x86/math_vec.h"

static inline vf v_fn(enum oz_fn fn, vf x)
{
    switch (fn) {
    case OZ_FN_SILU: return v_mul(x, v_sigmoid(x));
    case OZ_FN_SIGMOID: return v_sigmoid(x);
    case OZ_FN_GELU_TANH: return v_gelu_tanh(x);
    case OZ_FN_GELU_ERF: {
        float lanes[OZ_VL];
        v_store(lanes, x);
        v_fn_row(fn, lanes, OZ_VL);
        return v_load(lanes);
    }
    case OZ_FN_NONE: break;
    }
    return x;
}

/* What an epilogue reads and writes in one row, from the tile's first column on. NULL: absent. */
struct store_row {
    const float *y, *up;
    const float *bias, *up_bias, *gate, *add;
    float *residual;
    float *f32;     /* out, in one */
    uint16_t *bf16; /* of its formats */
};

static inline struct store_row v_store_row(const struct oz_gemm_epilogue *e, int64_t row,
                                           int64_t col, const float *y, const float *up)
{
    struct store_row r = {.y = y, .up = up};
    r.bias = e->bias != NULL ? e->bias + col : NULL;
    r.up_bias = e->up_bias != NULL ? e->up_bias + col : NULL;
    if (e->gate != NULL) {
        const struct oz_act *table = e->gate->table;
        int64_t index = e->mod_index != NULL ? e->mod_index[row] : 0;
        r.gate = (const float *)table->data + index * table->stride + e->gate->col + col;
    }
    if (e->add != NULL) {
        r.add = (const float *)e->add->data + row * e->add->stride + col;
    }
    if (e->residual != NULL) {
        r.residual = (float *)e->residual->data + row * e->residual->stride + col;
    } else if (e->out->spec.dtype == OZ_DTYPE_F32) {
        r.f32 = (float *)e->out->data + row * e->out->stride + col;
    } else {
        r.bf16 = (uint16_t *)e->out->data + row * e->out->stride + col;
    }
    return r;
}

/* Masked accesses are slow on some processors, so whole vectors go without. */
static inline __attribute__((always_inline)) vf v_part(const float *p, int64_t n, bool whole)
{
    return whole ? v_load(p) : v_load_n(p, n);
}

static inline __attribute__((always_inline)) void v_put(float *p, vf x, int64_t n, bool whole)
{
    if (whole) {
        v_store(p, x);
    } else {
        v_store_n(p, x, n);
    }
}

/* n columns from c on. */
static inline __attribute__((always_inline)) void
v_store_cols(const struct store_row *r, enum oz_fn fn, int64_t c, int64_t n, bool whole)
{
    vf v = v_load(r->y + c); /* tiles are whole vectors */
    if (r->bias != NULL) {
        v = v_add(v, v_part(r->bias + c, n, whole));
    }
    if (r->residual != NULL) {
        vf old = v_part(r->residual + c, n, whole);
        v = r->gate != NULL ? v_fma(v_part(r->gate + c, n, whole), v, old) : v_add(v, old);
        v_put(r->residual + c, v, n, whole);
        return;
    }
    if (r->add != NULL) {
        v = v_add(v, v_part(r->add + c, n, whole));
    }
    v = v_fn(fn, v);
    if (r->up != NULL) {
        vf u = v_load(r->up + c);
        v = v_mul(v, r->up_bias != NULL ? v_add(u, v_part(r->up_bias + c, n, whole)) : u);
    }
    if (r->f32 != NULL) {
        v_put(r->f32 + c, v, n, whole);
    } else if (whole) {
        v_store_bf16(r->bf16 + c, v);
    } else {
        uint16_t lanes[OZ_VL];
        v_store_bf16(lanes, v);
        for (int64_t i = 0; i < n; i++) {
            r->bf16[c + i] = lanes[i];
        }
    }
}

static inline void v_store_tile(const struct oz_gemm_epilogue *e, int64_t row0, int64_t rows,
                                int64_t col0, int64_t cols, float *y, float *up, int64_t ld)
{
    for (int64_t i = 0; i < rows; i++) {
        struct store_row r =
            v_store_row(e, row0 + i, col0, y + i * ld, up != NULL ? up + i * ld : NULL);
        int64_t c = 0;
        for (; c + OZ_VL <= cols; c += OZ_VL) {
            v_store_cols(&r, e->fn, c, OZ_VL, true);
        }
        if (c < cols) {
            v_store_cols(&r, e->fn, c, cols - c, false);
        }
    }
}

/* bf16 to f32. */
static inline void v_decode_bf16(const uint16_t *src, int64_t count, float *dst)
{
    int64_t i = 0;
    for (; i + OZ_VL <= count; i += OZ_VL) {
        v_store(dst + i, v_load_bf16(src + i));
    }
    for (; i < count; i++) {
        const uint32_t u = (uint32_t)src[i] << 16;
        memcpy(dst + i, &u, sizeof u);
    }
}

/* f32 rounded to bf16, kept as f32; dst may be src. */
static inline void v_round_to_bf16_row(const float *src, int64_t count, void *dst)
{
    float *out = dst;
    uint16_t lanes[2 * OZ_VL];
    int64_t i = 0;
    for (; i + 2 * OZ_VL <= count; i += 2 * OZ_VL) {
        v_store_bf16(lanes, v_load(src + i));
        v_store_bf16(lanes + OZ_VL, v_load(src + i + OZ_VL));
        v_store(out + i, v_load_bf16(lanes));
        v_store(out + i + OZ_VL, v_load_bf16(lanes + OZ_VL));
    }
    for (; i < count; i += OZ_VL) {
        int64_t n = count - i < OZ_VL ? count - i : OZ_VL;
        v_store_bf16(lanes, v_load_n(src + i, n));
        v_store_n(out + i, v_load_bf16(lanes), n);
    }
}

static inline void v_to_bf16_row(const float *src, int64_t count, void *dst)
{
    uint16_t *out = dst;
    int64_t i = 0;
    for (; i + OZ_VL <= count; i += OZ_VL) {
        v_store_bf16(out + i, v_load(src + i));
    }
    if (i < count) {
        uint16_t lanes[OZ_VL];
        v_store_bf16(lanes, v_load_n(src + i, count - i));
        for (int64_t j = 0; i + j < count; j++) {
            out[i + j] = lanes[j];
        }
    }
}

#endif
