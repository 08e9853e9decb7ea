/* Loops that measure what AMX can do at most (cpu/ceiling.h): four tiles of sums from four of
 * operands, as the kernels use them. */
#include "cpu/ceiling.h"
#include "cpu/kern/x86/amx.h"

double oz_ceiling_bf16__amx(int64_t count)
{
    amx_begin();
    for (int64_t i = 0; i < count; i++) {
        AMX_DP_BF16(0, 4, 6);
        AMX_DP_BF16(1, 4, 7);
        AMX_DP_BF16(2, 5, 6);
        AMX_DP_BF16(3, 5, 7);
    }
    amx_end();
    return 4.0 * 2 * 16 * 16 * 32 * (double)count;
}

double oz_ceiling_s8__amx(int64_t count)
{
    amx_begin();
    for (int64_t i = 0; i < count; i++) {
        AMX_DP_S8(0, 4, 6);
        AMX_DP_S8(1, 4, 7);
        AMX_DP_S8(2, 5, 6);
        AMX_DP_S8(3, 5, 7);
    }
    amx_end();
    return 4.0 * 2 * 16 * 16 * 64 * (double)count;
}
