/*
 * num/unpack.h: from how makers pack codes and zero points into 32-bit words to rows of our planes. Bits
 * are moved; of zero points 1 is added where the maker stores one less. Lines are as the files have them,
 * words little-endian, any alignment.
 */
#ifndef OZ_NUM_UNPACK_H
#define OZ_NUM_UNPACK_H

#include <stdint.h>

/* A column of a matrix: word i of the line becomes the 4 bytes at dst + i stride. GPTQ's codes: each
 * line has the same few input features of all output features. */
void oz_unpack_word_column(const uint8_t *line, int64_t count, uint8_t *dst, int64_t stride);

/*
 * AWQ's codes of one input feature, `col`: 8 output features of 4 bits in a word, in the order
 * 0 2 4 6 1 3 5 7 from the lowest bits. Output features [first, first + count), counted from the line's
 * begin, to nibble `col` of the rows at dst.
 */
void oz_unpack_awq_codes(const uint8_t *line, int64_t first, int64_t count, int64_t col,
                         uint8_t *dst, int64_t stride);
/* AWQ's zero points of one group likewise, to the bytes at dst + i stride. */
void oz_unpack_awq_zeros(const uint8_t *line, int64_t first, int64_t count, uint8_t *dst,
                         int64_t stride);

/*
 * GPTQ's zero points of one group: fields of `bits` (2, 4, 8), the lowest first. one_less: the file has
 * zero - 1, taken from whole words (a borrow crosses fields), so 1 in every field is added to whole
 * words. Returns how many of them are 0 then: those the makers' tools do not agree about.
 */
int64_t oz_unpack_gptq_zeros(const uint8_t *line, int64_t first, int64_t count, int bits,
                             int one_less, uint8_t *dst, int64_t stride);

#endif
