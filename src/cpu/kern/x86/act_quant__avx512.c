/* act_quant in vectors of 16 lanes; see act_quant_vec.h. */
#include "cpu/kern/x86/vec_avx512.h"

#include "cpu/kern/x86/act_quant_vec.h"

const struct oz_cpu_kernel oz_kernel_act_quant__avx512 = {
    .name = "oz_act_quant_f32_bf16__avx512",
    .op = OZ_OP_ACT_QUANT,
    .tier = OZ_TIER_AVX512,
    .proven = "Intel Xeon (Emerald Rapids), AMD EPYC (Zen 4)",
    .reject = act_quant_reject,
    .scratch = oz_ref_scratch_none,
    .run = act_quant_run};
