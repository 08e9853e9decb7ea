/*
 * Tables of codebook.h: values as bitsandbytes has them (nf4: QLoRA, arXiv 2305.14314; dynamic map:
 * arXiv 1511.04561), bounds halfway between neighbours in f32. fp4 has two zeros: code 8 is for
 * numbers below 0. Exact f32, in hexadecimal.
 */
#include <stddef.h>

#include "num/codebook.h"

/* Units of a device include this file for the values alone. */
#if defined(__CUDACC__)
#define OZ_TABLE static __device__ const
#else
#define OZ_TABLE static const
#endif

OZ_TABLE float nf4_values[] = {-0x1p+0F,        -0x1.647362p-1F, -0x1.0cd66p-1F,  -0x1.94654p-2F,
                               -0x1.23449ap-2F, -0x1.7a6a7ep-3F, -0x1.74f0e2p-4F, 0.0F,
                               0x1.45f5fep-4F,  0x1.4995c6p-3F,  0x1.f809bap-3F,  0x1.5a0674p-2F,
                               0x1.c3497p-2F,   0x1.200f56p-1F,  0x1.722766p-1F,  0x1p+0F};
OZ_TABLE float nf4_bounds[] = {-0x1.b239bp-1F,  -0x1.38a4ep-1F,  -0x1.d709p-2F,   -0x1.5bd4ecp-2F,
                               -0x1.e079d8p-3F, -0x1.1a7178p-3F, -0x1.74f0e2p-5F, 0x1.45f5fep-5F,
                               0x1.ec90c4p-4F,  0x1.a0cfcp-3F,   0x1.2b05a8p-2F,  0x1.8ea7f2p-2F,
                               0x1.00da08p-1F,  0x1.491b5ep-1F,  0x1.b913b4p-1F};

OZ_TABLE float fp4_values[] = {0.0F,
                               0x1.555556p-8F,
                               0x1.555556p-1F,
                               0x1p+0F,
                               0x1.555556p-2F,
                               0x1p-1F,
                               0x1.555556p-3F,
                               0x1p-2F,
                               0.0F,
                               -0x1.555556p-8F,
                               -0x1.555556p-1F,
                               -0x1p+0F,
                               -0x1.555556p-2F,
                               -0x1p-1F,
                               -0x1.555556p-3F,
                               -0x1p-2F};
OZ_TABLE float fp4_bounds[] = {-0x1.aaaaacp-1F, -0x1.2aaaacp-1F, -0x1.aaaaacp-2F, -0x1.2aaaacp-2F,
                               -0x1.aaaaacp-3F, -0x1.6p-4F,      -0x1.555556p-9F, -0x1p-149F,
                               0x1.555556p-9F,  0x1.6p-4F,       0x1.aaaaacp-3F,  0x1.2aaaacp-2F,
                               0x1.aaaaacp-2F,  0x1.2aaaacp-1F,  0x1.aaaaacp-1F};
OZ_TABLE uint8_t fp4_order[] = {11, 10, 13, 12, 15, 14, 9, 8, 0, 1, 6, 7, 4, 5, 2, 3};

OZ_TABLE float dynamic8_values[] = {
    -0x1.fc6666p-1F,  -0x1.f53334p-1F,  -0x1.eep-1F,      -0x1.e6ccccp-1F,
    -0x1.df999ap-1F,  -0x1.d86666p-1F,  -0x1.d13334p-1F,  -0x1.cap-1F,
    -0x1.c2ccccp-1F,  -0x1.bb999ap-1F,  -0x1.b46666p-1F,  -0x1.ad3334p-1F,
    -0x1.a6p-1F,      -0x1.9eccccp-1F,  -0x1.97999ap-1F,  -0x1.906666p-1F,
    -0x1.893334p-1F,  -0x1.82p-1F,      -0x1.7accccp-1F,  -0x1.73999ap-1F,
    -0x1.6c6668p-1F,  -0x1.653334p-1F,  -0x1.5ep-1F,      -0x1.56ccccp-1F,
    -0x1.4f999ap-1F,  -0x1.486668p-1F,  -0x1.413334p-1F,  -0x1.3ap-1F,
    -0x1.32ccccp-1F,  -0x1.2b999ap-1F,  -0x1.246668p-1F,  -0x1.1d3334p-1F,
    -0x1.16p-1F,      -0x1.0eccccp-1F,  -0x1.079998p-1F,  -0x1.006666p-1F,
    -0x1.f26664p-2F,  -0x1.e4p-2F,      -0x1.d59998p-2F,  -0x1.c73334p-2F,
    -0x1.b8ccccp-2F,  -0x1.aa6666p-2F,  -0x1.9cp-2F,      -0x1.8d9998p-2F,
    -0x1.7f3334p-2F,  -0x1.70ccccp-2F,  -0x1.626666p-2F,  -0x1.54p-2F,
    -0x1.459998p-2F,  -0x1.373334p-2F,  -0x1.28ccccp-2F,  -0x1.1a6668p-2F,
    -0x1.0cp-2F,      -0x1.fb3332p-3F,  -0x1.de6666p-3F,  -0x1.c1999ap-3F,
    -0x1.a4ccccp-3F,  -0x1.88p-3F,      -0x1.6b3334p-3F,  -0x1.4e6666p-3F,
    -0x1.31999ap-3F,  -0x1.14ccccp-3F,  -0x1.fp-4F,       -0x1.b66668p-4F,
    -0x1.93d70ap-4F,  -0x1.8851eep-4F,  -0x1.7ccccep-4F,  -0x1.7147aep-4F,
    -0x1.65c29p-4F,   -0x1.5a3d7p-4F,   -0x1.4eb854p-4F,  -0x1.433334p-4F,
    -0x1.37ae14p-4F,  -0x1.2c28f6p-4F,  -0x1.20a3d6p-4F,  -0x1.151ebap-4F,
    -0x1.09999ap-4F,  -0x1.fc28f6p-5F,  -0x1.e51ebap-5F,  -0x1.ce147ap-5F,
    -0x1.b70a3ep-5F,  -0x1.ap-5F,       -0x1.88f5c2p-5F,  -0x1.71eb86p-5F,
    -0x1.5ae146p-5F,  -0x1.43d70ap-5F,  -0x1.2ccccep-5F,  -0x1.15c29p-5F,
    -0x1.fd70a4p-6F,  -0x1.cf5c2ap-6F,  -0x1.a147aep-6F,  -0x1.733334p-6F,
    -0x1.451ebap-6F,  -0x1.170a3ep-6F,  -0x1.d1eb86p-7F,  -0x1.75c29p-7F,
    -0x1.3e76c8p-7F,  -0x1.2c083p-7F,   -0x1.19999ap-7F,  -0x1.072b02p-7F,
    -0x1.e978d4p-8F,  -0x1.c49ba6p-8F,  -0x1.9fbe76p-8F,  -0x1.7ae148p-8F,
    -0x1.56041ap-8F,  -0x1.3126e8p-8F,  -0x1.0c49bap-8F,  -0x1.ced914p-9F,
    -0x1.851eb8p-9F,  -0x1.3b645ap-9F,  -0x1.e353f8p-10F, -0x1.4fdf3ap-10F,
    -0x1.eecbfep-11F, -0x1.b3d07cp-11F, -0x1.78d5p-11F,   -0x1.3dd982p-11F,
    -0x1.02de02p-11F, -0x1.8fc506p-12F, -0x1.19ce0ap-12F, -0x1.47ae16p-13F,
    -0x1.743e96p-14F, -0x1.15df66p-14F, -0x1.6f0068p-15F, -0x1.64840cp-16F,
    -0x1.040bfep-17F, -0x1.b43528p-19F, -0x1.27476ep-21F, 0.0F,
    0x1.27476ep-21F,  0x1.b43528p-19F,  0x1.040bfep-17F,  0x1.64840cp-16F,
    0x1.6f0068p-15F,  0x1.15df66p-14F,  0x1.743e96p-14F,  0x1.47ae16p-13F,
    0x1.19ce0ap-12F,  0x1.8fc506p-12F,  0x1.02de02p-11F,  0x1.3dd982p-11F,
    0x1.78d5p-11F,    0x1.b3d07cp-11F,  0x1.eecbfep-11F,  0x1.4fdf3ap-10F,
    0x1.e353f8p-10F,  0x1.3b645ap-9F,   0x1.851eb8p-9F,   0x1.ced914p-9F,
    0x1.0c49bap-8F,   0x1.3126e8p-8F,   0x1.56041ap-8F,   0x1.7ae148p-8F,
    0x1.9fbe76p-8F,   0x1.c49ba6p-8F,   0x1.e978d4p-8F,   0x1.072b02p-7F,
    0x1.19999ap-7F,   0x1.2c083p-7F,    0x1.3e76c8p-7F,   0x1.75c29p-7F,
    0x1.d1eb86p-7F,   0x1.170a3ep-6F,   0x1.451ebap-6F,   0x1.733334p-6F,
    0x1.a147aep-6F,   0x1.cf5c2ap-6F,   0x1.fd70a4p-6F,   0x1.15c29p-5F,
    0x1.2ccccep-5F,   0x1.43d70ap-5F,   0x1.5ae146p-5F,   0x1.71eb86p-5F,
    0x1.88f5c2p-5F,   0x1.ap-5F,        0x1.b70a3ep-5F,   0x1.ce147ap-5F,
    0x1.e51ebap-5F,   0x1.fc28f6p-5F,   0x1.09999ap-4F,   0x1.151ebap-4F,
    0x1.20a3d6p-4F,   0x1.2c28f6p-4F,   0x1.37ae14p-4F,   0x1.433334p-4F,
    0x1.4eb854p-4F,   0x1.5a3d7p-4F,    0x1.65c29p-4F,    0x1.7147aep-4F,
    0x1.7ccccep-4F,   0x1.8851eep-4F,   0x1.93d70ap-4F,   0x1.b66668p-4F,
    0x1.fp-4F,        0x1.14ccccp-3F,   0x1.31999ap-3F,   0x1.4e6666p-3F,
    0x1.6b3334p-3F,   0x1.88p-3F,       0x1.a4ccccp-3F,   0x1.c1999ap-3F,
    0x1.de6666p-3F,   0x1.fb3332p-3F,   0x1.0cp-2F,       0x1.1a6668p-2F,
    0x1.28ccccp-2F,   0x1.373334p-2F,   0x1.459998p-2F,   0x1.54p-2F,
    0x1.626666p-2F,   0x1.70ccccp-2F,   0x1.7f3334p-2F,   0x1.8d9998p-2F,
    0x1.9cp-2F,       0x1.aa6666p-2F,   0x1.b8ccccp-2F,   0x1.c73334p-2F,
    0x1.d59998p-2F,   0x1.e4p-2F,       0x1.f26664p-2F,   0x1.006666p-1F,
    0x1.079998p-1F,   0x1.0eccccp-1F,   0x1.16p-1F,       0x1.1d3334p-1F,
    0x1.246668p-1F,   0x1.2b999ap-1F,   0x1.32ccccp-1F,   0x1.3ap-1F,
    0x1.413334p-1F,   0x1.486668p-1F,   0x1.4f999ap-1F,   0x1.56ccccp-1F,
    0x1.5ep-1F,       0x1.653334p-1F,   0x1.6c6668p-1F,   0x1.73999ap-1F,
    0x1.7accccp-1F,   0x1.82p-1F,       0x1.893334p-1F,   0x1.906666p-1F,
    0x1.97999ap-1F,   0x1.9eccccp-1F,   0x1.a6p-1F,       0x1.ad3334p-1F,
    0x1.b46666p-1F,   0x1.bb999ap-1F,   0x1.c2ccccp-1F,   0x1.cap-1F,
    0x1.d13334p-1F,   0x1.d86666p-1F,   0x1.df999ap-1F,   0x1.e6ccccp-1F,
    0x1.eep-1F,       0x1.f53334p-1F,   0x1.fc6666p-1F,   0x1p+0F};
OZ_TABLE float dynamic8_bounds[] = {
    -0x1.f8ccccp-1F,  -0x1.f1999ap-1F,  -0x1.ea6666p-1F,  -0x1.e33334p-1F,  -0x1.dcp-1F,
    -0x1.d4ccccp-1F,  -0x1.cd999ap-1F,  -0x1.c66666p-1F,  -0x1.bf3334p-1F,  -0x1.b8p-1F,
    -0x1.b0ccccp-1F,  -0x1.a9999ap-1F,  -0x1.a26666p-1F,  -0x1.9b3334p-1F,  -0x1.94p-1F,
    -0x1.8cccccp-1F,  -0x1.85999ap-1F,  -0x1.7e6666p-1F,  -0x1.773334p-1F,  -0x1.7p-1F,
    -0x1.68cccep-1F,  -0x1.61999ap-1F,  -0x1.5a6666p-1F,  -0x1.533334p-1F,  -0x1.4cp-1F,
    -0x1.44cccep-1F,  -0x1.3d999ap-1F,  -0x1.366666p-1F,  -0x1.2f3334p-1F,  -0x1.28p-1F,
    -0x1.20cccep-1F,  -0x1.19999ap-1F,  -0x1.126666p-1F,  -0x1.0b3332p-1F,  -0x1.04p-1F,
    -0x1.f99998p-2F,  -0x1.eb3332p-2F,  -0x1.dcccccp-2F,  -0x1.ce6666p-2F,  -0x1.cp-2F,
    -0x1.b19998p-2F,  -0x1.a33334p-2F,  -0x1.94ccccp-2F,  -0x1.866666p-2F,  -0x1.78p-2F,
    -0x1.699998p-2F,  -0x1.5b3334p-2F,  -0x1.4cccccp-2F,  -0x1.3e6666p-2F,  -0x1.3p-2F,
    -0x1.21999ap-2F,  -0x1.133334p-2F,  -0x1.04ccccp-2F,  -0x1.ecccccp-3F,  -0x1.dp-3F,
    -0x1.b33334p-3F,  -0x1.966666p-3F,  -0x1.79999ap-3F,  -0x1.5cccccp-3F,  -0x1.4p-3F,
    -0x1.233334p-3F,  -0x1.066666p-3F,  -0x1.d33334p-4F,  -0x1.a51eb8p-4F,  -0x1.8e147cp-4F,
    -0x1.828f5ep-4F,  -0x1.770a3ep-4F,  -0x1.6b852p-4F,   -0x1.6p-4F,       -0x1.547ae2p-4F,
    -0x1.48f5c4p-4F,  -0x1.3d70a4p-4F,  -0x1.31eb84p-4F,  -0x1.266666p-4F,  -0x1.1ae148p-4F,
    -0x1.0f5c2ap-4F,  -0x1.03d70ap-4F,  -0x1.f0a3d8p-5F,  -0x1.d9999ap-5F,  -0x1.c28f5cp-5F,
    -0x1.ab852p-5F,   -0x1.947aep-5F,   -0x1.7d70a4p-5F,  -0x1.666666p-5F,  -0x1.4f5c28p-5F,
    -0x1.3851ecp-5F,  -0x1.2147bp-5F,   -0x1.0a3d7p-5F,   -0x1.e66668p-6F,  -0x1.b851ecp-6F,
    -0x1.8a3d7p-6F,   -0x1.5c28f8p-6F,  -0x1.2e147cp-6F,  -0x1p-6F,         -0x1.a3d70cp-7F,
    -0x1.5a1cacp-7F,  -0x1.353f7cp-7F,  -0x1.22d0e4p-7F,  -0x1.10624ep-7F,  -0x1.fbe76cp-8F,
    -0x1.d70a3cp-8F,  -0x1.b22d0ep-8F,  -0x1.8d4fep-8F,   -0x1.6872bp-8F,   -0x1.43958p-8F,
    -0x1.1eb85p-8F,   -0x1.f3b644p-9F,  -0x1.a9fbe6p-9F,  -0x1.604188p-9F,  -0x1.16872cp-9F,
    -0x1.999998p-10F, -0x1.23a29cp-10F, -0x1.d14e3cp-11F, -0x1.9652bep-11F, -0x1.5b574p-11F,
    -0x1.205bc2p-11F, -0x1.cac084p-12F, -0x1.54c988p-12F, -0x1.bda514p-13F, -0x1.00e6bp-13F,
    -0x1.450efep-14F, -0x1.cd5f9ap-15F, -0x1.10a138p-15F, -0x1.e68a0cp-17F, -0x1.711948p-18F,
    -0x1.fe0704p-20F, -0x1.27476ep-22F, 0x1.27476ep-22F,  0x1.fe0704p-20F,  0x1.711948p-18F,
    0x1.e68a0cp-17F,  0x1.10a138p-15F,  0x1.cd5f9ap-15F,  0x1.450efep-14F,  0x1.00e6bp-13F,
    0x1.bda514p-13F,  0x1.54c988p-12F,  0x1.cac084p-12F,  0x1.205bc2p-11F,  0x1.5b574p-11F,
    0x1.9652bep-11F,  0x1.d14e3cp-11F,  0x1.23a29cp-10F,  0x1.999998p-10F,  0x1.16872cp-9F,
    0x1.604188p-9F,   0x1.a9fbe6p-9F,   0x1.f3b644p-9F,   0x1.1eb85p-8F,    0x1.43958p-8F,
    0x1.6872bp-8F,    0x1.8d4fep-8F,    0x1.b22d0ep-8F,   0x1.d70a3cp-8F,   0x1.fbe76cp-8F,
    0x1.10624ep-7F,   0x1.22d0e4p-7F,   0x1.353f7cp-7F,   0x1.5a1cacp-7F,   0x1.a3d70cp-7F,
    0x1p-6F,          0x1.2e147cp-6F,   0x1.5c28f8p-6F,   0x1.8a3d7p-6F,    0x1.b851ecp-6F,
    0x1.e66668p-6F,   0x1.0a3d7p-5F,    0x1.2147bp-5F,    0x1.3851ecp-5F,   0x1.4f5c28p-5F,
    0x1.666666p-5F,   0x1.7d70a4p-5F,   0x1.947aep-5F,    0x1.ab852p-5F,    0x1.c28f5cp-5F,
    0x1.d9999ap-5F,   0x1.f0a3d8p-5F,   0x1.03d70ap-4F,   0x1.0f5c2ap-4F,   0x1.1ae148p-4F,
    0x1.266666p-4F,   0x1.31eb84p-4F,   0x1.3d70a4p-4F,   0x1.48f5c4p-4F,   0x1.547ae2p-4F,
    0x1.6p-4F,        0x1.6b852p-4F,    0x1.770a3ep-4F,   0x1.828f5ep-4F,   0x1.8e147cp-4F,
    0x1.a51eb8p-4F,   0x1.d33334p-4F,   0x1.066666p-3F,   0x1.233334p-3F,   0x1.4p-3F,
    0x1.5cccccp-3F,   0x1.79999ap-3F,   0x1.966666p-3F,   0x1.b33334p-3F,   0x1.dp-3F,
    0x1.ecccccp-3F,   0x1.04ccccp-2F,   0x1.133334p-2F,   0x1.21999ap-2F,   0x1.3p-2F,
    0x1.3e6666p-2F,   0x1.4cccccp-2F,   0x1.5b3334p-2F,   0x1.699998p-2F,   0x1.78p-2F,
    0x1.866666p-2F,   0x1.94ccccp-2F,   0x1.a33334p-2F,   0x1.b19998p-2F,   0x1.cp-2F,
    0x1.ce6666p-2F,   0x1.dcccccp-2F,   0x1.eb3332p-2F,   0x1.f99998p-2F,   0x1.04p-1F,
    0x1.0b3332p-1F,   0x1.126666p-1F,   0x1.19999ap-1F,   0x1.20cccep-1F,   0x1.28p-1F,
    0x1.2f3334p-1F,   0x1.366666p-1F,   0x1.3d999ap-1F,   0x1.44cccep-1F,   0x1.4cp-1F,
    0x1.533334p-1F,   0x1.5a6666p-1F,   0x1.61999ap-1F,   0x1.68cccep-1F,   0x1.7p-1F,
    0x1.773334p-1F,   0x1.7e6666p-1F,   0x1.85999ap-1F,   0x1.8cccccp-1F,   0x1.94p-1F,
    0x1.9b3334p-1F,   0x1.a26666p-1F,   0x1.a9999ap-1F,   0x1.b0ccccp-1F,   0x1.b8p-1F,
    0x1.bf3334p-1F,   0x1.c66666p-1F,   0x1.cd999ap-1F,   0x1.d4ccccp-1F,   0x1.dcp-1F,
    0x1.e33334p-1F,   0x1.ea6666p-1F,   0x1.f1999ap-1F,   0x1.f8ccccp-1F,   0x1.fe3334p-1F};

#if !defined(__CUDACC__)
const struct oz_codebook oz_codebook_nf4 = {
    .count = sizeof nf4_values / sizeof *nf4_values, .values = nf4_values, .bounds = nf4_bounds};
const struct oz_codebook oz_codebook_fp4_bnb = {.count = sizeof fp4_values / sizeof *fp4_values,
                                                .values = fp4_values,
                                                .bounds = fp4_bounds,
                                                .order = fp4_order};
const struct oz_codebook oz_codebook_dynamic8 = {.count = sizeof dynamic8_values /
                                                          sizeof *dynamic8_values,
                                                 .values = dynamic8_values,
                                                 .bounds = dynamic8_bounds};
#endif
