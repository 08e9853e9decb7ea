/* norm_mod in vectors of 16 lanes; see norm_mod_vec.h. */
#include "cpu/kern/x86/vec_avx512.h"

#include "cpu/kern/x86/norm_mod_vec.h"

const struct oz_cpu_kernel oz_kernel_norm_mod__avx512 = {
    .name = "oz_norm_mod_f32__avx512",
    .op = OZ_OP_NORM_MOD,
    .tier = OZ_TIER_AVX512,
    .proven = "Intel Xeon (Emerald Rapids), AMD EPYC (Zen 4)",
    .reject = norm_mod_reject,
    .codes = norm_mod_codes,
    .scratch = norm_mod_scratch,
    .run = norm_mod_run};
