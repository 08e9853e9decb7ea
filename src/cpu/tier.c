#include "cpu/tier.h"

#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/names.h"

#if OZ_ARCH_X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define TIER_NAME(id, name, what) name,
#define TIER_WHAT(id, name, what) what,
static const char *const names[] = {OZ_TIER_MAP(TIER_NAME)};
static const char *const whats[] = {OZ_TIER_MAP(TIER_WHAT)};

const char *oz_tier_name(enum oz_tier tier)
{
    return (unsigned)tier < OZ_TIER_COUNT ? names[tier] : "?";
}

const char *oz_tier_what(enum oz_tier tier)
{
    return (unsigned)tier < OZ_TIER_COUNT ? whats[tier] : "?";
}

#if OZ_ARCH_X86
/* XCR0, where the processor and the system have it. */
static uint64_t read_xcr0(uint32_t leaf_1_ecx)
{
    uint32_t low;
    uint32_t high;
    if (!(leaf_1_ecx & (1U << 27))) { /* OSXSAVE */
        return 0;
    }
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Linux hands out the tile registers on request only (arch_prctl ARCH_REQ_XCOMP_PERM, 18). */
static bool request_amx(void)
{
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

void oz_cpuid_read(struct oz_cpuid *id)
{
    uint32_t a = 0;
    uint32_t b = 0;
    uint32_t c = 0;
    uint32_t d = 0;
    *id = (struct oz_cpuid){0};
    if (__get_cpuid(0, &a, &b, &c, &d)) {
        id->intel =
            b == signature_INTEL_ebx && c == signature_INTEL_ecx && d == signature_INTEL_edx;
    }
    if (__get_cpuid(1, &a, &b, &c, &d)) {
        id->leaf_1_ecx = c;
    }
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        id->leaf_7_ebx = b;
        id->leaf_7_ecx = c;
        id->leaf_7_edx = d;
        if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
            id->leaf_7_1_eax = a;
        }
    }
    id->xcr0 = read_xcr0(id->leaf_1_ecx);
    id->amx_permission = (id->leaf_7_edx & (1U << 24)) != 0 && request_amx();
}
#else
void oz_cpuid_read(struct oz_cpuid *id)
{
    *id = (struct oz_cpuid){0};
}
#endif

static bool has(uint32_t reg, uint32_t bits)
{
    return (reg & bits) == bits;
}

uint32_t oz_tier_mask(const struct oz_cpuid *id)
{
    /* XCR0: SSE and AVX state; opmask and both halves of zmm; tile config and data. */
    bool ymm = (id->xcr0 & 0x6) == 0x6;
    bool zmm = ymm && (id->xcr0 & 0xE0) == 0xE0;
    bool tiles = (id->xcr0 & 0x60000) == 0x60000 && id->amx_permission;
    bool avx2 = ymm && has(id->leaf_1_ecx, 1U << 12 | 1U << 28 | 1U << 29) && /* FMA AVX F16C */
                has(id->leaf_7_ebx, 1U << 5);
    bool avx512 = avx2 && zmm &&
                  has(id->leaf_7_ebx, 1U << 16 | 1U << 17 | 1U << 30 | 1U << 31) && /* F DQ BW VL */
                  has(id->leaf_7_ecx, 1U << 1 | 1U << 11);                          /* VBMI VNNI */
    bool bf16 = avx512 && has(id->leaf_7_1_eax, 1U << 5);
    bool amx = bf16 && tiles && has(id->leaf_7_edx, 1U << 22 | 1U << 24 | 1U << 25);
    uint32_t mask = 1U << OZ_TIER_SCALAR;
    mask |= avx2 ? 1U << OZ_TIER_AVX2 : 0;
    mask |= avx2 && has(id->leaf_7_1_eax, 1U << 4) ? 1U << OZ_TIER_AVXVNNI : 0;
    mask |= avx512 ? 1U << OZ_TIER_AVX512 : 0;
    mask |= bf16 ? 1U << OZ_TIER_AVX512BF16 : 0;
    mask |= amx ? 1U << OZ_TIER_AMX : 0;
    return mask;
}

bool oz_tier_slow_bf16(const struct oz_cpuid *id)
{
    return id->intel && (oz_tier_mask(id) & (1U << OZ_TIER_AVX512BF16)) != 0;
}

enum oz_tier oz_tier_highest(uint32_t mask)
{
    enum oz_tier best = OZ_TIER_SCALAR;
    for (int t = 0; t < OZ_TIER_COUNT; t++) {
        best = mask & (1U << t) ? (enum oz_tier)t : best;
    }
    return best;
}

enum oz_status oz_tier_limit(uint32_t mask, const char *wanted, uint32_t *limited,
                             struct oz_error *err)
{
    *limited = mask;
    if (wanted == NULL || wanted[0] == '\0') {
        return OZ_OK;
    }
    for (int t = 0; t < OZ_TIER_COUNT; t++) {
        if (strcmp(names[t], wanted) != 0) {
            continue;
        }
        if (!(mask & (1U << t))) {
            return OZ_FAIL(err, OZ_ERR_ARG,
                           "OUNCE_CPU=%s: this processor lacks it (%s); its highest tier is %s.",
                           wanted, whats[t], oz_tier_name(oz_tier_highest(mask)));
        }
        *limited = mask & ((2U << t) - 1);
        return OZ_OK;
    }
    const char *near = oz_names_nearest(wanted, names, OZ_TIER_COUNT);
    return OZ_FAIL(err, OZ_ERR_ARG,
                   "OUNCE_CPU=%s: no such tier%s%s%s There are scalar, avx2, avxvnni, avx512, "
                   "avx512bf16 and amx.",
                   wanted, near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                   near != NULL ? "?" : ".");
}
