/*
 * sample: draws a token. Probabilities are double; tokens come in descending order (ties to the
 * lower id) from a heap, as many as the filters need.
 */
#include "cpu/kern/ref/ref.h"

struct candidate {
    double probability;
    int64_t id;
};

struct job {
    const struct oz_sample_args *a;
    struct candidate *rows; /* [threads, vocabulary] */
};

size_t oz_ref_scratch_sample(const struct oz_device *dev, const void *args)
{
    const struct oz_sample_args *a = args;
    size_t total = 0;
    (void)oz_ref_reserve(&total, oz_ref_times(oz_ref_threads(dev), a->logits->cols),
                         sizeof(struct candidate));
    return total;
}

static float logit(const struct oz_act *x, int64_t row, int64_t col)
{
    float value;
    oz_ref_load(x, row, col, 1, &value);
    return value;
}

/* The first of the largest logits; NaN is never larger. */
static int32_t argmax(const struct oz_act *x, int64_t row)
{
    int32_t best = 0;
    float largest = -INFINITY;
    for (int64_t i = 0; i < x->cols; i++) {
        float value = logit(x, row, i);
        if (value > largest) {
            largest = value;
            best = (int32_t)i;
        }
    }
    return best;
}

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->probability > b->probability || (a->probability == b->probability && a->id < b->id);
}

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate c = *a;
    *a = *b;
    *b = c;
}

/* Lets heap[i] sink until no child comes before it. */
static void sink(struct candidate *heap, int64_t count, int64_t i)
{
    for (;;) {
        int64_t best = i;
        for (int64_t child = 2 * i + 1; child <= 2 * i + 2 && child < count; child++) {
            if (before(&heap[child], &heap[best])) {
                best = child;
            }
        }
        if (best == i) {
            return;
        }
        swap(&heap[i], &heap[best]);
        i = best;
    }
}

/* Softmax of the row as a heap. A NaN logit has probability 0. */
static void fill_heap(const struct oz_act *x, int64_t row, double temperature, int32_t largest,
                      struct candidate *heap)
{
    double top = logit(x, row, largest);
    double sum = 0;
    for (int64_t i = 0; i < x->cols; i++) {
        double value = logit(x, row, i);
        double p = value == top ? 1 : exp((value - top) / temperature);
        heap[i] = (struct candidate){.probability = p >= 0 ? p : 0, .id = i};
        sum += heap[i].probability;
    }
    for (int64_t i = 0; i < x->cols; i++) {
        heap[i].probability /= sum;
    }
    for (int64_t i = x->cols / 2 - 1; i >= 0; i--) {
        sink(heap, x->cols, i);
    }
}

static int32_t draw(const struct oz_act *x, int64_t row, const struct oz_sample_row *how,
                    struct candidate *heap)
{
    int32_t largest = argmax(x, row);
    if (how->temperature <= 0) {
        return largest;
    }
    fill_heap(x, row, how->temperature, largest, heap);
    int64_t limit = how->top_k > 0 ? oz_ref_min(how->top_k, x->cols) : x->cols;
    double floor = how->min_p > 0 ? how->min_p * heap[0].probability : 0;
    int64_t kept = 0;
    double sum = 0;
    /* Those that leave the heap stand behind it, the first at the very end. */
    while (kept < limit && heap[0].probability >= floor) {
        int64_t last = x->cols - 1 - kept;
        sum += heap[0].probability;
        swap(&heap[0], &heap[last]);
        sink(heap, last, 0);
        kept++;
        if (how->top_p < 1 && sum >= how->top_p) {
            break;
        }
    }
    double target = how->uniform * sum;
    double reached = 0;
    for (int64_t i = 0; i < kept; i++) {
        reached += heap[x->cols - 1 - i].probability;
        if (reached > target) {
            return (int32_t)heap[x->cols - 1 - i].id;
        }
    }
    return largest; /* only rounding, or logits without a largest, come here */
}

static void run_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    const struct oz_sample_args *a = job->a;
    for (int64_t r = begin; r < end; r++) {
        a->ids[r] = draw(a->logits, r, &a->rows[r], job->rows + thread * a->logits->cols);
    }
}

enum oz_status oz_sample_f32__scalar(const struct oz_op_ctx *ctx, const struct oz_sample_args *a)
{
    struct job job = {.a = a, .rows = ctx->scratch};
    OZ_TRY(oz_ref_begin(ctx, oz_ref_scratch_sample(ctx->dev, a)));
    OZ_TRY(oz_ref_check_act("sample", a->logits));
    oz_pool_for(ctx->dev->pool, a->logits->rows, 1, run_rows, &job);
    return OZ_OK;
}
