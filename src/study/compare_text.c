/* compare_text.c: a comparison for people, and as JSON. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/unicode.h"
#include "study/compare.h"

/* What vLLM-Omni's comparison recommends, good and strict where it says so; 0: it does not. */
static const struct {
    const char *key, *name, *relation;
    double recommended, good, strict;
} guidance[] = {
    {"psnr_db", "PSNR", ">=", 20, 25, 30},
    {"mae", "MAE", "<=", 12, 6, 3},
    {"cosine_similarity", "cosine", ">=", 0.98, 0.995, 0},
    {"relative_l2", "relative L2", "<=", 0.20, 0.08, 0},
};
enum { GUIDANCE = sizeof guidance / sizeof *guidance };

/* ---- for people ---- */

void oz_guidance_print(struct oz_buf *b)
{
    oz_buf_puts(b, "recommended (good, strict):");
    for (int i = 0; i < GUIDANCE; i++) {
        oz_buf_printf(b, "%s %s %s %g (%g", i > 0 ? ";" : "", guidance[i].name,
                      guidance[i].relation, guidance[i].recommended, guidance[i].good);
        if (guidance[i].strict > 0) {
            oz_buf_printf(b, ", %g", guidance[i].strict);
        }
        oz_buf_puts(b, ")");
    }
    oz_buf_puts(b, "\n");
}

static void print_or_dash(struct oz_buf *b, int width, int digits, double value)
{
    if (isfinite(value)) {
        oz_buf_printf(b, " %*.*f", width, digits, value);
    } else {
        oz_buf_printf(b, " %*s", width, "-");
    }
}

static void print_row(struct oz_buf *b, int width, const char *name, const struct oz_figures *f,
                      double least)
{
    oz_buf_printf(b, "%-*s", width, name);
    if (f->metrics.identical) {
        oz_buf_puts(b, "  identical");
        return;
    }
    print_or_dash(b, 8, 2, f->metrics.psnr_db);
    print_or_dash(b, 8, 2, least);
    print_or_dash(b, 8, 4, f->ssim);
    print_or_dash(b, 8, 3, f->metrics.mae);
    print_or_dash(b, 8, 4, f->metrics.relative_l2);
    print_or_dash(b, 8, 5, f->metrics.cosine_similarity);
}

void oz_comparison_print(const struct oz_comparison *c, const struct oz_thresholds *t,
                         struct oz_buf *b)
{
    int width = (int)sizeof "candidate" - 1;
    bool judged = t->min_psnr_db >= 0 || t->min_ssim >= 0;
    for (int32_t i = 0; i < c->count; i++) {
        int length = (int)strlen(c->paths[i]);
        width = length > width ? length : width;
    }
    const struct oz_compared_picture *first = &c->candidates[0].pictures[0];
    if (c->pictures == 1) {
        oz_buf_printf(b, "reference: %s, %d x %d\n\n", c->reference, first->width, first->height);
    } else {
        oz_buf_printf(b, "reference: %s, %d pictures; means over them\n\n", c->reference,
                      c->pictures);
    }
    oz_buf_printf(b, "%-*s  PSNR dB    least     SSIM      MAE  rel. L2   cosine\n", width,
                  "candidate");
    for (int32_t i = 0; i < c->count; i++) {
        const struct oz_compared_candidate *x = &c->candidates[i];
        const struct oz_compared_picture *worst = &x->pictures[x->worst];
        print_row(b, width, x->path, &x->mean, worst->figures.metrics.psnr_db);
        if (x->identical > 0 && x->identical < c->pictures) {
            oz_buf_printf(b, "  (%d identical, not in the mean PSNR)", x->identical);
        }
        if (judged) {
            oz_buf_puts(b, oz_candidate_passes(x, t) ? "  passes" : "  MISSED");
        }
        oz_buf_puts(b, "\n");
    }
    oz_buf_puts(b, "\n");
    oz_guidance_print(b);
}

/* ---- JSON ---- */

void oz_study_json_number(struct oz_buf *b, const char *key, double value)
{
    oz_buf_printf(b, "\"%s\": ", key);
    oz_buf_number(b, value); /* null for what is not finite */
}

char *oz_study_utf8(struct oz_buf *b, const char *text)
{
    size_t bytes = strlen(text);
    size_t at;
    char *copy = oz_strdup(text);
    if (copy == NULL) {
        b->status = OZ_ERR_NOMEM;
        return NULL;
    }
    while (!oz_utf8_valid(copy, bytes, &at)) {
        copy[at] = '?';
    }
    return copy;
}

/* A path need not be UTF-8, JSON must. */
void oz_study_json_text(struct oz_buf *b, const char *path)
{
    char *text = oz_study_utf8(b, path);
    if (text != NULL) {
        oz_buf_json(b, text);
    }
    oz_free(text);
}

static void put_metrics(struct oz_buf *b, const struct oz_metrics *m)
{
    oz_buf_printf(b, "{\"identical\": %s", m->identical ? "true" : "false");
    const struct {
        const char *key;
        double value;
    } members[] = {
        {"cosine_similarity", m->cosine_similarity},
        {"mae", m->mae},
        {"mse", m->mse},
        {"rmse", m->rmse},
        {"max_abs", m->max_abs},
        {"l2", m->l2},
        {"relative_l2", m->relative_l2},
        {"psnr_db", m->psnr_db},
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        oz_buf_puts(b, ", ");
        oz_study_json_number(b, members[i].key, members[i].value);
    }
}

void oz_metrics_json(struct oz_buf *b, const struct oz_metrics *m)
{
    put_metrics(b, m);
    oz_buf_puts(b, "}");
}

void oz_figures_json(struct oz_buf *b, const struct oz_figures *f)
{
    put_metrics(b, &f->metrics);
    oz_buf_puts(b, ", ");
    oz_study_json_number(b, "ssim", f->ssim);
    oz_buf_puts(b, ", ");
    oz_study_json_number(b, "ssim_uniform", f->ssim_uniform);
    oz_buf_puts(b, "}");
}

void oz_guidance_json(struct oz_buf *b)
{
    for (int i = 0; i < GUIDANCE; i++) {
        oz_buf_printf(b, "%s\"%s\": {\"relation\": \"%s\", ", i > 0 ? ", " : "", guidance[i].key,
                      guidance[i].relation);
        oz_study_json_number(b, "recommended", guidance[i].recommended);
        oz_buf_puts(b, ", ");
        oz_study_json_number(b, "good", guidance[i].good);
        if (guidance[i].strict > 0) {
            oz_buf_puts(b, ", ");
            oz_study_json_number(b, "strict", guidance[i].strict);
        }
        oz_buf_puts(b, "}");
    }
}

static void put_guidance(struct oz_buf *b)
{
    oz_buf_puts(b, " \"metric_guidance\": {");
    oz_guidance_json(b);
    oz_buf_puts(b, "},\n");
}

static void put_thresholds(struct oz_buf *b, const struct oz_thresholds *t)
{
    oz_buf_puts(b, " \"thresholds\": {");
    oz_study_json_number(b, "min_psnr_db", t->min_psnr_db >= 0 ? t->min_psnr_db : (double)NAN);
    oz_buf_puts(b, ", ");
    oz_study_json_number(b, "min_ssim", t->min_ssim >= 0 ? t->min_ssim : (double)NAN);
    oz_buf_puts(b, "},\n");
}

static void put_picture(struct oz_buf *b, const struct oz_compared_picture *p)
{
    oz_buf_puts(b, "{\"reference\": ");
    oz_study_json_text(b, p->reference);
    oz_buf_puts(b, ", \"candidate\": ");
    oz_study_json_text(b, p->candidate);
    oz_buf_printf(b, ", \"width\": %d, \"height\": %d, \"metrics\": ", p->width, p->height);
    oz_figures_json(b, &p->figures);
    oz_buf_puts(b, "}");
}

static void put_candidate(struct oz_buf *b, const struct oz_comparison *c,
                          const struct oz_compared_candidate *x, const struct oz_thresholds *t)
{
    int32_t middle = c->pictures / 2;
    oz_buf_puts(b, "  {\"candidate\": ");
    oz_study_json_text(b, x->path);
    oz_buf_printf(b, ", \"identical\": %s, \"num_identical\": %d, \"passes\": %s,\n",
                  x->mean.metrics.identical ? "true" : "false", x->identical,
                  oz_candidate_passes(x, t) ? "true" : "false");
    oz_buf_printf(
        b, "   \"output_metrics\": {\"num_images\": %d,\n    \"image0_metrics\": ", c->pictures);
    oz_figures_json(b, &x->pictures[0].figures);
    oz_buf_printf(b, ",\n    \"mid_image_index\": %d, \"mid_image_metrics\": ", middle);
    oz_figures_json(b, &x->pictures[middle].figures);
    oz_buf_puts(b, ",\n    \"all_images_metrics\": ");
    oz_figures_json(b, &x->all);
    oz_buf_puts(b, ",\n    \"mean_metrics\": ");
    oz_figures_json(b, &x->mean);
    oz_buf_printf(b, ",\n    \"worst_image_index\": %d},\n   \"images\": [", x->worst);
    for (int32_t j = 0; j < c->pictures; j++) {
        oz_buf_puts(b, j > 0 ? ",\n    " : "\n    ");
        put_picture(b, &x->pictures[j]);
    }
    oz_buf_puts(b, "]}");
}

void oz_comparison_print_json(const struct oz_comparison *c, const struct oz_thresholds *t,
                              struct oz_buf *b)
{
    oz_buf_puts(b, "{\"document\": \"comparison\", \"reference\": ");
    oz_study_json_text(b, c->reference);
    oz_buf_puts(b, ",\n");
    put_guidance(b);
    put_thresholds(b, t);
    oz_buf_puts(b, " \"candidates\": [");
    for (int32_t i = 0; i < c->count; i++) {
        oz_buf_puts(b, i > 0 ? ",\n" : "\n");
        put_candidate(b, c, &c->candidates[i], t);
    }
    oz_buf_puts(b, "\n]}\n");
}
