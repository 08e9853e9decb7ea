/* The arithmetic of merging adapters: load/lora.h has the formula. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "load/lora.h"
#include "num/codec.h"

#define LANES OZ_LORA_LANES

static enum oz_status check_factor(const struct oz_lora *lora, const struct oz_lora_pair *p,
                                   const struct oz_tensor_view *t, int64_t row, const float *x,
                                   struct oz_error *err)
{
    for (int64_t c = 0; c < t->shape[1]; c++) {
        if (!isfinite(x[c])) {
            return OZ_FAIL(err, OZ_ERR_FORMAT,
                           "%s: the LoRA tensor %s is %s at [%" PRId64 ", %" PRId64
                           "]; the file is damaged, or its training failed.",
                           lora->files[p->file].path, t->name, isnan(x[c]) ? "NaN" : "infinite",
                           row, c);
        }
    }
    return OZ_OK;
}

static struct oz_weight plain_of(const struct oz_tensor_view *t)
{
    return oz_weight_plain(t->dtype, 1, t->shape[0], t->shape[1], (void *)(uintptr_t)t->data);
}

/* Rows of B as f32 [count, rank]. */
static enum oz_status decode_up(const struct oz_lora *lora, const struct oz_lora_pair *p,
                                const struct oz_lora_rows *r, struct oz_error *err)
{
    struct oz_weight w = plain_of(p->up);
    for (int64_t i = 0; i < r->count; i++) {
        float *to = r->up + i * p->rank;
        w.codec->decode(&w, 0, r->up_rows[i], 0, p->rank, to);
        OZ_TRY(check_factor(lora, p, p->up, r->up_rows[i], to, err));
    }
    return OZ_OK;
}

/* A as f32 [ceil(cols / LANES), rank, LANES], zeros behind the last column. */
static enum oz_status decode_down(const struct oz_lora *lora, const struct oz_lora_pair *p,
                                  const struct oz_lora_rows *r, struct oz_error *err)
{
    struct oz_weight w = plain_of(p->down);
    for (int64_t k = 0; k < p->rank; k++) {
        for (int64_t c = 0; c < r->cols; c += LANES) {
            float *to = r->down + c * p->rank + k * LANES;
            int64_t n = r->cols - c < LANES ? r->cols - c : LANES;
            memset(to, 0, LANES * sizeof *to);
            w.codec->decode(&w, 0, k, c, n, to);
            for (int64_t i = 0; i < n; i++) {
                if (!isfinite(to[i])) {
                    w.codec->decode(&w, 0, k, 0, r->cols, r->w[0]); /* lost with the load */
                    return check_factor(lora, p, p->down, k, r->w[0], err);
                }
            }
        }
    }
    return OZ_OK;
}

/* sum[0 .. LANES) = up . down, from the first element of the rank to its last. */
static void product(const float *up, const float *down, int64_t rank, float sum[LANES])
{
    float s[LANES] = {0};
    for (int64_t k = 0; k < rank; k++) {
        for (int i = 0; i < LANES; i++) {
            s[i] = s[i] + up[k] * down[k * LANES + i];
        }
    }
    memcpy(sum, s, sizeof s);
}

static uint32_t magnitude(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7FFFFFFFU;
}

/* w[0 .. n) += factor * sum. Returns the place of a value that was below the limit and is not any
 * more, or -1; magnitudes as bits are ordered like the values, NaN above infinity. */
static int64_t add_sum(float *w, const float sum[LANES], float factor, int64_t n, uint32_t limit)
{
    float before[LANES];
    uint32_t most = 0;
    memcpy(before, w, (size_t)n * sizeof *w);
    for (int64_t i = 0; i < n; i++) {
        w[i] = w[i] + factor * sum[i];
        most = magnitude(w[i]) > most ? magnitude(w[i]) : most;
    }
    for (int64_t i = 0; i < n && most >= limit; i++) {
        if (magnitude(w[i]) >= limit && magnitude(before[i]) < limit) {
            return i;
        }
    }
    return -1;
}

static enum oz_status fail_large(const struct oz_lora *lora, const struct oz_lora_pair *p,
                                 const struct oz_lora_rows *r, int64_t i, int64_t col,
                                 struct oz_error *err)
{
    return OZ_FAIL(err, OZ_ERR_FORMAT,
                   "%s: merging %s into %s gives %g at [%" PRId64 ", %" PRId64
                   "], which %s cannot hold; the scale is %g (alpha %g, rank %" PRId64
                   "): give a smaller one, --lora FILE:scale.",
                   lora->files[p->file].path, p->up->name, lora->table->rows[r->row].module,
                   (double)r->w[i][col], r->up_rows[i], col, r->stored_name,
                   lora->files[p->file].scale, p->alpha, p->rank);
}

static enum oz_status merge_pair(const struct oz_lora *lora, const struct oz_lora_pair *p,
                                 const struct oz_lora_rows *r, struct oz_error *err)
{
    uint32_t limit = magnitude(r->limit);
    OZ_TRY(decode_up(lora, p, r, err));
    OZ_TRY(decode_down(lora, p, r, err));
    for (int64_t c = 0; c < r->cols; c += LANES) { /* A's part stays in the first cache */
        int64_t n = r->cols - c < LANES ? r->cols - c : LANES;
        for (int64_t i = 0; i < r->count; i++) {
            float sum[LANES];
            product(r->up + i * p->rank, r->down + c * p->rank, p->rank, sum);
            int64_t at = add_sum(r->w[i] + c, sum, p->factor, n, limit);
            if (at >= 0) {
                return fail_large(lora, p, r, i, c + at, err);
            }
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
