/*
 * attention against softmax in double: segments, cross, masks, GQA, sinks, bias, pages, special
 * values. Every kernel of the list that this processor can run (and OUNCE_CPU allows) is tested; that
 * of AMX over emulated instructions too.
 */
#include "kern.h"

#include "cpu/kernel.h"

#define MAX_SEQUENCES 40
#define MAX_KEYS 320
#define REACH 320 /* of the bias */

static bool in_bf16; /* the kernel under test multiplies in bf16 */

struct problem {
    int32_t heads, kv_heads, head_dim, segments, sequences;
    int32_t lengths[2][MAX_SEQUENCES];
    enum oz_dtype dtype, out;
    double deviation; /* of q and k; 0: 1 */
    float scale;      /* 0: 0.3 */
    enum oz_mask mask;
    int32_t window;
    bool sinks, bias;
    bool cross; /* segment 0 asks, segment 1 offers */
};

/* Operands of a problem, as arguments. */
static struct oz_attention_args *make(const struct problem *p)
{
    struct oz_attention_args *a = kern_array(sizeof *a);
    double deviation = p->deviation > 0 ? p->deviation : 1;
    *a = (struct oz_attention_args){
        .segment_count = p->segments,
        .heads = p->heads,
        .kv_heads = p->kv_heads,
        .head_dim = p->head_dim,
        .scale = p->scale != 0 ? p->scale : 0.3F,
        .mask = p->mask,
        .window = p->window,
        .sinks = p->sinks ? kern_vector("sinks", p->heads, 1) : NULL,
        .bias = p->bias ? kern_act(p->heads, 2 * REACH - 1, 3, OZ_DTYPE_F32, 1) : NULL,
    };
    for (int32_t i = 0; i < p->segments; i++) {
        const struct oz_ragged *rows = kern_ragged(p->sequences, p->lengths[i]);
        int64_t n = rows->offsets[p->sequences];
        a->segments[i].rows = rows;
        if (!p->cross || i == 0) {
            a->segments[i].q = kern_act(n, p->heads * p->head_dim, 3, p->dtype, deviation);
            a->segments[i].out = kern_out(n, p->heads * p->head_dim, 1, p->out);
        }
        if (!p->cross || i == 1) {
            a->segments[i].k = kern_act(n, p->kv_heads * p->head_dim, 0, p->dtype, deviation);
            a->segments[i].v = kern_act(n, p->kv_heads * p->head_dim, 5, p->dtype, 1);
        }
    }
    return a;
}

/* One key of a sequence by position: the act that holds it, and the row. */
static const struct oz_act *key(const struct oz_attention_args *a, bool value, int32_t s,
                                int64_t position, int64_t *row)
{
    if (a->paged != NULL) {
        const struct oz_paged_kv *p = a->paged;
        int64_t page = p->tables[s * p->table_stride + position / p->page_rows];
        *row = page * p->page_rows + position % p->page_rows;
        return value ? p->v : p->k;
    }
    for (int32_t i = 0; i < a->segment_count; i++) {
        const int32_t *offsets = a->segments[i].rows->offsets;
        int64_t rows = offsets[s + 1] - offsets[s];
        if (a->segments[i].k == NULL) {
            continue;
        }
        if (position < rows) {
            *row = offsets[s] + position;
            return value ? a->segments[i].v : a->segments[i].k;
        }
        position -= rows;
    }
    fail_msg("no such key");
    return NULL;
}

static int64_t count_keys(const struct oz_attention_args *a, int32_t s)
{
    int64_t count = a->paged != NULL ? a->paged->lengths[s] : 0;
    for (int32_t i = 0; a->paged == NULL && i < a->segment_count; i++) {
        const int32_t *offsets = a->segments[i].rows->offsets;
        count += a->segments[i].k != NULL ? offsets[s + 1] - offsets[s] : 0;
    }
    return count;
}

static bool sees(const struct oz_attention_args *a, int64_t query, int64_t position)
{
    switch (a->mask) {
    case OZ_MASK_NONE: return true;
    case OZ_MASK_CAUSAL: return position <= query;
    case OZ_MASK_WINDOW: return position <= query && position > query - a->window;
    }
    return false;
}

/* What the kernel may lose when it rounds an operand. */
static double rounding_of(const struct oz_act *a)
{
    return in_bf16 && a->spec.dtype == OZ_DTYPE_F32 ? KERN_U16 : 0;
}

/*
 * The score of a query of head h at `position`, and *error, the largest error so far: of the rounded
 * operands, of a sum of head_dim products in any order, of scale and bias.
 */
static double score(const struct oz_attention_args *a, int32_t segment, int64_t q_row, int32_t s,
                    int32_t h, int64_t query, int64_t position, double *error)
{
    int64_t row;
    const struct oz_act *q = a->segments[segment].q;
    const struct oz_act *k = key(a, false, s, position, &row);
    int64_t kv = h / (a->heads / a->kv_heads);
    double sum = 0;
    double magnitudes = 0;
    for (int64_t c = 0; c < a->head_dim; c++) {
        double term =
            kern_get(q, q_row, h * a->head_dim + c) * kern_get(k, row, kv * a->head_dim + c);
        sum += term;
        magnitudes += fabs(term);
    }
    sum *= a->scale;
    double rounded = (rounding_of(q) + rounding_of(k)) * 1.01;
    double e = magnitudes * fabs(a->scale) * (rounded + (double)(a->head_dim + 1) * KERN_U32);
    e += 3 * KERN_U32 * fabs(sum); /* scale log2 e, its product */
    if (a->bias != NULL) {
        int64_t reach = (a->bias->cols + 1) / 2;
        double bias = kern_get(a->bias, h, position - query + reach - 1);
        if (bias == -INFINITY) {
            return bias;
        }
        sum += bias;
        e += KERN_U32 * (fabs(sum) + 2 * fabs(bias));
    }
    *error = e > *error ? e : *error;
    return sum;
}

/*
 * A weight is exp of a score less the largest so far, and shrinks as larger ones come: every tile may
 * add the roundings of a maximum, of a difference and a product, and an exp (below 2^-22); that of a
 * weight which is rounded to bf16 may err by 2^-18. Weights err so in numerator and denominator, then
 * each sum rounds once for each key and twice for each tile.
 */
static void check_query(const struct oz_attention_args *a, int32_t segment, int64_t q_row,
                        int32_t s, int32_t h, int64_t query)
{
    int64_t keys = count_keys(a, s);
    double scores[MAX_KEYS];
    double error = 0;
    double largest = -INFINITY;
    double reach = 0; /* largest magnitude of a score */
    double denominator = 0;
    assert_true(keys <= MAX_KEYS);
    if (a->sinks != NULL) {
        largest = kern_weight(a->sinks, 0, 0, h);
        reach = fabs(largest);
    }
    for (int64_t i = 0; i < keys; i++) {
        if (sees(a, query, i)) {
            scores[i] = score(a, segment, q_row, s, h, query, i, &error);
            largest = fmax(largest, scores[i]);
            reach = isfinite(scores[i]) ? fmax(reach, fabs(scores[i])) : reach;
        }
    }
    denominator = a->sinks != NULL ? exp(kern_weight(a->sinks, 0, 0, h) - largest) : 0;
    for (int64_t i = 0; i < keys; i++) {
        scores[i] = sees(a, query, i) ? exp(scores[i] - largest) : 0;
        denominator += scores[i];
    }
    double tiles = 1 + (double)keys / 64;
    double weights = 2 * (error + tiles * (4 * reach + 8) * KERN_U32 + (in_bf16 ? 0x1p-18 : 0));
    double adding = ((double)keys + 2 * tiles + 4) * KERN_U32 * 2;
    for (int64_t c = 0; c < a->head_dim; c++) {
        double sum = 0;
        double magnitudes = 0;
        double rounded = in_bf16 ? KERN_U16 : 0; /* of weights */
        for (int64_t i = 0; i < keys; i++) {
            int64_t row;
            const struct oz_act *v = key(a, true, s, i, &row);
            int64_t kv = h / (a->heads / a->kv_heads);
            if (scores[i] > 0) {
                double term = scores[i] / denominator * kern_get(v, row, kv * a->head_dim + c);
                sum += term;
                magnitudes += fabs(term);
                rounded = (in_bf16 ? KERN_U16 : 0) + rounding_of(v);
            }
        }
        /* Weights below 2^-126 of the largest may be lost. */
        kern_near("attention", a->segments[segment].out, q_row, h * a->head_dim + c, sum,
                  magnitudes * (expm1(weights) + adding + rounded * 1.01) + 0x1p-110);
    }
}

static void check_all(const struct oz_attention_args *a)
{
    for (int32_t s = 0; s < a->segments[0].rows->count; s++) {
        int64_t position = 0;
        for (int32_t i = 0; i < a->segment_count; i++) {
            const int32_t *offsets = a->segments[i].rows->offsets;
            int64_t rows = offsets[s + 1] - offsets[s];
            int64_t first = a->segments[i].k != NULL ? position : 0;
            first = a->paged != NULL ? a->paged->lengths[s] - rows : first;
            position += a->segments[i].k != NULL ? rows : 0;
            for (int64_t r = 0; a->segments[i].q != NULL && r < rows; r++) {
                for (int32_t h = 0; h < a->heads; h++) {
                    check_query(a, i, offsets[s] + r, s, h, first + r);
                }
            }
        }
    }
}

static void check(const struct problem *p)
{
    struct oz_attention_args *a = make(p);
    kern_run(OZ_OP_ATTENTION, a);
    check_all(a);
}

static struct problem basic(void)
{
    return (struct problem){.heads = 4,
                            .kv_heads = 2,
                            .head_dim = 12,
                            .segments = 1,
                            .sequences = 3,
                            .lengths = {{17, 1, 70}, {5, 0, 2}},
                            .dtype = OZ_DTYPE_F32,
                            .out = OZ_DTYPE_F32};
}

static void one_segment(void **state)
{
    static const int32_t dims[] = {1, 2, 3, 17, 64};
    for (int i = 0; i < 5; i++) {
        struct problem p = basic();
        p.head_dim = dims[i];
        check(&p);
        p.kv_heads = 4;
        p.dtype = OZ_DTYPE_BF16;
        p.out = i % 2 ? OZ_DTYPE_BF16 : OZ_DTYPE_F32;
        check(&p);
    }
}

static void joint(void **state)
{
    struct problem p = basic();
    p.segments = 2;
    check(&p);
    p.bias = p.sinks = true;
    check(&p);
}

static void cross(void **state)
{
    struct problem p = basic();
    p.segments = 2;
    p.cross = true;
    p.lengths[1][1] = 3;
    check(&p);
    p.dtype = OZ_DTYPE_BF16;
    check(&p);
}

/* Keys and features around every tile, panel and vector; rows around those of a micro-kernel. */
static void shapes(void **state)
{
    static const int32_t keys[] = {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 257, 300};
    static const int32_t dims[] = {16, 24, 64, 80, 128, 384};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        for (size_t j = i % kern_stride(); j < sizeof dims / sizeof *dims; j += kern_stride()) {
            struct problem p = basic();
            p.heads = 2;
            p.kv_heads = 1 + (int32_t)kern_below(2);
            p.head_dim = dims[j];
            p.scale = 1.0F / sqrtf((float)dims[j]);
            p.segments = 2;
            p.cross = true;
            p.sequences = 1;
            p.lengths[0][0] = 1 + (int32_t)kern_below(keys[i] == 300 ? 14 : 7);
            p.lengths[1][0] = keys[i];
            p.dtype = kern_coin() ? OZ_DTYPE_BF16 : OZ_DTYPE_F32;
            p.out = kern_coin() ? OZ_DTYPE_BF16 : OZ_DTYPE_F32;
            check(&p);
            kern_forget();
        }
    }
}

/* Many rows of queries: more than a block, one more and one less than a multiple of 12. */
static void many_queries(void **state)
{
    static const int32_t rows[] = {11, 12, 13, 97, 131};
    for (int i = 0; i < 5; i++) {
        struct problem p = basic();
        p.sequences = 1;
        p.lengths[0][0] = rows[i];
        check(&p);
        kern_forget();
    }
}

/* Scores far apart and of any sign of the scale: weights underflow, maxima move from tile to tile. */
static void steep(void **state)
{
    static const float scales[] = {0.3F, -0.3F, 1e-30F, 2};
    for (int i = 0; i < 4; i += (int)kern_stride()) {
        struct problem p = basic();
        p.deviation = 4;
        p.scale = scales[i];
        p.lengths[0][2] = 300;
        p.sinks = i & 1;
        check(&p);
        kern_forget();
    }
}

/*
 * The weights themselves: key j has score -j / 128 and a value that is 1 in feature j alone, so that
 * the output is the softmax. Operands are exact in bf16.
 */
static void weights(void **state)
{
    enum { KEYS = 256 };
    struct problem p = basic();
    p.heads = p.kv_heads = p.sequences = 1;
    p.segments = 2;
    p.cross = true;
    p.head_dim = KEYS;
    p.scale = 1;
    p.lengths[0][0] = 1;
    p.lengths[1][0] = KEYS;
    struct oz_attention_args *a = make(&p);
    double sum = 0;
    for (int64_t j = 0; j < KEYS; j++) {
        sum += exp(-(double)j / 128);
        kern_set(a->segments[0].q, 0, j, j == 0);
        for (int64_t c = 0; c < KEYS; c++) {
            kern_set(a->segments[1].k, j, c, c == 0 ? -(double)j / 128 : 0);
            kern_set(a->segments[1].v, j, c, c == j);
        }
    }
    kern_run(OZ_OP_ATTENTION, a);
    for (int64_t j = 0; j < KEYS; j++) {
        double want = exp(-(double)j / 128) / sum;
        /* Twice: exp, the roundings of its argument (up to 2 ln 2 in size), of the sum, of a quotient.
         */
        double roundings = 2 * (4 + 3 * 2 * 1.45) + 32 + 1;
        kern_near("weights", a->segments[0].out, 0, j, want,
                  want * (roundings * KERN_U32 + (in_bf16 ? 1.01 * KERN_U16 + 0x1p-17 : 0)));
    }
}

static void masks(void **state)
{
    for (int i = 0; i < 16; i += (int)kern_stride()) {
        struct problem p = basic();
        p.mask = i & 1 ? OZ_MASK_CAUSAL : OZ_MASK_WINDOW;
        p.window = i & 2 ? 1 : 20;
        p.sinks = i & 4;
        p.bias = !p.sinks;
        p.lengths[0][2] = i & 8 ? 290 : 150;
        check(&p);
        kern_forget();
    }
}

/* Causal attention over two segments that both have keys: positions count through both. */
static void causal_joint(void **state)
{
    struct problem p = basic();
    p.segments = 2;
    p.mask = OZ_MASK_CAUSAL;
    check(&p);
}

/*
 * Infinite and NaN values reach the queries that see them and no others; a query that is NaN spoils
 * its own row; a bias of minus infinity is a mask, and NaN where nothing is left.
 */
static void special_values(void **state)
{
    struct problem p = basic();
    p.mask = OZ_MASK_WINDOW;
    p.window = 25;
    p.sequences = 1;
    p.heads = p.kv_heads = 1;
    p.lengths[0][0] = 300;
    for (int i = 0; i < 4; i++) {
        struct oz_attention_args *a = make(&p);
        const struct oz_act *out = a->segments[0].out;
        int64_t at = i & 1 ? 270 : 140;
        kern_set(a->segments[0].v, at, 3, i & 2 ? INFINITY : NAN);
        kern_set(a->segments[0].q, 10, 0, NAN);
        kern_run(OZ_OP_ATTENTION, a);
        for (int64_t r = 0; r < 300; r++) {
            bool sees_it = r >= at && r < at + p.window;
            assert_true(isfinite(kern_get(out, r, 3)) == (!sees_it && r != 10));
            assert_true(isfinite(kern_get(out, r, 4)) == (r != 10));
            if (r != 10 && !sees_it) {
                check_query(a, 0, r, 0, 0, r);
            }
        }
        kern_forget();
    }
    p.mask = OZ_MASK_NONE;
    p.bias = true;
    struct oz_attention_args *a = make(&p);
    for (int64_t i = 0; i < a->bias->cols; i++) { /* keys more than 5 behind the query */
        kern_set(a->bias, 0, i, i - (REACH - 1) < -5 ? -INFINITY : 0);
    }
    kern_run(OZ_OP_ATTENTION, a);
    check_all(a);
    for (int64_t i = 0; i < a->bias->cols; i++) {
        kern_set(a->bias, 0, i, -INFINITY);
    }
    kern_run(OZ_OP_ATTENTION, a);
    assert_true(isnan(kern_get(a->segments[0].out, 5, 0)));
}

static void sees_nothing(void **state)
{
    struct problem p = basic();
    p.segments = 2;
    p.cross = true; /* sequence 1 has no keys */
    struct oz_attention_args *a = make(&p);
    kern_run(OZ_OP_ATTENTION, a);
    check_query(a, 0, 0, 0, 0, 0);
    for (int64_t c = 0; c < a->segments[0].out->cols; c++) {
        assert_true(kern_get(a->segments[0].out, 17, c) == 0);
    }
}

/* Pages in a random order; the queries are the last positions. */
static struct oz_attention_args *make_paged(const struct problem *p, const int32_t *lengths,
                                            int32_t page_rows)
{
    enum { PAGES = 64, TABLE = 40 };
    struct oz_attention_args *a = make(p);
    struct oz_paged_kv *paged = kern_array(sizeof *paged);
    int32_t *tables = kern_array((size_t)p->sequences * TABLE * sizeof *tables);
    int32_t *copy = kern_array((size_t)p->sequences * sizeof *copy);
    int32_t order[PAGES];
    int32_t next = 0;
    for (int32_t i = 0; i < PAGES; i++) {
        int32_t j = (int32_t)kern_below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    *paged = (struct oz_paged_kv){
        .k = kern_act(PAGES * page_rows, p->kv_heads * p->head_dim, 2, p->dtype, 1),
        .v = kern_act(PAGES * page_rows, p->kv_heads * p->head_dim, 0, p->dtype, 1),
        .tables = tables,
        .lengths = copy,
        .table_stride = TABLE,
        .page_rows = page_rows,
    };
    for (int32_t s = 0; s < p->sequences; s++) {
        copy[s] = lengths[s];
        paged->max_length = lengths[s] > paged->max_length ? lengths[s] : paged->max_length;
        for (int32_t i = 0; i < TABLE; i++) { /* entries behind the last page are not read */
            tables[s * TABLE + i] = i * page_rows < lengths[s] ? order[next++] : -1000000;
        }
    }
    a->segments[0].k = a->segments[0].v = NULL;
    a->paged = paged;
    return a;
}

static void pages(void **state)
{
    static const int32_t lengths[] = {20, 33, 90};
    for (int i = 0; i < 4; i++) {
        struct problem p = basic();
        p.mask = i & 1 ? OZ_MASK_CAUSAL : OZ_MASK_WINDOW;
        p.window = 40;
        p.sinks = i & 2;
        p.dtype = i & 2 ? OZ_DTYPE_BF16 : OZ_DTYPE_F32;
        struct oz_attention_args *a = make_paged(&p, lengths, i & 1 ? 16 : 5);
        kern_run(OZ_OP_ATTENTION, a);
        check_all(a);
    }
}

/* A sequence alone gives the bytes that it gives among others. */
static void check_independence(const struct problem *p)
{
    struct oz_attention_args *all = make(p);
    assert_int_equal(kern_run_once(5, OZ_OP_ATTENTION, all), OZ_OK);
    for (int32_t s = 0; s < p->sequences; s++) {
        struct oz_attention_args a = *all;
        struct oz_act q[2];
        struct oz_act k[2];
        struct oz_act v[2];
        for (int i = 0; i < p->segments; i++) {
            int32_t first = all->segments[i].rows->offsets[s];
            int32_t rows = p->lengths[i][s];
            a.segments[i].rows = kern_ragged(1, &rows);
            if (all->segments[i].q != NULL) {
                q[i] = kern_rows(all->segments[i].q, first, rows);
                a.segments[i].q = &q[i];
                a.segments[i].out =
                    kern_out(rows, p->heads * p->head_dim, 0, all->segments[i].out->spec.dtype);
            }
            if (all->segments[i].k != NULL) {
                k[i] = kern_rows(all->segments[i].k, first, rows);
                v[i] = kern_rows(all->segments[i].v, first, rows);
                a.segments[i].k = &k[i];
                a.segments[i].v = &v[i];
            }
        }
        assert_int_equal(kern_run_once(1 + s % 2, OZ_OP_ATTENTION, &a), OZ_OK);
        for (int i = 0; i < p->segments; i++) {
            int32_t first = all->segments[i].rows->offsets[s];
            for (int64_t r = 0; a.segments[i].q != NULL && r < p->lengths[i][s]; r++) {
                assert_true(kern_same_row(a.segments[i].out, r, all->segments[i].out, first + r));
            }
        }
    }
    kern_forget();
}

static void row_independence(void **state)
{
    for (int i = 0; i < 4; i += (int)kern_stride()) {
        struct problem p = basic();
        p.segments = 2;
        p.head_dim = i & 1 ? 64 : 12;
        p.dtype = i & 2 ? OZ_DTYPE_BF16 : OZ_DTYPE_F32;
        p.sequences = 4;
        p.lengths[0][3] = 270;
        p.lengths[1][3] = 33;
        p.sinks = p.bias = i < 2;
        p.mask = i == 3 ? OZ_MASK_CAUSAL : OZ_MASK_NONE;
        check_independence(&p);
    }
}

/* More units than a wave takes, by number and by bytes; some sequences are empty. */
static void waves(void **state)
{
    struct problem p = basic();
    p.sequences = MAX_SEQUENCES;
    for (int s = 0; s < MAX_SEQUENCES; s++) {
        p.lengths[0][s] = (int32_t)kern_below(20);
    }
    check_independence(&p);
    p.sequences = 3;
    p.segments = 2;
    p.cross = true;
    p.heads = p.kv_heads = 1;
    p.head_dim = 1024;
    for (int s = 0; s < 3; s++) {
        p.lengths[0][s] = 2 + s;
        p.lengths[1][s] = 760 + 3 * s;
    }
    check_independence(&p);
}

static void refusals(void **state)
{
    struct problem p = basic();
    struct oz_attention_args *a = make(&p);
    struct oz_act small = *kern_act(p.heads, 2 * 40 - 1, 0, OZ_DTYPE_F32, 1);
    a->bias = &small; /* reaches 40; a sequence has 70 */
    assert_int_equal(kern_run_once(1, OZ_OP_ATTENTION, a), OZ_ERR_ARG);
    a->bias = NULL;
    a->segments[0].out->spec.dtype = OZ_DTYPE_I8;
    assert_int_equal(kern_run_once(1, OZ_OP_ATTENTION, a), OZ_ERR_UNSUPPORTED);
}

static const struct CMUnitTest tests[] = {
    KERN_TEST(one_segment), KERN_TEST(shapes),         KERN_TEST(many_queries),
    KERN_TEST(joint),       KERN_TEST(cross),          KERN_TEST(steep),
    KERN_TEST(masks),       KERN_TEST(causal_joint),   KERN_TEST(sees_nothing),
    KERN_TEST(pages),       KERN_TEST(special_values), KERN_TEST(row_independence),
    KERN_TEST(waves),       KERN_TEST(weights),        KERN_TEST(refusals),
};

static int test_kernel(const struct oz_cpu_kernel *k, const char *how)
{
    print_message("%s%s\n", k->name, how);
    in_bf16 = strncmp(k->name, "oz_attention_bf16", 17) == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    struct oz_cpuid id;
    uint32_t tiers;
    int failed = 0;
    const char *tier = getenv("OUNCE_CPU");
    oz_cpuid_read(&id);
    if (oz_tier_limit(oz_tier_mask(&id), tier, &tiers, NULL) != OZ_OK) {
        return 77; /* this processor lacks the tier that was asked for */
    }
    for (const struct oz_cpu_kernel *const *k = oz_cpu_kernels(OZ_OP_ATTENTION); *k != NULL; k++) {
        if (tiers & (1U << (*k)->tier)) {
            setenv("OUNCE_FORCE", (*k)->name, 1);
            failed += test_kernel(*k, "");
        }
    }
    unsetenv("OUNCE_FORCE");
    bool emulate = tiers & (1U << OZ_TIER_AVX2) && (tier == NULL || strcmp(tier, "avx2") == 0);
    const struct oz_cpu_kernel *emulated = emulate ? kern_emulate(OZ_OP_ATTENTION) : NULL;
    if (emulated != NULL) {
        failed += test_kernel(emulated, ", emulated");
    }
    return failed;
}
