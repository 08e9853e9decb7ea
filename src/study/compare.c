#include "study/compare.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "study/ssim.h"

#define MAX_PIXELS ((uint64_t)1 << 28)
#define MAX_FILE_BYTES ((size_t)1 << 30)

/* ---- which pictures ---- */

struct names {
    char **items;
    int32_t count;
    int32_t capacity;
};

static void names_free(struct names *n)
{
    for (int32_t i = 0; i < n->count; i++) {
        oz_free(n->items[i]);
    }
    oz_free((void *)n->items);
    *n = (struct names){0};
}

static bool is_png(const char *name)
{
    static const char ending[] = ".png";
    size_t length = strlen(name);
    if (length <= sizeof ending - 1) {
        return false;
    }
    const char *end = name + length - (sizeof ending - 1);
    for (size_t i = 0; i < sizeof ending - 1; i++) {
        char c = end[i] >= 'A' && end[i] <= 'Z' ? (char)(end[i] - 'A' + 'a') : end[i];
        if (c != ending[i]) {
            return false;
        }
    }
    return true;
}

static enum oz_status add_name(void *ctx, const char *relative, enum oz_entry_kind kind,
                               int64_t bytes, struct oz_error *err)
{
    struct names *n = ctx;
    (void)bytes;
    if (kind != OZ_ENTRY_FILE || strchr(relative, '/') != NULL || !is_png(relative)) {
        return OZ_OK;
    }
    if (n->count == n->capacity) {
        int32_t capacity = n->capacity < 64 ? 64 : 2 * n->capacity;
        void *more = oz_realloc((void *)n->items, (size_t)capacity * sizeof *n->items);
        if (more == NULL) {
            return OZ_FAIL_NOMEM(err, "the names of pictures");
        }
        n->items = more;
        n->capacity = capacity;
    }
    n->items[n->count] = oz_strdup(relative);
    if (n->items[n->count] == NULL) {
        return OZ_FAIL_NOMEM(err, "the names of pictures");
    }
    n->count++;
    return OZ_OK;
}

static enum oz_status read_names(const char *folder, struct names *names, struct oz_error *err)
{
    OZ_TRY(oz_folder_walk(folder, add_name, names, err));
    if (names->count == 0) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%s holds no .png file.", folder);
    }
    return OZ_OK;
}

/* Both lists are in the order of the walk. */
static enum oz_status same_names(const char *reference, const struct names *a,
                                 const char *candidate, const struct names *b, struct oz_error *err)
{
    int32_t most = a->count > b->count ? a->count : b->count;
    for (int32_t i = 0; i < most; i++) {
        int order = i >= a->count ? 1 : i >= b->count ? -1 : strcmp(a->items[i], b->items[i]);
        if (order != 0) {
            return OZ_FAIL(
                err, OZ_ERR_ARG,
                "%s holds %s, which %s has not; two folders are compared file by file, by "
                "their names.",
                order < 0 ? reference : candidate, order < 0 ? a->items[i] : b->items[i],
                order < 0 ? candidate : reference);
        }
    }
    return OZ_OK;
}

/* Paths of all pictures into the candidates. */
static enum oz_status name_pictures(struct oz_comparison *c, const struct names *names,
                                    struct oz_error *err)
{
    c->pictures = names != NULL ? names->count : 1;
    for (int32_t i = 0; i < c->count; i++) {
        struct oz_compared_candidate *x = &c->candidates[i];
        x->path = c->paths[i];
        x->pictures = oz_alloc_zero((size_t)c->pictures, sizeof *x->pictures);
        for (int32_t j = 0; x->pictures != NULL && j < c->pictures; j++) {
            struct oz_compared_picture *p = &x->pictures[j];
            p->reference = names != NULL ? oz_file_join(c->reference, names->items[j])
                                         : oz_strdup(c->reference);
            p->candidate =
                names != NULL ? oz_file_join(x->path, names->items[j]) : oz_strdup(x->path);
        }
        for (int32_t j = 0; j < c->pictures; j++) {
            if (x->pictures == NULL || x->pictures[j].reference == NULL ||
                x->pictures[j].candidate == NULL) {
                return OZ_FAIL_NOMEM(err, "the names of pictures");
            }
        }
    }
    return OZ_OK;
}

static enum oz_status find_in_folders(struct oz_comparison *c, struct oz_error *err)
{
    struct names names = {0};
    enum oz_status status = read_names(c->reference, &names, err);
    for (int32_t i = 0; i < c->count && status == OZ_OK; i++) {
        struct names theirs = {0};
        status = read_names(c->paths[i], &theirs, err);
        if (status == OZ_OK) {
            status = same_names(c->reference, &names, c->paths[i], &theirs, err);
        }
        names_free(&theirs);
    }
    if (status == OZ_OK) {
        status = name_pictures(c, &names, err);
    }
    names_free(&names);
    return status;
}

static enum oz_status find_pictures(struct oz_comparison *c, struct oz_error *err)
{
    bool folders = oz_file_is_folder(c->reference);
    for (int32_t i = 0; i < c->count; i++) {
        if (oz_file_exists(c->paths[i]) && oz_file_is_folder(c->paths[i]) != folders) {
            return OZ_FAIL(err, OZ_ERR_ARG,
                           "%s is a %s, but the reference %s is a %s; both must be PNG files, or "
                           "both folders of them.",
                           c->paths[i], folders ? "file" : "folder", c->reference,
                           folders ? "folder" : "file");
        }
    }
    return folders ? find_in_folders(c, err) : name_pictures(c, NULL, err);
}

/* ---- figures ---- */

enum oz_status oz_picture_read(const char *path, struct oz_png *png, struct oz_error *err)
{
    char *data;
    size_t bytes;
    OZ_TRY(oz_file_read(path, MAX_FILE_BYTES, &data, &bytes, err));
    enum oz_status status = oz_png_decode(data, bytes, MAX_PIXELS, png, err);
    oz_free(data);
    if (status != OZ_OK) {
        return oz_error_prefix(err, status, "%s: ", path);
    }
    return OZ_OK;
}

static enum oz_status measure(const struct oz_png *a, const struct oz_png *b,
                              struct oz_compared_picture *p, struct oz_error *err)
{
    if (a->width != b->width || a->height != b->height) {
        return OZ_FAIL(
            err, OZ_ERR_ARG,
            "%s is %u x %u pixels, but the reference %s is %u x %u; only pictures of one "
            "size can be compared.",
            p->candidate, b->width, b->height, p->reference, a->width, a->height);
    }
    struct oz_pixels x = oz_pixels_rgb(a->rgb, a->height, a->width);
    struct oz_pixels y = oz_pixels_rgb(b->rgb, b->height, b->width);
    p->width = (int32_t)a->width;
    p->height = (int32_t)a->height;
    oz_distance_add_u8(&p->distance, a->rgb, b->rgb, (size_t)a->width * a->height * 3);
    p->figures.metrics = oz_distance_metrics(&p->distance, 255);
    OZ_TRY(oz_ssim(&x, &y, OZ_SSIM_GAUSSIAN, &p->figures.ssim, err));
    return oz_ssim(&x, &y, OZ_SSIM_UNIFORM, &p->figures.ssim_uniform, err);
}

/* Picture j of all candidates; the reference's is read once. */
static enum oz_status compare_picture(struct oz_comparison *c, int32_t j, struct oz_error *err)
{
    struct oz_png reference = {0};
    enum oz_status status =
        oz_picture_read(c->candidates[0].pictures[j].reference, &reference, err);
    for (int32_t i = 0; i < c->count && status == OZ_OK; i++) {
        struct oz_compared_picture *p = &c->candidates[i].pictures[j];
        struct oz_png candidate = {0};
        status = oz_picture_read(p->candidate, &candidate, err);
        if (status == OZ_OK) {
            status = measure(&reference, &candidate, p, err);
        }
        oz_png_deinit(&candidate);
    }
    oz_png_deinit(&reference);
    return status;
}

void oz_figures_add(struct oz_figures *sum, const struct oz_figures *f)
{
    sum->metrics.cosine_similarity += f->metrics.cosine_similarity;
    sum->metrics.mae += f->metrics.mae;
    sum->metrics.mse += f->metrics.mse;
    sum->metrics.rmse += f->metrics.rmse;
    sum->metrics.max_abs += f->metrics.max_abs;
    sum->metrics.l2 += f->metrics.l2;
    sum->metrics.relative_l2 += f->metrics.relative_l2;
    sum->metrics.psnr_db += f->metrics.identical ? 0 : f->metrics.psnr_db;
    sum->ssim += f->ssim;
    sum->ssim_uniform += f->ssim_uniform;
}

void oz_figures_divide(struct oz_figures *f, int32_t pictures, int32_t differing)
{
    double n = pictures;
    f->metrics.cosine_similarity /= n;
    f->metrics.mae /= n;
    f->metrics.mse /= n;
    f->metrics.rmse /= n;
    f->metrics.max_abs /= n;
    f->metrics.l2 /= n;
    f->metrics.relative_l2 /= n;
    f->metrics.psnr_db = differing > 0 ? f->metrics.psnr_db / differing : (double)INFINITY;
    f->ssim /= n;
    f->ssim_uniform /= n;
}

static void sum_up(struct oz_compared_candidate *x, int32_t pictures)
{
    struct oz_distance all = {0};
    for (int32_t j = 0; j < pictures; j++) {
        const struct oz_compared_picture *p = &x->pictures[j];
        x->identical += p->figures.metrics.identical;
        oz_distance_add(&all, &p->distance);
        oz_figures_add(&x->mean, &p->figures);
        if (p->figures.metrics.psnr_db < x->pictures[x->worst].figures.metrics.psnr_db) {
            x->worst = j;
        }
    }
    oz_figures_divide(&x->mean, pictures, pictures - x->identical);
    x->mean.metrics.identical = x->identical == pictures;
    x->all = x->mean;
    x->all.metrics = oz_distance_metrics(&all, 255);
}

/* ---- the whole ---- */

static enum oz_status fill(struct oz_comparison *c, const char *reference,
                           const char *const *candidates, int32_t count, struct oz_error *err)
{
    c->reference = oz_strdup(reference);
    c->paths = oz_alloc_zero((size_t)count, sizeof *c->paths);
    c->candidates = oz_alloc_zero((size_t)count, sizeof *c->candidates);
    if (c->reference == NULL || c->paths == NULL || c->candidates == NULL) {
        return OZ_FAIL_NOMEM(err, "a comparison");
    }
    c->count = count;
    for (int32_t i = 0; i < count; i++) {
        c->paths[i] = oz_strdup(candidates[i]);
        if (c->paths[i] == NULL) {
            return OZ_FAIL_NOMEM(err, "a comparison");
        }
    }
    OZ_TRY(find_pictures(c, err));
    for (int32_t j = 0; j < c->pictures; j++) {
        OZ_TRY(compare_picture(c, j, err));
    }
    for (int32_t i = 0; i < count; i++) {
        sum_up(&c->candidates[i], c->pictures);
    }
    return OZ_OK;
}

enum oz_status oz_comparison_open(struct oz_comparison **out, const char *reference,
                                  const char *const *candidates, int32_t count,
                                  struct oz_error *err)
{
    *out = NULL;
    struct oz_comparison *c = oz_alloc_zero(1, sizeof *c);
    if (c == NULL) {
        return OZ_FAIL_NOMEM(err, "a comparison");
    }
    enum oz_status status = fill(c, reference, candidates, count, err);
    if (status != OZ_OK) {
        oz_comparison_free(&c);
    }
    *out = c;
    return status;
}

void oz_comparison_free(struct oz_comparison **comparison)
{
    struct oz_comparison *c = *comparison;
    if (c == NULL) {
        return;
    }
    for (int32_t i = 0; i < c->count; i++) {
        struct oz_compared_candidate *x = &c->candidates[i];
        for (int32_t j = 0; x->pictures != NULL && j < c->pictures; j++) {
            oz_free(x->pictures[j].reference);
            oz_free(x->pictures[j].candidate);
        }
        oz_free(x->pictures);
        oz_free(c->paths[i]);
    }
    oz_free(c->candidates);
    oz_free((void *)c->paths);
    oz_free(c->reference);
    oz_free(c);
    *comparison = NULL;
}

/* ---- thresholds ---- */

static bool misses_psnr(const struct oz_compared_candidate *c, const struct oz_thresholds *t)
{
    return t->min_psnr_db >= 0 && !c->mean.metrics.identical &&
           !(c->mean.metrics.psnr_db >= t->min_psnr_db);
}

static bool misses_ssim(const struct oz_compared_candidate *c, const struct oz_thresholds *t)
{
    return t->min_ssim >= 0 && !c->mean.metrics.identical && !(c->mean.ssim >= t->min_ssim);
}

bool oz_candidate_passes(const struct oz_compared_candidate *c, const struct oz_thresholds *t)
{
    return !misses_psnr(c, t) && !misses_ssim(c, t);
}

enum oz_status oz_comparison_judge(const struct oz_comparison *c, const struct oz_thresholds *t,
                                   struct oz_error *err)
{
    struct oz_buf b;
    int32_t missed = 0;
    enum oz_status status = OZ_OK;
    oz_buf_init(&b, OZ_ERROR_MESSAGE_BYTES);
    for (int32_t i = 0; i < c->count; i++) {
        const struct oz_compared_candidate *x = &c->candidates[i];
        bool psnr = misses_psnr(x, t);
        bool ssim = misses_ssim(x, t);
        if (ssim && isnan(x->mean.ssim)) {
            const struct oz_compared_picture *p = &x->pictures[0];
            oz_buf_deinit(&b);
            return OZ_FAIL(err, OZ_ERR_ARG,
                           "SSIM has a window of 11 x 11 pixels and a picture is smaller (%s: %d x "
                           "%d); there is no SSIM to be at least %g.",
                           p->reference, p->width, p->height, t->min_ssim);
        }
        missed += psnr || ssim;
        if (psnr) {
            oz_buf_printf(&b, " %s has a PSNR of %.2f dB, less than %g.", x->path,
                          x->mean.metrics.psnr_db, t->min_psnr_db);
        }
        if (ssim) {
            oz_buf_printf(&b, " %s has an SSIM of %.4f, less than %g.", x->path, x->mean.ssim,
                          t->min_ssim);
        }
    }
    if (missed > 0) {
        status = OZ_FAIL(err, OZ_ERR_THRESHOLD, "%d of %d candidates missed a threshold:%s", missed,
                         c->count, oz_buf_text(&b));
    }
    oz_buf_deinit(&b);
    return status;
}
