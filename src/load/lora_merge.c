/* The arithmetic of merging adapters: load/lora.h has the formula. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "load/lora.h"
#include "num/codec.h"

#define TILE 512 /* columns whose sums stay in the first cache */

/* Rows of a factor in f32; `rows` NULL: 0, 1, ... */
static enum oz_status decode_rows(const struct oz_lora *lora, const struct oz_lora_pair *p,
                                  const struct oz_tensor_view *t, const int64_t *rows,
                                  int64_t count, float *dst, struct oz_error *err)
{
    int64_t cols = t->shape[1];
    struct oz_weight w =
        oz_weight_plain(t->dtype, 1, t->shape[0], cols, (void *)(uintptr_t)t->data);
    for (int64_t i = 0; i < count; i++) {
        int64_t row = rows != NULL ? rows[i] : i;
        float *to = dst + i * cols;
        w.codec->decode(&w, 0, row, 0, cols, to);
        for (int64_t c = 0; c < cols; c++) {
            if (!isfinite(to[c])) {
                return OZ_FAIL(err, OZ_ERR_FORMAT,
                               "%s: the LoRA tensor %s is %s at [%" PRId64 ", %" PRId64
                               "]; the file is damaged, or its training failed.",
                               lora->files[p->file].path, t->name,
                               isnan(to[c]) ? "NaN" : "infinite", row, c);
            }
        }
    }
    return OZ_OK;
}

/* w[0 .. n) += factor * up . down[:, 0 .. n), the sum in the order of the rank. */
static void add_product(float *w, const float *up, const float *down, int64_t rank, int64_t stride,
                        int64_t n, float factor)
{
    float sum[TILE] = {0};
    int64_t k = 0;
    for (; k + 4 <= rank; k += 4) { /* four at once: fewer passes over the sums, the same order */
        const float *d = down + k * stride;
        float u0 = up[k];
        float u1 = up[k + 1];
        float u2 = up[k + 2];
        float u3 = up[k + 3];
        for (int64_t c = 0; c < n; c++) {
            float s = sum[c] + u0 * d[c];
            s = s + u1 * d[c + stride];
            s = s + u2 * d[c + 2 * stride];
            sum[c] = s + u3 * d[c + 3 * stride];
        }
    }
    for (; k < rank; k++) {
        const float *d = down + k * stride;
        for (int64_t c = 0; c < n; c++) {
            sum[c] = sum[c] + up[k] * d[c];
        }
    }
    for (int64_t c = 0; c < n; c++) {
        w[c] = w[c] + factor * sum[c];
    }
}

static bool all_below(const float *w, int64_t n, float limit)
{
    float largest = 0;
    for (int64_t c = 0; c < n; c++) {
        float a = fabsf(w[c]);
        largest = a < largest ? largest : a; /* NaN stays, too */
        if (!(largest < limit)) {
            return false;
        }
    }
    return true;
}

/* A value that does not fit, where the weight did before. The pair is the first that makes it so. */
static enum oz_status check_row(const struct oz_lora *lora, const struct oz_lora_pair *p,
                                const struct oz_lora_rows *r, int64_t i, int64_t col, int64_t n,
                                const float *before, struct oz_error *err)
{
    const float *w = r->w[i] + col;
    if (all_below(w, n, r->limit)) {
        return OZ_OK;
    }
    for (int64_t c = 0; c < n; c++) {
        if (fabsf(before[c]) < r->limit && !(fabsf(w[c]) < r->limit)) {
            return OZ_FAIL(err, OZ_ERR_FORMAT,
                           "%s: merging %s into %s gives %g at [%" PRId64 ", %" PRId64
                           "], which %s cannot hold; the scale is %g (alpha %g, rank %" PRId64
                           "): give a smaller one, --lora FILE:scale.",
                           lora->files[p->file].path, p->up->name, lora->table->rows[r->row].module,
                           (double)w[c], r->up_rows[i], col + c, r->stored_name,
                           lora->files[p->file].scale, p->alpha, p->rank);
        }
    }
    return OZ_OK; /* the checkpoint's own NaN or infinity */
}

static enum oz_status merge_pair(const struct oz_lora *lora, const struct oz_lora_pair *p,
                                 const struct oz_lora_rows *r, struct oz_error *err)
{
    float before[TILE];
    OZ_TRY(decode_rows(lora, p, p->down, NULL, p->rank, r->down, err));
    OZ_TRY(decode_rows(lora, p, p->up, r->up_rows, r->count, r->up, err));
    for (int64_t c = 0; c < r->cols; c += TILE) {
        int64_t n = r->cols - c < TILE ? r->cols - c : TILE;
        for (int64_t i = 0; i < r->count; i++) {
            memcpy(before, r->w[i] + c, (size_t)n * sizeof *before);
            add_product(r->w[i] + c, r->up + i * p->rank, r->down + c, p->rank, r->cols, n,
                        p->factor);
            OZ_TRY(check_row(lora, p, r, i, c, n, before, err));
        }
    }
    return OZ_OK;
}

enum oz_status oz_lora_merge(const struct oz_lora *lora, const struct oz_lora_rows *r,
                             struct oz_error *err)
{
    for (int32_t i = lora->first[r->row]; i >= 0; i = lora->pairs[i].next) {
        OZ_TRY(merge_pair(lora, &lora->pairs[i], r, err));
    }
    return OZ_OK;
}
