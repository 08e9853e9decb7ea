/* study/report.h: a comparison of models as one HTML file. */
#ifndef OZ_STUDY_REPORT_H
#define OZ_STUDY_REPORT_H

#include <ounce/status.h>

#include "study/models.h"

/* What else the report tells, between the charts and the pictures. */
struct oz_report_section {
    void (*put)(const void *ctx, struct oz_buf *b);
    const void *ctx;
};

/*
 * Writes it; whole or not at all. Pictures come from the comparison's scratch file (keep_pictures); `section` may be NULL. Many
 * or large ones are shown smaller, so that the file stays near 5 MB, which it then says. OZ_ERR_IO,
 * OZ_ERR_NOMEM.
 */
OZ_MUST_USE enum oz_status oz_model_report_write(const struct oz_model_comparison *c,
                                                 const struct oz_report_section *section,
                                                 const char *path, struct oz_error *err);

#endif
