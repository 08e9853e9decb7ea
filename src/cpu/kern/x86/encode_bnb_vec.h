/*
 * cpu/kern/x86/encode_bnb_vec.h: bitsandbytes' 4-bit formats, beside codes_vec.h: blocks of the flat
 * matrix, each divided by its largest magnitude and coded by the nearest of 16 values
 * (num/codec_bnb.c).
 */
#ifndef OZ_CPU_KERN_X86_ENCODE_BNB_VEC_H
#define OZ_CPU_KERN_X86_ENCODE_BNB_VEC_H

#include "cpu/kern/x86/codes_vec.h"
#include "num/bnb.h"

#define NESTED 256 /* blocks under one nested scale */
#define MIN_ABSMAX 1e-38F
#define MOST_BLOCK 256 /* elements of a block that may run on in the next row */

/* ---- the nearest of 16 values ---- */

/* The bounds between values as searches read them, and codes in the order of values. */
struct nearest {
#if OZ_VL == 16
    vf half, quarter, eighth, last; /* bounds 7; from 3; from 1; from 0 */
#else
    vf half, low, high, eighth, last; /* bounds 7; 3; 11; 1 5 9 13; 0 2 .. 14 */
#endif
    vi codes;
};

/* In a lane the byte that it names, of the 16 of a table repeated. */
OZ_ALWAYS vi i_lookup(vi table, vi index)
{
    return I_(shuffle_epi8)(table, I_BITS(or)(index, i_set(0x80808000U)));
}

OZ_ALWAYS struct nearest nearest_of(const struct oz_codebook *book)
{
    float bounds[20] = {0};
    uint8_t order[16];
    struct nearest n;
    memcpy(bounds, book->bounds, 15 * sizeof *bounds);
    for (int i = 0; i < 16; i++) {
        order[i] = book->order != NULL ? book->order[i] : (uint8_t)i;
    }
    __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)order);
    n.half = v_set(bounds[7]);
    n.last = v_load(bounds);
#if OZ_VL == 16
    n.quarter = v_load(bounds + 3);
    n.eighth = v_load(bounds + 1);
    n.codes = _mm512_broadcast_i32x4(codes);
#else
    n.low = v_set(bounds[3]);
    n.high = v_set(bounds[11]);
    n.eighth = _mm256_setr_ps(bounds[1], bounds[5], bounds[9], bounds[13], 0, 0, 0, 0);
    n.last = _mm256_setr_ps(bounds[0], bounds[2], bounds[4], bounds[6], bounds[8], bounds[10],
                            bounds[12], bounds[14]);
    n.codes = _mm256_broadcastsi128_si256(codes);
#endif
    return n;
}

/* As oz_codebook_code, of what is not NaN: the number of bounds below x, by bisection. */
OZ_ALWAYS vi nearest_codes(const struct nearest *n, vf x)
{
#if OZ_VL == 16
    vi i = _mm512_maskz_set1_epi32(_mm512_cmp_ps_mask(x, n->half, _CMP_GT_OQ), 8);
    __mmask16 m = _mm512_cmp_ps_mask(x, _mm512_permutexvar_ps(i, n->quarter), _CMP_GT_OQ);
    i = _mm512_mask_add_epi32(i, m, i, i_set(4));
    m = _mm512_cmp_ps_mask(x, _mm512_permutexvar_ps(i, n->eighth), _CMP_GT_OQ);
    i = _mm512_mask_add_epi32(i, m, i, i_set(2));
    m = _mm512_cmp_ps_mask(x, _mm512_permutexvar_ps(i, n->last), _CMP_GT_OQ);
    i = _mm512_mask_add_epi32(i, m, i, i_set(1));
#else
    vf above = _mm256_cmp_ps(x, n->half, _CMP_GT_OQ); /* all ones where it is: -1 */
    vi i = i_bits(above);
    above = _mm256_cmp_ps(x, _mm256_blendv_ps(n->low, n->high, above), _CMP_GT_OQ);
    i = _mm256_add_epi32(_mm256_add_epi32(i, i), i_bits(above));
    i = _mm256_sub_epi32(_mm256_setzero_si256(), i);
    above = _mm256_cmp_ps(x, _mm256_permutevar8x32_ps(n->eighth, i), _CMP_GT_OQ);
    i = _mm256_sub_epi32(_mm256_add_epi32(i, i), i_bits(above));
    above = _mm256_cmp_ps(x, _mm256_permutevar8x32_ps(n->last, i), _CMP_GT_OQ);
    i = _mm256_sub_epi32(_mm256_add_epi32(i, i), i_bits(above));
#endif
    return i_lookup(n->codes, i);
}

/* ---- blocks ---- */

/* A block of the flat band: `count` elements, the first at row and col. Where it lies in one row and at
 * whole bytes it is read and written there, else through copies. */
struct block {
    int64_t row, col, count;
    bool direct;
    const stored *x;
    stored copy[MOST_BLOCK];
};

static int64_t blocks_of(const struct oz_weight *w, int64_t rows)
{
    return (rows * w->cols + w->group_cols - 1) / w->group_cols;
}

static bool knows_blocks(const struct oz_weight *w)
{
    return w->group_cols > 0 && w->group_cols <= MOST_BLOCK && w->group_cols % 16 == 0;
}

static void open_block(const struct oz_weight *w, const stored *x, int64_t rows, int64_t stride,
                       int64_t index, struct block *b)
{
    int64_t flat = index * w->group_cols;
    b->row = flat / w->cols;
    b->col = flat % w->cols;
    b->count = oz_min_count(w->group_cols, rows * w->cols - flat);
    b->direct = b->count == w->group_cols && b->col + b->count <= w->cols && b->col % 2 == 0;
    b->x = x + b->row * stride + b->col;
    if (b->direct) {
        return;
    }
    memset(b->copy, 0, sizeof b->copy);
    for (int64_t i = 0; i < b->count; i++, flat++) {
        b->copy[i] = x[flat / w->cols * stride + flat % w->cols];
    }
    b->x = b->copy;
}

static void code_block(struct oz_weight *w, int64_t slice, int64_t row0, const struct block *b,
                       const struct nearest *n, float absmax)
{
    uint8_t out[MOST_BLOCK / 2];
    uint8_t *to = out;
    vf inverse = v_set(1.0F / (absmax > MIN_ABSMAX ? absmax : MIN_ABSMAX));
    if (b->direct) {
        to = oz_plane_row(w, OZ_PLANE_CODES, slice, row0 + b->row) + b->col / 2;
    }
    for (int64_t i = 0; i < b->count; i += OZ_VL) {
        i_store_nibbles(to + i / 2, nearest_codes(n, v_mul(load(b->x + i), inverse)));
    }
    for (int64_t i = 0; !b->direct && i < b->count; i++) {
        int64_t flat = b->row * w->cols + b->col + i;
        uint8_t *codes = oz_plane_row(w, OZ_PLANE_CODES, slice, row0 + flat / w->cols);
        oz_nibble_put(codes, flat % w->cols, oz_nibble_get(out, i));
    }
}

/* ---- encoders ---- */

OZ_ALWAYS bool encode_plain(const struct oz_codebook *book, struct oz_weight *w, int64_t slice,
                            int64_t row0, const stored *x, int64_t rows, int64_t stride)
{
    struct nearest n = nearest_of(book);
    uint8_t *scales = oz_plane_row(w, OZ_PLANE_SCALES, slice, 0);
    int64_t first = row0 * w->cols / oz_max_count(w->group_cols, 1);
    struct block b;
    for (int64_t i = 0; knows_blocks(w) && i < blocks_of(w, rows); i++) {
        open_block(w, x, rows, stride, i, &b);
        magnitude most = largest(b.x, b.count);
        if (most >= INFINITE) {
            return false;
        }
        code_block(w, slice, row0, &b, &n, value_of(most));
        oz_plane_put_f32(scales, first + i, value_of(most));
    }
    return knows_blocks(w);
}

static bool observe_nested(const struct oz_weight *w, int64_t row0, const void *src, int64_t rows,
                           int64_t stride, struct oz_encode_state *state)
{
    double sum = state->sum; /* in the order of the blocks, as num/ adds them */
    struct block b;
    (void)row0;
    for (int64_t i = 0; knows_blocks(w) && i < blocks_of(w, rows); i++) {
        open_block(w, src, rows, stride, i, &b);
        magnitude most = largest(b.x, b.count);
        if (most >= INFINITE) {
            return false;
        }
        sum += (double)value_of(most);
    }
    if (knows_blocks(w)) {
        state->sum = sum;
        state->count += blocks_of(w, rows);
    }
    return knows_blocks(w);
}

/* The whole slice. */
OZ_ALWAYS bool encode_nests(const struct oz_codebook *book, struct oz_weight *w, int64_t slice,
                            int64_t row0, const stored *x, int64_t rows, int64_t stride)
{
    struct nearest n = nearest_of(book);
    uint8_t *scales = oz_plane_row(w, OZ_PLANE_SCALES, slice, 0);
    uint8_t *nested = oz_plane_row(w, OZ_PLANE_SCALES2, slice, 0);
    float offset = oz_plane_get(OZ_DTYPE_F32, oz_plane_row(w, OZ_PLANE_OFFSETS, slice, 0), 0);
    int64_t first = row0 * w->cols / oz_max_count(w->group_cols, 1);
    struct block b;
    for (int64_t i = 0; knows_blocks(w) && i < blocks_of(w, rows); i += NESTED) {
        float centred[NESTED];
        bool unused = false;
        int64_t count = oz_min_count(NESTED, blocks_of(w, rows) - i);
        for (int64_t j = 0; j < count; j++) {
            open_block(w, x, rows, stride, i + j, &b);
            magnitude most = largest(b.x, b.count);
            if (most >= INFINITE) {
                return false;
            }
            code_block(w, slice, row0, &b, &n, value_of(most));
            centred[j] = value_of(most) - offset;
        }
        float scale = oz_group_amax(centred, count, &unused);
        float inverse = 1.0F / (scale > MIN_ABSMAX ? scale : MIN_ABSMAX);
        for (int64_t j = 0; j < count; j++) {
            scales[first + i + j] = oz_codebook_code(&oz_codebook_dynamic8, centred[j] * inverse);
        }
        oz_plane_put_f32(nested, (first + i) / NESTED, scale);
    }
    return knows_blocks(w);
}

#define BNB(name, form, book)                                                           \
    static bool name(struct oz_weight *w, int64_t slice, int64_t row0, const void *src, \
                     int64_t rows, int64_t stride, struct oz_encode_state *state)       \
    {                                                                                   \
        (void)state;                                                                    \
        return form(book, w, slice, row0, src, rows, stride);                           \
    }

BNB(encode_nf4, encode_plain, &oz_codebook_nf4)
BNB(encode_fp4_bnb, encode_plain, &oz_codebook_fp4_bnb)
BNB(encode_nf4_nested, encode_nests, &oz_codebook_nf4)
BNB(encode_fp4_bnb_nested, encode_nests, &oz_codebook_fp4_bnb)

#endif
