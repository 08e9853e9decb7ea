/*
 * study/compare.h: pictures in PNG files against those of a reference: which are compared, each pair's
 * figures, and what they come to.
 */
#ifndef OZ_STUDY_COMPARE_H
#define OZ_STUDY_COMPARE_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "media/png.h"
#include "study/metrics.h"

/* The figures of a picture, or what those of several come to. */
struct oz_figures {
    struct oz_metrics metrics; /* of bytes, data range 255 */
    double ssim, ssim_uniform; /* study/ssim.h; NaN for pictures smaller than the window */
};

/* For means: sums of pictures, then divided by their number; of PSNR by that of pictures that differ. */
void oz_figures_add(struct oz_figures *sum, const struct oz_figures *f);
void oz_figures_divide(struct oz_figures *f, int32_t pictures, int32_t differing);

/* {"identical": false, "cosine_similarity": ..}; what is not finite is null. */
void oz_figures_json(struct oz_buf *b, const struct oz_figures *f);
/* The same without SSIM. */
void oz_metrics_json(struct oz_buf *b, const struct oz_metrics *m);
/* A copy in which bytes that are no UTF-8 are '?', for oz_free; NULL, and b->status says so, when there is
 * no memory. */
char *oz_study_utf8(struct oz_buf *b, const char *text);

/* A path or a text of unknown origin as a JSON string: bytes that are no UTF-8 become '?'. */
void oz_study_json_text(struct oz_buf *b, const char *text);

/* "key": value; null where there is none (oz_buf_number). */
void oz_study_json_number(struct oz_buf *b, const char *key, double value);
/* What vLLM-Omni's comparison recommends: the members of "metric_guidance", without braces; a line. */
void oz_guidance_json(struct oz_buf *b);
void oz_guidance_print(struct oz_buf *b);

struct oz_compared_picture {
    char *reference, *candidate; /* paths; owned */
    int32_t width, height;
    struct oz_distance distance;
    struct oz_figures figures;
};

struct oz_compared_candidate {
    const char *path;                     /* as it was given; borrowed from the comparison */
    struct oz_compared_picture *pictures; /* [comparison's pictures] */
    int32_t identical;                    /* pictures that are equal to the reference's */
    struct oz_figures mean; /* over the pictures; of PSNR over those that are not identical */
    struct oz_figures all;  /* of all numbers together; SSIM as in mean */
    int32_t worst;          /* the picture with the least PSNR */
};

struct oz_comparison {
    char *reference; /* as it was given */
    char **paths;    /* the candidates' */
    int32_t count, pictures;
    struct oz_compared_candidate *candidates; /* [count] */
};

/* Reads a picture as it was compared: whole PNG files of any kind become 8-bit RGB. oz_png_deinit.
 * Errors as of oz_comparison_open. */
OZ_MUST_USE enum oz_status oz_picture_read(const char *path, struct oz_png *png,
                                           struct oz_error *err);

/* Least values that are asked of a candidate's means; negative: none. Identical pictures pass. */
struct oz_thresholds {
    double min_psnr_db, min_ssim;
};

/*
 * Compares `count` candidates with a reference. All are PNG files, or all are folders: then each stands
 * for the .png files in it, and has the same names as the reference. Holds one picture of each side.
 * OZ_ERR_ARG: files and folders mixed, names that are in one folder only, sizes that differ; OZ_ERR_IO;
 * OZ_ERR_FORMAT: no PNG; OZ_ERR_UNSUPPORTED: a picture of more than 2^28 pixels; OZ_ERR_NOMEM. All name
 * the file.
 */
OZ_MUST_USE enum oz_status oz_comparison_open(struct oz_comparison **out, const char *reference,
                                              const char *const *candidates, int32_t count,
                                              struct oz_error *err);
void oz_comparison_free(struct oz_comparison **comparison);

/* Whether a candidate reaches the thresholds. */
bool oz_candidate_passes(const struct oz_compared_candidate *c, const struct oz_thresholds *t);

/* A table, or a JSON document, appended. */
void oz_comparison_print(const struct oz_comparison *c, const struct oz_thresholds *t,
                         struct oz_buf *b);
void oz_comparison_print_json(const struct oz_comparison *c, const struct oz_thresholds *t,
                              struct oz_buf *b);

/* OZ_OK when all candidates pass; OZ_ERR_THRESHOLD says who does not, and by what. OZ_ERR_ARG: there is
 * no SSIM to judge by, for the pictures are smaller than its window. */
OZ_MUST_USE enum oz_status oz_comparison_judge(const struct oz_comparison *c,
                                               const struct oz_thresholds *t, struct oz_error *err);

#endif
