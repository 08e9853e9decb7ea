/* resample in vectors of 8 lanes; see resample_vec.h. */
#include "cpu/kern/x86/vec_avx2.h"

#include "cpu/kern/x86/resample_vec.h"

const struct oz_cpu_kernel oz_kernel_resample__avx2 = {.name = "oz_resample_f32_bf16__avx2",
                                                       .op = OZ_OP_RESAMPLE,
                                                       .tier = OZ_TIER_AVX2,
                                                       .proven = "AMD EPYC (Zen 3)",
                                                       .reject = resample_reject,
                                                       .scratch = oz_ref_scratch_none,
                                                       .run = resample_run};
