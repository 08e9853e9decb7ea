/* A sharded index beside two shards that are there ("a" in one, "b" in the other). */
#include <string.h>

#include "ckpt/table.h"
#include "fuzz/fuzz.h"

static void write_shard(const char *name, const char *tensor)
{
    uint8_t file[128] = {0};
    static const char rest[] = "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    size_t n = 8;
    memcpy(file + n, "{\"", 2);
    memcpy(file + n + 2, tensor, 1);
    memcpy(file + n + 3, rest, sizeof rest - 1);
    n += 3 + sizeof rest - 1;
    file[0] = (uint8_t)(n - 8);
    (void)fuzz_file(name, file, n + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static int made;
    struct oz_ckpt *c;
    struct oz_error err;
    if (!made) {
        made = 1;
        write_shard("1.safetensors", "a");
        write_shard("2.safetensors", "b");
    }
    const char *path = fuzz_file("model.safetensors.index.json", data, bytes);
    if (oz_ckpt_open(&c, path, NULL, &err) == OZ_OK) {
        /* Whatever is opened is what the index names, out of this folder. */
        FUZZ_CHECK(oz_ckpt_count(c) >= 1 && oz_ckpt_count(c) <= 2);
        FUZZ_CHECK(oz_ckpt_count(c) == oz_ckpt_file_count(c));
        for (int32_t i = 0; i < oz_ckpt_file_count(c); i++) {
            FUZZ_CHECK(strncmp(oz_ckpt_file(c, i)->path, fuzz_folder(), strlen(fuzz_folder())) ==
                       0);
        }
        oz_ckpt_close(&c);
    } else {
        FUZZ_CHECK(c == NULL && err.message[0] != '\0');
    }
    return 0;
}
