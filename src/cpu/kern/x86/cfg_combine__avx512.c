/* cfg_combine in vectors of 16 lanes; see cfg_combine_vec.h. */
#include "cpu/kern/x86/vec_avx512.h"

#include "cpu/kern/x86/cfg_combine_vec.h"

const struct oz_cpu_kernel oz_kernel_cfg_combine__avx512 = {
    .name = "oz_cfg_combine_f32__avx512",
    .op = OZ_OP_CFG_COMBINE,
    .tier = OZ_TIER_AVX512,
    .proven = "Intel Xeon (Emerald Rapids), AMD EPYC (Zen 4)",
    .reject = cfg_combine_reject,
    .scratch = oz_ref_scratch_none,
    .run = cfg_combine_run};
