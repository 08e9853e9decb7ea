/*
 * tests/kern/amx_emulation.h: tile instructions in C, in the place of cpu/kern/x86/amx.h (forced into
 * the unit of the AMX kernels with -include). Order and rounding as the Intel SDM gives them.
 */
#ifndef OZ_CPU_KERN_X86_AMX_H /* the guard of the real one, which then stays empty */
#define OZ_CPU_KERN_X86_AMX_H

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define EMU_TILES 8
#define EMU_ROWS 16
#define EMU_BYTES 64

/* The tiles of a thread, all in one shape. */
static _Thread_local struct {
    bool ready;
    uint8_t tile[EMU_TILES][EMU_ROWS][EMU_BYTES];
} emu;

static inline void amx_begin(void)
{
    memset(&emu, 0, sizeof emu);
    emu.ready = true;
}

static inline void amx_end(void)
{
    assert(emu.ready);
    emu.ready = false;
}

static inline void emu_load(int t, const void *from, int64_t stride_bytes)
{
    assert(emu.ready);
    for (int r = 0; r < EMU_ROWS; r++) {
        memcpy(emu.tile[t][r], (const uint8_t *)from + r * stride_bytes, EMU_BYTES);
    }
}

static inline void emu_store(int t, void *to, int64_t stride_bytes)
{
    assert(emu.ready);
    for (int r = 0; r < EMU_ROWS; r++) {
        memcpy((uint8_t *)to + r * stride_bytes, emu.tile[t][r], EMU_BYTES);
    }
}

static inline void emu_zero(int t)
{
    assert(emu.ready);
    memset(emu.tile[t], 0, sizeof emu.tile[t]);
}

/* A denormal number counts as zero of its sign (DAZ), and is written as one (FTZ). */
static inline float emu_flush(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

static inline float emu_bf16(const uint8_t *p)
{
    uint16_t h;
    float x;
    memcpy(&h, p, sizeof h);
    const uint32_t u = (uint32_t)h << 16;
    memcpy(&x, &u, sizeof x);
    return emu_flush(x);
}

#define EMU_COLS (EMU_BYTES / 4)

/* Pair k of a row: its even and its odd part, of EMU_COLS columns. */
static inline void emu_pairs(const uint8_t row[EMU_BYTES], float part[2][EMU_COLS])
{
    for (int col = 0; col < EMU_COLS; col++) {
        part[0][col] = emu_bf16(row + 4 * col);
        part[1][col] = emu_bf16(row + 4 * col + 2);
    }
}

/* TDPBF16PS: even and odd k in sums of their own, one fused multiply-add each, both from zero; then
 * even + odd; then the old value + that. */
static inline void emu_dp_bf16(int c, int a, int b)
{
    float right[EMU_ROWS][2][EMU_COLS];
    assert(emu.ready);
    for (int k = 0; k < EMU_ROWS; k++) {
        emu_pairs(emu.tile[b][k], right[k]);
    }
    for (int r = 0; r < EMU_ROWS; r++) {
        float left[2][EMU_COLS];
        float part[2][EMU_COLS] = {{0}};
        float sum[EMU_COLS];
        emu_pairs(emu.tile[a][r], left);
        for (int k = 0; k < EMU_ROWS; k++) {
            for (int odd = 0; odd < 2; odd++) {
                for (int col = 0; col < EMU_COLS; col++) {
                    part[odd][col] =
                        emu_flush(fmaf(left[odd][k], right[k][odd][col], part[odd][col]));
                }
            }
        }
        memcpy(sum, emu.tile[c][r], sizeof sum);
        for (int col = 0; col < EMU_COLS; col++) {
            sum[col] = emu_flush(emu_flush(sum[col]) + emu_flush(part[0][col] + part[1][col]));
        }
        memcpy(emu.tile[c][r], sum, sizeof sum);
    }
}

/* TDPBSSD: products of s8, four of K at a time, in sums of 32 bits that wrap. */
static inline void emu_dp_s8(int c, int a, int b)
{
    assert(emu.ready);
    for (int r = 0; r < EMU_ROWS; r++) {
        for (int col = 0; col < EMU_BYTES / 4; col++) {
            uint32_t sum;
            memcpy(&sum, emu.tile[c][r] + 4 * col, sizeof sum);
            for (int k = 0; k < EMU_BYTES; k++) {
                int32_t product =
                    (int8_t)emu.tile[a][r][k] * (int8_t)emu.tile[b][k / 4][4 * col + k % 4];
                sum += (uint32_t)product;
            }
            memcpy(emu.tile[c][r] + 4 * col, &sum, sizeof sum);
        }
    }
}

#define AMX_ZERO(t) emu_zero(t)
#define AMX_LOAD(t, from, stride_bytes) emu_load(t, from, stride_bytes)
#define AMX_LOAD_ONCE(t, from, stride_bytes) emu_load(t, from, stride_bytes)
#define AMX_STORE(t, to, stride_bytes) emu_store(t, to, stride_bytes)
#define AMX_DP_BF16(c, a, b) emu_dp_bf16(c, a, b)
#define AMX_DP_S8(c, a, b) emu_dp_s8(c, a, b)

#endif
