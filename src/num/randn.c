#include "num/randn.h"

#include <math.h>

#include "num/float.h"

/* ---- Mersenne twister MT19937, 32 bits ---- */

#define MT_WORDS 624
#define MT_SHIFT 397

struct twister {
    uint32_t word[MT_WORDS];
    int next; /* index of the next word to give; MT_WORDS: a new generation is due */
};

static void twister_init(struct twister *t, uint32_t seed)
{
    t->word[0] = seed;
    for (uint32_t i = 1; i < MT_WORDS; i++) {
        uint32_t before = t->word[i - 1];
        t->word[i] = 1812433253U * (before ^ (before >> 30)) + i;
    }
    t->next = MT_WORDS;
}

static void twister_turn(struct twister *t)
{
    for (int i = 0; i < MT_WORDS; i++) {
        uint32_t y = (t->word[i] & 0x80000000U) | (t->word[(i + 1) % MT_WORDS] & 0x7FFFFFFFU);
        t->word[i] =
            t->word[(i + MT_SHIFT) % MT_WORDS] ^ (y >> 1) ^ ((y & 1U) != 0 ? 0x9908B0DFU : 0U);
    }
    t->next = 0;
}

static uint32_t twister_draw(struct twister *t)
{
    if (t->next == MT_WORDS) {
        twister_turn(t);
    }
    uint32_t y = t->word[t->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9D2C5680U;
    y ^= (y << 15) & 0xEFC60000U;
    return y ^ (y >> 18);
}

/* In [0, 1): 53 bits of two draws, the first one above; 24 bits of one draw. */
static double uniform_f64(struct twister *t)
{
    uint64_t high = twister_draw(t);
    uint64_t low = twister_draw(t);
    return (double)(((high << 32) | low) & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

static float uniform_f32(struct twister *t)
{
    return (float)(twister_draw(t) & 0xFFFFFFU) * 0x1p-24F;
}

/* ---- Cephes single precision, with every multiply-add fused ---- */

/* log x for normal x > 0. */
static float log_fused(float x)
{
    static const float p[] = {7.0376836292E-2F,  -1.1514610310E-1F, 1.1676998740E-1F,
                              -1.2420140846E-1F, 1.4249322787E-1F,  -1.6668057665E-1F,
                              2.0000714765E-1F,  -2.4999993993E-1F, 3.3333331174E-1F};
    const float q1 = -2.12194440E-4F;
    const float q2 = 0.693359375F;
    uint32_t bits = oz_f32_bits(x);
    float e = (float)((int32_t)(bits >> 23) - 126);
    float m = oz_f32_from_bits((bits & 0x007FFFFFU) | 0x3F000000U); /* in [1/2, 1) */
    if (m < 0.707106781186547524F) {
        e -= 1.0F;
        m = (m - 1.0F) + m;
    } else {
        m -= 1.0F;
    }
    float z = m * m;
    float y = p[0];
    for (int i = 1; i < 9; i++) {
        y = fmaf(y, m, p[i]);
    }
    y = fmaf(y * m, z, e * q1);
    y = fmaf(-0.5F, z, y);
    return fmaf(e, q2, m + y);
}

/* Sine and cosine of x in [0, 2 pi]. */
static void sincos_fused(float x, float *sine, float *cosine)
{
    int32_t j = ((int32_t)(x * 1.27323954473516F) + 1) & ~1; /* octant, made even */
    float q = (float)j;
    x = fmaf(q, -0.78515625F, x);
    x = fmaf(q, -2.4187564849853515625E-4F, x);
    x = fmaf(q, -3.77489497744594108E-8F, x);
    float z = x * x;

    float c = fmaf(2.443315711809948E-005F, z, -1.388731625493765E-003F);
    c = fmaf(c, z, 4.166664568298827E-002F) * z;
    c = fmaf(c, z, -(z * 0.5F)) + 1.0F;

    float s = fmaf(-1.9515295891E-4F, z, 8.3321608736E-3F);
    s = fmaf(s, z, -1.6666654611E-1F) * z;
    s = fmaf(s, x, x);

    float first = (j & 2) == 0 ? s : c;
    float second = (j & 2) == 0 ? c : s;
    *sine = (j & 4) != 0 ? -first : first;
    *cosine = ((j - 2) & 4) == 0 ? -second : second;
}

/* ---- normals ---- */

/* Eight pairs in place: uniform in, normal out. Adding zero makes -0 of it +0, as the reference's
 * "times deviation plus mean" does. */
static void normal_16(float *v)
{
    const float two_pi = 6.283185307179586F;
    for (int j = 0; j < 8; j++) {
        float r = sqrtf(-2.0F * log_fused(1.0F - v[j]));
        float s;
        float c;
        sincos_fused(two_pi * v[j + 8], &s, &c);
        v[j] = r * c + 0.0F;
        v[j + 8] = r * s + 0.0F;
    }
}

static void fill_uniform(struct twister *t, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = uniform_f32(t);
    }
}

static void randn_short(struct twister *t, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += 2) {
        double u1 = uniform_f64(t);
        double u2 = uniform_f64(t);
        double r = sqrt(-2.0 * log1p(-u2));
        double theta = 2.0 * 3.14159265358979323846 * u1;
        out[i] = (float)(r * cos(theta) + 0.0);
        if (i + 1 < n) {
            out[i + 1] = (float)(r * sin(theta) + 0.0);
        }
    }
}

void oz_randn(uint64_t seed, int64_t n, float *out)
{
    struct twister t;
    twister_init(&t, (uint32_t)seed);
    if (n < 16) {
        randn_short(&t, n, out);
        return;
    }
    fill_uniform(&t, n, out);
    for (int64_t i = 0; i + 16 <= n; i += 16) {
        normal_16(out + i);
    }
    if (n % 16 != 0) {
        fill_uniform(&t, 16, out + n - 16);
        normal_16(out + n - 16);
    }
}
