/* models_sum.c: what a variant's pictures come to, and whether that is enough. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "study/models.h"

/* ---- sums ---- */

/* The median of a time over the pictures that are done: the member at an offset in the picture. */
static double median_time(const struct oz_model_result *r, int32_t tasks, size_t offset)
{
    double *values = oz_alloc_zero((size_t)tasks + 1, sizeof *values);
    int32_t count = 0;
    for (int32_t i = 0; values != NULL && i < tasks; i++) {
        if (r->pictures[i].done) {
            values[count++] =
                *(const double *)(const void *)((const char *)&r->pictures[i] + offset);
        }
    }
    double m = values != NULL ? oz_median(values, count) : 0;
    oz_free(values);
    return m;
}

static struct oz_figures figures_of(const struct oz_model_picture *p)
{
    return (struct oz_figures){.metrics = oz_distance_metrics(&p->bytes, 255),
                               .ssim = p->ssim,
                               .ssim_uniform = p->ssim_uniform};
}

/* The sums of one picture onto those of the others. */
struct sums {
    struct oz_distance bytes, floats, prediction, early, latents, trajectory;
};

static void add_picture(struct sums *s, const struct oz_model_picture *p)
{
    oz_distance_add(&s->bytes, &p->bytes);
    oz_distance_add(&s->floats, &p->floats);
    oz_distance_add(&s->prediction, &p->prediction);
    oz_distance_add(&s->early, &p->early);
    oz_distance_add(&s->latents, &p->latents);
    oz_distance_add(&s->trajectory, &p->trajectory);
}

void oz_model_result_sum(struct oz_model_result *r, int32_t tasks)
{
    struct sums s = {0};
    double least = INFINITY;
    r->identical = r->worst = 0;
    r->mean = r->all = (struct oz_figures){0};
    r->ssim_float = 0;
    if (r->pictures == NULL) {
        return;
    }
    for (int32_t i = 0; i < tasks; i++) {
        const struct oz_model_picture *p = &r->pictures[i];
        if (!p->done) {
            continue;
        }
        struct oz_figures f = figures_of(p);
        add_picture(&s, p);
        oz_figures_add(&r->mean, &f);
        r->identical += f.metrics.identical;
        r->ssim_float += p->ssim_float;
        if (f.metrics.psnr_db < least) {
            least = f.metrics.psnr_db;
            r->worst = i;
        }
    }
    if (r->done > 0) {
        oz_figures_divide(&r->mean, r->done, r->done - r->identical);
        r->ssim_float /= r->done;
    }
    r->mean.metrics.identical = r->identical == r->done;
    r->all = r->mean;
    r->all.metrics = oz_distance_metrics(&s.bytes, 255);
    r->floats = oz_distance_metrics(&s.floats, 1);
    r->prediction = oz_distance_metrics(&s.prediction, 0);
    r->early = oz_distance_metrics(&s.early, 0);
    r->latents = oz_distance_metrics(&s.latents, 0);
    r->trajectory = oz_distance_metrics(&s.trajectory, 0);
    r->text_s = median_time(r, tasks, offsetof(struct oz_model_picture, text_s));
    r->denoise_s = median_time(r, tasks, offsetof(struct oz_model_picture, denoise_s));
    r->decode_s = median_time(r, tasks, offsetof(struct oz_model_picture, decode_s));
    r->total_s = r->text_s + r->denoise_s + r->decode_s;
}

/* ---- limits ---- */

static double ratio(double a, double b)
{
    return b > 0 ? a / b : (double)NAN;
}

/* Least values of pictures; identical ones pass. */
static bool misses_quality(const struct oz_model_limits *l, const struct oz_model_result *r,
                           struct oz_buf *why)
{
    const struct oz_figures *m = &r->mean;
    const char *name = r->asked.label;
    bool missed = false;
    if (m->metrics.identical) {
        return false;
    }
    if (l->min_psnr_db >= 0 && !(m->metrics.psnr_db >= l->min_psnr_db)) {
        missed = true;
        oz_buf_printf(why, " %s has a PSNR of %.2f dB, less than %g.", name, m->metrics.psnr_db,
                      l->min_psnr_db);
    }
    if (l->min_ssim >= 0 && !(m->ssim >= l->min_ssim)) {
        missed = true;
        oz_buf_printf(why, " %s has an SSIM of %.4f, less than %g.", name, m->ssim, l->min_ssim);
    }
    if (l->min_cosine >= 0 && !(m->metrics.cosine_similarity >= l->min_cosine)) {
        missed = true;
        oz_buf_printf(why, " %s has a cosine similarity of %.6f, less than %g.", name,
                      m->metrics.cosine_similarity, l->min_cosine);
    }
    return missed;
}

static bool misses_ratio(double limit, double value, const char *name, const char *what,
                         struct oz_buf *why)
{
    if (limit < 0 || value <= limit) {
        return false;
    }
    oz_buf_printf(why, " %s takes %.3f times the reference's %s, more than %g.", name, value, what,
                  limit);
    return true;
}

/* A candidate that is the reference under another name proves nothing. */
static bool is_equal(const struct oz_model_comparison *c, const struct oz_model_result *r)
{
    for (int32_t i = 0; i < c->args->task_count; i++) {
        if (r->pictures[i].trajectory_hash != c->reference.pictures[i].trajectory_hash) {
            return false;
        }
    }
    return true;
}

bool oz_model_misses(const struct oz_model_comparison *c, const struct oz_model_result *r,
                     struct oz_buf *why)
{
    const struct oz_model_limits *l = &c->args->limits;
    const char *name = r->asked.label;
    if (r->status != OZ_OK || r->done < c->args->task_count) {
        return false; /* said otherwise */
    }
    bool missed = misses_quality(l, r, why);
    missed |= misses_ratio(l->max_memory_ratio,
                           ratio((double)r->bytes.peak, (double)c->reference.bytes.peak), name,
                           "peak memory", why);
    missed |=
        misses_ratio(l->max_time_ratio, ratio(r->total_s, c->reference.total_s), name, "time", why);
    if (l->different && is_equal(c, r)) {
        missed = true;
        oz_buf_printf(
            why,
            " %s has the reference's latents in every step of every picture, bit for bit: "
            "it computes nothing else.",
            name);
    }
    for (int i = 0; r->dispatched && i < OZ_DISPATCH_FAULTS; i++) {
        const struct oz_dispatch_list *f = &r->dispatch.faults[i];
        if (f->count > 0) {
            missed = true;
            oz_buf_printf(why, " %s did not run as planned: %d layers are %s, %s first.", name,
                          f->count, oz_dispatch_fault_name((enum oz_dispatch_fault)i), f->names[0]);
        }
    }
    return missed;
}

enum oz_status oz_model_comparison_judge(const struct oz_model_comparison *c, struct oz_error *err)
{
    struct oz_buf why;
    enum oz_status status = OZ_OK;
    int32_t failed = 0, missed = 0;
    oz_buf_init(&why, OZ_ERROR_MESSAGE_BYTES);
    for (int32_t i = 0; i < c->args->count; i++) {
        const struct oz_model_result *r = &c->candidates[i];
        if (r->status != OZ_OK) {
            status = status == OZ_OK ? r->status : status;
            oz_buf_printf(&why, " %s: %.600s", r->asked.label, r->error);
            failed++;
        }
    }
    if (failed > 0) {
        status = OZ_FAIL(err, status, "%d of %d candidates failed:%s", failed, c->args->count,
                         oz_buf_text(&why));
        oz_buf_deinit(&why);
        return status;
    }
    for (int32_t i = 0; i < c->args->count; i++) {
        missed += oz_model_misses(c, &c->candidates[i], &why);
    }
    if (missed > 0) {
        status = OZ_FAIL(err, OZ_ERR_THRESHOLD, "%d of %d candidates missed a threshold:%s", missed,
                         c->args->count, oz_buf_text(&why));
    }
    oz_buf_deinit(&why);
    return status;
}
