/* sensitivity_section.c: errors by role and by layer, as a part of a report. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "study/page.h"
#include "study/sensitivity.h"
#include "study/svg.h"

#define MIB (1024.0 * 1024.0)
#define ROW 22 /* of a bar chart, viewBox units */
#define LABELS 118

/* ---- bars by role ---- */

static double root(double squared)
{
    return squared >= 0 ? sqrt(squared) : (double)NAN;
}

static bool has_role(const struct oz_sensitivity *s, int32_t role)
{
    return isfinite(s->roles[role][0].alone);
}

/* Decades that hold all positive errors of roles. */
static bool span(const struct oz_sensitivity *s, double *low, double *high)
{
    *low = INFINITY;
    *high = 0;
    for (int32_t role = 0; role < OZ_ROLE_COUNT; role++) {
        for (int32_t k = 0; k < s->args->scheme_count && has_role(s, role); k++) {
            double v = root(s->roles[role][k].alone);
            *low = v > 0 && v < *low ? v : *low;
            *high = v > *high ? v : *high;
        }
    }
    if (!(*high > 0)) {
        return false;
    }
    oz_chart_decades(low, high);
    return true;
}

static void put_bars(const struct oz_sensitivity *s, struct oz_buf *b)
{
    double low, high;
    int32_t bars = s->args->scheme_count, groups = 0, y = 8;
    if (!span(s, &low, &high)) {
        return;
    }
    for (int32_t role = 0; role < OZ_ROLE_COUNT; role++) {
        groups += has_role(s, role);
    }
    int32_t height = groups * (bars * ROW * 2 / 3 + 12) + 46;
    double scale = (520 - LABELS - 80) / (log10(high) - log10(low));
    oz_buf_printf(
        b,
        "<figure><svg class=\"chart\" viewBox=\"0 0 520 %d\" role=\"img\" aria-label=\"Error "
        "of each role quantized alone, by scheme. The table has the figures.\">\n",
        height);
    for (double v = low; v <= high * 1.0001; v *= 10) {
        double x = LABELS + (log10(v) - log10(low)) * scale;
        oz_buf_printf(b,
                      "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"4\" y2=\"%d\"/><text "
                      "class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.4g</text>\n",
                      x, x, height - 40, x, height - 24, v);
    }
    for (int32_t role = 0; role < OZ_ROLE_COUNT; role++) {
        if (!has_role(s, role)) {
            continue;
        }
        oz_buf_printf(b, "<text class=\"label\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
                      LABELS - 8, y + bars * ROW / 3 + 3, oz_role_name((enum oz_role)role));
        for (int32_t k = 0; k < bars; k++) {
            double v = root(s->roles[role][k].alone);
            double width = v > low ? (log10(v) - log10(low)) * scale : 1;
            oz_buf_printf(
                b, "<rect class=\"bar s%d\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>",
                k % OZ_SVG_SERIES, LABELS, y, width, ROW * 2 / 3 - 2);
            oz_buf_printf(b, "<text class=\"tick\" x=\"%.1f\" y=\"%d\">", LABELS + width + 5,
                          y + ROW * 2 / 3 - 4);
            oz_html_text(b, s->args->schemes[k].label);
            oz_buf_puts(b, "</text>\n");
            y += ROW * 2 / 3;
        }
        y += 12;
    }
    oz_buf_printf(b,
                  "<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text></svg>\n",
                  (LABELS + 440) / 2, height - 6, "RMS error of pictures");
    oz_buf_puts(b, "<figcaption>The error of the whole model when just the layers of one role are "
                   "quantized.</figcaption></figure>\n");
}

/* ---- tables ---- */

static void put_number(struct oz_buf *b, double v)
{
    if (isfinite(v)) {
        oz_buf_printf(b, "<td>%.5f</td>", v);
    } else {
        oz_buf_puts(b, "<td>-</td>");
    }
}

static void put_role_table(const struct oz_sensitivity *s, struct oz_buf *b)
{
    oz_page_scroll_begin(b, "Errors by role");
    oz_buf_puts(b, "<table><thead><tr><th scope=\"col\">Role</th>");
    for (int32_t k = 0; k < s->args->scheme_count; k++) {
        oz_buf_puts(b, "<th scope=\"col\">");
        oz_html_text(b, s->args->schemes[k].label);
        oz_buf_puts(b, ",<br>alone</th><th scope=\"col\">kept</th>");
    }
    oz_buf_puts(b, "</tr></thead><tbody>\n");
    for (int32_t role = 0; role < OZ_ROLE_COUNT; role++) {
        if (!has_role(s, role)) {
            continue;
        }
        oz_buf_printf(b, "<tr><th scope=\"row\">%s</th>", oz_role_name((enum oz_role)role));
        for (int32_t k = 0; k < s->args->scheme_count; k++) {
            put_number(b, root(s->roles[role][k].alone));
            put_number(b, root(s->roles[role][k].kept));
        }
        oz_buf_puts(b, "</tr>\n");
    }
    oz_buf_puts(b, "<tr><th scope=\"row\">all</th>");
    for (int32_t k = 0; k < s->args->scheme_count; k++) {
        put_number(b, root(s->all[k]));
        oz_buf_puts(b, "<td></td>");
    }
    oz_buf_puts(b, "</tr></tbody></table>\n");
    oz_page_scroll_end(b);
}

static void put_unit_table(const struct oz_sensitivity *s, struct oz_buf *b)
{
    int32_t *order = oz_alloc_zero((size_t)s->probe.count + 1, sizeof *order);
    if (order == NULL) {
        b->status = OZ_ERR_NOMEM;
        return;
    }
    oz_sensitivity_rank(s, order);
    oz_buf_puts(b, "<details><summary>All layers, worst first</summary>\n");
    oz_page_scroll_begin(b, "Errors by layer");
    oz_buf_puts(b, "<table><thead><tr><th scope=\"col\">Layer</th><th scope=\"col\">Role</th>"
                   "<th scope=\"col\">KiB</th>");
    for (int32_t k = 0; k < s->args->scheme_count; k++) {
        oz_buf_puts(b, "<th scope=\"col\">");
        oz_html_text(b, s->args->schemes[k].label);
        oz_buf_puts(b, "</th>");
    }
    oz_buf_puts(b, "<th scope=\"col\">Proposal</th></tr></thead><tbody>\n");
    for (int32_t i = 0; i < s->probe.count; i++) {
        const struct oz_probe_unit *u = &s->probe.units[order[i]];
        oz_buf_puts(b, "<tr><th scope=\"row\">");
        oz_html_text(b, u->name);
        oz_buf_printf(b, "</th><td>%s</td><td>%.0f</td>", oz_role_name(u->role),
                      (double)u->stored_bytes / 1024);
        for (int32_t k = 0; k < s->args->scheme_count; k++) {
            put_number(b, root(oz_sensitivity_at(s, order[i], k)->cost));
        }
        int32_t chosen = s->best >= 0 ? s->chosen[order[i]] : -1;
        oz_buf_puts(b, "<td>");
        oz_html_text(b, s->best < 0  ? ""
                        : chosen < 0 ? "as stored"
                                     : s->args->schemes[chosen].label);
        oz_buf_puts(b, "</td></tr>\n");
    }
    oz_buf_puts(b, "</tbody></table>\n");
    oz_page_scroll_end(b);
    oz_buf_puts(b, "</details>\n");
    oz_free(order);
}

void oz_sensitivity_section(const void *sensitivity, struct oz_buf *b)
{
    const struct oz_sensitivity *s = sensitivity;
    if (s->best >= 0) {
        const struct oz_sensitivity_round *r = &s->rounds[s->best];
        oz_buf_printf(
            b,
            "<h2>The proposal</h2>\n<p>%.1f dB on the pictures of the search with %.2f MiB of "
            "transformer, %.0f %% of what is stored. Paste it behind "
            "<code>--quantization-config</code>; the table above shows it on other seeds, "
            "beside each scheme for all layers.</p>\n<pre class=\"wrap\" tabindex=\"0\">",
            r->psnr_db, r->bytes / MIB, 100.0 * r->bytes / (double)s->transformer_bytes);
        oz_html_text(b, s->config);
        oz_buf_puts(b, "</pre>\n");
    }
    oz_buf_printf(
        b,
        "<h2>Which layers bear it</h2>\n<p>RMS error of whole pictures in 0..1. \"Alone\" is the "
        "error when only this is quantized, \"kept\" when everything else is; a role matters where "
        "alone is large and kept is small. Any change of one layer makes an error of %.5f.</p>\n",
        root(s->floor));
    put_bars(s, b);
    put_role_table(s, b);
    put_unit_table(s, b);
}
