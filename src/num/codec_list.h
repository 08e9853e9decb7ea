/* num/codec_list.h: declares the codecs of codec.inc. */
#ifndef OZ_NUM_CODEC_LIST_H
#define OZ_NUM_CODEC_LIST_H

#include "num/codec.h"

#define OZ_CODEC(obj) extern const struct oz_codec obj;
#include "num/codec.inc"
#undef OZ_CODEC

#endif
