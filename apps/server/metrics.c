/* metrics.c: /metrics, in the text format of Prometheus. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app.h"

static const int statuses[] = {200, 202, 204, 304, 400, 401, 403, 404, 405, 409,
                               413, 415, 429, 499, 500, 503, 504, 507, 0};
enum { STATUSES = sizeof statuses / sizeof *statuses }; /* 0 stands for the rest */
_Static_assert(sizeof statuses / sizeof *statuses <= (size_t)SV_STATUSES, "too few counters");

size_t sv_status_index(int status)
{
    size_t i = 0;
    while (i + 1 < STATUSES && statuses[i] != status) {
        i++;
    }
    return i;
}

static void head(struct sv_text *out, const char *name, const char *type, const char *help)
{
    sv_text_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void value(struct sv_text *out, const char *name, const char *type, const char *help,
                  double number)
{
    head(out, name, type, help);
    sv_text_printf(out, "%s %.10g\n", name, number);
}

static void put_requests(const struct sv_app *app, struct sv_text *out)
{
    head(out, "ounce_requests_total", "counter",
         "Requests by route, method and status; status 0: others.");
    for (size_t i = 0; i < SV_ROUTES_MOST; i++) {
        bool known = i < sv_route_count;
        for (size_t j = 0; j < STATUSES; j++) {
            if (app->counters[i].by_status[j] > 0) {
                sv_text_printf(
                    out, "ounce_requests_total{route=\"%s\",method=\"%s\",status=\"%d\"} %lld\n",
                    known ? sv_routes[i].path : "", known ? sv_routes[i].method : "", statuses[j],
                    (long long)app->counters[i].by_status[j]);
            }
        }
    }
    head(out, "ounce_request_seconds_total", "counter",
         "Time from a request's head to the end of its reply.");
    for (size_t i = 0; i < sv_route_count; i++) {
        if (app->counters[i].seconds > 0) {
            sv_text_printf(out, "ounce_request_seconds_total{route=\"%s\",method=\"%s\"} %.6f\n",
                           sv_routes[i].path, sv_routes[i].method, app->counters[i].seconds);
        }
    }
}

static void put_steps(const struct oz_service_stats *s, struct sv_text *out)
{
    int64_t below = 0;
    head(out, "ounce_step_seconds", "histogram", "Time of a step of the batch.");
    for (int i = 0; i < OZ_SERVICE_BUCKETS; i++) {
        below += s->step_count[i];
        if (i + 1 < OZ_SERVICE_BUCKETS) {
            sv_text_printf(out, "ounce_step_seconds_bucket{le=\"%g\"} %lld\n", s->step_bound[i],
                           (long long)below);
        } else {
            sv_text_printf(out, "ounce_step_seconds_bucket{le=\"+Inf\"} %lld\n", (long long)below);
        }
    }
    sv_text_printf(out, "ounce_step_seconds_sum %.6f\nounce_step_seconds_count %lld\n",
                   s->step_seconds, (long long)below);
    head(out, "ounce_stage_seconds_total", "counter", "Time spent by stage.");
    sv_text_printf(out,
                   "ounce_stage_seconds_total{stage=\"text\"} %.6f\n"
                   "ounce_stage_seconds_total{stage=\"steps\"} %.6f\n"
                   "ounce_stage_seconds_total{stage=\"decode\"} %.6f\n"
                   "ounce_stage_seconds_total{stage=\"preview\"} %.6f\n",
                   s->text_seconds, s->step_seconds, s->decode_seconds, s->preview_seconds);
}

static void put_service(const struct oz_service_stats *s, struct sv_text *out)
{
    head(out, "ounce_pictures_total", "counter",
         "Pictures by how they ended; refused: not let in.");
    sv_text_printf(out,
                   "ounce_pictures_total{outcome=\"done\"} %lld\n"
                   "ounce_pictures_total{outcome=\"failed\"} %lld\n"
                   "ounce_pictures_total{outcome=\"cancelled\"} %lld\n"
                   "ounce_pictures_total{outcome=\"refused\"} %lld\n",
                   (long long)s->done, (long long)s->failed, (long long)s->cancelled,
                   (long long)s->refused);
    value(out, "ounce_pictures_submitted_total", "counter", "Pictures that were let in.",
          (double)s->submitted);
    value(out, "ounce_queue_pictures", "gauge", "Pictures that wait.", s->queued);
    value(out, "ounce_queue_limit", "gauge", "Pictures that may wait.", s->max_queue);
    value(out, "ounce_running_pictures", "gauge", "Pictures that are being drawn.", s->running);
    value(out, "ounce_batch_limit", "gauge", "Pictures that may be drawn together.",
          s->max_num_seqs);
    value(out, "ounce_steps_total", "counter", "Steps of the batch.", (double)s->steps);
    value(out, "ounce_step_pictures_total", "counter", "Pictures in those steps, summed.",
          (double)s->step_pictures);
    double most = (double)s->steps * s->max_num_seqs;
    value(out, "ounce_batch_fill", "gauge", "Share of the batch that was used, since the start.",
          most > 0 ? (double)s->step_pictures / most : 0);
    put_steps(s, out);
    head(out, "ounce_memory_bytes", "gauge",
         "Memory for running: held now, the most that was, and the limit (0: unknown).");
    sv_text_printf(
        out,
        "ounce_memory_bytes{kind=\"step\"} %lld\nounce_memory_bytes{kind=\"plan\"} %lld\n"
        "ounce_memory_bytes{kind=\"sequence\"} %lld\n"
        "ounce_memory_bytes{kind=\"peak\"} %lld\n"
        "ounce_memory_bytes{kind=\"limit\"} %lld\n",
        (long long)s->step_bytes, (long long)s->plan_bytes, (long long)s->sequence_bytes,
        (long long)s->peak_bytes, (long long)s->limit_bytes);
}

/* Of the process; 0: unknown. */
static double resident_bytes(void)
{
    long long pages = 0, all = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL) {
        if (fscanf(file, "%lld %lld", &all, &pages) != 2) {
            pages = 0;
        }
        (void)fclose(file);
    }
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

SV_HANDLER(sv_metrics)
{
    struct sv_text out = {0};
    struct oz_service_stats stats = {.struct_size = sizeof stats};
    int64_t bytes = 0, jobs = 0;
    (void)match;
    bool ready = atomic_load(&app->stage) == SV_READY;
    head(&out, "ounce_info", "gauge", "The version that runs.");
    sv_text_printf(&out, "ounce_info{version=\"%s\"} 1\n", oz_version());
    value(&out, "ounce_ready", "gauge", "1: the model can be used.", ready ? 1 : 0);
    put_requests(app, &out);
    value(&out, "ounce_requests_pending", "gauge", "Requests under way.",
          sv_http_pending(app->http));
    value(&out, "ounce_resident_bytes", "gauge", "Resident memory of the process.",
          resident_bytes());
    sv_desk_kept(app->desk, &bytes, &jobs);
    value(&out, "ounce_results_bytes", "gauge", "Pictures that wait to be fetched.", (double)bytes);
    value(&out, "ounce_results_jobs", "gauge", "Jobs that have ended and are kept.", (double)jobs);
    if (ready && oz_service_stats_read(app->service, &stats, NULL) == OZ_OK) {
        stats.refused += sv_desk_refused(app->desk);
        put_service(&stats, &out);
        sv_text_add(&out, app->layers.data, app->layers.bytes);
    }
    sv_reply(x, 200, "text/plain; version=0.0.4", &out);
}
