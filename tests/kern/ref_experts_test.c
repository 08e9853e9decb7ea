/* route and experts against double. */
#include "kern.h"

/* ---- route ---- */

struct routing {
    int64_t m;
    int32_t experts, k;
    enum oz_route kind;
    bool renormalise, bias;
    float scale;
};

static void softmax(double *x, int64_t n)
{
    double sum = 0;
    double largest = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, x[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] = exp(x[i] - largest);
        sum += x[i];
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] /= sum;
    }
}

static void check_route(const struct routing *p)
{
    struct oz_act *logits = kern_act(p->m, p->experts, 3, OZ_DTYPE_F32, 1);
    struct oz_act *weights = kern_out(p->m, p->k, 0, OZ_DTYPE_F32);
    int32_t *ids = kern_array((size_t)(p->m * p->k) * sizeof *ids);
    struct oz_route_args a = {
        .logits = logits,
        .kind = p->kind,
        .renormalise = p->renormalise,
        .scale = p->scale,
        .bias = p->bias ? kern_vector("bias", p->experts, 0.3) : NULL,
        .k = p->k,
        .ids = ids,
        .weights = weights->data,
    };
    kern_output(ids);
    kern_run(OZ_OP_ROUTE, &a);
    for (int64_t r = 0; r < p->m; r++) {
        double values[64];
        double chosen[64];
        bool taken[64] = {false};
        double sum = 0;
        for (int32_t e = 0; e < p->experts; e++) {
            values[e] = kern_get(logits, r, e);
        }
        if (p->kind == OZ_ROUTE_SOFTMAX_TOPK) {
            softmax(values, p->experts);
        }
        for (int32_t j = 0; j < p->k; j++) { /* logits are far enough apart for one answer */
            int32_t best = -1;
            for (int32_t e = 0; e < p->experts; e++) {
                double v = values[e] + (p->bias ? kern_weight(a.bias, 0, 0, e) : 0);
                double b =
                    best < 0 ? 0 : values[best] + (p->bias ? kern_weight(a.bias, 0, 0, best) : 0);
                if (!taken[e] && (best < 0 || v > b)) {
                    best = e;
                }
            }
            taken[best] = true;
            assert_int_equal(ids[r * p->k + j], best);
            chosen[j] = values[best];
            sum += chosen[j];
        }
        if (p->kind == OZ_ROUTE_TOPK_SOFTMAX) {
            softmax(chosen, p->k);
        }
        for (int32_t j = 0; j < p->k; j++) {
            bool divide = p->kind == OZ_ROUTE_SOFTMAX_TOPK && p->renormalise;
            double want = chosen[j] * p->scale / (divide ? sum : 1);
            kern_near("weight", weights, r, j, want, 24 * KERN_U32 * fabs(want));
        }
    }
}

static void route(void **state)
{
    for (int i = 0; i < 16; i++) {
        struct routing p = {.m = 1 + kern_below(40), .experts = 1 + (int32_t)kern_below(64)};
        p.k = 1 + (int32_t)kern_below(p.experts < 8 ? p.experts : 8);
        p.kind = i & 1 ? OZ_ROUTE_SOFTMAX_TOPK : OZ_ROUTE_TOPK_SOFTMAX;
        p.renormalise = i & 2;
        p.bias = i & 4;
        p.scale = i & 8 ? 2.5F : 1;
        check_route(&p);
    }
}

static void route_ties_and_nan(void **state)
{
    struct oz_act *logits = kern_act(2, 6, 0, OZ_DTYPE_F32, 0); /* all equal */
    int32_t ids[6];
    float weights[6];
    struct oz_route_args a = {.logits = logits,
                              .kind = OZ_ROUTE_TOPK_SOFTMAX,
                              .scale = 1,
                              .k = 3,
                              .ids = ids,
                              .weights = weights};
    kern_set(logits, 1, 2, NAN);
    assert_int_equal(kern_run_once(1, OZ_OP_ROUTE, &a), OZ_OK);
    for (int32_t j = 0; j < 3; j++) {
        assert_int_equal(ids[j], j);
        assert_true(ids[3 + j] >= 0 && ids[3 + j] < 6);
    }
}

/* ---- experts ---- */

struct mixture {
    int64_t m, d, f, out;
    int32_t experts, k;
    enum oz_glu glu;
    enum oz_dtype x, w, hidden;
    bool bias;
};

static double row_product(const struct oz_param *w, const struct oz_param *b, int64_t e, int64_t n,
                          const double *x, const double *error, double *bound)
{
    double sum = 0;
    double magnitudes = 0;
    *bound = 0;
    for (int64_t k = 0; k < w->weight.cols; k++) {
        double term = x[k] * kern_weight(w, e, n, k);
        sum += term;
        magnitudes += fabs(term);
        *bound += error[k] * fabs(kern_weight(w, e, n, k));
    }
    sum += b != NULL ? kern_weight(b, 0, e, n) : 0;
    *bound += kern_dot_bound(w->weight.cols, magnitudes + *bound) + KERN_U32 * fabs(sum);
    return sum;
}

static double glu(const struct oz_experts_args *a, double gate, double up, double gate_error,
                  double up_error, double *bound)
{
    if (a->glu == OZ_GLU_CLAMPED) {
        gate = fmin(gate, a->limit);
        up = fmax(fmin(up, a->limit), -a->limit) + 1;
        double act = gate * kern_fn(OZ_FN_SIGMOID, a->alpha * gate);
        /* gate sigmoid(alpha gate) is no steeper than 1.2 */
        *bound = fabs(up) * (1.2 * gate_error + 12 * KERN_U32 * fabs(gate)) +
                 fabs(act) * (up_error + 2 * KERN_U32 * fabs(up));
        return up * act;
    }
    double act = kern_fn(a->glu == OZ_GLU_SILU ? OZ_FN_SILU : OZ_FN_GELU_TANH, gate);
    *bound = fabs(up) * (1.2 * gate_error + 8 * KERN_U32 * fabs(gate)) +
             (fabs(act) + gate_error) * up_error + KERN_U32 * fabs(act * up);
    return act * up;
}

static void check_row(const struct mixture *p, const struct oz_experts_args *a, int64_t r)
{
    double *x = kern_array((size_t)p->d * sizeof *x);
    double *zero = kern_array((size_t)p->d * sizeof *zero);
    double *hidden = kern_array((size_t)p->f * sizeof *hidden);
    double *error = kern_array((size_t)p->f * sizeof *error);
    double sums[64] = {0};
    double bounds[64] = {0};
    for (int64_t c = 0; c < p->d; c++) {
        x[c] = kern_get(a->x, r, c);
        zero[c] = 0;
    }
    for (int32_t j = 0; j < p->k; j++) {
        int32_t e = a->ids[r * p->k + j];
        double weight = a->weights[r * p->k + j];
        for (int64_t i = 0; i < p->f; i++) {
            bool interleaved = p->glu == OZ_GLU_CLAMPED;
            double ge, ue;
            double g = row_product(a->up, a->up_bias, e, interleaved ? 2 * i : i, x, zero, &ge);
            double u =
                row_product(a->up, a->up_bias, e, interleaved ? 2 * i + 1 : p->f + i, x, zero, &ue);
            hidden[i] = glu(a, g, u, ge, ue, &error[i]);
            if (p->hidden == OZ_DTYPE_BF16) { /* may round to the other side */
                error[i] += KERN_U16 * (fabs(hidden[i]) + error[i]);
            }
        }
        for (int64_t c = 0; c < p->out; c++) {
            double bound;
            double y = row_product(a->down, a->down_bias, e, c, hidden, error, &bound);
            sums[c] += weight * y;
            bounds[c] += fabs(weight) * (bound + KERN_U32 * fabs(y)) + KERN_U32 * fabs(sums[c]);
        }
    }
    for (int64_t c = 0; c < p->out; c++) {
        kern_near("experts", a->out, r, c, sums[c], bounds[c] * 1.01);
    }
}

/* [experts, rows, cols] even with one expert. */
static struct oz_param *slices(const char *name, const struct mixture *p, int64_t rows,
                               int64_t cols)
{
    struct oz_param *w = kern_param(name, p->w, p->experts, rows, cols, 0.5);
    w->rank = 3;
    w->shape[0] = p->experts;
    w->shape[1] = rows;
    w->shape[2] = cols;
    return w;
}

static struct oz_experts_args make(const struct mixture *p)
{
    return (struct oz_experts_args){
        .x = kern_act(p->m, p->d, 2, p->x, 1),
        .up = slices("up", p, 2 * p->f, p->d),
        .up_bias = p->bias ? kern_param("up_bias", OZ_DTYPE_F32, 1, p->experts, 2 * p->f, 1) : NULL,
        .down = slices("down", p, p->out, p->f),
        .down_bias =
            p->bias ? kern_param("down_bias", OZ_DTYPE_F32, 1, p->experts, p->out, 1) : NULL,
        .hidden = {.dtype = p->hidden},
        .glu = p->glu,
        .alpha = 1.702F,
        .limit = 2,
        .k = p->k,
        .ids = kern_ids(p->m * p->k, p->experts),
        .weights = kern_floats(p->m * p->k, 1),
        .out = kern_out(p->m, p->out, 1, OZ_DTYPE_F32),
    };
}

static void experts(void **state)
{
    for (int i = 0; i < 12; i++) {
        struct mixture p = {.m = 1 + kern_below(20), .d = 1 + kern_below(40)};
        p.f = 1 + kern_below(30);
        p.out = p.d;
        p.experts = 1 + (int32_t)kern_below(6);
        p.k = 1 + (int32_t)kern_below(4);
        p.glu = (enum oz_glu)(i % 3);
        p.x = i & 1 ? OZ_DTYPE_BF16 : OZ_DTYPE_F32;
        p.w = i & 2 ? OZ_DTYPE_BF16 : OZ_DTYPE_F32;
        p.hidden = i & 4 ? OZ_DTYPE_BF16 : OZ_DTYPE_F32;
        p.bias = i % 5 != 0;
        struct oz_experts_args a = make(&p);
        kern_run(OZ_OP_EXPERTS, &a);
        for (int64_t r = 0; r < p.m; r++) {
            check_row(&p, &a, r);
        }
    }
}

/* Rows at M = 1 .. 300 (more than a piece) and several places give the same bytes. */
static void row_independence(void **state)
{
    static const int64_t counts[] = {1, 2, 3, 11, 12, 13, 64, 257};
    struct mixture p = {.m = 300, .d = 33, .f = 20, .out = 33, .experts = 5, .k = 3, .bias = true};
    p.x = p.w = p.hidden = OZ_DTYPE_F32;
    struct oz_experts_args a = make(&p);
    struct oz_act *all = a.out;
    const struct oz_act *x = a.x;
    const int32_t *ids = a.ids;
    const float *weights = a.weights;
    struct oz_act *out = kern_out(300, 33, 0, OZ_DTYPE_F32);
    assert_int_equal(kern_run_once(2, OZ_OP_EXPERTS, &a), OZ_OK);
    for (int i = 0; i < 8; i++) {
        for (int place = 0; place < 3; place++) {
            int64_t first = (300 - counts[i]) * place / 2;
            struct oz_act part = kern_rows(x, first, counts[i]);
            struct oz_act to = kern_rows(out, 0, counts[i]);
            a.x = &part;
            a.out = &to;
            a.ids = ids + first * p.k;
            a.weights = weights + first * p.k;
            assert_int_equal(kern_run_once(2, OZ_OP_EXPERTS, &a), OZ_OK);
            for (int64_t r = 0; r < counts[i]; r++) {
                assert_true(kern_same_row(&to, r, all, first + r));
            }
        }
    }
}

static void refusals(void **state)
{
    struct mixture p = {.m = 2, .d = 4, .f = 3, .out = 4, .experts = 2, .k = 1};
    p.x = p.w = p.hidden = OZ_DTYPE_F32;
    struct oz_experts_args a = make(&p);
    int32_t ids[] = {0, 2};
    a.ids = ids;
    assert_int_equal(kern_run_once(1, OZ_OP_EXPERTS, &a), OZ_ERR_ARG);
    ids[1] = 1;
    a.hidden.dtype = OZ_DTYPE_I8;
    assert_int_equal(kern_run_once(1, OZ_OP_EXPERTS, &a), OZ_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {KERN_TEST(route), KERN_TEST(route_ties_and_nan),
                                       KERN_TEST(experts), KERN_TEST(row_independence),
                                       KERN_TEST(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
