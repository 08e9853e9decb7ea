#include "study/metrics.h"

#include <math.h>
#include <stdlib.h>

/* Bytes that are summed in integers before the sums go to double: 255^2 of each fits 32 bits for as
 * many, which lets the compiler use narrow lanes. */
#define RUN ((size_t)1 << 15)

/* NaN when either is, which fmax is not. */
static double larger(double a, double b)
{
    return b > a || isnan(b) ? b : a;
}

static void add_run_u8(struct oz_distance *d, const uint8_t *a, const uint8_t *b, size_t count)
{
    uint32_t sum_abs = 0, squares = 0, dot = 0, a2 = 0, b2 = 0, most = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t x = a[i];
        uint32_t y = b[i];
        uint32_t apart = x > y ? x - y : y - x;
        sum_abs += apart;
        squares += apart * apart;
        dot += x * y;
        a2 += x * x;
        b2 += y * y;
        most = apart > most ? apart : most;
    }
    d->sum_abs += sum_abs;
    d->sum_squares += squares;
    d->dot += dot;
    d->reference2 += a2;
    d->candidate2 += b2;
    d->differs = d->differs || most > 0;
    d->max_abs = larger(d->max_abs, most);
}

void oz_distance_add_u8(struct oz_distance *d, const uint8_t *reference, const uint8_t *candidate,
                        size_t count)
{
    for (size_t i = 0; i < count; i += RUN) {
        add_run_u8(d, reference + i, candidate + i, count - i < RUN ? count - i : RUN);
    }
    d->elements += (int64_t)count;
}

void oz_distance_add_f32(struct oz_distance *d, const float *reference, const float *candidate,
                         size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double x = reference[i];
        double y = candidate[i];
        double apart = fabs(y - x);
        d->sum_abs += apart;
        d->sum_squares += apart * apart;
        d->dot += x * y;
        d->reference2 += x * x;
        d->candidate2 += y * y;
        d->differs = d->differs || !(x == y);
        d->max_abs = larger(d->max_abs, apart);
    }
    d->elements += (int64_t)count;
}

void oz_distance_add(struct oz_distance *d, const struct oz_distance *more)
{
    d->elements += more->elements;
    d->sum_abs += more->sum_abs;
    d->sum_squares += more->sum_squares;
    d->dot += more->dot;
    d->reference2 += more->reference2;
    d->candidate2 += more->candidate2;
    d->differs = d->differs || more->differs;
    d->max_abs = larger(d->max_abs, more->max_abs);
}

static double cosine(const struct oz_distance *d)
{
    if (d->reference2 == 0 || d->candidate2 == 0) {
        return d->reference2 == d->candidate2 ? 1 : 0;
    }
    double c = d->dot / (sqrt(d->reference2) * sqrt(d->candidate2));
    return c > 1 ? 1 : c < -1 ? -1 : c;
}

struct oz_metrics oz_distance_metrics(const struct oz_distance *d, double data_range)
{
    double n = d->elements > 0 ? (double)d->elements : 1;
    struct oz_metrics m = {.identical = !d->differs,
                           .cosine_similarity = cosine(d),
                           .mae = d->sum_abs / n,
                           .mse = d->sum_squares / n,
                           .max_abs = d->max_abs,
                           .l2 = sqrt(d->sum_squares)};
    m.rmse = sqrt(m.mse);
    m.relative_l2 = d->sum_squares == 0 ? 0 : m.l2 / sqrt(d->reference2);
    m.psnr_db = data_range > 0 ? 20 * log10(data_range) - 10 * log10(m.mse) : (double)NAN;
    return m;
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double oz_median(double *values, int32_t count)
{
    if (count < 1) {
        return 0;
    }
    qsort(values, (size_t)count, sizeof *values, ascending);
    return 0.5 * (values[(count - 1) / 2] + values[count / 2]);
}
