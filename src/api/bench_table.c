#include "api/bench_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ounce/ounce.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json.h"

#define DOCUMENT "ounce bench --kernels"
#define MAX_SKIPPED_BYTES ((size_t)1 << 20)
#define LEAST_CHANGE 0.01

void oz_bench_table_init(struct oz_bench_table *t)
{
    *t = (struct oz_bench_table){0};
    oz_buf_init(&t->skipped_json, MAX_SKIPPED_BYTES);
}

void oz_bench_table_deinit(struct oz_bench_table *t)
{
    for (int32_t i = 0; i < t->count; i++) {
        struct oz_bench_result *r = &t->results[i];
        oz_free(r->op);
        oz_free(r->kernel);
        oz_free(r->shape);
        oz_free(r->unit);
        oz_free(r->rates);
        oz_free(r->shares);
        for (int k = 0; k < OZ_BENCH_CEILINGS; k++) {
            oz_free(r->bounds[k].name);
            oz_free(r->bounds[k].rates);
        }
    }
    oz_free(t->results);
    for (int32_t i = 0; i < t->skipped_count; i++) {
        oz_free(t->skipped[i].kernel);
        oz_free(t->skipped[i].reason);
    }
    oz_free(t->skipped);
    oz_buf_deinit(&t->skipped_json);
    *t = (struct oz_bench_table){0};
}

/* ---- collecting ---- */

static struct oz_bench_result *find(const struct oz_bench_table *t, const char *kernel,
                                    const char *shape)
{
    for (int32_t i = 0; i < t->count; i++) {
        if (strcmp(t->results[i].kernel, kernel) == 0 && strcmp(t->results[i].shape, shape) == 0) {
            return &t->results[i];
        }
    }
    return NULL;
}

static struct oz_bench_result *append(struct oz_bench_table *t, const struct oz_bench_sample *s)
{
    if (t->count == t->capacity) {
        int32_t capacity = 2 * t->capacity + 32;
        void *grown = oz_realloc(t->results, (size_t)capacity * sizeof *t->results);
        if (grown == NULL) {
            return NULL;
        }
        t->results = grown;
        t->capacity = capacity;
    }
    struct oz_bench_result *r = &t->results[t->count++];
    *r = (struct oz_bench_result){.op = oz_strdup(s->op),
                                  .kernel = oz_strdup(s->kernel),
                                  .shape = oz_strdup(s->shape),
                                  .unit = oz_strdup(s->unit)};
    bool ok = r->op != NULL && r->kernel != NULL && r->shape != NULL && r->unit != NULL;
    for (int k = 0; k < OZ_BENCH_CEILINGS && s->ceilings[k].name != NULL; k++) {
        r->bounds[k].name = oz_strdup(s->ceilings[k].name);
        ok = ok && r->bounds[k].name != NULL;
    }
    return ok ? r : NULL;
}

static bool grow(double **values, int32_t count)
{
    double *grown = oz_realloc(*values, (size_t)count * sizeof *grown);
    if (grown != NULL) {
        *values = grown;
    }
    return grown != NULL;
}

static bool grow_result(struct oz_bench_result *r, int32_t count)
{
    bool ok = grow(&r->rates, count) && grow(&r->shares, count);
    for (int k = 0; k < OZ_BENCH_CEILINGS; k++) {
        ok = ok && (r->bounds[k].name == NULL || grow(&r->bounds[k].rates, count));
    }
    return ok;
}

enum oz_status oz_bench_table_add(struct oz_bench_table *t, const struct oz_bench_sample *s,
                                  struct oz_error *err)
{
    struct oz_bench_result *r = find(t, s->kernel, s->shape);
    if (r == NULL) {
        r = append(t, s);
    }
    if (r == NULL || !grow_result(r, r->count + s->count)) {
        return OZ_FAIL_NOMEM(err, s->shape);
    }
    for (int32_t i = 0; i < s->count; i++) {
        double rate = s->seconds[i] > 0 ? s->work / s->seconds[i] : 0;
        double least = HUGE_VAL;
        for (int k = 0; k < OZ_BENCH_CEILINGS && r->bounds[k].name != NULL; k++) {
            r->bounds[k].rates[r->count] = s->ceilings[k].rates[i];
            least = fmin(least, s->ceilings[k].rates[i]);
        }
        r->rates[r->count] = rate;
        r->shares[r->count] = least > 0 && least < HUGE_VAL ? rate / least : 0;
        r->count++;
    }
    return OZ_OK;
}

/* The entry of a kernel and reason, made when there is none; NULL without memory. */
static struct oz_bench_skipped *skipped_of(struct oz_bench_table *t, const char *kernel,
                                           const char *reason)
{
    for (int32_t i = 0; i < t->skipped_count; i++) {
        if (strcmp(t->skipped[i].kernel, kernel) == 0 &&
            strcmp(t->skipped[i].reason, reason) == 0) {
            return &t->skipped[i];
        }
    }
    if (t->skipped_count == t->skipped_capacity) {
        int32_t capacity = 2 * t->skipped_capacity + 32;
        void *grown = oz_realloc(t->skipped, (size_t)capacity * sizeof *t->skipped);
        if (grown == NULL) {
            return NULL;
        }
        t->skipped = grown;
        t->skipped_capacity = capacity;
    }
    struct oz_bench_skipped s = {.kernel = oz_strdup(kernel), .reason = oz_strdup(reason)};
    if (s.kernel == NULL || s.reason == NULL) {
        oz_free(s.kernel);
        oz_free(s.reason);
        return NULL;
    }
    t->skipped[t->skipped_count] = s;
    return &t->skipped[t->skipped_count++];
}

void oz_bench_table_skip(struct oz_bench_table *t, const char *kernel, const char *shape,
                         const char *reason)
{
    struct oz_bench_skipped *s = skipped_of(t, kernel, reason);
    if (s != NULL && shape[0] != '\0') {
        s->shapes++;
    }
    oz_buf_puts(&t->skipped_json, t->skipped_json.bytes > 0 ? ",\n{\"kernel\":" : "\n{\"kernel\":");
    oz_buf_json(&t->skipped_json, kernel);
    oz_buf_puts(&t->skipped_json, ",\"shape\":");
    oz_buf_json(&t->skipped_json, shape);
    oz_buf_puts(&t->skipped_json, ",\"reason\":");
    oz_buf_json(&t->skipped_json, reason);
    oz_buf_puts(&t->skipped_json, "}");
}

static int ascending(const void *a, const void *b)
{
    double x;
    double y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static double at_part(const double *sorted, int32_t count, double part)
{
    double place = part * (count - 1);
    int32_t low = (int32_t)place;
    int32_t high = low + 1 < count ? low + 1 : low;
    return sorted[low] + (place - low) * (sorted[high] - sorted[low]);
}

struct oz_quartiles oz_quartiles_of(double *values, int32_t count)
{
    if (count < 1) {
        return (struct oz_quartiles){0};
    }
    qsort(values, (size_t)count, sizeof *values, ascending);
    return (struct oz_quartiles){.q1 = at_part(values, count, 0.25),
                                 .median = at_part(values, count, 0.5),
                                 .q3 = at_part(values, count, 0.75)};
}

static void finish_bounds(struct oz_bench_result *r)
{
    for (int k = 0; k < OZ_BENCH_CEILINGS && r->bounds[k].name != NULL; k++) {
        struct oz_bench_bound *bound = &r->bounds[k];
        bound->median = oz_quartiles_of(bound->rates, r->count).median;
        bound->best = r->count > 0 ? bound->rates[r->count - 1] : 0;
        if (r->least == NULL || bound->median < r->least->median) {
            r->least = bound;
        }
    }
}

void oz_bench_table_finish(struct oz_bench_table *t)
{
    for (int32_t i = 0; i < t->count; i++) {
        struct oz_bench_result *r = &t->results[i];
        finish_bounds(r);
        r->rate = oz_quartiles_of(r->rates, r->count);
        r->share = oz_quartiles_of(r->shares, r->count);
        r->best = r->count > 0 ? r->rates[r->count - 1] : 0;
    }
}

/* ---- comparing ---- */

static bool outside(double value, const struct oz_quartiles *q)
{
    double reach = 1.5 * (q->q3 - q->q1);
    return value < q->q1 - reach || value > q->q3 + reach;
}

enum oz_verdict oz_bench_verdict(const struct oz_quartiles *o, const struct oz_quartiles *n)
{
    if (o->median <= 0 || fabs(n->median / o->median - 1) <= LEAST_CHANGE ||
        !outside(n->median, o) || !outside(o->median, n)) {
        return OZ_VERDICT_SAME;
    }
    return n->median > o->median ? OZ_VERDICT_FASTER : OZ_VERDICT_SLOWER;
}

enum oz_status oz_bench_table_check(const struct oz_json *old, const char *path,
                                    const struct oz_bench_head *head, struct oz_error *err)
{
    const char *document = oz_json_string(oz_json_get(old, "document"), "");
    int64_t threads = oz_json_integer(oz_json_get(old, "threads"), 0);
    if (strcmp(document, DOCUMENT) != 0 ||
        oz_json_type(oz_json_get(old, "results")) != OZ_JSON_ARRAY) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s is not what \"ounce bench --kernels --json\" writes.", path);
    }
    if (threads != head->threads) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "%s was measured with %lld threads, this run has %d; only equal numbers can "
                       "be compared (--threads %lld).",
                       path, (long long)threads, head->threads, (long long)threads);
    }
    return OZ_OK;
}

void oz_bench_table_compare(struct oz_bench_table *t, const struct oz_json *old)
{
    const struct oz_json *list = oz_json_get(old, "results");
    int32_t known = 0;
    for (size_t i = 0; i < oz_json_count(list); i++) {
        const struct oz_json *v = oz_json_at(list, i);
        struct oz_bench_result *r = find(t, oz_json_string(oz_json_get(v, "kernel"), ""),
                                         oz_json_string(oz_json_get(v, "shape"), ""));
        if (r == NULL) {
            t->gone++;
            continue;
        }
        const struct oz_quartiles q = {.q1 = oz_json_number(oz_json_get(v, "share_q1"), 0),
                                       .median = oz_json_number(oz_json_get(v, "share"), 0),
                                       .q3 = oz_json_number(oz_json_get(v, "share_q3"), 0)};
        known++;
        r->old_share = q.median;
        r->change = q.median > 0 ? r->share.median / q.median - 1 : 0;
        r->verdict = oz_bench_verdict(&q, &r->share);
        t->compared++;
        t->faster += r->verdict == OZ_VERDICT_FASTER;
        t->slower += r->verdict == OZ_VERDICT_SLOWER;
        if (r->verdict == OZ_VERDICT_SLOWER) {
            t->worst_slowdown = fmax(t->worst_slowdown, -r->change);
        }
    }
    t->fresh = t->count - known;
}

/* ---- printing ---- */

static const char *const verdicts[] = {
    [OZ_VERDICT_NONE] = "",
    [OZ_VERDICT_SAME] = "same",
    [OZ_VERDICT_FASTER] = "FASTER",
    [OZ_VERDICT_SLOWER] = "SLOWER",
};

static double spread(const struct oz_bench_result *r)
{
    return r->share.median > 0 ? (r->share.q3 - r->share.q1) / r->share.median : 0;
}

static const struct oz_bench_bound nothing = {.name = "", .median = 0, .best = 0};

static const struct oz_bench_bound *least_of(const struct oz_bench_result *r)
{
    return r->least != NULL ? r->least : &nothing;
}

/* The best sample over the best ceiling: what a quiet machine would show. */
static double best_share(const struct oz_bench_result *r)
{
    double most = least_of(r)->best;
    return most > 0 ? r->best / most : 0;
}

void oz_bench_table_text(const struct oz_bench_table *t, const struct oz_bench_head *head,
                         const char *against, struct oz_buf *b)
{
    const char *kernel = "";
    oz_buf_printf(b, "%s, tier %s, %d thread%s\n", head->device, head->tier, head->threads,
                  head->threads == 1 ? "" : "s");
    for (int32_t i = 0; i < t->count; i++) {
        const struct oz_bench_result *r = &t->results[i];
        if (strcmp(kernel, r->kernel) != 0) {
            kernel = r->kernel;
            oz_buf_printf(b, "\n%-58s %8s %8s %-8s %-16s %7s %7s %8s%s\n", kernel, "median", "best",
                          "", "ceiling", "share", "best", "spread",
                          against != NULL ? "  against" : "");
        }
        oz_buf_printf(b, "  %-56s %8.2f %8.2f %-8s %-6s %9.2f %5.1f %% %5.1f %% %6.1f %%", r->shape,
                      r->rate.median, r->best, r->unit, least_of(r)->name, least_of(r)->median,
                      100 * r->share.median, 100 * best_share(r), 100 * spread(r));
        if (r->verdict != OZ_VERDICT_NONE) {
            oz_buf_printf(b, "  %+6.1f %% %s", 100 * r->change, verdicts[r->verdict]);
        } else if (against != NULL) {
            oz_buf_puts(b, "  new");
        }
        oz_buf_puts(b, "\n");
    }
    if (t->skipped_count > 0) {
        oz_buf_puts(b, "\nnot measured (--json lists the shapes):\n");
    }
    for (int32_t i = 0; i < t->skipped_count; i++) {
        const struct oz_bench_skipped *s = &t->skipped[i];
        oz_buf_printf(b, "  %s: %s", s->kernel, s->reason);
        if (s->shapes > 0) {
            oz_buf_printf(b, " (%d shape%s)", s->shapes, s->shapes == 1 ? "" : "s");
        }
        oz_buf_puts(b, "\n");
    }
    if (against != NULL) {
        oz_buf_printf(b,
                      "\nagainst %s: %d slower, %d faster, %d within noise; %d new, %d of the old "
                      "were not measured\n",
                      against, t->slower, t->faster, t->compared - t->slower - t->faster, t->fresh,
                      t->gone);
    }
}

static void member(struct oz_buf *b, const char *key, double value)
{
    oz_buf_printf(b, ",\"%s\":", key);
    oz_buf_number(b, value);
}

static void text_member(struct oz_buf *b, const char *key, const char *value)
{
    oz_buf_printf(b, ",\"%s\":", key);
    oz_buf_json(b, value);
}

/* All of them, with what each was in the median and at best. */
static void json_bounds(struct oz_buf *b, const struct oz_bench_result *r)
{
    oz_buf_puts(b, ",\"ceilings\":{");
    for (int k = 0; k < OZ_BENCH_CEILINGS && r->bounds[k].name != NULL; k++) {
        oz_buf_puts(b, k > 0 ? "," : "");
        oz_buf_json(b, r->bounds[k].name);
        oz_buf_puts(b, ":{\"median\":");
        oz_buf_number(b, r->bounds[k].median);
        member(b, "best", r->bounds[k].best);
        oz_buf_puts(b, "}");
    }
    oz_buf_puts(b, "}");
}

static void json_result(struct oz_buf *b, const struct oz_bench_result *r)
{
    oz_buf_puts(b, "{\"op\":");
    oz_buf_json(b, r->op);
    text_member(b, "kernel", r->kernel);
    text_member(b, "shape", r->shape);
    text_member(b, "unit", r->unit);
    member(b, "median", r->rate.median);
    member(b, "q1", r->rate.q1);
    member(b, "q3", r->rate.q3);
    member(b, "best", r->best);
    text_member(b, "ceiling", least_of(r)->name);
    member(b, "ceiling_rate", least_of(r)->median);
    member(b, "share", r->share.median);
    member(b, "share_q1", r->share.q1);
    member(b, "share_q3", r->share.q3);
    member(b, "best_share", best_share(r));
    json_bounds(b, r);
    oz_buf_printf(b, ",\"samples\":%d", r->count);
    if (r->verdict != OZ_VERDICT_NONE) {
        member(b, "old_share", r->old_share);
        member(b, "change", r->change);
        oz_buf_printf(b, ",\"verdict\":\"%s\"",
                      r->verdict == OZ_VERDICT_SAME     ? "same"
                      : r->verdict == OZ_VERDICT_FASTER ? "faster"
                                                        : "slower");
    }
    oz_buf_puts(b, "}");
}

void oz_bench_table_json(const struct oz_bench_table *t, const struct oz_bench_head *head,
                         const char *against, struct oz_buf *b)
{
    oz_buf_printf(b, "{\"document\":\"%s\",\"version\":\"%s\"", DOCUMENT, oz_version());
    text_member(b, "device", head->device);
    text_member(b, "tier", head->tier);
    oz_buf_printf(b, ",\"threads\":%d,\"results\":[", head->threads);
    for (int32_t i = 0; i < t->count; i++) {
        oz_buf_puts(b, i > 0 ? ",\n" : "\n");
        json_result(b, &t->results[i]);
    }
    oz_buf_printf(b, "],\"skipped\":[%s]", oz_buf_text(&t->skipped_json));
    if (against != NULL) {
        text_member(b, "against", against);
        oz_buf_printf(b, ",\"slower\":%d,\"faster\":%d,\"new\":%d,\"not_measured\":%d", t->slower,
                      t->faster, t->fresh, t->gone);
    }
    oz_buf_puts(b, "}\n");
}
