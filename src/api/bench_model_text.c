/* bench_model_text.c: a model's times for people, as JSON, as charts, and against an earlier run. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/bench_model.h"
#include "base/error.h"
#include "study/page.h"
#include "study/svg.h"

#define MIB (1024.0 * 1024.0)

const char *const oz_bench_part_names[OZ_BENCH_PARTS] = {"load", "text", "step", "decode", "total"};

static double load_rate(const struct oz_bench_model *m) /* GB/s of the files */
{
    return (double)m->load_bytes / oz_bench_median(m, OZ_BENCH_LOAD) / 1e9;
}

static double read_rate(const struct oz_bench_model *m)
{
    return m->read_s > 0 ? (double)m->load_bytes / m->read_s / 1e9 : (double)NAN;
}

static const char *load_format(const struct oz_bench_model *m)
{
    return m->dummy ? "dummy" : "auto";
}

/* ---- for people ---- */

static void put_change(const struct oz_bench_model *m, struct oz_buf *b, int index)
{
    if (m->change[index] > 0) {
        oz_buf_printf(b, "  %+.1f %%%s", 100 * (m->change[index] - 1),
                      index >= OZ_BENCH_PARTS  ? ", one sample"
                      : !m->moved[index]       ? ", within noise"
                      : m->change[index] > 1.0 ? ", SLOWER"
                                               : ", faster");
    }
}

void oz_bench_model_print(const struct oz_bench_model *m, struct oz_buf *b)
{
    bool quantized = strcmp(m->quantization, "none") != 0;
    oz_buf_printf(b,
                  "%s: %dx%d, %d steps, true CFG scale %g, %s (%s)%s%s, %d thread%s, %d repeat%s\n",
                  m->name, m->width, m->height, m->steps, m->scale, m->f32_math ? "f32" : "bf16",
                  m->tier, quantized ? ", quantization " : "", quantized ? m->quantization : "",
                  m->threads, m->threads == 1 ? "" : "s", m->repeats, m->repeats == 1 ? "" : "s");
    oz_buf_printf(b, "%-8s %12s %12s\n", "", "median", "min");
    for (int i = 0; i < OZ_BENCH_PARTS; i++) {
        oz_buf_printf(b, "%-8s %10.2f ms %9.2f ms", oz_bench_part_names[i],
                      1e3 * oz_bench_median(m, (enum oz_bench_part)i), 1e3 * m->seconds[i][0]);
        if (i == OZ_BENCH_LOAD && m->dummy) {
            oz_buf_printf(b, "   %.2f GB/s of weights, which are dummies", load_rate(m));
        } else if (i == OZ_BENCH_LOAD) {
            oz_buf_printf(b, "   %.2f GB/s, %.0f %% of reading the files (%.2f GB/s)", load_rate(m),
                          100 * load_rate(m) / read_rate(m), read_rate(m));
        } else if (i == OZ_BENCH_STEP) {
            oz_buf_printf(b, "   %.1f steps/s", 1 / oz_bench_median(m, OZ_BENCH_STEP));
        }
        put_change(m, b, i);
        oz_buf_puts(b, "\n");
    }
    for (int32_t i = 0; i < m->point_count; i++) {
        const struct oz_bench_point *p = &m->points[i];
        oz_buf_printf(b,
                      "%d together: %.2f pictures/s (%d requests in %.2f s), peak memory %.0f MiB",
                      p->concurrency, p->pictures_s, m->options.requests, p->seconds,
                      (double)p->peak_bytes / MIB);
        put_change(m, b, OZ_BENCH_PARTS + i);
        oz_buf_puts(b, "\n");
    }
    oz_buf_printf(b, "peak memory %.0f MiB; weights %.1f MiB, arenas %.1f MiB\n",
                  (double)m->peak_bytes / MIB, (double)m->weight_bytes / MIB,
                  (double)m->plan_bytes / MIB);
}

/* ---- JSON ---- */

static void number(struct oz_buf *b, const char *key, double value)
{
    oz_buf_printf(b, "\"%s\":", key);
    oz_buf_number(b, value);
}

void oz_bench_model_json(const struct oz_bench_model *m, struct oz_buf *b)
{
    oz_buf_printf(b, "{\"document\":\"ounce bench\",\"version\":\"%s\",\"model\":", oz_version());
    oz_buf_json(b, m->name);
    oz_buf_printf(b, ",\"width\":%d,\"height\":%d,\"num_inference_steps\":%d,", m->width, m->height,
                  m->steps);
    number(b, "true_cfg_scale", m->scale);
    oz_buf_printf(b, ",\"precision\":\"%s\",\"tier\":\"%s\",\"threads\":%d,\"repeats\":%d",
                  m->f32_math ? "f32" : "bf16", m->tier, m->threads, m->repeats);
    oz_buf_printf(b, ",\"load_format\":\"%s\",\"quantization\":", load_format(m));
    oz_buf_json(b, m->quantization);
    for (int i = 0; i < OZ_BENCH_PARTS; i++) {
        oz_buf_printf(b, ",\n\"%s_s\":{", oz_bench_part_names[i]);
        number(b, "median", oz_bench_median(m, (enum oz_bench_part)i));
        oz_buf_puts(b, ",");
        number(b, "min", m->seconds[i][0]);
        oz_buf_puts(b, ",");
        number(b, "max", m->seconds[i][m->repeats - 1]);
        oz_buf_puts(b, "}");
    }
    oz_buf_puts(b, ",\n");
    number(b, "steps_per_s", 1 / oz_bench_median(m, OZ_BENCH_STEP));
    oz_buf_printf(b, ",\n\"load_bytes\":%" PRId64 ",", m->load_bytes);
    number(b, "load_gb_per_s", load_rate(m));
    oz_buf_puts(b, ",");
    number(b, "read_gb_per_s", read_rate(m));
    oz_buf_puts(b, ",");
    number(b, "load_share_of_reading", load_rate(m) / read_rate(m));
    oz_buf_printf(b, ",\n\"requests\":%d,\"throughput\":[", m->options.requests);
    for (int32_t i = 0; i < m->point_count; i++) {
        const struct oz_bench_point *p = &m->points[i];
        oz_buf_printf(b, "%s{\"concurrency\":%d,", i > 0 ? "," : "", p->concurrency);
        number(b, "seconds", p->seconds);
        oz_buf_puts(b, ",");
        number(b, "pictures_per_s", p->pictures_s);
        oz_buf_printf(b, ",\"peak_resident_bytes\":%" PRId64 ",\"plan_bytes\":%" PRId64 "}",
                      p->peak_bytes, p->plan_bytes);
    }
    oz_buf_printf(
        b,
        "],\n\"peak_resident_bytes\":%" PRId64
        ",\"peak_is_of_process\":%s,\"weight_bytes\":%" PRId64 ",\"plan_bytes\":%" PRId64 "}\n",
        m->peak_bytes, m->peak_of_process ? "true" : "false", m->weight_bytes, m->plan_bytes);
}

/* ---- an earlier run ---- */

static enum oz_status differ(const char *name, const char *what, const char *old, const char *now,
                             struct oz_error *err)
{
    return OZ_FAIL(err, OZ_ERR_ARG,
                   "%s was measured with %s %s, this run has %s; only equal runs can be compared.",
                   name, what, old, now);
}

static enum oz_status check_same(const struct oz_bench_model *m, const struct oz_json *old,
                                 const char *name, struct oz_error *err)
{
    const struct {
        const char *key;
        double now;
    } numbers[] = {{"width", m->width},
                   {"height", m->height},
                   {"num_inference_steps", m->steps},
                   {"true_cfg_scale", m->scale},
                   {"threads", m->threads}};
    const struct {
        const char *key, *now, *before; /* where earlier versions did not write it */
    } texts[] = {{"load_format", load_format(m), "auto"},
                 {"quantization", m->quantization, "none"},
                 {"model", m->name, "?"},
                 {"precision", m->f32_math ? "f32" : "bf16", "?"},
                 {"tier", m->tier, "?"}};
    if (strcmp(oz_json_string(oz_json_get(old, "document"), ""), "ounce bench") != 0) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s is not what `ounce bench MODEL --json` writes.",
                       name);
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *was = oz_json_string(oz_json_get(old, texts[i].key), texts[i].before);
        if (strcmp(was, texts[i].now) != 0) {
            return differ(name, texts[i].key, was, texts[i].now, err);
        }
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double was = oz_json_number(oz_json_get(old, numbers[i].key), (double)NAN);
        if (was != numbers[i].now) {
            char a[32], c[32];
            (void)snprintf(a, sizeof a, "%g", was);
            (void)snprintf(c, sizeof c, "%g", numbers[i].now);
            return differ(name, numbers[i].key, a, c, err);
        }
    }
    return OZ_OK;
}

enum oz_status oz_bench_model_compare(struct oz_bench_model *m, const struct oz_json *old,
                                      const char *name, struct oz_error *err)
{
    OZ_TRY(check_same(m, old, name, err));
    for (int i = 0; i < OZ_BENCH_PARTS; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "%s_s", oz_bench_part_names[i]);
        const struct oz_json *v = oz_json_get(old, key);
        double median = oz_json_number(oz_json_get(v, "median"), 0);
        double min = oz_json_number(oz_json_get(v, "min"), 0);
        double max = oz_json_number(oz_json_get(v, "max"), 0);
        if (!(median > 0)) {
            return OZ_FAIL(err, OZ_ERR_FORMAT, "%s has no %s.", name, key);
        }
        m->change[i] = oz_bench_median(m, (enum oz_bench_part)i) / median;
        /* beyond noise: the two ranges do not touch */
        m->moved[i] =
            m->repeats > 1 && (m->seconds[i][0] > max || m->seconds[i][m->repeats - 1] < min);
    }
    const struct oz_json *points = oz_json_get(old, "throughput");
    for (int32_t i = 0; i < m->point_count; i++) {
        const struct oz_json *v = oz_json_at(points, (size_t)i);
        double was = oz_json_number(oz_json_get(v, "pictures_per_s"), 0);
        if (was > 0) { /* of one sample: shown, and never beyond noise */
            m->change[OZ_BENCH_PARTS + i] = was / m->points[i].pictures_s;
        }
    }
    return OZ_OK;
}

/* ---- charts ---- */

static void put_points(const struct oz_bench_model *m, struct oz_buf *b)
{
    double x[OZ_BENCH_POINTS], y[OZ_BENCH_POINTS], most = 0;
    struct oz_chart chart = {.title = "Pictures a second by concurrency",
                             .about = "The table has the figures.",
                             .x_name = "pictures drawn together",
                             .y_name = "pictures a second",
                             .x0 = 0,
                             .x1 = 10,
                             .width = 520,
                             .height = 320};
    for (int32_t i = 0; i < m->point_count; i++) {
        x[i] = m->points[i].concurrency;
        y[i] = m->points[i].pictures_s;
        most = y[i] > most ? y[i] : most;
    }
    if (m->point_count == 0) {
        return;
    }
    chart.y1 = most;
    oz_chart_round(&chart.y0, &chart.y1);
    oz_buf_puts(b, "<figure>");
    oz_chart_begin(&chart, b);
    oz_chart_line(&chart, b, x, y, m->point_count, 0, false);
    for (int32_t i = 0; i < m->point_count; i++) {
        char label[32];
        (void)snprintf(label, sizeof label, "%.2f", y[i]);
        oz_chart_point(&chart, b, x[i], y[i], 0, label, (double)NAN);
    }
    oz_chart_end(b);
    oz_buf_printf(b,
                  "<figcaption>%d requests a point, with prompts of several lengths, in ragged "
                  "batches.</figcaption></figure>\n",
                  m->options.requests);
}

/* One bar of a picture's time, cut by stage. */
static void put_stages(const struct oz_bench_model *m, struct oz_buf *b)
{
    const double parts[] = {oz_bench_median(m, OZ_BENCH_LOAD), oz_bench_median(m, OZ_BENCH_TEXT),
                            oz_bench_median(m, OZ_BENCH_STEP) * m->steps,
                            oz_bench_median(m, OZ_BENCH_DECODE)};
    static const char *const names[] = {"load", "text", "denoise", "decode"};
    double sum = parts[0] + parts[1] + parts[2] + parts[3], at = 20;
    oz_buf_puts(
        b, "<figure><svg class=\"chart\" viewBox=\"0 0 520 150\" role=\"img\" aria-label=\"Where "
           "a first picture's time goes. The table has the figures.\">\n");
    for (int i = 0; i < 4; i++) {
        double width = 480 * parts[i] / sum;
        oz_buf_printf(b,
                      "<rect class=\"bar s%d\" x=\"%.1f\" y=\"16\" width=\"%.1f\" height=\"44\"/>"
                      "<rect class=\"bar s%d\" x=\"%d\" y=\"84\" width=\"12\" height=\"12\"/>"
                      "<text class=\"label\" x=\"%d\" y=\"95\">%s</text>"
                      "<text class=\"tick\" x=\"%d\" y=\"115\">%.1f ms</text>"
                      "<text class=\"tick\" x=\"%d\" y=\"133\">%.0f %%</text>\n",
                      i, at, width > 1 ? width - 1 : width, i, 20 + 122 * i, 38 + 122 * i, names[i],
                      38 + 122 * i, 1e3 * parts[i], 38 + 122 * i, 100 * parts[i] / sum);
        at += width;
    }
    oz_buf_puts(
        b, "</svg><figcaption>Where a first picture's time goes, medians.</figcaption></figure>\n");
}

void oz_bench_model_page(const struct oz_bench_model *m, struct oz_buf *b)
{
    char title[160], foot[96];
    struct oz_buf table;
    (void)snprintf(title, sizeof title, "%.80s: times and memory", m->name);
    (void)snprintf(foot, sizeof foot, "Made by ounce %s.", oz_version());
    oz_page_begin(b, title);
    oz_buf_puts(b, "<header><h1>");
    oz_html_text(b, title);
    oz_buf_printf(
        b,
        "</h1>\n<p class=\"soft\">%d x %d, %d steps, true CFG scale %g; %s on tier %s, %d "
        "threads, %d repeats.</p></header>\n<main>\n<h2>A first picture</h2>\n",
        m->width, m->height, m->steps, m->scale, m->f32_math ? "f32" : "bf16", m->tier, m->threads,
        m->repeats);
    put_stages(m, b);
    if (m->point_count > 0) {
        oz_buf_puts(b, "<h2>Many pictures</h2>\n");
        put_points(m, b);
    }
    oz_buf_puts(b, "<h2>All figures</h2>\n<pre tabindex=\"0\">");
    oz_buf_init(&table, 1U << 20);
    oz_bench_model_print(m, &table);
    oz_html_text(b, oz_buf_text(&table));
    oz_buf_deinit(&table);
    oz_buf_puts(b, "</pre>\n");
    oz_page_end(b, foot);
}
