/*
 * cpu/tier.h: what this processor can run, as a few bundles of instructions. A kernel names the one
 * tier that it needs; tiers are decided from CPUID and from what the system saves (XCR0), so that
 * recorded dumps of other machines can be tested.
 */
#ifndef OZ_CPU_TIER_H
#define OZ_CPU_TIER_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

/* Tier, name, what it bundles. In rising order; OUNCE_CPU=<name> cuts off what comes after. */
#define OZ_TIER_MAP(X)                                               \
    X(OZ_TIER_SCALAR, "scalar", "portable C")                        \
    X(OZ_TIER_AVX2, "avx2", "AVX2, FMA, F16C")                       \
    X(OZ_TIER_AVXVNNI, "avxvnni", "AVX2 and AVX-VNNI")               \
    X(OZ_TIER_AVX512, "avx512", "AVX-512 F, BW, DQ, VL, VBMI, VNNI") \
    X(OZ_TIER_AVX512BF16, "avx512bf16", "AVX-512 and AVX512-BF16")   \
    X(OZ_TIER_AMX, "amx", "AVX512-BF16 and AMX tiles, bf16 and int8")

enum oz_tier {
#define OZ_TIER_ENUM(id, name, what) id,
    OZ_TIER_MAP(OZ_TIER_ENUM)
#undef OZ_TIER_ENUM
        OZ_TIER_COUNT
};

const char *oz_tier_name(enum oz_tier tier);
const char *oz_tier_what(enum oz_tier tier);

/* The registers that the decision reads. */
struct oz_cpuid {
    uint32_t leaf_1_ecx;
    uint32_t leaf_7_ebx, leaf_7_ecx, leaf_7_edx;
    uint32_t leaf_7_1_eax;
    uint64_t xcr0;       /* register states that the system saves; 0 without XGETBV */
    bool amx_permission; /* the system lets this process use tiles */
    bool intel;          /* the vendor */
};

/* Are bf16 dot products slower here than f32 multiply-adds? Intel's AVX512-BF16 (Cooper Lake to
 * Granite Rapids) issues vdpbf16ps at a quarter of the rate at which it issues FMAs: measured on Emerald
 * Rapids, 182 against 371 GFLOP/s on two threads. AMD's issues both alike, for twice the f32 rate. */
bool oz_tier_slow_bf16(const struct oz_cpuid *id);

/* Reads this machine's; all zero elsewhere than on x86. Asks the system for AMX once. */
void oz_cpuid_read(struct oz_cpuid *id);

/* Bit mask (1 << tier) of what can run; the scalar tier always can. */
uint32_t oz_tier_mask(const struct oz_cpuid *id);

/* The mask cut to OUNCE_CPU's tier and lower ones (`wanted` NULL or "": as it is). OZ_ERR_ARG: an
 * unknown name (with the nearest), or a tier that this processor lacks. */
OZ_MUST_USE enum oz_status oz_tier_limit(uint32_t mask, const char *wanted, uint32_t *limited,
                                         struct oz_error *err);

/* The highest tier of a mask. */
enum oz_tier oz_tier_highest(uint32_t mask);

#endif
