/*
 * gpt_oss.c: MXFP4 of gpt-oss: experts alone, "<name>_blocks" U8 [E, rows, cols / 32, 16], two codes in a
 * byte with the first one low, and "<name>_scales" U8 [E, rows, cols / 32]. A model without experts has
 * no place for them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "quant/dialect/dialect.h"

#define GROUP 32

static const struct oz_tensor_view *find_behind(const struct oz_dialect_reader *r,
                                                const struct oz_layer *layer, const char *ending,
                                                int64_t *index)
{
    char name[OZ_CKPT_MAX_NAME_BYTES + 16];
    (void)snprintf(name, sizeof name, "%s%s", layer->name, ending);
    return oz_ckpt_find(r->ckpt, name, index);
}

bool oz_gpt_oss_is(const struct oz_ckpt *ckpt)
{
    for (int64_t i = 0; i < oz_ckpt_count(ckpt); i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(ckpt, i);
        size_t n = strlen(t->name);
        if (n > 7 && strcmp(t->name + n - 7, "_blocks") == 0 && t->dtype == OZ_DTYPE_U8) {
            return true;
        }
    }
    return false;
}

static enum oz_status take(const struct oz_dialect_reader *r, int32_t row, enum oz_plane plane,
                           const char *ending, int64_t bytes_of_group)
{
    const struct oz_layer *layer = &r->table->rows[row];
    int64_t index;
    const struct oz_tensor_view *t = find_behind(r, layer, ending, &index);
    int64_t groups = layer->shape[2] / GROUP;
    bool shape = t != NULL && t->dtype == OZ_DTYPE_U8 && t->rank >= 3 &&
                 t->shape[0] == layer->shape[0] && t->shape[1] == layer->shape[1] &&
                 t->elements == layer->shape[0] * layer->shape[1] * groups * bytes_of_group;
    if (!shape || layer->shape[2] % GROUP != 0) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s: the tensor %s%s is missing, or is no U8 of %" PRId64 " experts of "
                       "[%" PRId64 ", %" PRId64 "] in groups of %d.",
                       r->path, layer->name, ending, layer->shape[0], layer->shape[1],
                       layer->shape[2], GROUP);
    }
    r->out->weights[row].planes[plane].tensor = t;
    r->out->weights[row].planes[plane].index = index;
    return OZ_OK;
}

enum oz_status oz_gpt_oss_read(const struct oz_dialect_reader *r)
{
    r->out->method = "gpt_oss_mxfp4";
    for (int32_t i = 0; i < r->table->count; i++) {
        const struct oz_layer *layer = &r->table->rows[i];
        if (layer->kind != OZ_LAYER_EXPERTS || layer->rank != 3 ||
            find_behind(r, layer, "_blocks", NULL) == NULL) {
            continue;
        }
        OZ_TRY(take(r, i, OZ_PLANE_CODES, "_blocks", GROUP / 2));
        OZ_TRY(take(r, i, OZ_PLANE_SCALES, "_scales", 1));
        OZ_TRY(oz_stored_scheme(&r->out->schemes[i], "mxfp4", OZ_ACT_NONE, r->err));
        r->out->count++;
    }
    return r->out->count > 0
               ? OZ_OK
               : OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                         "%s: the file holds MXFP4 in gpt-oss's form, which is for experts, and "
                         "this model has none.",
                         r->path);
}
