/*
 * gguf.c: GGUF files, whose tensors say themselves what they are: blocks of a codec of num/gguf.h, or
 * plain. Every matrix and every embedding may be of any type; nothing else of the file tells of
 * quantization. Read only.
 */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "num/gguf.h"
#include "quant/dialect/dialect.h"

bool oz_gguf_reads(const struct oz_ckpt *ckpt)
{
    for (int64_t i = 0; i < oz_ckpt_count(ckpt); i++) {
        if (oz_gguf_type_of(oz_ckpt_tensor(ckpt, i)->codec) != NULL) {
            return true;
        }
    }
    return false;
}

static void put_shape(struct oz_buf *b, const int64_t *shape, int32_t rank)
{
    oz_buf_puts(b, "[");
    for (int32_t i = 0; i < rank; i++) {
        oz_buf_printf(b, "%s%" PRId64, i > 0 ? ", " : "", shape[i]);
    }
    oz_buf_puts(b, "]");
}

static enum oz_status fail_shape(const struct oz_layer *layer, const struct oz_tensor_view *t,
                                 const char *path, struct oz_error *err)
{
    struct oz_buf text;
    oz_buf_init(&text, 1024);
    put_shape(&text, t->shape, t->rank);
    oz_buf_printf(&text, " (%s), but %s asks for ", oz_tensor_format(t), path);
    put_shape(&text, layer->file_shape, layer->file_rank);
    enum oz_status status = OZ_FAIL(err, OZ_ERR_FORMAT,
                                    "Tensor %s of the file is %s: the file is of another model or "
                                    "variant.",
                                    t->name, oz_buf_text(&text));
    oz_buf_deinit(&text);
    return status;
}

static enum oz_status read_row(struct oz_stored *out, int32_t row, const struct oz_layer *layer,
                               const struct oz_ckpt *ckpt, const char *path, struct oz_error *err)
{
    int64_t index = -1;
    const struct oz_tensor_view *t = oz_ckpt_find(ckpt, layer->name, &index);
    if (t == NULL && layer->tied_to != NULL) {
        t = oz_ckpt_find(ckpt, layer->tied_to, &index);
    }
    if (t == NULL || t->codec == NULL) {
        return OZ_OK; /* plain, or missing: then the match says so */
    }
    bool matrix = layer->kind == OZ_LAYER_LINEAR || layer->kind == OZ_LAYER_EMBED;
    if (!matrix || layer->rank != 2) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "Tensor %s is stored as %s; of blocks this version reads linear layers and "
                       "embeddings. Take a file that keeps it in F32, F16 or BF16.",
                       t->name, oz_tensor_format(t));
    }
    bool same = t->rank == layer->file_rank;
    for (int32_t i = 0; i < t->rank && same; i++) {
        same = t->shape[i] == layer->file_shape[i];
    }
    if (!same) {
        return fail_shape(layer, t, path, err);
    }
    if (layer->shape[1] % t->codec->col_multiple != 0) { /* the file's own shape was another */
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "Tensor %s: its rows of %" PRId64 " elements are shorter than the blocks of "
                       "%s (%d), which run across them; such files are not run.",
                       t->name, layer->shape[1], oz_tensor_format(t), (int)t->codec->col_multiple);
    }
    out->weights[row].planes[OZ_PLANE_CODES].tensor = t;
    out->weights[row].planes[OZ_PLANE_CODES].index = index;
    out->weights[row].planes[OZ_PLANE_CODES].move = OZ_MOVE_BYTES;
    out->schemes[row] = (struct oz_scheme){
        .name = t->codec->name, .codec = t->codec, .mode_count = 1, .acts = {OZ_ACT_NONE}};
    out->count++;
    return OZ_OK;
}

enum oz_status oz_gguf_read_rows(const struct oz_dialect_reader *r)
{
    for (int32_t i = 0; i < r->table->count; i++) {
        OZ_TRY(read_row(r->out, i, &r->table->rows[i], r->ckpt, r->path, r->err));
    }
    return OZ_OK;
}
