/* attention against softmax in double: segments, cross, masks, GQA, sinks, bias, pages. */
#include "kern.h"

struct problem {
    int32_t heads, kv_heads, head_dim, segments, sequences;
    int32_t lengths[2][4];
    enum oz_dtype dtype, out;
    enum oz_mask mask;
    int32_t window;
    bool sinks, bias;
    bool cross; /* segment 0 asks, segment 1 offers */
};

/* Operands of a problem, as arguments. */
static struct oz_attention_args *make(const struct problem *p)
{
    struct oz_attention_args *a = kern_array(sizeof *a);
    *a = (struct oz_attention_args){
        .segment_count = p->segments,
        .heads = p->heads,
        .kv_heads = p->kv_heads,
        .head_dim = p->head_dim,
        .scale = 0.3F,
        .mask = p->mask,
        .window = p->window,
        .sinks = p->sinks ? kern_vector("sinks", p->heads, 1) : NULL,
        .bias = p->bias ? kern_act(p->heads, 2 * 200 - 1, 3, OZ_DTYPE_F32, 1) : NULL,
    };
    for (int32_t i = 0; i < p->segments; i++) {
        const struct oz_ragged *rows = kern_ragged(p->sequences, p->lengths[i]);
        int64_t n = rows->offsets[p->sequences];
        a->segments[i].rows = rows;
        if (!p->cross || i == 0) {
            a->segments[i].q = kern_act(n, p->heads * p->head_dim, 3, p->dtype, 1);
            a->segments[i].out = kern_out(n, p->heads * p->head_dim, 1, p->out);
        }
        if (!p->cross || i == 1) {
            a->segments[i].k = kern_act(n, p->kv_heads * p->head_dim, 0, p->dtype, 1);
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

/* Scores of a query of head h at `position`, and the largest error that the kernel may make. */
static double score(const struct oz_attention_args *a, int32_t segment, int64_t q_row, int32_t s,
                    int32_t h, int64_t query, int64_t position, double *error)
{
    int64_t row;
    const struct oz_act *k = key(a, false, s, position, &row);
    int64_t kv = h / (a->heads / a->kv_heads);
    double sum = 0;
    double magnitudes = 0;
    for (int64_t c = 0; c < a->head_dim; c++) {
        double term = kern_get(a->segments[segment].q, q_row, h * a->head_dim + c) *
                      kern_get(k, row, kv * a->head_dim + c);
        sum += term;
        magnitudes += fabs(term);
    }
    sum *= a->scale;
    double e = kern_dot_bound(a->head_dim, magnitudes) * a->scale + KERN_U32 * fabs(sum);
    if (a->bias != NULL) {
        int64_t reach = (a->bias->cols + 1) / 2;
        sum += kern_get(a->bias, h, position - query + reach - 1);
        e += KERN_U32 * fabs(sum);
    }
    *error = e > *error ? e : *error;
    return sum;
}

static void check_query(const struct oz_attention_args *a, int32_t segment, int64_t q_row,
                        int32_t s, int32_t h, int64_t query)
{
    int64_t keys = count_keys(a, s);
    double scores[256];
    double error = 0;
    double largest = -INFINITY;
    double lowest = INFINITY;
    double denominator = 0;
    assert_true(keys <= 256);
    if (a->sinks != NULL) {
        largest = lowest = kern_weight(a->sinks, 0, 0, h);
    }
    for (int64_t i = 0; i < keys; i++) {
        if (sees(a, query, i)) {
            scores[i] = score(a, segment, q_row, s, h, query, i, &error);
            largest = fmax(largest, scores[i]);
            lowest = fmin(lowest, scores[i]);
        }
    }
    denominator = a->sinks != NULL ? exp(kern_weight(a->sinks, 0, 0, h) - largest) : 0;
    for (int64_t i = 0; i < keys; i++) {
        denominator += sees(a, query, i) ? exp(scores[i] - largest) : 0;
    }
    for (int64_t c = 0; c < a->head_dim; c++) {
        double sum = 0;
        double magnitudes = 0;
        for (int64_t i = 0; i < keys; i++) {
            int64_t row;
            const struct oz_act *v = key(a, true, s, i, &row);
            int64_t kv = h / (a->heads / a->kv_heads);
            if (sees(a, query, i)) {
                double term =
                    exp(scores[i] - largest) / denominator * kern_get(v, row, kv * a->head_dim + c);
                sum += term;
                magnitudes += fabs(term);
            }
        }
        double weights = 2 * error + (2 * (largest - lowest) + 8) * KERN_U32;
        double adding = (64 + (double)keys / 64 + 4) * KERN_U32;
        kern_near("attention", a->segments[segment].out, q_row, h * a->head_dim + c, sum,
                  magnitudes * (weights + adding));
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

static void masks(void **state)
{
    for (int i = 0; i < 8; i++) {
        struct problem p = basic();
        p.mask = i & 1 ? OZ_MASK_CAUSAL : OZ_MASK_WINDOW;
        p.window = i & 2 ? 1 : 20;
        p.sinks = i & 4;
        p.bias = !p.sinks;
        p.lengths[0][2] = 150;
        check(&p);
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
static void row_independence(void **state)
{
    struct problem p = basic();
    p.segments = 2;
    p.sequences = 4;
    p.lengths[0][3] = 100;
    p.lengths[1][3] = 33;
    p.sinks = p.bias = true;
    struct oz_attention_args *all = make(&p);
    assert_int_equal(kern_run_once(5, OZ_OP_ATTENTION, all), OZ_OK);
    for (int32_t s = 0; s < p.sequences; s++) {
        struct oz_attention_args a = *all;
        struct oz_act q[2];
        struct oz_act k[2];
        struct oz_act v[2];
        for (int i = 0; i < 2; i++) {
            int32_t first = all->segments[i].rows->offsets[s];
            int32_t rows = p.lengths[i][s];
            q[i] = kern_rows(all->segments[i].q, first, rows);
            k[i] = kern_rows(all->segments[i].k, first, rows);
            v[i] = kern_rows(all->segments[i].v, first, rows);
            a.segments[i].q = &q[i];
            a.segments[i].k = &k[i];
            a.segments[i].v = &v[i];
            a.segments[i].rows = kern_ragged(1, &rows);
            a.segments[i].out = kern_out(rows, p.heads * p.head_dim, 0, OZ_DTYPE_F32);
        }
        assert_int_equal(kern_run_once(1, OZ_OP_ATTENTION, &a), OZ_OK);
        for (int i = 0; i < 2; i++) {
            int32_t first = all->segments[i].rows->offsets[s];
            for (int64_t r = 0; r < p.lengths[i][s]; r++) {
                assert_true(kern_same_row(a.segments[i].out, r, all->segments[i].out, first + r));
            }
        }
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERN_TEST(one_segment),  KERN_TEST(joint),
        KERN_TEST(cross),        KERN_TEST(masks),
        KERN_TEST(causal_joint), KERN_TEST(sees_nothing),
        KERN_TEST(pages),        KERN_TEST(row_independence),
        KERN_TEST(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
