/*
 * cpu/kern/x86/store_vec.h: the epilogue of linear and conv over a tile of sums (cpu/gemm.h), over
 * vec_avx2.h or vec_avx512.h. Whole vectors; the last columns of a matrix go through a copy.
 */
#ifndef OZ_CPU_KERN_X86_STORE_VEC_H
#define OZ_CPU_KERN_X86_STORE_VEC_H

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

/* Columns of a row: `cols` valid sums at y (and up), at column col of the output. */
static inline void v_store_row(const struct oz_gemm_epilogue *e, int64_t row, int64_t col,
                               int64_t cols, const float *y, const float *up)
{
    const float *gate = NULL;
    if (e->gate != NULL) {
        const struct oz_act *table = e->gate->table;
        int64_t index = e->mod_index != NULL ? e->mod_index[row] : 0;
        gate = (const float *)table->data + index * table->stride + e->gate->col + col;
    }
    float *residual =
        e->residual != NULL ? (float *)e->residual->data + row * e->residual->stride + col : NULL;
    const float *add =
        e->add != NULL ? (const float *)e->add->data + row * e->add->stride + col : NULL;
    for (int64_t c = 0; c < cols; c += OZ_VL) {
        int64_t n = cols - c < OZ_VL ? cols - c : OZ_VL;
        vf v = v_load(y + c); /* tiles are whole vectors */
        if (e->bias != NULL) {
            v = v_add(v, v_load_n(e->bias + col + c, n));
        }
        if (residual != NULL) {
            vf old = v_load_n(residual + c, n);
            v = gate != NULL ? v_fma(v_load_n(gate + c, n), v, old) : v_add(v, old);
            v_store_n(residual + c, v, n);
            continue;
        }
        if (add != NULL) {
            v = v_add(v, v_load_n(add + c, n));
        }
        v = v_fn(e->fn, v);
        if (up != NULL) {
            vf u = v_load(up + c);
            v = v_mul(v, e->up_bias != NULL ? v_add(u, v_load_n(e->up_bias + col + c, n)) : u);
        }
        if (e->out->spec.dtype == OZ_DTYPE_F32) {
            v_store_n((float *)e->out->data + row * e->out->stride + col + c, v, n);
            continue;
        }
        uint16_t *out = (uint16_t *)e->out->data + row * e->out->stride + col + c;
        if (n == OZ_VL) {
            v_store_bf16(out, v);
        } else {
            uint16_t lanes[OZ_VL];
            v_store_bf16(lanes, v);
            for (int64_t i = 0; i < n; i++) {
                out[i] = lanes[i];
            }
        }
    }
}

static inline void v_store_tile(const struct oz_gemm_epilogue *e, int64_t row0, int64_t rows,
                                int64_t col0, int64_t cols, float *y, float *up, int64_t ld)
{
    for (int64_t r = 0; r < rows; r++) {
        v_store_row(e, row0 + r, col0, cols, y + r * ld, up != NULL ? up + r * ld : NULL);
    }
}

static inline void v_decode_bf16(const uint16_t *src, int64_t count, float *dst)
{
    for (int64_t i = 0; i < count; i += OZ_VL) { /* panels are whole vectors */
        v_store(dst + i, v_load_bf16(src + i));
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
