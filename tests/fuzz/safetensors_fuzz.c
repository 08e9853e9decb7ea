/* A safetensors file: header and data. What is opened keeps the table's promises. */
#include "ckpt/table.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct oz_ckpt *c;
    struct oz_error err;
    const char *path = fuzz_file("a.safetensors", data, bytes);
    if (oz_ckpt_open(&c, path, NULL, &err) != OZ_OK) {
        FUZZ_CHECK(c == NULL && err.code != OZ_OK && err.message[0] != '\0');
        return 0;
    }
    for (int64_t i = 0; i < oz_ckpt_count(c); i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(c, i);
        FUZZ_CHECK(t->bytes >= 0 && t->file_offset >= 8);
        FUZZ_CHECK(t->file_offset + t->bytes <= (int64_t)bytes);
        FUZZ_CHECK(oz_ckpt_find(c, t->name, NULL) == t);
        if (t->bytes > 0) {
            uint8_t last;
            FUZZ_CHECK(oz_ckpt_read(c, t, t->bytes - 1, 1, &last, &err) == OZ_OK);
            FUZZ_CHECK(last == t->data[t->bytes - 1]);
        }
    }
    oz_ckpt_close(&c);
    return 0;
}
