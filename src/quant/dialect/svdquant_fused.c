/*
 * svdquant_fused.c: nunchaku's fused layers. Its to_qkv is q, k and v, one behind the other in the out
 * features, of one branch and one smoothing. All that goes by out features is stored in blocks of 128 of
 * them, block after block, so that a part's bytes lie together; what goes by input features is the same for
 * all parts.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "quant/dialect/dialect.h"

#define BLOCK 128
#define MOST_MEMBERS 4 /* of a fused layer */

/* How a tensor goes by the out features. */
enum cut { CUT_ALL, CUT_FIRST, CUT_LAST }; /* not at all; its first or last dim are out features */
static const struct {
    const char *suffix;
    enum cut cut;
} tensors[] = {
    {"qweight", CUT_FIRST},     {"wscales", CUT_LAST},           {"wcscales", CUT_FIRST},
    {"bias", CUT_FIRST},        {"proj_up", CUT_FIRST},          {"proj_down", CUT_ALL},
    {"smooth_factor", CUT_ALL}, {"smooth_factor_orig", CUT_ALL}, {"wtscale", CUT_ALL},
};
enum { TENSORS = sizeof tensors / sizeof *tensors };

struct fused {
    const struct oz_ckpt *ckpt;
    const char *name;
    const struct oz_layer *members[MOST_MEMBERS]; /* by place */
    int32_t count;
    int64_t rows; /* of all members */
};

enum { MOST_PARTS = TENSORS * MOST_MEMBERS, NAME_BYTES = 256 };

struct list {
    struct oz_ckpt_part parts[MOST_PARTS];
    char names[MOST_PARTS][NAME_BYTES];
    int64_t count;
};

static const struct oz_tensor_view *find(const struct fused *f, const char *suffix, int64_t *index)
{
    char name[OZ_CKPT_MAX_NAME_BYTES];
    int n = snprintf(name, sizeof name, "%s.%s", f->name, suffix);
    return n > 0 && (size_t)n < sizeof name ? oz_ckpt_find(f->ckpt, name, index) : NULL;
}

/* The layers of one fused group, asked for at its first member. */
static bool gather(struct fused *f, const struct oz_layer_table *table, int32_t first)
{
    const struct oz_layer *layer = &table->rows[first];
    if (layer->fused == NULL || layer->fused_index != 0 || !oz_stored_is_matrix(layer)) {
        return false;
    }
    *f = (struct fused){.ckpt = f->ckpt, .name = layer->fused};
    for (int32_t i = 0; i < table->count; i++) {
        const struct oz_layer *l = &table->rows[i];
        if (l->fused != NULL && strcmp(l->fused, layer->fused) == 0 && oz_stored_is_matrix(l) &&
            l->fused_index < MOST_MEMBERS && f->members[l->fused_index] == NULL) {
            f->members[l->fused_index] = l;
            f->rows += l->shape[0];
            f->count++;
        }
    }
    for (int32_t i = 0; i < f->count; i++) {
        if (f->members[i] == NULL) {
            return false;
        }
    }
    return find(f, "qweight", NULL) != NULL;
}

static enum oz_status check(const struct fused *f, const struct oz_tensor_view *t, enum cut cut,
                            struct oz_error *err)
{
    int64_t have = t->rank > 0 ? t->shape[cut == CUT_LAST ? t->rank - 1 : 0] : 1;
    if (t->codec != NULL || have != f->rows) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "Tensor %s is of %" PRId64 " out features; the layers that are fused in it "
                       "have %" PRId64 ".",
                       oz_tensor_file_name(t), have, f->rows);
    }
    for (int32_t i = 0; i < f->count; i++) {
        if (f->members[i]->shape[0] % BLOCK != 0) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "%s has %" PRId64 " out features; out of fused SVDQuant layers those "
                           "are read that have a multiple of %d.",
                           f->members[i]->module, f->members[i]->shape[0], BLOCK);
        }
    }
    return OZ_OK;
}

static enum oz_status divide(const struct fused *f, int which, struct list *out,
                             struct oz_error *err)
{
    int64_t index = 0;
    int64_t row = 0;
    enum cut cut = tensors[which].cut;
    const struct oz_tensor_view *t = find(f, tensors[which].suffix, &index);
    if (t == NULL) {
        return OZ_OK;
    }
    if (cut != CUT_ALL) {
        OZ_TRY(check(f, t, cut, err));
    }
    for (int32_t i = 0; i < f->count; i++) {
        const struct oz_layer *l = f->members[i];
        struct oz_ckpt_part *p = &out->parts[out->count];
        char *name = out->names[out->count++];
        int n = snprintf(name, NAME_BYTES, "%s.%s", l->module, tensors[which].suffix);
        if (n < 0 || n >= NAME_BYTES) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED, "The name of %s is too long.", l->module);
        }
        *p = (struct oz_ckpt_part){
            .tensor = index, .name = name, .bytes = t->bytes, .rank = t->rank};
        memcpy(p->shape, t->shape, sizeof p->shape);
        if (cut != CUT_ALL) {
            int64_t line =
                t->bytes / f->rows; /* bytes of an out feature, on average of its block */
            p->shape[cut == CUT_LAST ? t->rank - 1 : 0] = l->shape[0];
            p->first_byte = row * line;
            p->bytes = l->shape[0] * line;
            row += l->shape[0];
        }
    }
    return OZ_OK;
}

enum oz_status oz_svdquant_divide(struct oz_ckpt *ckpt, const struct oz_layer_table *table,
                                  struct oz_error *err)
{
    struct fused f = {.ckpt = ckpt};
    if (!oz_svdquant_is_nunchaku(ckpt)) {
        return OZ_OK;
    }
    for (int32_t i = 0; i < table->count; i++) {
        struct list list = {.count = 0};
        if (!gather(&f, table, i)) {
            continue;
        }
        for (int k = 0; k < TENSORS; k++) {
            OZ_TRY(divide(&f, k, &list, err));
        }
        OZ_TRY(oz_ckpt_divide(ckpt, list.parts, list.count, err));
    }
    return OZ_OK;
}
