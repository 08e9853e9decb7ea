/* embed in vectors of 16 lanes; see embed_vec.h. */
#include "cpu/kern/x86/vec_avx512.h"

#include "cpu/kern/x86/embed_vec.h"

const struct oz_cpu_kernel oz_kernel_embed__avx512 = {
    .name = "oz_embed_bf16_f32__avx512",
    .op = OZ_OP_EMBED,
    .tier = OZ_TIER_AVX512,
    .proven = "Intel Xeon (Emerald Rapids), AMD EPYC (Zen 4)",
    .reject = embed_reject,
    .scratch = oz_ref_scratch_embed,
    .run = embed_run};
