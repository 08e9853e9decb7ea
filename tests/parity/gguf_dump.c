/*
 * gguf_dump FILE: what the tensors of a GGUF file decode to, as f32 on standard output, one tensor after
 * the other in byte order of their names. For tools/golden/gguf_file.py, which compares it with
 * gguf-py.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "ckpt/table.h"
#include "num/codec.h"

static enum oz_status dump(const struct oz_tensor_view *t, struct oz_error *err)
{
    const struct oz_codec *codec = t->codec != NULL ? t->codec : oz_codec_plain(t->dtype);
    int64_t cols = t->rank > 0 ? t->shape[t->rank - 1] : 1;
    int64_t row_bytes;
    int64_t bytes;
    if (codec == NULL || cols % codec->col_multiple != 0) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED, "Tensor %s is %s.", t->name, oz_tensor_format(t));
    }
    struct oz_weight w = oz_weight_shape(codec, 1, t->elements / cols, cols);
    OZ_TRY(oz_weight_plane_bytes(&w, OZ_PLANE_CODES, &bytes, &row_bytes));
    w.planes[OZ_PLANE_CODES].data = (void *)(uintptr_t)t->data;
    w.planes[OZ_PLANE_CODES].bytes = bytes;
    w.planes[OZ_PLANE_CODES].row_stride_bytes = row_bytes;
    float *line = oz_alloc((size_t)cols * sizeof *line);
    if (line == NULL) {
        return OZ_FAIL_NOMEM(err, t->name);
    }
    enum oz_status status = OZ_OK;
    for (int64_t r = 0; r < w.rows && status == OZ_OK; r++) {
        codec->decode(&w, 0, r, 0, cols, line);
        if (fwrite(line, sizeof *line, (size_t)cols, stdout) != (size_t)cols) {
            status = OZ_FAIL(err, OZ_ERR_IO, "Cannot write.");
        }
    }
    oz_free(line);
    return status;
}

int main(int argc, char **argv)
{
    struct oz_error err;
    struct oz_ckpt *ckpt = NULL;
    if (argc != 2) {
        (void)fprintf(stderr, "usage: gguf_dump FILE\n");
        return 2;
    }
    enum oz_status status = oz_ckpt_open(&ckpt, argv[1], NULL, &err);
    for (int64_t i = 0; status == OZ_OK && i < oz_ckpt_count(ckpt); i++) {
        status = dump(oz_ckpt_tensor(ckpt, i), &err);
    }
    if (status != OZ_OK) {
        (void)fprintf(stderr, "gguf_dump: %s\n", err.message);
    }
    oz_ckpt_close(&ckpt);
    return status == OZ_OK ? 0 : 1;
}
