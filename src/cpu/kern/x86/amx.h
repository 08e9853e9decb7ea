/*
 * cpu/kern/x86/amx.h: tile instructions under names of our own, so that tests can put an emulation in
 * their place (tests/kern/amx_emulation.h). Tile numbers are constants. Compilers do not order tile
 * loads against plain stores of the same function: rows are written elsewhere, before the call.
 */
#ifndef OZ_CPU_KERN_X86_AMX_H
#define OZ_CPU_KERN_X86_AMX_H

#include <immintrin.h>
#include <stdint.h>

/* Palette 1. */
struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Eight tiles of 16 rows x 64 bytes, all zero; of this thread, until amx_end. */
static inline void amx_begin(void)
{
    struct amx_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = 64;
        c.rows[i] = 16;
    }
    /* Not _tile_loadconfig: GCC 12 and 13 tell the compiler that it reads 8 of the 64 bytes, and the
     * stores of the others are left out. */
    __asm__ volatile("ldtilecfg %0" : : "m"(c));
}

static inline void amx_end(void)
{
    _tile_release();
}

#define AMX_ZERO(t) _tile_zero(t)
#define AMX_LOAD(t, from, stride_bytes) _tile_loadd(t, from, stride_bytes)
/* What passes by and shall not push out of the first cache what stays there. */
#define AMX_LOAD_ONCE(t, from, stride_bytes) _tile_stream_loadd(t, from, stride_bytes)
#define AMX_STORE(t, to, stride_bytes) _tile_stored(t, to, stride_bytes)
#define AMX_DP_BF16(c, a, b) _tile_dpbf16ps(c, a, b)
#define AMX_DP_S8(c, a, b) _tile_dpbssd(c, a, b)

#endif
