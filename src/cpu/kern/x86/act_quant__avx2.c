/* act_quant in vectors of 8 lanes; see act_quant_vec.h. */
#include "cpu/kern/x86/vec_avx2.h"

#include "cpu/kern/x86/act_quant_vec.h"

const struct oz_cpu_kernel oz_kernel_act_quant__avx2 = {.name = "oz_act_quant_f32_bf16__avx2",
                                                        .op = OZ_OP_ACT_QUANT,
                                                        .tier = OZ_TIER_AVX2,
                                                        .proven = "AMD EPYC (Zen 3)",
                                                        .reject = act_quant_reject,
                                                        .scratch = oz_ref_scratch_none,
                                                        .run = act_quant_run};
