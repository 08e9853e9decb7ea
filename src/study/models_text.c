/* models_text.c: a comparison of models as a table for people. */
#include <math.h>
#include <string.h>

#include "study/models.h"

#define MIB (1024.0 * 1024.0)

static void or_dash(struct oz_buf *b, int width, int digits, double value)
{
    if (isfinite(value)) {
        oz_buf_printf(b, " %*.*f", width, digits, value);
    } else {
        oz_buf_printf(b, " %*s", width, "-");
    }
}

static void print_costs(struct oz_buf *b, const struct oz_model_result *r)
{
    or_dash(b, 8, 1, (double)r->bytes.transformer / MIB);
    or_dash(b, 8, 1, r->bytes.peak > 0 ? (double)r->bytes.peak / MIB : (double)NAN);
    or_dash(b, 8, 0, 1e3 * r->total_s);
}

static void print_candidate(struct oz_buf *b, const struct oz_model_comparison *c,
                            const struct oz_model_result *r, int width, bool judged)
{
    struct oz_buf why;
    oz_buf_printf(b, "%-*s", width, r->asked.label);
    if (r->status != OZ_OK) {
        oz_buf_printf(b, "  FAILED: %s\n", r->error);
        return;
    }
    if (r->mean.metrics.identical) {
        oz_buf_printf(b, " %8s %8s %8s %8s %9s", "same", "-", "-", "-", "-");
    } else {
        struct oz_metrics worst = oz_distance_metrics(&r->pictures[r->worst].bytes, 255);
        or_dash(b, 8, 2, r->mean.metrics.psnr_db);
        or_dash(b, 8, 2, worst.psnr_db);
        or_dash(b, 8, 4, r->mean.ssim);
        or_dash(b, 8, 4, r->mean.metrics.relative_l2);
        or_dash(b, 9, 5, r->early.relative_l2);
    }
    print_costs(b, r);
    oz_buf_init(&why, OZ_ERROR_MESSAGE_BYTES);
    if (judged) {
        oz_buf_puts(b, oz_model_misses(c, r, &why) ? "  MISSED" : "  passes");
    }
    oz_buf_deinit(&why);
    if (r->identical > 0 && r->identical < c->args->task_count) {
        oz_buf_printf(b, "  (%d identical, not in the mean PSNR)", r->identical);
    }
    oz_buf_puts(b, "\n");
}

void oz_model_comparison_print(const struct oz_model_comparison *c, struct oz_buf *b)
{
    const struct oz_task *t = &c->tasks[0];
    const struct oz_model_limits *l = &c->args->limits;
    bool judged = l->min_psnr_db >= 0 || l->min_ssim >= 0 || l->min_cosine >= 0 ||
                  l->max_memory_ratio >= 0 || l->max_time_ratio >= 0 || l->different;
    int width = (int)sizeof "candidate" - 1;
    for (int32_t i = 0; i < c->args->count; i++) {
        int length = (int)strlen(c->candidates[i].asked.label);
        width = length > width ? length : width;
    }
    oz_buf_printf(b,
                  "%s: %d pictures of %dx%d, %d steps, true CFG scale %g, seeds from %llu; %s "
                  "(%s), %d threads\n\n",
                  c->model_name, c->args->task_count, t->width, t->height, t->steps, t->scale,
                  (unsigned long long)t->seed, c->f32_math ? "f32" : "bf16", c->tier, c->threads);
    oz_buf_printf(b, "%-*s %8s %8s %8s %8s %9s %8s %8s %8s\n", width, "candidate", "PSNR dB",
                  "least", "SSIM", "rel. L2", "5 steps", "DiT MiB", "peak", "ms");
    oz_buf_printf(b, "%-*s %8s %8s %8s %8s %9s", width, "reference", "", "", "", "", "");
    print_costs(b, &c->reference);
    oz_buf_puts(b, "\n");
    int32_t planned = 0, dispatched = 0;
    for (int32_t i = 0; i < c->args->count; i++) {
        const struct oz_model_result *r = &c->candidates[i];
        print_candidate(b, c, r, width, judged);
        dispatched += r->dispatched;
        planned += r->dispatched && oz_dispatch_agrees(&r->dispatch);
    }
    oz_buf_puts(b,
                "\nPSNR, SSIM, rel. L2: means over pictures of 8 bits. 5 steps: relative L2 of the "
                "latents after five.\nDiT: resident weights of the transformer. peak: MiB of the "
                "process. ms: median of a picture.\n");
    oz_buf_printf(b, "dispatch: every layer ran as planned in %d of %d candidates\n", planned,
                  dispatched);
    oz_guidance_print(b);
}
