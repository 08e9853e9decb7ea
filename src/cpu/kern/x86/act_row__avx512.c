/* Rows of activations to codes in vectors of 16 lanes; see act_row_vec.h. */
#include "cpu/kern/x86/vec_avx512.h"

#include "cpu/kern/x86/act_row_vec.h"

OZ_CODER(oz_coder__avx512, oz_kernel_act_quant_codes__avx512, "oz_act_quant_f32_codes__avx512",
         OZ_TIER_AVX512)
