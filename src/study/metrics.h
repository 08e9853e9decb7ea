/*
 * study/metrics.h: how far a list of numbers is from another: pictures, latents, predictions. Sums are
 * kept in double (of bytes they are exact), and may be continued: figures of many pictures are those of
 * all their numbers together.
 */
#ifndef OZ_STUDY_METRICS_H
#define OZ_STUDY_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Begin with zeroes. d = candidate - reference. */
struct oz_distance {
    int64_t elements;
    double sum_abs, sum_squares;   /* of d */
    double dot;                    /* of both */
    double reference2, candidate2; /* sums of squares */
    double max_abs;                /* of d; NaN when any is */
    bool differs;                  /* some element is not equal; NaN equals nothing */
};

/* Adds `count` elements of both. */
void oz_distance_add_u8(struct oz_distance *d, const uint8_t *reference, const uint8_t *candidate,
                        size_t count);
void oz_distance_add_f32(struct oz_distance *d, const float *reference, const float *candidate,
                         size_t count);
/* The sums of `more` too. */
void oz_distance_add(struct oz_distance *d, const struct oz_distance *more);

/* What a distance says. A figure that has no finite value is an infinity or NaN here; in JSON such a
 * one is null. */
struct oz_metrics {
    bool identical;           /* every element is equal */
    double cosine_similarity; /* -1 to 1; 1 when both are all zeroes, 0 when one is */
    double mae, mse, rmse;
    double max_abs;
    double l2;
    double relative_l2; /* over the reference's; 0 when both are zeroes, infinite when only it is */
    double psnr_db;     /* infinite when mse is 0; NaN without a data range */
};

/* data_range: the span of values that are possible: 255 for bytes, 1 for pictures in 0..1; 0: there is
 * none. A distance of no elements is that of equal ones. */
struct oz_metrics oz_distance_metrics(const struct oz_distance *d, double data_range);

/* The median of values, which are sorted for it; 0 of none. */
double oz_median(double *values, int32_t count);

#endif
