/* oz_randn against torch.randn: nine vectors and the first latents of the parity cases, bit for
 * bit. */
#include "test.h"

#include "ckpt/table.h"
#include "num/randn.h"

static struct oz_ckpt *reference;

static int open_reference(void **state)
{
    return (int)oz_ckpt_open(&reference, OZ_TEST_DIR "/parity/reference.safetensors", NULL, NULL);
}

static int close_reference(void **state)
{
    oz_ckpt_close(&reference);
    return 0;
}

static const struct oz_tensor_view *tensor(const char *name)
{
    const struct oz_tensor_view *t = oz_ckpt_find(reference, name, NULL);
    if (t == NULL || t->dtype != OZ_DTYPE_F32) {
        fail_msg("no f32 tensor %s", name);
    }
    return t;
}

static void vectors(void **state)
{
    static const uint64_t seeds[] = {0, 42, 1234};
    static const int64_t lengths[] = {8, 16, 1000};
    float got[1000];
    char name[64];
    for (int s = 0; s < 3; s++) {
        for (int n = 0; n < 3; n++) {
            (void)snprintf(name, sizeof name, "torch_cpu_randn.seed%d.n%d", (int)seeds[s],
                           (int)lengths[n]);
            const struct oz_tensor_view *t = tensor(name);
            assert_int_equal(t->elements, lengths[n]);
            oz_randn(seeds[s], lengths[n], got);
            assert_memory_equal(got, t->data, (size_t)t->bytes);
        }
    }
}

/* [16, h, w] to [h / 2 * w / 2, 64], feature c * 4 + (y & 1) * 2 + (x & 1). */
static void first_latents(void **state)
{
    static const struct {
        const char *name;
        uint64_t seed;
        int h, w;
    } cases[] = {
        {"f32.case0.latents.init", 42, 16, 16},
        {"f32.case1.latents.init", 43, 16, 16},
        {"f32.case2.latents.init", 44, 12, 20},
    };
    static float noise[16 * 16 * 16];
    static float packed[16 * 16 * 16];
    for (int i = 0; i < 3; i++) {
        int h = cases[i].h;
        int w = cases[i].w;
        const struct oz_tensor_view *t = tensor(cases[i].name);
        assert_int_equal(t->elements, 16 * h * w);
        oz_randn(cases[i].seed, t->elements, noise);
        for (int c = 0; c < 16; c++) {
            for (int y = 0; y < h; y++) {
                for (int x = 0; x < w; x++) {
                    int token = (y >> 1) * (w / 2) + (x >> 1);
                    packed[token * 64 + c * 4 + (y & 1) * 2 + (x & 1)] = noise[(c * h + y) * w + x];
                }
            }
        }
        assert_memory_equal(packed, t->data, (size_t)t->bytes);
    }
}

static void only_32_bits_of_the_seed_count(void **state)
{
    float a[20];
    float b[20];
    oz_randn(7, 20, a);
    oz_randn(UINT64_C(0xABCDEF0100000007), 20, b);
    assert_memory_equal(a, b, sizeof a);
    oz_randn(8, 20, b);
    assert_memory_not_equal(a, b, sizeof a);
}

static void lengths_are_kept(void **state)
{
    float v[40];
    for (int n = 0; n < 36; n++) {
        for (int i = 0; i < 40; i++) {
            v[i] = 99.0F;
        }
        oz_randn(1, n, v);
        for (int i = 0; i < 40; i++) {
            assert_true((v[i] == 99.0F) == (i >= n));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors),
        cmocka_unit_test(first_latents),
        cmocka_unit_test(only_32_bits_of_the_seed_count),
        cmocka_unit_test(lengths_are_kept),
    };
    return cmocka_run_group_tests(tests, open_reference, close_reference);
}
