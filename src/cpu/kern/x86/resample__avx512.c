/* resample in vectors of 16 lanes; see resample_vec.h. */
#include "cpu/kern/x86/vec_avx512.h"

#include "cpu/kern/x86/resample_vec.h"

const struct oz_cpu_kernel oz_kernel_resample__avx512 = {
    .name = "oz_resample_f32_bf16__avx512",
    .op = OZ_OP_RESAMPLE,
    .tier = OZ_TIER_AVX512,
    .proven = "Intel Xeon (Emerald Rapids), AMD EPYC (Zen 4)",
    .reject = resample_reject,
    .scratch = oz_ref_scratch_none,
    .run = resample_run};
