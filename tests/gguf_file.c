#include "test.h"

#include "gguf_file.h"
#include "scratch.h"

uint8_t gguf_file[GGUF_FILE_BYTES];
size_t gguf_used;

void gguf_put(const void *data, size_t bytes)
{
    assert_true(gguf_used + bytes <= sizeof gguf_file);
    memcpy(gguf_file + gguf_used, data, bytes);
    gguf_used += bytes;
}

void gguf_u32(uint32_t n)
{
    for (int i = 0; i < 4; i++) {
        gguf_file[gguf_used++] = (uint8_t)(n >> 8 * i);
    }
}

void gguf_u64(uint64_t n)
{
    gguf_u32((uint32_t)n);
    gguf_u32((uint32_t)(n >> 32));
}

void gguf_str(const char *text)
{
    gguf_u64(strlen(text));
    gguf_put(text, strlen(text));
}

void gguf_begin(uint64_t tensors, uint64_t keys)
{
    gguf_used = 0;
    gguf_put("GGUF", 4);
    gguf_u32(3);
    gguf_u64(tensors);
    gguf_u64(keys);
}

void gguf_key(const char *name, uint32_t type)
{
    gguf_str(name);
    gguf_u32(type);
}

void gguf_key_u32(const char *name, uint32_t value)
{
    gguf_key(name, 4);
    gguf_u32(value);
}

void gguf_tensor(const char *name, uint32_t rank, const uint64_t *sizes, uint32_t type,
                 uint64_t offset)
{
    gguf_str(name);
    gguf_u32(rank);
    for (uint32_t i = 0; i < rank; i++) {
        gguf_u64(sizes[i]);
    }
    gguf_u32(type);
    gguf_u64(offset);
}

void gguf_pad(size_t alignment)
{
    while (gguf_used % alignment != 0) {
        gguf_file[gguf_used++] = 0;
    }
}

void gguf_data(size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        gguf_file[gguf_used++] = (uint8_t)(i * 7 + 1);
    }
}

const char *gguf_write(const char *name)
{
    scratch_write(name, gguf_file, gguf_used);
    return scratch_path("%s", name);
}
