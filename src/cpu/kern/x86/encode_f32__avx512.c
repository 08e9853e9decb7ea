/* Encoders of f32, as adapters leave it, in vectors of 16 lanes; see encode_vec.h. */
#include "cpu/kern/x86/vec_avx512.h"

#define OZ_ENCODE_F32
#include "cpu/kern/x86/encode_vec.h"

ENCODERS(avx512, OZ_TIER_AVX512)
