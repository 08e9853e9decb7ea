/* conv and resample against direct loops in double. */
#include "kern.h"

struct problem {
    int32_t in, out, frames, height, width;
    int32_t kt, kh, kw, stride, stride_t, top, bottom, left, right;
    enum oz_dtype x, w, y;
    bool bias, residual, in_place, past;
    enum oz_fn fn;
};

static double input(const struct oz_conv_args *a, int64_t t, int64_t y, int64_t x, int64_t c)
{
    if (y < 0 || y >= a->height || x < 0 || x >= a->width) {
        return 0;
    }
    if (t < 0) {
        return a->past != NULL
                   ? kern_get(a->past, ((t + a->kt - 1) * a->height + y) * a->width + x, c)
                   : 0;
    }
    return kern_get(a->x, (t * a->height + y) * a->width + x, c);
}

static double naive(const struct oz_conv_args *a, const int64_t at[3], int64_t out, double *bound)
{
    double sum = 0;
    double magnitudes = 0;
    bool rounds = kern_rounds(OZ_OP_CONV, a);
    int64_t k = 0;
    for (int32_t t = 0; t < a->kt; t++) {
        for (int32_t y = 0; y < a->kh; y++) {
            for (int32_t x = 0; x < a->kw; x++) {
                for (int64_t c = 0; c < a->x->cols; c++, k++) {
                    double v = input(a, at[0] * a->stride_t + t - (a->kt - 1),
                                     at[1] * a->stride + y - a->pad_top,
                                     at[2] * a->stride + x - a->pad_left, c);
                    v = rounds ? oz_bf16_to_f32(oz_f32_to_bf16((float)v)) : v;
                    double term = kern_weight(a->w, 0, out, k) * v;
                    sum += term;
                    magnitudes += fabs(term);
                }
            }
        }
    }
    *bound =
        kern_packed(OZ_OP_CONV, a) ? kern_sum_bound(k, magnitudes) : kern_dot_bound(k, magnitudes);
    return sum;
}

static void compare(const struct problem *p, const struct oz_conv_args *a, const double *residual,
                    const int64_t extent[3])
{
    for (int64_t r = 0; r < extent[0] * extent[1] * extent[2]; r++) {
        int64_t at[3] = {r / extent[2] / extent[1], r / extent[2] % extent[1], r % extent[2]};
        for (int64_t c = 0; c < p->out; c++) {
            double bound;
            double y = naive(a, at, c, &bound);
            if (p->bias) {
                y += kern_weight(a->b, 0, 0, c);
                bound += KERN_U32 * fabs(y);
            }
            if (residual != NULL) {
                y += residual[r * p->out + c];
                bound += KERN_U32 * fabs(y);
            }
            bound = p->fn == OZ_FN_NONE ? bound : 1.2 * bound + 8 * KERN_U32 * fabs(y);
            kern_near("conv", a->out, r, c, kern_fn(p->fn, y), bound * 1.01);
        }
    }
}

static void check(const struct problem *p)
{
    int64_t extent[3] = {(p->frames + p->kt - 1 - p->kt) / p->stride_t + 1,
                         (p->height + p->top + p->bottom - p->kh) / p->stride + 1,
                         (p->width + p->left + p->right - p->kw) / p->stride + 1};
    int64_t rows = extent[0] * extent[1] * extent[2];
    int64_t picture = (int64_t)p->height * p->width;
    struct oz_act *residual = p->residual ? kern_act(rows, p->out, 2, p->y, 1) : NULL;
    struct oz_conv_args a = {
        .x = kern_act(p->frames * picture, p->in, 1, p->x, 1),
        .past = p->past ? kern_act((p->kt - 1) * picture, p->in, 3, p->x, 1) : NULL,
        .frames = p->frames,
        .height = p->height,
        .width = p->width,
        .b = p->bias ? kern_vector("b", p->out, 1) : NULL,
        .kt = p->kt,
        .kh = p->kh,
        .kw = p->kw,
        .stride = p->stride,
        .stride_t = p->stride_t,
        .pad_top = p->top,
        .pad_bottom = p->bottom,
        .pad_left = p->left,
        .pad_right = p->right,
        .residual = residual,
        .fn = p->fn,
        .out = p->in_place ? residual : kern_out(rows, p->out, 5, p->y),
    };
    struct oz_param *w =
        kern_param("w", p->w, 1, p->out, (int64_t)p->kt * p->kh * p->kw * p->in, 0.5);
    double *before = residual != NULL ? kern_doubles(residual) : NULL;
    kern_pack(w, OZ_USE_CONV);
    a.w = w;
    kern_output(a.out->data);
    kern_run(OZ_OP_CONV, &a);
    compare(p, &a, before, extent);
}

static struct problem square(int32_t in, int32_t out, int32_t size)
{
    return (struct problem){.in = in,
                            .out = out,
                            .frames = 1,
                            .height = size,
                            .width = size + 2,
                            .kt = 1,
                            .kh = 3,
                            .kw = 3,
                            .stride = 1,
                            .stride_t = 1,
                            .top = 1,
                            .bottom = 1,
                            .left = 1,
                            .right = 1};
}

static void plain(struct problem *p)
{
    p->x = p->w = p->y = OZ_DTYPE_F32;
}

static void pictures(void **state)
{
    static const int32_t channels[] = {1, 2, 3, 17, 130};
    for (int i = 0; i < 5; i++) {
        struct problem p = square(channels[i], channels[(i + 2) % 5], 1 + i);
        plain(&p);
        p.bias = i % 2;
        check(&p);
        p.height = 8;
        p.width = 6;
        p.stride = 2; /* the down-sampling of the VAE pads right and bottom only */
        p.top = p.left = 0;
        check(&p);
        p.kh = p.kw = 1;
        p.stride = 1;
        p.bottom = p.right = 0;
        check(&p);
    }
}

static void clips(void **state)
{
    for (int i = 0; i < 16; i++) {
        struct problem p = square(5, 6, 4);
        plain(&p);
        p.kt = i & 1 ? 3 : 2;
        p.frames = 1 + i % 5;
        p.stride_t = i & 2 ? 2 : 1;
        p.past = i & 4;
        p.kh = i & 8 ? 1 : 3;
        p.top = p.bottom = i & 8 ? 0 : 1;
        check(&p);
    }
}

static void options(void **state)
{
    static const enum oz_dtype dtypes[] = {OZ_DTYPE_F32, OZ_DTYPE_BF16, OZ_DTYPE_F16};
    for (int i = 0; i < 24; i++) {
        struct problem p = square(9, 34, 3);
        p.x = dtypes[i % 2];
        p.y = dtypes[i / 2 % 2];
        p.w = dtypes[i % 3];
        p.bias = kern_coin();
        p.residual = i & 4;
        p.in_place = p.residual && kern_coin();
        p.fn = kern_coin() ? OZ_FN_SILU : OZ_FN_NONE;
        check(&p);
    }
}

static void all_of_one_kernel(void)
{
    pictures(NULL);
    kern_forget();
    clips(NULL);
    kern_forget();
    options(NULL);
}

static void each_kernel(void **state)
{
    kern_each(OZ_OP_CONV, all_of_one_kernel);
}

/* A kernel cut to its last temporal tap gives the same for one frame, to rounding. */
static void last_tap(void **state)
{
    struct problem p = square(4, 5, 3);
    plain(&p);
    struct oz_act *x = kern_act(15, 4, 0, OZ_DTYPE_F32, 1);
    struct oz_param *full = kern_param("w", OZ_DTYPE_F32, 1, 5, 3 * 9 * 4, 1);
    struct oz_param *cut = kern_param("w", OZ_DTYPE_F32, 1, 5, 9 * 4, 1);
    struct oz_conv_args a = {.x = x, .frames = 1, .height = 3, .width = 5, .kh = 3, .kw = 3};
    float *to = cut->weight.planes[OZ_PLANE_CODES].data;
    for (int64_t o = 0; o < 5; o++) {
        for (int64_t k = 0; k < 36; k++) {
            to[o * 36 + k] = (float)kern_weight(full, 0, o, 72 + k);
        }
    }
    a.stride = a.stride_t = a.pad_top = a.pad_bottom = a.pad_left = a.pad_right = 1;
    kern_pack(full, OZ_USE_CONV);
    kern_pack(cut, OZ_USE_CONV);
    a.w = full;
    a.kt = 3;
    a.out = kern_out(15, 5, 0, OZ_DTYPE_F32);
    kern_run(OZ_OP_CONV, &a);
    double *want = kern_doubles(a.out);
    a.w = cut;
    a.kt = 1;
    kern_run(OZ_OP_CONV, &a);
    for (int64_t i = 0; i < 75; i++) {
        kern_near("cut", a.out, i / 5, i % 5, want[i], 40 * KERN_U32 * 36);
    }
}

/* ---- resample ---- */

struct factors {
    int32_t t, y, x;
};

static void check_nearest(struct factors f, enum oz_dtype dtype)
{
    enum { T = 2, H = 3, W = 4, C = 300 };
    struct oz_act *x = kern_act(T * H * W, C, 2, dtype, 1);
    struct oz_act *out = kern_out((int64_t)T * f.t * H * f.y * W * f.x, C, 1, dtype);
    struct oz_resample_args a = {x, OZ_RESAMPLE_NEAREST, T, H, W, f.t, f.y, f.x, out};
    kern_run(OZ_OP_RESAMPLE, &a);
    for (int64_t r = 0; r < out->rows; r++) {
        int64_t w = r % (W * f.x) / f.x;
        int64_t h = r / (W * f.x) % (H * f.y) / f.y;
        int64_t t = r / (W * f.x) / (H * f.y) / f.t;
        assert_true(kern_same_row(out, r, x, (t * H + h) * W + w));
    }
}

/* torch: x.repeat_interleave(repeats, 1) viewed as (out, ft, fy, fx) and dealt out. */
static void check_dup_up(int32_t in, int32_t channels, struct factors f)
{
    enum { T = 2, H = 2, W = 3 };
    struct oz_act *x = kern_act(T * H * W, in, 0, OZ_DTYPE_F32, 1);
    struct oz_act *out = kern_out((int64_t)T * f.t * H * f.y * W * f.x, channels, 0, OZ_DTYPE_F32);
    struct oz_resample_args a = {x, OZ_RESAMPLE_DUP_UP, T, H, W, f.t, f.y, f.x, out};
    int64_t cell = (int64_t)f.t * f.y * f.x;
    int64_t repeats = channels * cell / in;
    kern_run(OZ_OP_RESAMPLE, &a);
    for (int64_t row = 0; row < x->rows; row++) {
        int64_t t = row / W / H;
        int64_t h = row / W % H;
        int64_t w = row % W;
        for (int64_t i = 0; i < channels * cell; i++) { /* of the repeated channels */
            int64_t o = i / cell;
            int64_t dt = i / (f.y * f.x) % f.t;
            int64_t dy = i / f.x % f.y;
            int64_t dx = i % f.x;
            int64_t to = ((t * f.t + dt) * (H * f.y) + h * f.y + dy) * (W * f.x) + w * f.x + dx;
            assert_true(kern_get(out, to, o) == kern_get(x, row, i / repeats));
        }
    }
}

static void check_avg_down(int32_t frames, int32_t in, int32_t channels, struct factors f)
{
    enum { H = 2, W = 3 };
    int32_t out_frames = (frames + f.t - 1) / f.t;
    int32_t height = H * f.y;
    int32_t width = W * f.x;
    struct oz_act *x = kern_act((int64_t)frames * height * width, in, 0, OZ_DTYPE_F32, 1);
    struct oz_act *out = kern_out((int64_t)out_frames * H * W, channels, 0, OZ_DTYPE_F32);
    struct oz_resample_args a = {x,  OZ_RESAMPLE_AVG_DOWN, frames, height, width, f.t, f.y, f.x,
                                 out};
    int32_t pad = out_frames * f.t - frames;
    int64_t group = (int64_t)in * f.t * f.y * f.x / channels;
    kern_run(OZ_OP_RESAMPLE, &a);
    for (int64_t r = 0; r < out->rows; r++) {
        double sums[64] = {0};
        int64_t i = 0;
        for (int64_t c = 0; c < in; c++) {
            for (int32_t dt = 0; dt < f.t; dt++) {
                for (int32_t dy = 0; dy < f.y; dy++) {
                    for (int32_t dx = 0; dx < f.x; dx++, i++) {
                        int64_t t = r / W / H * f.t + dt - pad;
                        int64_t y = r / W % H * f.y + dy;
                        int64_t from = (t * height + y) * width + r % W * f.x + dx;
                        sums[i / group] += t < 0 ? 0 : kern_get(x, from, c);
                    }
                }
            }
        }
        for (int64_t c = 0; c < channels; c++) {
            kern_near("avg_down", out, r, c, sums[c] / (double)group, 0);
        }
    }
}

static void resample(void **state)
{
    check_nearest((struct factors){1, 2, 2}, OZ_DTYPE_F32);
    check_nearest((struct factors){2, 1, 3}, OZ_DTYPE_BF16);
    check_dup_up(8, 4, (struct factors){1, 2, 2});
    check_dup_up(8, 8, (struct factors){2, 2, 2});
    check_dup_up(6, 3, (struct factors){2, 1, 1});
    check_avg_down(1, 4, 8, (struct factors){1, 2, 2});
    check_avg_down(3, 4, 8, (struct factors){2, 2, 2});
    check_avg_down(4, 3, 6, (struct factors){2, 1, 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {KERN_TEST(pictures), KERN_TEST(clips),
                                       KERN_TEST(options),  KERN_TEST(each_kernel),
                                       KERN_TEST(last_tap), KERN_TEST(resample)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
