/* num/rotate.h: the rotation that ConvRot weights are stored under. */
#ifndef OZ_NUM_ROTATE_H
#define OZ_NUM_ROTATE_H

#include <stdbool.h>
#include <stdint.h>

/* Is it a size of groups that there is a rotation for: a power of 4, from 4 to 4096? */
bool oz_rotate_known(int32_t group);

/*
 * Each group of `group` columns of a row times H in place, in f32; cols is a multiple of group. H is the
 * Kronecker power of [[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]] over sqrt(group):
 * symmetric and its own inverse, so this rotates and rotates back.
 */
void oz_rotate_row(float *row, int64_t cols, int32_t group);

#endif
