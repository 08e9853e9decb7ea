/*
 * num/bnb.h: bitsandbytes' 4-bit weights in parts, for who keeps their codes: value = table[code] * absmax
 * of the block (codec_bnb.c).
 */
#ifndef OZ_NUM_BNB_H
#define OZ_NUM_BNB_H

#include <stdbool.h>

#include "num/codebook.h"
#include "num/codec.h"

/* Is it one of these codecs? */
bool oz_bnb_is(const struct oz_codec *codec);

/* The table that they encode by. */
const struct oz_codebook *oz_bnb_book(const struct oz_codec *codec);

/* Values of the 16 codes: the weight's own table, or the codec's. */
void oz_bnb_values(const struct oz_weight *w, int64_t slice, float values[16]);

/* absmax of a block of the flat slice, nested or not. */
float oz_bnb_absmax(const struct oz_weight *w, int64_t slice, int64_t block);

#endif
