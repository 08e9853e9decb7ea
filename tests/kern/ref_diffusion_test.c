/* The small operators of a denoising step: time_embed, patch, unpatch, cfg_combine, sched_step. */
#include "kern.h"

/* ---- time_embed ---- */

static struct oz_linear random_linear(int64_t n, int64_t k, enum oz_dtype dtype, bool bias)
{
    struct oz_linear l = {.w = *kern_param("w", dtype, 1, n, k, 0.3)};
    if (bias) {
        l.b = *kern_vector("b", n, 1);
    }
    return l;
}

/* y = x w^T + b with the bound of x's error carried through. */
static void product(const struct oz_linear *l, const double *x, const double *error, double *y,
                    double *bound)
{
    for (int64_t n = 0; n < l->w.weight.rows; n++) {
        double magnitudes = 0;
        y[n] = l->b.name != NULL ? kern_weight(&l->b, 0, 0, n) : 0;
        bound[n] = 0;
        for (int64_t k = 0; k < l->w.weight.cols; k++) {
            double w = kern_weight(&l->w, 0, n, k);
            y[n] += x[k] * w;
            magnitudes += fabs(x[k] * w);
            bound[n] += error[k] * fabs(w);
        }
        bound[n] += kern_dot_bound(l->w.weight.cols, magnitudes) + KERN_U32 * fabs(y[n]);
        bound[n] *= 1.01;
    }
}

/* Without linears the sinusoids come out alone. */
static void check_sinusoids(int32_t dim, int64_t rows)
{
    float *t = kern_array((size_t)rows * sizeof *t);
    struct oz_time_embed_args a = {.t = t,
                                   .rows = rows,
                                   .dim = dim,
                                   .scale = 1000,
                                   .out = kern_out(rows, dim, 2, OZ_DTYPE_F32)};
    for (int64_t r = 0; r < rows; r++) {
        t[r] = (float)kern_below(1001) / 1000.0F;
    }
    kern_run(OZ_OP_TIME_EMBED, &a);
    for (int64_t r = 0; r < rows; r++) {
        for (int32_t k = 0; k < dim / 2; k++) {
            double angle = 1000.0 * t[r] * pow(10000, -(double)k / (dim / 2));
            double e = angle * (2 * 9.3 + 5) * KERN_U32 + 2 * KERN_U32; /* as below */
            kern_near("cosine", a.out, r, k, cos(angle), e);
            kern_near("sine", a.out, r, dim / 2 + k, sin(angle), e);
        }
    }
}

static void check_time_embed(int32_t dim, int64_t rows, bool out, bool silu_out, bool bias)
{
    enum { HIDDEN = 37, WIDTH = 21 };
    struct oz_linear l1 = random_linear(HIDDEN, dim, OZ_DTYPE_BF16, bias);
    struct oz_linear l2 = random_linear(WIDTH, HIDDEN, OZ_DTYPE_F32, bias);
    float *t = kern_array((size_t)rows * sizeof *t);
    struct oz_time_embed_args a = {
        .t = t,
        .rows = rows,
        .dim = dim,
        .scale = 1000,
        .linear_1 = &l1,
        .linear_2 = &l2,
        .out = out ? kern_out(rows, WIDTH, 2, OZ_DTYPE_F32) : NULL,
        .silu_out = silu_out ? kern_out(rows, WIDTH, 0, OZ_DTYPE_F32) : NULL,
    };
    for (int64_t r = 0; r < rows; r++) {
        t[r] = (float)kern_below(1001) / 1000.0F;
    }
    kern_run(OZ_OP_TIME_EMBED, &a);
    for (int64_t r = 0; r < rows; r++) {
        double phi[128] = {0}, phi_error[128] = {0};
        double hidden[HIDDEN], hidden_error[HIDDEN], y[WIDTH], error[WIDTH];
        for (int32_t k = 0; k < dim / 2; k++) {
            double frequency = pow(10000, -(double)k / (dim / 2));
            double angle = 1000.0 * t[r] * frequency;
            /* the angle's roundings: exponent (log of it is up to 9.3), exp, two products */
            double e = angle * (2 * 9.3 + 5) * KERN_U32 + 2 * KERN_U32;
            phi[k] = cos(angle);
            phi[dim / 2 + k] = sin(angle);
            phi_error[k] = phi_error[dim / 2 + k] = e;
        }
        product(&l1, phi, phi_error, hidden, hidden_error);
        for (int i = 0; i < HIDDEN; i++) {
            hidden_error[i] = 1.2 * hidden_error[i] + 8 * KERN_U32 * fabs(hidden[i]);
            hidden[i] = kern_fn(OZ_FN_SILU, hidden[i]);
        }
        product(&l2, hidden, hidden_error, y, error);
        for (int c = 0; c < WIDTH; c++) {
            if (out) {
                kern_near("temb", a.out, r, c, y[c], error[c]);
            }
            if (silu_out) {
                kern_near("silu(temb)", a.silu_out, r, c, kern_fn(OZ_FN_SILU, y[c]),
                          1.2 * error[c] + 8 * KERN_U32 * fabs(y[c]));
            }
        }
    }
}

static void time_embed(void **state)
{
    check_time_embed(64, 1, true, true, true);
    check_time_embed(64, 5, true, false, true);
    check_time_embed(128, 40, false, true, false);
    check_time_embed(9, 2, true, true, true); /* odd: the last column is 0 */
    check_time_embed(2, 3, true, true, true);
    check_sinusoids(256, 3);
    check_sinusoids(2, 1);
}

/* Sinusoids must be PyTorch's to the last digits: linear_1 picks one, linear_2 passes silu of it. */
static void sinusoids(void **state)
{
    enum { DIM = 256 };
    struct oz_linear l1 = random_linear(DIM, DIM, OZ_DTYPE_F32, false);
    struct oz_linear l2 = random_linear(DIM, DIM, OZ_DTYPE_F32, false);
    float *w1 = l1.w.weight.planes[OZ_PLANE_CODES].data;
    float *w2 = l2.w.weight.planes[OZ_PLANE_CODES].data;
    float *t = kern_floats(1, 1);
    struct oz_act *out = kern_out(1, DIM, 0, OZ_DTYPE_F32);
    memset(w1, 0, DIM * DIM * sizeof *w1);
    memset(w2, 0, DIM * DIM * sizeof *w2);
    for (int i = 0; i < DIM; i++) {
        w1[i * DIM + i] = w2[i * DIM + i] = 1;
    }
    t[0] = 0.73F;
    kern_run(OZ_OP_TIME_EMBED, &(struct oz_time_embed_args){.t = t,
                                                            .rows = 1,
                                                            .dim = DIM,
                                                            .scale = 1000,
                                                            .linear_1 = &l1,
                                                            .linear_2 = &l2,
                                                            .out = out});
    for (int k = 0; k < DIM / 2; k++) {
        float frequency = expf(-logf(10000.0F) * (float)k / (float)(DIM / 2));
        float angle = 1000.0F * (t[0] * frequency);
        kern_near("cos", out, 0, k, kern_fn(OZ_FN_SILU, cos(angle)), 4 * KERN_U32);
        kern_near("sin", out, 0, DIM / 2 + k, kern_fn(OZ_FN_SILU, sin(angle)), 4 * KERN_U32);
    }
}

/* ---- patch ---- */

static void check_patch(enum oz_patch_order order, enum oz_dtype dtype)
{
    enum { C = 3, F = 2, H = 6, W = 4, P = 2 };
    float *picture = kern_floats(C * F * H * W, 1);
    struct oz_act *tokens = kern_out(F * (H / P) * (W / P), C * P * P, 3, dtype);
    struct oz_patch_args a = {picture, order, C, F, H, W, P, tokens};
    kern_run(OZ_OP_PATCH, &a);
    for (int64_t row = 0; row < tokens->rows; row++) {
        for (int64_t k = 0; k < C * P * P; k++) {
            int64_t c = order == OZ_PATCH_YXC ? k % C : k / (P * P);
            int64_t place = order == OZ_PATCH_YXC ? k / C : k % (P * P);
            int64_t dy = order == OZ_PATCH_CXY ? place % P : place / P;
            int64_t dx = order == OZ_PATCH_CXY ? place / P : place % P;
            int64_t j = row % (W / P);
            int64_t i = row / (W / P) % (H / P);
            int64_t f = row / (W / P) / (H / P);
            float want = picture[((c * F + f) * H + i * P + dy) * W + j * P + dx];
            kern_near("patch", tokens, row, k, want, 0);
        }
    }
    float *scale = kern_floats(C, 1);
    float *shift = kern_floats(C, 1);
    for (int options = 0; options < 8; options++) {
        bool last = options & 4;
        struct oz_unpatch_args u = {
            .tokens = tokens,
            .order = order,
            .channels = C,
            .frames = F,
            .height = H,
            .width = W,
            .patch = P,
            .channel_scale = options & 1 ? scale : NULL,
            .channel_shift = options & 2 ? shift : NULL,
            .channel_last = last,
            .out = last ? kern_out(F * H * W, C, 2, OZ_DTYPE_F32)
                        : kern_out(C, F * H * W, 1, OZ_DTYPE_F32),
        };
        kern_run(OZ_OP_UNPATCH, &u);
        for (int64_t i = 0; i < C * F * H * W; i++) {
            int64_t c = i / (F * H * W);
            int64_t pixel = i % (F * H * W);
            double v =
                dtype == OZ_DTYPE_BF16 ? oz_bf16_to_f32(oz_f32_to_bf16(picture[i])) : picture[i];
            v = options & 1 ? v * scale[c] : v;
            double bound = KERN_U32 * fabs(v);
            v = options & 2 ? v + shift[c] : v;
            kern_near("unpatch", u.out, last ? pixel : c, last ? c : pixel, v, bound);
        }
    }
}

static void patches(void **state)
{
    for (int order = OZ_PATCH_CYX; order <= OZ_PATCH_CXY; order++) {
        check_patch((enum oz_patch_order)order, OZ_DTYPE_F32);
        check_patch((enum oz_patch_order)order, OZ_DTYPE_BF16);
    }
}

/* ---- guidance and solver ---- */

static void check_cfg(int64_t rows, int64_t cols, bool rescale, int in_place)
{
    struct oz_act *positive = kern_act(rows, cols, 2, OZ_DTYPE_F32, 1);
    struct oz_act *negative = kern_act(rows, cols, 1, OZ_DTYPE_F32, 1);
    struct oz_act *out = in_place == 0   ? kern_out(rows, cols, 3, OZ_DTYPE_F32)
                         : in_place == 1 ? positive
                                         : negative;
    struct oz_cfg_combine_args a = {positive, negative, 4.5F, rescale, out};
    double *p = kern_doubles(positive);
    double *n = kern_doubles(negative);
    kern_output(out->data);
    kern_run(OZ_OP_CFG_COMBINE, &a);
    for (int64_t r = 0; r < rows; r++) {
        double squares_p = 0;
        double squares = 0;
        for (int64_t c = 0; c < cols; c++) {
            double v = n[r * cols + c] + 4.5 * (p[r * cols + c] - n[r * cols + c]);
            squares += v * v;
            squares_p += p[r * cols + c] * p[r * cols + c];
        }
        double factor = rescale ? sqrt(squares_p / squares) : 1;
        for (int64_t c = 0; c < cols; c++) {
            double difference = p[r * cols + c] - n[r * cols + c];
            double v = n[r * cols + c] + 4.5 * difference;
            double bound = KERN_U32 * (2 * 4.5 * fabs(difference) + fabs(v));
            /* with rescale the norm may be off by as much, relative to it, in every element */
            kern_near("cfg", out, r, c, v * factor,
                      factor * (bound + (rescale ? 16 * KERN_U32 * (fabs(v) + 1) : 0)));
        }
    }
}

static void cfg_combine(void **state)
{
    for (int in_place = 0; in_place < 3; in_place++) {
        check_cfg(1, 1, false, in_place);
        check_cfg(3, 17, true, in_place);
        check_cfg(40, 64, true, in_place);
        check_cfg(17, 64, false, in_place);
        check_cfg(11, 131, true, in_place);
        check_cfg(600, 70, in_place == 1, in_place); /* several threads */
    }
    struct oz_act *zero = kern_act(2, 5, 0, OZ_DTYPE_F32, 0);
    struct oz_act *out = kern_out(2, 5, 0, OZ_DTYPE_F32);
    kern_run(OZ_OP_CFG_COMBINE, &(struct oz_cfg_combine_args){zero, zero, 4, true, out});
    assert_true(kern_get(out, 1, 4) == 0);
}

static void sched_step(void **state)
{
    enum { ROWS = 50, COLS = 701 };
    for (int32_t count = 0; count <= OZ_SCHED_TERMS; count++) {
        for (int keep = 0; keep < 2; keep++) {
            struct oz_sched_step_args a = {
                .x = kern_act(ROWS, COLS, 1, OZ_DTYPE_F32, 1),
                .keep = keep,
                .count = count,
                .factors = kern_floats(1 + OZ_SCHED_TERMS, 1),
            };
            for (int32_t i = 0; i < count; i++) {
                a.terms[i] = kern_act(ROWS, COLS, i, OZ_DTYPE_F32, 1);
            }
            double *before = kern_doubles(a.x);
            kern_output(a.x->data);
            kern_run(OZ_OP_SCHED_STEP, &a);
            for (int64_t i = 0; i < ROWS * COLS; i++) {
                double v = before[i] * (keep ? 1 : a.factors[0]);
                double bound = KERN_U32 * fabs(v);
                for (int32_t j = 0; j < count; j++) {
                    double term = a.factors[1 + j] * kern_get(a.terms[j], i / COLS, i % COLS);
                    v += term;
                    bound += KERN_U32 * (fabs(term) + fabs(v));
                }
                kern_near("step", a.x, i / COLS, i % COLS, v, bound * 1.01);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {KERN_TEST(time_embed), KERN_TEST(sinusoids),
                                       KERN_TEST(patches), KERN_TEST(cfg_combine),
                                       KERN_TEST(sched_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
