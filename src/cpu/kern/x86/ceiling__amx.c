/* Loops that measure what AMX can do at most (cpu/ceiling.h): four tiles of sums from four of
 * operands, as the kernels use them. */
#include <immintrin.h>

#include "cpu/ceiling.h"

/* Palette 1, eight tiles of 16 rows x 64 bytes. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static void begin(void)
{
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = 64;
        c.rows[i] = 16;
    }
    _tile_loadconfig(&c);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
}

double oz_ceiling_bf16__amx(int64_t count)
{
    begin();
    for (int64_t i = 0; i < count; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return 4.0 * 2 * 16 * 16 * 32 * (double)count;
}

double oz_ceiling_s8__amx(int64_t count)
{
    begin();
    for (int64_t i = 0; i < count; i++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_release();
    return 4.0 * 2 * 16 * 16 * 64 * (double)count;
}
