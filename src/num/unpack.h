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
/* AWQ's zero points of one group likewise, to nibble `group` of the rows at dst. */
void oz_unpack_awq_zeros(const uint8_t *line, int64_t first, int64_t count, int64_t group,
                         uint8_t *dst, int64_t stride);

/* How a line's fields lie in words. */
enum oz_fields {
    OZ_FIELDS_DENSE, /* one behind the other, the lowest first, across words */
    OZ_FIELDS_PLANAR, /* each 32 fields of 3, 5, 6 or 7 bits in so many words: first the low 2 or 4 bits
                         of all, then the next ...; other sizes as DENSE */
};

/*
 * GPTQ's zero points of one group: fields of `bits`, 2 to 8, to field `group` of the rows at dst. one_less:
 * the file has zero - 1; of 2, 4 and 8 bits it was taken from whole words (a borrow crosses fields), so 1
 * in every field is added to whole words, of others in each field alone. Returns how many of them are 0
 * then: those the makers' tools do not agree about.
 */
int64_t oz_unpack_gptq_zeros(const uint8_t *line, int64_t first, int64_t count, int bits,
                             enum oz_fields fields, int one_less, int64_t group, uint8_t *dst,
                             int64_t stride);

/* A column of GPTQ's planar codes of `bits`: word i of line `index` becomes its bits of the fields of the
 * row at dst + i stride, which are dense there. */
void oz_unpack_planar_column(const uint8_t *line, int64_t count, int64_t index, int bits,
                             uint8_t *dst, int64_t stride);

#endif
