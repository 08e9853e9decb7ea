/* job_view.c: a job as others see it: its state, and the JSON that says it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/words.h"
#include "desk.h"
#include "json.h"

const char *sv_format_type(int32_t format)
{
    return format == SV_FORMAT_JPEG   ? "image/jpeg"
           : format == SV_FORMAT_WEBP ? "image/webp"
                                      : "image/png";
}

const char *sv_format_name(int32_t format)
{
    return format == SV_FORMAT_JPEG ? "jpeg" : format == SV_FORMAT_WEBP ? "webp" : "png";
}

void sv_job_refresh(struct sv_desk *desk, struct sv_job *job)
{
    for (int i = 0; i < job->n; i++) {
        struct sv_picture *p = &job->pictures[i];
        struct oz_job_status now = {.struct_size = sizeof now};
        if (!p->ended && p->id != 0 &&
            oz_service_status(desk->service, p->id, &now, NULL) == OZ_OK) {
            p->now = now;
        }
    }
}

const struct sv_picture *sv_job_failure(const struct sv_job *job)
{
    for (int i = 0; i < job->n; i++) {
        if (job->pictures[i].ended && job->pictures[i].status != OZ_OK &&
            job->pictures[i].status != OZ_ERR_CANCELLED) {
            return &job->pictures[i];
        }
    }
    for (int i = 0; i < job->n; i++) {
        if (job->pictures[i].ended && job->pictures[i].status != OZ_OK) {
            return &job->pictures[i];
        }
    }
    return NULL;
}

const char *sv_picture_error(const struct sv_picture *picture)
{
    return picture->error != NULL ? picture->error : "Out of memory, even for the reason.";
}

const char *sv_job_status(const struct sv_job *job)
{
    if (job->ended) {
        const struct sv_picture *bad = sv_job_failure(job);
        return bad == NULL ? "done" : job->cancelled ? "cancelled" : "failed";
    }
    for (int i = 0; i < job->n; i++) {
        if (job->pictures[i].ended || job->pictures[i].now.state != OZ_JOB_QUEUED) {
            return "running";
        }
    }
    return "queued";
}

static const char *stage_of(const struct sv_picture *p)
{
    static const char *const names[] = {"",       "queued", "text",   "steps",
                                        "decode", "done",   "failed", "cancelled"};
    if (p->ended) {
        return p->status == OZ_OK ? "done" : p->status == OZ_ERR_CANCELLED ? "cancelled" : "failed";
    }
    /* Drawn, and not yet a file. */
    return p->now.state >= OZ_JOB_DONE ? "decode" : names[p->now.state];
}

static void describe_picture(const struct sv_job *job, int i, struct sv_text *out)
{
    const struct sv_picture *p = &job->pictures[i];
    sv_json_open(out, NULL, '{');
    sv_json_put_integer(out, "index", i);
    sv_json_put_string(out, "stage", stage_of(p));
    sv_json_put_integer(out, "position", p->ended ? 0 : p->now.position);
    sv_json_put_integer(out, "step", p->now.step);
    sv_json_put_integer(out, "steps", p->now.steps);
    sv_json_put_unsigned(out, "seed", p->now.seed);
    sv_json_put_integer(out, "preview", p->preview_number);
    if (p->ended && p->status != OZ_OK) {
        sv_json_put_string(out, "error", sv_picture_error(p));
    }
    sv_json_close(out, '}');
}

void sv_job_describe(struct sv_desk *desk, struct sv_job *job, struct sv_text *out,
                     const char *name)
{
    int64_t step = 0, steps = 0;
    int32_t position = 0;
    double left = 0;
    sv_job_refresh(desk, job);
    for (int i = 0; i < job->n; i++) {
        const struct sv_picture *p = &job->pictures[i];
        bool done = p->ended && p->status == OZ_OK;
        step += done ? p->now.steps : p->now.step;
        steps += p->now.steps;
        if (!p->ended) {
            position = p->now.position > position ? p->now.position : position;
            left = p->now.seconds_left < 0 || left < 0 ? -1 : fmax(left, p->now.seconds_left);
        }
    }
    sv_json_open(out, name, '{');
    sv_json_put_string(out, "id", job->id);
    sv_json_put_string(out, "object", "job");
    sv_json_put_string(out, "status", sv_job_status(job));
    sv_json_put_integer(out, "created", (int64_t)job->created);
    sv_json_put_string(out, "user", job->ask.user);
    sv_json_put_integer(out, "n", job->n);
    char size[32];
    (void)snprintf(size, sizeof size, "%dx%d", (int)job->pictures[0].now.width,
                   (int)job->pictures[0].now.height);
    sv_json_put_string(out, "size", size);
    sv_json_put_string(out, "output_format", sv_format_name(job->ask.format));
    sv_json_put_integer(out, "position", position);
    sv_json_put_integer(out, "step", step);
    sv_json_put_integer(out, "steps", steps);
    sv_json_put_number(out, "progress", steps > 0 ? (double)step / (double)steps : 0);
    sv_json_put_number(out, "seconds_left", job->ended ? 0 : left < 0 ? (double)NAN : left);
    sv_json_open(out, "pictures", '[');
    for (int i = 0; i < job->n; i++) {
        describe_picture(job, i, out);
    }
    sv_json_close(out, ']');
    if (job->ended && job->keep) {
        double expires = desk->options.result_ttl - (words_seconds() - job->ended_s);
        sv_json_put_integer(out, "expires", (int64_t)time(NULL) + (int64_t)expires);
    }
    sv_json_close(out, '}');
}
