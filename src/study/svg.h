/*
 * study/svg.h: charts as inline SVG, for documents that need no other file. Colours are classes and
 * variables of the document's style (study/page.h), so that one drawing serves light, dark and paper.
 */
#ifndef OZ_STUDY_SVG_H
#define OZ_STUDY_SVG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

#define OZ_SVG_SERIES 8 /* colours: classes s0 .. s7 */

/* A chart's frame; x and y in the data's units. log_y: values are positive and the axis decades. */
struct oz_chart {
    const char *title, *about; /* for readers who do not see it */
    const char *x_name, *y_name;
    double x0, x1, y0, y1;
    bool log_y;
    int32_t width, height; /* of the viewBox */
};

/* Widens [*low, *high] to round numbers. */
void oz_chart_round(double *low, double *high);
/* Widens to decades. */
void oz_chart_decades(double *low, double *high);

/* <svg> with frame, grid, ticks and names; then marks; then the end. */
void oz_chart_begin(const struct oz_chart *c, struct oz_buf *b);
void oz_chart_end(struct oz_buf *b);

/* A line through `count` points; non-finite ones are left out. dashed: a limit or a front. */
void oz_chart_line(const struct oz_chart *c, struct oz_buf *b, const double *x, const double *y,
                   int32_t count, int32_t series, bool dashed);
/* A point with a shape of its series, a tooltip and a label beside it at `label_y` (its own place if not
 * finite), a viewBox coordinate. */
void oz_chart_point(const struct oz_chart *c, struct oz_buf *b, double x, double y, int32_t series,
                    const char *label, double label_y);
/* Viewbox coordinates. */
double oz_chart_x(const struct oz_chart *c, double x);
double oz_chart_y(const struct oz_chart *c, double y);

/* Text of unknown origin, escaped for HTML; bytes that are no UTF-8 become '?'. */
void oz_html_text(struct oz_buf *b, const char *text);
/* Base 64. */
void oz_html_base64(struct oz_buf *b, const void *data, size_t bytes);

#endif
