/*
 * A GGUF file that a test writes byte by byte: begin, keys, infos of tensors, pad, data, write. Malformed
 * ones are made by writing what does not fit, or by changing gguf_file afterwards.
 */
#ifndef OZ_TESTS_GGUF_FILE_H
#define OZ_TESTS_GGUF_FILE_H

#include <stddef.h>
#include <stdint.h>

#define GGUF_FILE_BYTES ((size_t)24 << 20)
extern uint8_t gguf_file[GGUF_FILE_BYTES];
extern size_t gguf_used;

void gguf_put(const void *data, size_t bytes);
void gguf_u32(uint32_t n);
void gguf_u64(uint64_t n);
void gguf_str(const char *text);
void gguf_begin(uint64_t tensors, uint64_t keys); /* version 3 */
void gguf_key(const char *name, uint32_t type);   /* its value follows */
void gguf_key_u32(const char *name, uint32_t value);
/* Sizes in the file's order, the fastest first. */
void gguf_tensor(const char *name, uint32_t rank, const uint64_t *sizes, uint32_t type,
                 uint64_t offset);
void gguf_pad(size_t alignment);
void gguf_data(size_t bytes); /* a counter's */
/* In the scratch folder; its path, as scratch_path. */
const char *gguf_write(const char *name);

#endif
