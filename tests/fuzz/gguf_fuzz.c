/*
 * A GGUF file: header and data. What is opened keeps the table's promises, and every element of every
 * block can be decoded.
 */
#include "ckpt/table.h"
#include "fuzz/fuzz.h"
#include "num/gguf.h"

#define DECODED 4096 /* bytes of a tensor whose blocks are decoded, at most */

static void decode(const struct oz_tensor_view *t)
{
    const struct oz_gguf_type *type = oz_gguf_type_of(t->codec);
    FUZZ_CHECK(type != NULL && t->bytes == t->elements / type->elements * type->bytes);
    int64_t blocks = (t->bytes < DECODED ? t->bytes : DECODED) / type->bytes;
    struct oz_weight w = oz_weight_shape(t->codec, 1, blocks, type->elements);
    w.planes[OZ_PLANE_CODES].data = (void *)(uintptr_t)t->data;
    w.planes[OZ_PLANE_CODES].row_stride_bytes = type->bytes;
    for (int64_t r = 0; r < blocks; r++) {
        float y[OZ_GGUF_MOST_ELEMENTS];
        t->codec->decode(&w, 0, r, 0, type->elements, y);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct oz_ckpt *c;
    struct oz_error err;
    const char *path = fuzz_file("a.gguf", data, bytes);
    if (oz_ckpt_open(&c, path, NULL, &err) != OZ_OK) {
        FUZZ_CHECK(c == NULL && err.code != OZ_OK && err.message[0] != '\0');
        return 0;
    }
    for (int64_t i = 0; i < oz_ckpt_count(c); i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(c, i);
        FUZZ_CHECK(t->bytes > 0 && t->file_offset >= 24 && t->elements > 0);
        FUZZ_CHECK(t->file_offset + t->bytes <= (int64_t)bytes);
        FUZZ_CHECK(oz_ckpt_find(c, t->name, NULL) == t);
        uint8_t last;
        FUZZ_CHECK(oz_ckpt_read(c, t, t->bytes - 1, 1, &last, &err) == OZ_OK);
        FUZZ_CHECK(last == t->data[t->bytes - 1]);
        int64_t product = 1;
        for (int32_t k = 0; k < t->rank; k++) {
            product *= t->shape[k];
        }
        FUZZ_CHECK(product == t->elements);
        if (t->codec != NULL) {
            decode(t);
        }
    }
    oz_ckpt_close(&c);
    return 0;
}
