/* embed in vectors of 8 lanes; see embed_vec.h. */
#include "cpu/kern/x86/vec_avx2.h"

#include "cpu/kern/x86/embed_vec.h"

const struct oz_cpu_kernel oz_kernel_embed__avx2 = {.name = "oz_embed_bf16_f32__avx2",
                                                    .op = OZ_OP_EMBED,
                                                    .tier = OZ_TIER_AVX2,
                                                    .proven = "AMD EPYC (Zen 3)",
                                                    .reject = embed_reject,
                                                    .scratch = oz_ref_scratch_embed,
                                                    .run = embed_run};
