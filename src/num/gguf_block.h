/* num/gguf_block.h: what the codecs of GGUF's blocks share. Internal to src/num. */
#ifndef OZ_NUM_GGUF_BLOCK_H
#define OZ_NUM_GGUF_BLOCK_H

#include "num/codec_list.h"
#include "num/gguf.h"
#include "num/gguf_run.h"
#include "num/plane.h"

/* A block's bytes to its elements. */
typedef void (*oz_gguf_block_fn)(const uint8_t *b, float *y);

/* decode of codecs of blocks. */
void oz_gguf_decode(const struct oz_weight *w, int64_t slice, int64_t row, int64_t col,
                    int64_t count, float *dst, oz_gguf_block_fn block, int32_t elements,
                    int32_t bytes);

/* The codec of a block type, over oz_gguf_run_<name>. */
#define OZ_GGUF_CODEC(name_, elements_, bytes_, run_)                                              \
    static void block_##name_(const uint8_t *b, float *y)                                          \
    {                                                                                              \
        for (int i = 0; i < (elements_); i += (run_)) {                                            \
            oz_gguf_run_##name_(b, i, (run_), y + i);                                              \
        }                                                                                          \
    }                                                                                              \
    static void decode_##name_(const struct oz_weight *w, int64_t slice, int64_t row, int64_t col, \
                               int64_t count, float *dst)                                          \
    {                                                                                              \
        oz_gguf_decode(w, slice, row, col, count, dst, block_##name_, (elements_), (bytes_));      \
    }                                                                                              \
    static const struct oz_plane_spec planes_##name_[] = {{.plane = OZ_PLANE_CODES,                \
                                                           .dtype = OZ_DTYPE_U8,                   \
                                                           .cell_rows = 1,                         \
                                                           .cell_cols = (elements_),               \
                                                           .cell_bits = (bytes_)*8}};              \
    const struct oz_codec oz_codec_##name_ = {.name = #name_,                                      \
                                              .scope_rows = 1,                                     \
                                              .col_multiple = (elements_),                         \
                                              .plane_count = 1,                                    \
                                              .planes = planes_##name_,                            \
                                              .decode = decode_##name_};

#endif
