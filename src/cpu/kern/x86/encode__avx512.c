/* Encoders in vectors of 16 lanes; see encode_vec.h. */
#include "cpu/kern/x86/vec_avx512.h"

#include "cpu/kern/x86/encode_vec.h"

ENCODERS(avx512, OZ_TIER_AVX512)
