#include "study/ssim.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

#define MOST_TAPS 11

/* The five pictures whose windowed means make the index. */
enum { X, Y, XX, YY, XY, MAPS };

struct window {
    int64_t taps;
    double weight[MOST_TAPS]; /* of a side; their products are the window's */
    double spread;            /* of variances: n / (n - 1) for sample covariance, else 1 */
};

struct scratch {
    int64_t width, columns; /* of the picture; of windows in a row */
    double *ring;           /* [taps][MAPS][columns]: rows averaged along themselves */
    double *row;            /* [MAPS][width]: a row of the pictures, before that */
    double *sums;           /* [MAPS][columns] */
};

static struct window make_window(enum oz_ssim_window kind)
{
    struct window w = {.taps = kind == OZ_SSIM_GAUSSIAN ? 11 : 7, .spread = 1};
    double sum = 0;
    for (int64_t i = 0; i < w.taps; i++) {
        double z = (double)(i - w.taps / 2) / 1.5;
        w.weight[i] = kind == OZ_SSIM_GAUSSIAN ? exp(-0.5 * z * z) : 1;
        sum += w.weight[i];
    }
    for (int64_t i = 0; i < w.taps; i++) {
        w.weight[i] /= sum;
    }
    if (kind == OZ_SSIM_UNIFORM) {
        double n = (double)(w.taps * w.taps);
        w.spread = n / (n - 1);
    }
    return w;
}

struct oz_pixels oz_pixels_rgb(const uint8_t *rgb, int64_t height, int64_t width)
{
    return (struct oz_pixels){.bytes = rgb,
                              .height = height,
                              .width = width,
                              .channels = 3,
                              .row_stride = 3 * width,
                              .column_stride = 3,
                              .channel_stride = 1};
}

struct oz_pixels oz_pixels_planes(const float *planes, int64_t height, int64_t width)
{
    return (struct oz_pixels){.floats = planes,
                              .height = height,
                              .width = width,
                              .channels = 3,
                              .row_stride = width,
                              .column_stride = 1,
                              .channel_stride = height * width};
}

static void read_row(const struct oz_pixels *p, int64_t channel, int64_t y, double *out)
{
    int64_t at = channel * p->channel_stride + y * p->row_stride;
    for (int64_t x = 0; x < p->width; x++, at += p->column_stride) {
        out[x] = p->bytes != NULL ? p->bytes[at] : (double)p->floats[at];
    }
}

/* out[c] = sum over i of weight[i] in[i * stride + c] */
static void weigh(const struct window *w, const double *in, int64_t stride, int64_t columns,
                  double *out)
{
    memset(out, 0, (size_t)columns * sizeof *out);
    for (int64_t i = 0; i < w->taps; i++) {
        const double *from = in + i * stride;
        double weight = w->weight[i];
        for (int64_t c = 0; c < columns; c++) {
            out[c] += weight * from[c];
        }
    }
}

/* Row y of both pictures, averaged along itself, into its place in the ring. */
static void fill_ring(const struct scratch *s, const struct window *w, const struct oz_pixels *a,
                      const struct oz_pixels *b, int64_t channel, int64_t y)
{
    double *row[MAPS];
    for (int m = 0; m < MAPS; m++) {
        row[m] = s->row + m * s->width;
    }
    read_row(a, channel, y, row[X]);
    read_row(b, channel, y, row[Y]);
    for (int64_t x = 0; x < s->width; x++) {
        row[XX][x] = row[X][x] * row[X][x];
        row[YY][x] = row[Y][x] * row[Y][x];
        row[XY][x] = row[X][x] * row[Y][x];
    }
    double *place = s->ring + y % w->taps * MAPS * s->columns;
    for (int m = 0; m < MAPS; m++) {
        weigh(w, row[m], 1, s->columns, place + m * s->columns);
    }
}

/* The windows whose last row is y: the sum of their indices. */
static double row_sum(const struct scratch *s, const struct window *w, int64_t y, double range)
{
    double c1 = 0.01 * range * 0.01 * range;
    double c2 = 0.03 * range * 0.03 * range;
    double sum = 0;
    memset(s->sums, 0, (size_t)(MAPS * s->columns) * sizeof *s->sums);
    for (int64_t i = 0; i < w->taps; i++) {
        const double *from = s->ring + (y + 1 + i) % w->taps * MAPS * s->columns;
        for (int64_t c = 0; c < MAPS * s->columns; c++) {
            s->sums[c] += w->weight[i] * from[c];
        }
    }
    for (int64_t c = 0; c < s->columns; c++) {
        double ux = s->sums[X * s->columns + c];
        double uy = s->sums[Y * s->columns + c];
        double vx = w->spread * (s->sums[XX * s->columns + c] - ux * ux);
        double vy = w->spread * (s->sums[YY * s->columns + c] - uy * uy);
        double vxy = w->spread * (s->sums[XY * s->columns + c] - ux * uy);
        sum += (2 * ux * uy + c1) * (2 * vxy + c2) / ((ux * ux + uy * uy + c1) * (vx + vy + c2));
    }
    return sum;
}

enum oz_status oz_ssim(const struct oz_pixels *reference, const struct oz_pixels *candidate,
                       enum oz_ssim_window window, double *ssim, struct oz_error *err)
{
    struct window w = make_window(window);
    struct scratch s = {.width = reference->width, .columns = reference->width - w.taps + 1};
    int64_t rows = reference->height - w.taps + 1;
    double range = reference->bytes != NULL ? 255 : 1;
    double sum = 0;
    *ssim = (double)NAN;
    if (s.columns < 1 || rows < 1) {
        return OZ_OK;
    }
    size_t ring = (size_t)(w.taps * MAPS * s.columns);
    size_t row = (size_t)(MAPS * s.width);
    s.ring = oz_alloc((ring + row + (size_t)(MAPS * s.columns)) * sizeof *s.ring);
    if (s.ring == NULL) {
        return OZ_FAIL_NOMEM(err, "the rows of a picture");
    }
    s.row = s.ring + ring;
    s.sums = s.row + row;
    for (int64_t channel = 0; channel < reference->channels; channel++) {
        for (int64_t y = 0; y < reference->height; y++) {
            fill_ring(&s, &w, reference, candidate, channel, y);
            sum += y + 1 >= w.taps ? row_sum(&s, &w, y, range) : 0;
        }
    }
    oz_free(s.ring);
    *ssim = sum / (double)(rows * s.columns * reference->channels);
    return OZ_OK;
}
