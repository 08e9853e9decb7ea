/* sched_step in vectors of 16 lanes; see sched_step_vec.h. */
#include "cpu/kern/x86/vec_avx512.h"

#include "cpu/kern/x86/sched_step_vec.h"

const struct oz_cpu_kernel oz_kernel_sched_step__avx512 = {
    .name = "oz_sched_step_f32__avx512",
    .op = OZ_OP_SCHED_STEP,
    .tier = OZ_TIER_AVX512,
    .proven = "Intel Xeon (Emerald Rapids), AMD EPYC (Zen 4)",
    .reject = sched_step_reject,
    .scratch = oz_ref_scratch_none,
    .run = sched_step_run};
