/* sched_step in vectors of 8 lanes; see sched_step_vec.h. */
#include "cpu/kern/x86/vec_avx2.h"

#include "cpu/kern/x86/sched_step_vec.h"

const struct oz_cpu_kernel oz_kernel_sched_step__avx2 = {.name = "oz_sched_step_f32__avx2",
                                                         .op = OZ_OP_SCHED_STEP,
                                                         .tier = OZ_TIER_AVX2,
                                                         .proven = "AMD EPYC (Zen 3)",
                                                         .reject = sched_step_reject,
                                                         .scratch = oz_ref_scratch_none,
                                                         .run = sched_step_run};
