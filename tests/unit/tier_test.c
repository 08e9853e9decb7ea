/*
 * Tiers from the registers of other machines. Recorded: CPUID leaves 1 and 7 of processors as the dumps
 * in libcpuid's test suite have them (tests/amd, tests/intel); XCR0 is what leaf 13 says that the
 * processor can save, so a system that saves it all. The registers marked "composed" are made of
 * feature bits, for want of a dump.
 */
#include "test.h"

#include "cpu/tier.h"

#define BIT(tier) (1U << OZ_TIER_##tier)
#define UP_TO_AVX2 (BIT(SCALAR) | BIT(AVX2))
#define UP_TO_AVX512 (UP_TO_AVX2 | BIT(AVX512))
#define UP_TO_BF16 (UP_TO_AVX512 | BIT(AVX512BF16))

static const struct machine {
    const char *name;
    struct oz_cpuid id; /* 1.ecx, 7.ebx, 7.ecx, 7.edx, 7.1.eax, xcr0, AMX permission, Intel */
    uint32_t tiers;
} machines[] = {
    {"all zero, as elsewhere than on x86", {0}, BIT(SCALAR)},
    {"Nehalem (Core i7-920): no AVX", {0x0098E3BD, 0, 0, 0, 0, 0, false, true}, BIT(SCALAR)},
    {"Sandy Bridge (Core i7-2600): AVX alone",
     {0x1FBAE3FF, 0, 0, 0, 0, 0x7, false, true},
     BIT(SCALAR)},
    {"Zen 2 (Ryzen 7 3700X)",
     {0x7ED8320B, 0x219C91A9, 0x00400004, 0, 0, 0x207, false, false},
     UP_TO_AVX2},
    {"Zen 3 (Ryzen 9 5950X)",
     {0x7ED8320B, 0x219C97A9, 0x0040068C, 0x00000010, 0, 0x207, false, false},
     UP_TO_AVX2},
    {"Zen 3 (EPYC) under a hypervisor",
     {0xFFFA3203, 0x219C07AB, 0x0040069C, 0x88000010, 0, 0x207, false, false},
     UP_TO_AVX2},
    {"Zen 4 (Ryzen 7 7700X)",
     {0x7EF8320B, 0xF1BF97A9, 0x00405FCE, 0x10000010, 0x00000020, 0x2E7, false, false},
     UP_TO_BF16},
    {"Zen 5 (Ryzen 7 9700X)",
     {0x7ED8320B, 0xF1BF97AB, 0x19405FCE, 0x10000110, 0x00000030, 0x2E7, false, false},
     UP_TO_BF16 | BIT(AVXVNNI)},
    {"Alder Lake (Core i9-12900K): AVX-VNNI, no AVX-512",
     {0x7FFAFBFF, 0x239CA7EB, 0x98C027AC, 0xFC1CC410, 0x00400810, 0x207, false, true},
     UP_TO_AVX2 | BIT(AVXVNNI)},
    {"Skylake-X (Core i7-7800X): AVX-512 without VBMI and VNNI",
     {0x7FFEFBBF, 0xD39FFFFB, 0, 0x9C002400, 0, 0xFF, false, true},
     UP_TO_AVX2},
    {"Cascade Lake-X (Core i9-10940X): VNNI without VBMI",
     {0x7FFEFBBF, 0xD39FFFFB, 0x00000800, 0xBC000400, 0, 0xFF, false, true},
     UP_TO_AVX2},
    {"Ice Lake (Core i7-1065G7)",
     {0x7FFAFBBF, 0xF2BF27EF, 0x40405F4E, 0xBC000410, 0, 0x2E7, false, true},
     UP_TO_AVX512},
    {"Sapphire Rapids (composed)",
     {0x7FFEFBFF, 0xF3BFBFFF, 0x1B415FFE, 0xFFDD4432, 0x00001C30, 0x602E7, true, true},
     UP_TO_BF16 | BIT(AVXVNNI) | BIT(AMX)},
    {"Sapphire Rapids (composed), tiles refused",
     {0x7FFEFBFF, 0xF3BFBFFF, 0x1B415FFE, 0xFFDD4432, 0x00001C30, 0x602E7, false, true},
     UP_TO_BF16 | BIT(AVXVNNI)},
    {"Sapphire Rapids (composed), tiles not saved",
     {0x7FFEFBFF, 0xF3BFBFFF, 0x1B415FFE, 0xFFDD4432, 0x00001C30, 0x2E7, true, true},
     UP_TO_BF16 | BIT(AVXVNNI)},
    {"Sapphire Rapids (composed), zmm not saved",
     {0x7FFEFBFF, 0xF3BFBFFF, 0x1B415FFE, 0xFFDD4432, 0x00001C30, 0x60007, true, true},
     UP_TO_AVX2 | BIT(AVXVNNI)},
    {"Sapphire Rapids (composed), only half of zmm saved",
     {0x7FFEFBFF, 0xF3BFBFFF, 0x1B415FFE, 0xFFDD4432, 0x00001C30, 0x60067, true, true},
     UP_TO_AVX2 | BIT(AVXVNNI)},
    {"Zen 4 where the system does not save ymm",
     {0x7EF8320B, 0xF1BF97A9, 0x00405FCE, 0x10000010, 0x00000020, 0x3, false, false},
     BIT(SCALAR)},
    {"Zen 3 where the system has no XSAVE (no XCR0)",
     {0x76D8320B, 0x219C97A9, 0x0040068C, 0x00000010, 0, 0, false, false},
     BIT(SCALAR)},
    {"Zen 3 without F16C",
     {0x5ED8320B, 0x219C97A9, 0x0040068C, 0x10, 0, 0x207, false, false},
     BIT(SCALAR)},
    {"Zen 3 without FMA",
     {0x7ED8220B, 0x219C97A9, 0x0040068C, 0x10, 0, 0x207, false, false},
     BIT(SCALAR)},
};

static void machines_of_others(void **state)
{
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        uint32_t tiers = oz_tier_mask(&machines[i].id);
        if (tiers != machines[i].tiers) {
            fail_msg("%s: tiers 0x%x, not 0x%x", machines[i].name, tiers, machines[i].tiers);
        }
    }
}

static void highest(void **state)
{
    assert_int_equal(oz_tier_highest(BIT(SCALAR)), OZ_TIER_SCALAR);
    assert_int_equal(oz_tier_highest(UP_TO_AVX2 | BIT(AVXVNNI)), OZ_TIER_AVXVNNI);
    assert_int_equal(oz_tier_highest(UP_TO_BF16), OZ_TIER_AVX512BF16);
}

static void limits(void **state)
{
    struct oz_error err;
    uint32_t tiers = 0;
    assert_int_equal(oz_tier_limit(UP_TO_BF16, NULL, &tiers, &err), OZ_OK);
    assert_int_equal(tiers, UP_TO_BF16);
    assert_int_equal(oz_tier_limit(UP_TO_BF16, "", &tiers, &err), OZ_OK);
    assert_int_equal(tiers, UP_TO_BF16);
    assert_int_equal(oz_tier_limit(UP_TO_BF16, "avx2", &tiers, &err), OZ_OK);
    assert_int_equal(tiers, UP_TO_AVX2);
    assert_int_equal(oz_tier_limit(UP_TO_BF16, "scalar", &tiers, &err), OZ_OK);
    assert_int_equal(tiers, BIT(SCALAR));
    assert_int_equal(oz_tier_limit(UP_TO_AVX2, "amx", &tiers, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "its highest tier is avx2"));
    assert_int_equal(oz_tier_limit(UP_TO_AVX2, "avx3", &tiers, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "did you mean avx2?"));
}

/* What this machine says must be whole: a tier of AVX-512 comes with those below it. */
static void this_machine(void **state)
{
    struct oz_cpuid id;
    oz_cpuid_read(&id);
    uint32_t tiers = oz_tier_mask(&id);
    print_message("%08x %08x %08x %08x %08x xcr0 %llx tiles %d: highest tier %s\n", id.leaf_1_ecx,
                  id.leaf_7_ebx, id.leaf_7_ecx, id.leaf_7_edx, id.leaf_7_1_eax,
                  (unsigned long long)id.xcr0, id.amx_permission,
                  oz_tier_name(oz_tier_highest(tiers)));
    assert_true(tiers & BIT(SCALAR));
    assert_true(!(tiers & BIT(AMX)) || (tiers & UP_TO_BF16) == UP_TO_BF16);
    assert_true(!(tiers & BIT(AVX512)) || (tiers & UP_TO_AVX2) == UP_TO_AVX2);
}

/* Where bf16 dot products lose against f32: Intel's, where there are any. */
static void slow_bf16(void **state)
{
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        struct oz_cpuid id = machines[i].id;
        bool bf16 = (machines[i].tiers & BIT(AVX512BF16)) != 0;
        id.intel = true;
        assert_int_equal(oz_tier_slow_bf16(&id), bf16);
        id.intel = false;
        assert_false(oz_tier_slow_bf16(&id));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(machines_of_others),
                                       cmocka_unit_test(highest), cmocka_unit_test(limits),
                                       cmocka_unit_test(this_machine), cmocka_unit_test(slow_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
