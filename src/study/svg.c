#include "study/svg.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "study/compare.h"

enum { LEFT = 62, RIGHT = 20, TOP = 14, BOTTOM = 48 };

/* ---- text ---- */

void oz_html_text(struct oz_buf *b, const char *text)
{
    char *copy = oz_study_utf8(b, text);
    if (copy == NULL) {
        return;
    }
    for (const char *p = copy; *p != '\0'; p++) {
        switch (*p) {
        case '&': oz_buf_puts(b, "&amp;"); break;
        case '<': oz_buf_puts(b, "&lt;"); break;
        case '>': oz_buf_puts(b, "&gt;"); break;
        case '"': oz_buf_puts(b, "&quot;"); break;
        case '\'': oz_buf_puts(b, "&#39;"); break;
        default: {
            unsigned char c = (unsigned char)*p;
            oz_buf_append(b, c < 0x20 && c != '\n' && c != '\t' ? "?" : p, 1);
            break;
        }
        }
    }
    oz_free(copy);
}

void oz_html_base64(struct oz_buf *b, const void *data, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i += 3) {
        size_t left = bytes - i;
        uint32_t v = (uint32_t)p[i] << 16;
        v |= left > 1 ? (uint32_t)p[i + 1] << 8 : 0;
        v |= left > 2 ? p[i + 2] : 0;
        const char quad[4] = {digits[v >> 18], digits[v >> 12 & 63],
                              left > 1 ? digits[v >> 6 & 63] : '=',
                              left > 2 ? digits[v & 63] : '='};
        oz_buf_append(b, quad, sizeof quad);
    }
}

/* ---- axes ---- */

/* 1, 2 or 5 times a power of ten, so that there are some five steps. */
static double tick_step(double span)
{
    double raw = span / 5;
    double power = pow(10, floor(log10(raw)));
    double lead = raw / power;
    return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
}

void oz_chart_round(double *low, double *high)
{
    if (!(*high > *low)) {
        double half = *low != 0 ? fabs(*low) / 10 : 1;
        *low -= half;
        *high += half;
    }
    double step = tick_step(*high - *low);
    *low = floor(*low / step) * step;
    *high = ceil(*high / step) * step;
}

void oz_chart_decades(double *low, double *high)
{
    *low = pow(10, floor(log10(*low)));
    *high = pow(10, ceil(log10(*high)));
    if (!(*high > *low)) {
        *high = *low * 10;
    }
}

double oz_chart_x(const struct oz_chart *c, double x)
{
    return LEFT + (x - c->x0) / (c->x1 - c->x0) * (c->width - LEFT - RIGHT);
}

double oz_chart_y(const struct oz_chart *c, double y)
{
    double share = c->log_y ? (log10(y) - log10(c->y0)) / (log10(c->y1) - log10(c->y0))
                            : (y - c->y0) / (c->y1 - c->y0);
    return c->height - BOTTOM - share * (c->height - TOP - BOTTOM);
}

static void x_tick(const struct oz_chart *c, struct oz_buf *b, double x)
{
    oz_buf_printf(b,
                  "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                  "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>\n",
                  oz_chart_x(c, x), oz_chart_x(c, x), TOP, c->height - BOTTOM, oz_chart_x(c, x),
                  c->height - BOTTOM + 17, x);
}

static void y_tick(const struct oz_chart *c, struct oz_buf *b, double y)
{
    oz_buf_printf(b,
                  "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                  "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n",
                  LEFT, c->width - RIGHT, oz_chart_y(c, y), oz_chart_y(c, y), LEFT - 7,
                  oz_chart_y(c, y) + 4, y);
}

void oz_chart_begin(const struct oz_chart *c, struct oz_buf *b)
{
    oz_buf_printf(b, "<svg class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
                  c->width, c->height);
    oz_html_text(b, c->title);
    oz_buf_puts(b, ". ");
    oz_html_text(b, c->about);
    oz_buf_puts(b, "\">\n");
    double step = tick_step(c->x1 - c->x0);
    for (double x = ceil(c->x0 / step - 1e-9) * step; x <= c->x1 + 1e-9 * step; x += step) {
        x_tick(c, b, fabs(x) < 1e-9 * step ? 0 : x);
    }
    if (c->log_y) {
        for (double y = c->y0; y <= c->y1 * 1.0001; y *= 10) {
            y_tick(c, b, y);
        }
    } else {
        step = tick_step(c->y1 - c->y0);
        for (double y = ceil(c->y0 / step - 1e-9) * step; y <= c->y1 + 1e-9 * step; y += step) {
            y_tick(c, b, fabs(y) < 1e-9 * step ? 0 : y);
        }
    }
    oz_buf_printf(b, "<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">",
                  (LEFT + c->width - RIGHT) / 2, c->height - 8);
    oz_html_text(b, c->x_name);
    oz_buf_printf(b,
                  "</text><text class=\"name\" transform=\"translate(14 %d) rotate(-90)\" "
                  "text-anchor=\"middle\">",
                  (TOP + c->height - BOTTOM) / 2);
    oz_html_text(b, c->y_name);
    oz_buf_puts(b, "</text>\n");
}

void oz_chart_end(struct oz_buf *b)
{
    oz_buf_puts(b, "</svg>\n");
}

/* ---- marks ---- */

void oz_chart_line(const struct oz_chart *c, struct oz_buf *b, const double *x, const double *y,
                   int32_t count, int32_t series, bool dashed)
{
    bool first = true;
    if (dashed) {
        oz_buf_puts(b, "<path class=\"front\" d=\"");
    } else {
        oz_buf_printf(b, "<path class=\"line s%d\" d=\"", series % OZ_SVG_SERIES);
    }
    for (int32_t i = 0; i < count; i++) {
        if (isfinite(x[i]) && isfinite(y[i]) && (!c->log_y || y[i] > 0)) {
            oz_buf_printf(b, "%s%.1f %.1f", first ? "M" : "L", oz_chart_x(c, x[i]),
                          oz_chart_y(c, y[i]));
            first = false;
        }
    }
    oz_buf_puts(b, "\"/>\n");
}

/* Shapes tell series apart without colour. */
static void put_shape(struct oz_buf *b, double x, double y, int32_t series)
{
    int32_t s = series % OZ_SVG_SERIES;
    switch (s % 4) {
    case 0:
        oz_buf_printf(b, "<circle class=\"mark s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\"/>", s, x, y);
        break;
    case 1:
        oz_buf_printf(b,
                      "<rect class=\"mark s%d\" x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\"/>",
                      s, x - 5.5, y - 5.5);
        break;
    case 2:
        oz_buf_printf(b, "<path class=\"mark s%d\" d=\"M%.1f %.1fl7 12h-14z\"/>", s, x, y - 7);
        break;
    default:
        oz_buf_printf(b, "<path class=\"mark s%d\" d=\"M%.1f %.1fl7 7l-7 7l-7-7z\"/>", s, x, y - 7);
        break;
    }
}

void oz_chart_point(const struct oz_chart *c, struct oz_buf *b, double x, double y, int32_t series,
                    const char *label, double label_y)
{
    double px = oz_chart_x(c, x), py = oz_chart_y(c, y);
    double ly = isfinite(label_y) ? label_y : py + 4;
    bool left = px > c->width - RIGHT - 8.2 * (double)strlen(label) - 14;
    oz_buf_puts(b, "<g><title>");
    oz_html_text(b, label);
    oz_buf_printf(b, ": %.5g, %.5g</title>", x, y);
    put_shape(b, px, py, series);
    oz_buf_printf(b, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">",
                  left ? px - 11 : px + 11, ly, left ? "end" : "start");
    oz_html_text(b, label);
    oz_buf_puts(b, "</text></g>\n");
}
