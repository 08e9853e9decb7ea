/* Encoders in vectors of 8 lanes; see encode_vec.h. */
#include "cpu/kern/x86/vec_avx2.h"

#include "cpu/kern/x86/encode_vec.h"

ENCODERS(avx2, OZ_TIER_AVX2)
