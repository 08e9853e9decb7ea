/* norm_mod in vectors of 8 lanes; see norm_mod_vec.h. */
#include "cpu/kern/x86/vec_avx2.h"

#include "cpu/kern/x86/norm_mod_vec.h"

const struct oz_cpu_kernel oz_kernel_norm_mod__avx2 = {.name = "oz_norm_mod_f32__avx2",
                                                       .op = OZ_OP_NORM_MOD,
                                                       .tier = OZ_TIER_AVX2,
                                                       .proven = "AMD EPYC (Zen 3)",
                                                       .reject = norm_mod_reject,
                                                       .codes = norm_mod_codes,
                                                       .scratch = norm_mod_scratch,
                                                       .run = norm_mod_run};
