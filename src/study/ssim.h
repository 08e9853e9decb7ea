/*
 * study/ssim.h: structural similarity of two pictures (Wang et al., "Image quality assessment: from
 * error visibility to structural similarity", 2004): the mean over windows and channels of
 *
 *     (2 ux uy + C1) (2 vxy + C2) / ((ux^2 + uy^2 + C1) (vx + vy + C2))
 *
 * with means u, variances v and covariance vxy of a window, C1 = (0.01 L)^2, C2 = (0.03 L)^2, L the
 * data range. Only windows that lie in the picture count.
 */
#ifndef OZ_STUDY_SSIM_H
#define OZ_STUDY_SSIM_H

#include <ounce/status.h>
#include <stddef.h>
#include <stdint.h>

enum oz_ssim_window {
    /* 11x11, Gaussian weights of sigma 1.5: the paper's, and scikit-image's structural_similarity with
     * gaussian_weights=True, use_sample_covariance=False. What `ssim` means everywhere in ounce. */
    OZ_SSIM_GAUSSIAN,
    /* 7x7, equal weights, sample covariance (n - 1): scikit-image's defaults. */
    OZ_SSIM_UNIFORM,
};

/* A picture of bytes (data range 255) or of floats in 0..1 (data range 1): one of both pointers is
 * set. Strides in elements. */
struct oz_pixels {
    const uint8_t *bytes;
    const float *floats;
    int64_t height, width, channels;
    int64_t row_stride, column_stride, channel_stride;
};

/* [height, width, 3] bytes without gaps. */
struct oz_pixels oz_pixels_rgb(const uint8_t *rgb, int64_t height, int64_t width);
/* [3, height, width] floats without gaps. */
struct oz_pixels oz_pixels_planes(const float *planes, int64_t height, int64_t width);

/*
 * *ssim: -1 to 1; NaN for pictures with a side shorter than the window. Both have one shape and one
 * type. Holds scratch of about 60 rows. OZ_ERR_NOMEM.
 */
OZ_MUST_USE enum oz_status oz_ssim(const struct oz_pixels *reference,
                                   const struct oz_pixels *candidate, enum oz_ssim_window window,
                                   double *ssim, struct oz_error *err);

#endif
