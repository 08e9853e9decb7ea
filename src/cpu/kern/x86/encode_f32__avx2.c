/* Encoders of f32, as adapters leave it, in vectors of 8 lanes; see encode_vec.h. */
#include "cpu/kern/x86/vec_avx2.h"

#define OZ_ENCODE_F32
#include "cpu/kern/x86/encode_vec.h"

ENCODERS(avx2, OZ_TIER_AVX2)
