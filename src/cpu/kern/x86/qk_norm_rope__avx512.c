/* qk_norm_rope in vectors of 16 lanes; see qk_norm_rope_vec.h. */
#include "cpu/kern/x86/vec_avx512.h"

#include "cpu/kern/x86/qk_norm_rope_vec.h"

const struct oz_cpu_kernel oz_kernel_qk_norm_rope__avx512 = {
    .name = "oz_qk_norm_rope_f32__avx512",
    .op = OZ_OP_QK_NORM_ROPE,
    .tier = OZ_TIER_AVX512,
    .proven = "Intel Xeon (Emerald Rapids), AMD EPYC (Zen 4)",
    .reject = qk_norm_rope_reject,
    .scratch = qk_norm_rope_scratch,
    .run = qk_norm_rope_run};
