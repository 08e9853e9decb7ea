/*
 * num/codebook.h: formats whose codes index a table of values, as bitsandbytes has them: nf4 and
 * fp4 (16 values in [-1, 1], not e2m1), and the signed dynamic map of 256 values that codes their
 * nested scales. A number becomes the code of the nearest value; the bounds between neighbours are
 * in the table, and a number equal to a bound takes the smaller value.
 */
#ifndef OZ_NUM_CODEBOOK_H
#define OZ_NUM_CODEBOOK_H

#include <stdint.h>

struct oz_codebook {
    int32_t count;
    const float *values;  /* [count], by code */
    const float *bounds;  /* [count - 1], ascending: between the values in ascending order */
    const uint8_t *order; /* [count]: codes in ascending order of value; NULL: as they are */
};

extern const struct oz_codebook oz_codebook_nf4, oz_codebook_fp4_bnb, oz_codebook_dynamic8;

/* The code of x; NaN gives that of the smallest value. */
uint8_t oz_codebook_code(const struct oz_codebook *book, float x);

#endif
