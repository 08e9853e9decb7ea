#include "study/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "media/png.h"
#include "study/page.h"
#include "study/svg.h"

#define MIB (1024.0 * 1024.0)
#define MAX_REPORT_BYTES ((size_t)1 << 30)
#define MAX_PNG_BYTES ((size_t)INT32_MAX)
#define WANTED_BYTES 5000000 /* of a report; a larger one shows smaller pictures */
#define LEAST_SIDE 64        /* of a picture that is shown smaller */
#define AMPLIFICATION 8      /* of differences */

/* ---- which candidates can be shown ---- */

static bool is_whole(const struct oz_model_comparison *c, const struct oz_model_result *r)
{
    return r->status == OZ_OK && r->done == c->args->task_count;
}

/* ---- the table ---- */

static void cell(struct oz_buf *b, int digits, double value, const char *otherwise)
{
    if (isfinite(value)) {
        oz_buf_printf(b, "<td>%.*f</td>", digits, value);
    } else {
        oz_buf_printf(b, "<td>%s</td>", otherwise);
    }
}

static void put_costs(struct oz_buf *b, const struct oz_model_comparison *c,
                      const struct oz_model_result *r)
{
    const struct oz_model_result *f = &c->reference;
    cell(b, 1, (double)r->bytes.transformer / MIB, "");
    cell(b, 0, 100.0 * (double)r->bytes.transformer / (double)f->bytes.transformer, "");
    cell(b, 1, r->bytes.peak > 0 ? (double)r->bytes.peak / MIB : (double)NAN, "unknown");
    cell(b, 0, 1e3 * r->total_s, "");
    cell(b, 2, r->total_s / f->total_s, "");
}

static void put_verdict(struct oz_buf *b, const struct oz_model_comparison *c,
                        const struct oz_model_result *r)
{
    struct oz_buf why;
    oz_buf_init(&why, OZ_ERROR_MESSAGE_BYTES);
    bool missed = oz_model_misses(c, r, &why);
    oz_buf_printf(b, "<td class=\"text %s\">", missed ? "bad" : "good");
    if (missed) {
        oz_html_text(b, oz_buf_text(&why));
    } else {
        oz_buf_puts(b, r->mean.metrics.identical ? "equal to the reference" : "as planned");
    }
    oz_buf_puts(b, "</td>");
    oz_buf_deinit(&why);
}

static void put_candidate_row(struct oz_buf *b, const struct oz_model_comparison *c,
                              const struct oz_model_result *r)
{
    oz_buf_puts(b, "<tr><th scope=\"row\">");
    oz_html_text(b, r->asked.label);
    oz_buf_puts(b, "</th>");
    if (!is_whole(c, r)) {
        oz_buf_puts(b, "<td class=\"text bad\" colspan=\"11\">failed: ");
        oz_html_text(b, r->error != NULL ? r->error : "not finished");
        oz_buf_puts(b, "</td></tr>\n");
        return;
    }
    struct oz_metrics worst = oz_distance_metrics(&r->pictures[r->worst].bytes, 255);
    cell(b, 2, r->mean.metrics.psnr_db, "equal");
    cell(b, 2, worst.psnr_db, "equal");
    cell(b, 4, r->mean.ssim, "");
    cell(b, 4, r->mean.metrics.relative_l2, "");
    cell(b, 5, r->early.relative_l2, "");
    put_costs(b, c, r);
    put_verdict(b, c, r);
    oz_buf_puts(b, "</tr>\n");
}

static void put_table(struct oz_buf *b, const struct oz_model_comparison *c)
{
    oz_page_scroll_begin(b, "Results by candidate");
    oz_buf_puts(
        b, "<table><thead><tr><th scope=\"col\">Candidate</th><th scope=\"col\">PSNR dB,<br>mean"
           "</th><th scope=\"col\">PSNR dB,<br>least</th><th scope=\"col\">SSIM</th>"
           "<th scope=\"col\">Relative L2,<br>pictures</th><th scope=\"col\">latents,<br>5 steps"
           "</th><th scope=\"col\">Transformer<br>MiB</th>"
           "<th scope=\"col\">of the<br>reference, %</th><th scope=\"col\">Peak<br>MiB</th>"
           "<th scope=\"col\">ms a<br>picture</th><th scope=\"col\">of the<br>reference</th>"
           "<th scope=\"col\">Verdict</th></tr></thead><tbody>\n"
           "<tr><th scope=\"row\">reference</th><td></td><td></td><td></td><td></td><td></td>");
    put_costs(b, c, &c->reference);
    oz_buf_puts(b, "<td></td></tr>\n");
    for (int32_t i = 0; i < c->args->count; i++) {
        put_candidate_row(b, c, &c->candidates[i]);
    }
    oz_buf_puts(b, "</tbody></table>\n");
    oz_page_scroll_end(b);
}

/* The same for other documents. */
static void put_markdown(struct oz_buf *b, const struct oz_model_comparison *c)
{
    struct oz_buf t;
    oz_buf_init(&t, 1U << 24);
    oz_buf_puts(&t, "| candidate | PSNR mean, least (dB) | SSIM | relative L2 | latents, 5 steps | "
                    "transformer MiB | peak MiB | ms |\n|---|---|---|---|---|---|---|---|\n");
    for (int32_t i = 0; i < c->args->count; i++) {
        const struct oz_model_result *r = &c->candidates[i];
        if (is_whole(c, r)) {
            struct oz_metrics worst = oz_distance_metrics(&r->pictures[r->worst].bytes, 255);
            oz_buf_printf(&t, "| %s | %.2f, %.2f | %.4f | %.4f | %.5f | %.1f | %.1f | %.0f |\n",
                          r->asked.label, r->mean.metrics.psnr_db, worst.psnr_db, r->mean.ssim,
                          r->mean.metrics.relative_l2, r->early.relative_l2,
                          (double)r->bytes.transformer / MIB, (double)r->bytes.peak / MIB,
                          1e3 * r->total_s);
        }
    }
    oz_page_copy(b, "The table as Markdown", oz_buf_text(&t));
    oz_buf_deinit(&t);
}

/* ---- charts ---- */

/* A candidate's cost on one axis. */
static double memory_of(const struct oz_model_result *r)
{
    return (double)r->bytes.transformer / MIB;
}

static double time_of(const struct oz_model_result *r)
{
    return 1e3 * r->total_s;
}

typedef double (*cost_fn)(const struct oz_model_result *r);

static bool is_plotted(const struct oz_model_comparison *c, const struct oz_model_result *r)
{
    return is_whole(c, r) && isfinite(r->mean.metrics.psnr_db);
}

struct dot {
    double cost, psnr, label_y; /* psnr: or what the chart's y is */
    int32_t index;
};

static int by_cost(const void *a, const void *b)
{
    const struct dot *x = a, *y = b;
    return (x->cost > y->cost) - (x->cost < y->cost);
}

static int by_height(const void *a, const void *b)
{
    const struct dot *x = a, *y = b;
    return (x->psnr < y->psnr) - (x->psnr > y->psnr);
}

/* Labels that would lie on each other are moved down, from the top on. */
static void place_labels(const struct oz_chart *chart, struct dot *dots, int32_t count)
{
    qsort(dots, (size_t)count, sizeof *dots, by_height);
    for (int32_t i = 0; i < count; i++) {
        dots[i].label_y = oz_chart_y(chart, dots[i].psnr) + 4;
        for (int32_t k = 0; k < i; k++) {
            double apart = fabs(oz_chart_x(chart, dots[i].cost) - oz_chart_x(chart, dots[k].cost));
            if (apart < 150 && fabs(dots[i].label_y - dots[k].label_y) < 13) {
                dots[i].label_y = dots[k].label_y + 13;
            }
        }
    }
}

/* The candidates that none beats in both. */
static void put_front(const struct oz_chart *chart, struct oz_buf *b, struct dot *dots,
                      int32_t count, double *x, double *y)
{
    int32_t n = 0;
    double best = -INFINITY;
    qsort(dots, (size_t)count, sizeof *dots, by_cost);
    for (int32_t i = 0; i < count; i++) {
        bool beaten = dots[i].psnr <= best;
        for (int32_t k = i + 1; k < count && dots[k].cost == dots[i].cost; k++) {
            beaten = beaten || dots[k].psnr > dots[i].psnr;
        }
        if (!beaten) {
            x[n] = dots[i].cost;
            y[n++] = dots[i].psnr;
            best = dots[i].psnr;
        }
    }
    oz_chart_line(chart, b, x, y, n, 0, true);
}

static enum oz_status put_scatter(struct oz_buf *b, const struct oz_model_comparison *c,
                                  cost_fn cost, const char *title, const char *axis,
                                  struct oz_error *err)
{
    int32_t count = 0;
    struct dot *dots = oz_alloc_zero((size_t)c->args->count, sizeof *dots);
    double *x = oz_alloc_zero((size_t)c->args->count * 2, sizeof *x);
    struct oz_chart chart = {.title = title,
                             .about =
                                 "Each mark is a candidate; the dashed line joins those that no "
                                 "other beats in both. The table has the figures.",
                             .x_name = axis,
                             .y_name = "PSNR, dB (mean)",
                             .x0 = cost(&c->reference),
                             .x1 = cost(&c->reference),
                             .y0 = INFINITY,
                             .y1 = -INFINITY,
                             .width = 520,
                             .height = 340};
    if (dots == NULL || x == NULL) {
        oz_free(dots);
        oz_free(x);
        return OZ_FAIL_NOMEM(err, "a chart");
    }
    for (int32_t i = 0; i < c->args->count; i++) {
        const struct oz_model_result *r = &c->candidates[i];
        if (is_plotted(c, r)) {
            dots[count] = (struct dot){cost(r), r->mean.metrics.psnr_db, 0, i};
            chart.x0 = fmin(chart.x0, dots[count].cost);
            chart.x1 = fmax(chart.x1, dots[count].cost);
            chart.y0 = fmin(chart.y0, dots[count].psnr);
            chart.y1 = fmax(chart.y1, dots[count].psnr);
            count++;
        }
    }
    if (count > 0) {
        oz_chart_round(&chart.x0, &chart.x1);
        oz_chart_round(&chart.y0, &chart.y1);
        oz_buf_puts(b, "<figure>");
        oz_chart_begin(&chart, b);
        const double rx[2] = {cost(&c->reference), cost(&c->reference)};
        const double ry[2] = {chart.y0, chart.y1};
        oz_chart_line(&chart, b, rx, ry, 2, 0, true);
        put_front(&chart, b, dots, count, x, x + c->args->count);
        place_labels(&chart, dots, count);
        for (int32_t i = 0; i < count; i++) {
            oz_chart_point(&chart, b, dots[i].cost, dots[i].psnr, dots[i].index,
                           c->candidates[dots[i].index].asked.label, dots[i].label_y);
        }
        oz_chart_end(b);
        oz_buf_puts(b, "<figcaption>");
        oz_html_text(b, title);
        oz_buf_puts(b, ". Up and left is better; the upright dashed line is the reference's cost."
                       "</figcaption></figure>\n");
    }
    oz_free(dots);
    oz_free(x);
    return OZ_OK;
}

/* Mean over the pictures of the relative L2 after step k. */
static double step_mean(const struct oz_model_comparison *c, const struct oz_model_result *r,
                        int32_t k)
{
    double sum = 0;
    for (int32_t i = 0; i < c->args->task_count; i++) {
        sum += r->pictures[i].step_relative_l2[k];
    }
    return sum / c->args->task_count;
}

static enum oz_status put_trajectories(struct oz_buf *b, const struct oz_model_comparison *c,
                                       struct oz_error *err)
{
    int32_t steps = c->shape.steps;
    double *x = oz_alloc_zero(2 * (size_t)steps, sizeof *x);
    struct dot *dots = oz_alloc_zero((size_t)c->args->count, sizeof *dots);
    double least = INFINITY, most = 0;
    if (x == NULL || dots == NULL) {
        oz_free(x);
        oz_free(dots);
        return OZ_FAIL_NOMEM(err, "a chart");
    }
    for (int32_t i = 0; i < c->args->count; i++) {
        for (int32_t k = 0; k < steps && is_plotted(c, &c->candidates[i]); k++) {
            double v = step_mean(c, &c->candidates[i], k);
            least = v > 0 ? fmin(least, v) : least;
            most = fmax(most, v);
        }
    }
    if (most > 0) {
        struct oz_chart chart = {.title = "How far the latents are from the reference's, by step",
                                 .about =
                                     "One line for each candidate, the mean over the pictures. "
                                     "The last values stand in the table.",
                                 .x_name = "denoising step",
                                 .y_name = "relative L2 of the latents",
                                 .x0 = 1,
                                 .x1 = steps > 1 ? 1.5 * steps : 3, /* room for names */
                                 .y0 = least,
                                 .y1 = most,
                                 .log_y = true,
                                 .width = 520,
                                 .height = 340};
        oz_chart_decades(&chart.y0, &chart.y1);
        oz_buf_puts(b, "<figure>");
        oz_chart_begin(&chart, b);
        int32_t ends = 0;
        for (int32_t i = 0; i < c->args->count; i++) {
            const struct oz_model_result *r = &c->candidates[i];
            if (!is_plotted(c, r)) {
                continue;
            }
            dots[ends++] = (struct dot){steps, step_mean(c, r, steps - 1), 0, i};
            for (int32_t k = 0; k < steps; k++) {
                x[k] = k + 1;
                x[steps + k] = step_mean(c, r, k);
            }
            oz_chart_line(&chart, b, x, x + steps, steps, i, false);
        }
        place_labels(&chart, dots, ends);
        for (int32_t i = 0; i < ends; i++) {
            oz_chart_point(&chart, b, steps, dots[i].psnr, dots[i].index,
                           c->candidates[dots[i].index].asked.label, dots[i].label_y);
        }
        oz_chart_end(b);
        oz_buf_puts(b,
                    "<figcaption>Latents after each step, mean over the pictures. Lines that run "
                    "level lose once and keep their distance; rising ones go on losing."
                    "</figcaption></figure>\n");
    }
    oz_free(x);
    oz_free(dots);
    return OZ_OK;
}

/* ---- pictures ---- */

struct painter {
    const struct oz_model_comparison *c;
    struct oz_buf *b;
    int32_t width, height, shrink;
    uint8_t *reference, *candidate, *small; /* [3 width height] */
    struct oz_buf png;
};

/* Averages of shrink x shrink pixels. */
static void shrink(const struct painter *p, const uint8_t *from, uint8_t *to)
{
    int32_t f = p->shrink, w = p->width / f, h = p->height / f;
    for (int32_t y = 0; y < h; y++) {
        for (int32_t x = 0; x < 3 * w; x++) {
            int32_t sum = 0;
            for (int32_t j = 0; j < f * f; j++) {
                int64_t row = (int64_t)y * f + j / f, column = (int64_t)(x / 3) * f + j % f;
                sum += from[(row * p->width + column) * 3 + x % 3];
            }
            to[(int64_t)y * 3 * w + x] = (uint8_t)((sum + f * f / 2) / (f * f));
        }
    }
}

static enum oz_status put_image(struct painter *p, const uint8_t *rgb, const char *id,
                                const char *what, const char *prompt, struct oz_error *err)
{
    int32_t w = p->width / p->shrink, h = p->height / p->shrink;
    shrink(p, rgb, p->small);
    p->png.bytes = 0;
    OZ_TRY(oz_png_encode(p->small, (uint32_t)w, (uint32_t)h, NULL, 0, &p->png, err));
    oz_buf_puts(p->b, "<img");
    if (id != NULL) {
        oz_buf_printf(p->b, " id=\"%s\"", id);
    }
    oz_buf_printf(p->b, " width=\"%d\" height=\"%d\" alt=\"", w, h);
    oz_html_text(p->b, what);
    oz_buf_puts(p->b, ": ");
    oz_html_text(p->b, prompt);
    oz_buf_puts(p->b, "\" src=\"data:image/png;base64,");
    oz_html_base64(p->b, p->png.data, p->png.bytes);
    oz_buf_puts(p->b, "\">");
    return OZ_OK;
}

/* |difference|, amplified, on white paper's opposite: black is equal. */
static void difference(const struct painter *p)
{
    for (int64_t i = 0; i < 3 * (int64_t)p->width * p->height; i++) {
        int32_t d = abs(p->candidate[i] - p->reference[i]) * AMPLIFICATION;
        p->candidate[i] = (uint8_t)(d < 255 ? d : 255);
    }
}

static enum oz_status put_candidate_picture(struct painter *p, int32_t task, int32_t variant,
                                            struct oz_error *err)
{
    const struct oz_model_comparison *c = p->c;
    const struct oz_model_result *r = &c->candidates[variant];
    char id[48];
    oz_buf_puts(p->b, "<td>");
    if (!r->pictures[task].done) {
        oz_buf_puts(p->b, "<span class=\"soft\">none</span></td>");
        return OZ_OK;
    }
    struct oz_metrics m = oz_distance_metrics(&r->pictures[task].bytes, 255);
    OZ_TRY(oz_model_comparison_picture(c, variant, task, p->candidate, err));
    (void)snprintf(id, sizeof id, "p%dc%d", task, variant);
    OZ_TRY(put_image(p, p->candidate, id, r->asked.label, c->tasks[task].prompt, err));
    difference(p);
    OZ_TRY(put_image(p, p->candidate, NULL, "difference, amplified", c->tasks[task].prompt, err));
    if (m.identical) {
        oz_buf_puts(p->b, "<span class=\"soft\">equal</span></td>");
    } else {
        oz_buf_printf(p->b, "<span class=\"soft\">%.1f dB, SSIM %.3f</span></td>", m.psnr_db,
                      r->pictures[task].ssim);
    }
    return OZ_OK;
}

static enum oz_status put_rows(struct painter *p, struct oz_error *err)
{
    const struct oz_model_comparison *c = p->c;
    for (int32_t i = 0; i < c->args->task_count; i++) {
        char id[32];
        oz_buf_puts(p->b, "<tr><th scope=\"row\">");
        oz_html_text(p->b, c->tasks[i].prompt);
        oz_buf_printf(p->b, "<span class=\"soft\">seed %llu</span></th><td>",
                      (unsigned long long)c->tasks[i].seed);
        OZ_TRY(oz_model_comparison_picture(c, -1, i, p->reference, err));
        (void)snprintf(id, sizeof id, "p%dr", i);
        OZ_TRY(put_image(p, p->reference, id, "reference", c->tasks[i].prompt, err));
        oz_buf_puts(p->b, "</td>");
        for (int32_t v = 0; v < c->args->count; v++) {
            OZ_TRY(put_candidate_picture(p, i, v, err));
        }
        oz_buf_puts(p->b, "</tr>\n");
    }
    return OZ_OK;
}

static void put_slider(struct oz_buf *b, const struct oz_model_comparison *c)
{
    oz_buf_puts(b, "<div class=\"slider\"><label for=\"row\">Picture</label><select id=\"row\">");
    for (int32_t i = 0; i < c->args->task_count; i++) {
        oz_buf_printf(b, "<option value=\"%d\">", i);
        oz_html_text(b, c->tasks[i].prompt);
        oz_buf_puts(b, "</option>");
    }
    oz_buf_puts(b, "</select><label for=\"column\">Candidate, on the right</label>"
                   "<select id=\"column\">");
    for (int32_t i = 0; i < c->args->count; i++) {
        oz_buf_printf(b, "<option value=\"%d\">", i);
        oz_html_text(b, c->candidates[i].asked.label);
        oz_buf_puts(b, "</option>");
    }
    oz_buf_puts(b, "</select><div class=\"stack\"><img alt=\"\"><img alt=\"\"></div>"
                   "<label for=\"cut\">Where the reference ends and the candidate begins</label>"
                   "<input id=\"cut\" type=\"range\" min=\"0\" max=\"100\" value=\"50\"></div>\n");
}

static enum oz_status put_pictures(struct oz_buf *b, const struct oz_model_comparison *c,
                                   int32_t shrunk, struct oz_error *err)
{
    int32_t width = c->tasks[0].width, height = c->tasks[0].height;
    size_t bytes = 3 * (size_t)width * (size_t)height;
    struct painter p = {.c = c, .b = b, .width = width, .height = height, .shrink = shrunk};
    oz_buf_printf(b,
                  "<h2>Pictures</h2>\n<p>A row for each prompt: the reference, then each candidate "
                  "over its difference from it, amplified %d times (black is equal).",
                  AMPLIFICATION);
    if (p.shrink > 1) {
        oz_buf_printf(
            b,
            " They were drawn at %d x %d and are shown at 1/%d of that; figures are of the "
            "whole ones.",
            width, height, p.shrink);
    }
    oz_buf_puts(b, "</p>\n");
    put_slider(b, c);
    oz_page_scroll_begin(b, "Pictures by prompt and candidate");
    oz_buf_puts(b, "<table class=\"pictures\"><thead><tr><th scope=\"col\">Prompt</th>"
                   "<th scope=\"col\">reference</th>");
    for (int32_t v = 0; v < c->args->count; v++) {
        oz_buf_puts(b, "<th scope=\"col\">");
        oz_html_text(b, c->candidates[v].asked.label);
        oz_buf_puts(b, "</th>");
    }
    oz_buf_puts(b, "</tr></thead><tbody>\n");
    oz_buf_init(&p.png, MAX_PNG_BYTES);
    p.reference = oz_alloc(bytes);
    p.candidate = oz_alloc(bytes);
    p.small = oz_alloc(bytes);
    enum oz_status status = p.reference != NULL && p.candidate != NULL && p.small != NULL
                                ? put_rows(&p, err)
                                : OZ_FAIL_NOMEM(err, "a report's pictures");
    oz_buf_puts(b, "</tbody></table>\n");
    oz_page_scroll_end(b);
    oz_buf_deinit(&p.png);
    oz_free(p.reference);
    oz_free(p.candidate);
    oz_free(p.small);
    return status;
}

/* ---- weights by role ---- */

static void put_roles(struct oz_buf *b, const struct oz_model_comparison *c)
{
    bool any[OZ_ROLE_COUNT] = {false}, some = false;
    for (int32_t v = 0; v < c->args->count; v++) {
        for (int i = 0; i < OZ_ROLE_COUNT; i++) {
            any[i] = any[i] || c->candidates[v].roles.roles[i].layers > 0;
            some = some || any[i];
        }
    }
    if (!some) {
        return;
    }
    oz_buf_puts(b, "<h2>Layer errors by role</h2>\n<p>What encoding loses of the transformer's "
                   "weights: |decoded - stored| / |stored| in percent, over a band of each "
                   "quantized layer. Empty: no layer of that role is quantized, or the file "
                   "holds it quantized and does not say what it was. How far such an error reaches "
                   "the picture, <code>ounce compare --sensitivity</code> finds out.</p>\n");
    oz_page_scroll_begin(b, "Errors of weights by role and candidate");
    oz_buf_puts(b, "<table><thead><tr><th scope=\"col\">Role</th>");
    for (int32_t v = 0; v < c->args->count; v++) {
        oz_buf_puts(b, "<th scope=\"col\">");
        oz_html_text(b, c->candidates[v].asked.label);
        oz_buf_puts(b, "</th>");
    }
    oz_buf_puts(b, "</tr></thead><tbody>\n");
    for (int i = 0; i < OZ_ROLE_COUNT; i++) {
        if (!any[i]) {
            continue;
        }
        oz_buf_printf(b, "<tr><th scope=\"row\">%s</th>", oz_role_name((enum oz_role)i));
        for (int32_t v = 0; v < c->args->count; v++) {
            cell(b, 3, 100 * oz_role_errors_relative(&c->candidates[v].roles.roles[i]), "");
        }
        oz_buf_puts(b, "</tr>\n");
    }
    oz_buf_puts(b, "</tbody></table>\n");
    oz_page_scroll_end(b);
}

/* ---- the whole ---- */

static void put_head(struct oz_buf *b, const struct oz_model_comparison *c)
{
    const struct oz_task *t = &c->tasks[0];
    const struct oz_model_result *best = NULL;
    oz_buf_puts(b, "<header><h1>");
    oz_html_text(b, c->model_name);
    oz_buf_printf(
        b,
        ": %d variants against the reference</h1>\n<p class=\"soft\">%d pictures of %d x %d, "
        "%d steps, true CFG scale %g, seeds from %llu; %s on tier %s, %d threads.</p>"
        "</header>\n<main>\n<h2>Result</h2>\n",
        c->args->count, c->args->task_count, t->width, t->height, t->steps, t->scale,
        (unsigned long long)t->seed, c->f32_math ? "f32" : "bf16", c->tier, c->threads);
    for (int32_t i = 0; i < c->args->count; i++) {
        const struct oz_model_result *r = &c->candidates[i];
        if (is_plotted(c, r) &&
            (best == NULL || r->mean.metrics.psnr_db > best->mean.metrics.psnr_db)) {
            best = r;
        }
    }
    if (best != NULL) {
        oz_buf_puts(b, "<p>Nearest to the reference is <strong>");
        oz_html_text(b, best->asked.label);
        oz_buf_printf(b, "</strong>: %.1f dB, with %.0f %% of its transformer's memory.",
                      best->mean.metrics.psnr_db,
                      100.0 * (double)best->bytes.transformer /
                          (double)c->reference.bytes.transformer);
        oz_buf_puts(b, " As a guide: 30 dB is strict, 25 good and 20 the least that is recommended."
                       "</p>\n");
    }
}

static enum oz_status put_charts(struct oz_buf *b, const struct oz_model_comparison *c,
                                 struct oz_error *err)
{
    oz_buf_puts(b, "<h2>Quality against cost</h2>\n<div class=\"charts\">\n");
    OZ_TRY(put_scatter(b, c, memory_of, "Quality and memory", "resident transformer, MiB", err));
    OZ_TRY(put_scatter(b, c, time_of, "Quality and time", "a picture, ms (median)", err));
    oz_buf_puts(b, "</div>\n<h2>On the way</h2>\n");
    return put_trajectories(b, c, err);
}

static void put_requests(struct oz_buf *b, const struct oz_model_comparison *c)
{
    oz_buf_puts(b, "<h2>What was asked for</h2>\n");
    for (int32_t i = 0; i < c->args->count; i++) {
        const struct oz_model_result *r = &c->candidates[i];
        oz_buf_puts(b, "<h3>");
        oz_html_text(b, r->asked.label);
        oz_buf_puts(b, "</h3>\n<p>");
        if (r->asked.quantization != NULL) {
            oz_buf_puts(b, "<code>");
            oz_html_text(b, r->asked.quantization);
            oz_buf_printf(b, "</code>, keep-list %s. ", oz_keep_name(r->asked.keep));
        } else {
            oz_buf_puts(b, "The model <code>");
            oz_html_text(b, r->asked.model != NULL ? r->asked.model : "emoji");
            oz_buf_puts(b, "</code>. ");
        }
        oz_buf_puts(b, "</p>\n");
        if (r->summary != NULL) {
            oz_buf_puts(b, "<details><summary>Layers</summary><p>");
            oz_html_text(b, r->summary);
            oz_buf_puts(b, "</p></details>\n");
        }
    }
}

static enum oz_status put_all(struct oz_buf *b, const struct oz_model_comparison *c,
                              const struct oz_report_section *section, int32_t shrunk,
                              struct oz_error *err)
{
    char title[256], foot[256];
    (void)snprintf(title, sizeof title, "%.100s: %d variants compared", c->model_name,
                   c->args->count);
    (void)snprintf(
        foot, sizeof foot,
        "Made by ounce %s. Times are medians after a warm-up, on this machine and under its "
        "load; how each figure is defined stands in docs/quality.md.",
        c->args->version);
    oz_page_begin(b, title);
    put_head(b, c);
    put_table(b, c);
    put_markdown(b, c);
    OZ_TRY(put_charts(b, c, err));
    put_roles(b, c);
    if (section != NULL) {
        section->put(section->ctx, b);
    }
    OZ_TRY(put_pictures(b, c, shrunk, err));
    put_requests(b, c);
    oz_page_end(b, foot);
    return OZ_OK;
}

enum oz_status oz_model_report_write(const struct oz_model_comparison *c,
                                     const struct oz_report_section *section, const char *path,
                                     struct oz_error *err)
{
    struct oz_buf b;
    int32_t least = c->tasks[0].width < c->tasks[0].height ? c->tasks[0].width : c->tasks[0].height;
    oz_buf_init(&b, MAX_REPORT_BYTES);
    enum oz_status status = put_all(&b, c, section, 1, err);
    for (int32_t f = 2; status == OZ_OK && b.bytes > WANTED_BYTES && least / f >= LEAST_SIDE; f++) {
        b.bytes = 0;
        status = put_all(&b, c, section, f, err);
    }
    if (status == OZ_OK && b.status != OZ_OK) {
        status = OZ_FAIL(err, b.status, "The report is too large.");
    }
    if (status == OZ_OK) {
        status = oz_file_write(path, b.data, b.bytes, err);
    }
    oz_buf_deinit(&b);
    return status;
}
