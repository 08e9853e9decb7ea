/* cuda/device/weight.cuh: an element of a stored weight, in its codec's own arithmetic. */
#ifndef OZ_CUDA_DEVICE_WEIGHT_CUH
#define OZ_CUDA_DEVICE_WEIGHT_CUH

#include "cuda/device/rows.cuh"
#include "num/codebook_table.c" /* the values, for the device */

#define OZ_NESTED_BLOCKS 256 /* under one nested scale */

/* bitsandbytes: the absmax of the block of the flat matrix that an element lies in. */
static __device__ inline float oz_weight_absmax(const struct oz_cuda_weight &w, int64_t row,
                                                int64_t col)
{
    int64_t block = (row * w.cols + col) / w.block;
    if (w.nested_codes == NULL) {
        return oz_cell(w.level[0].dtype, w.level[0].data, block);
    }
    uint8_t code = w.nested_codes[block];
    float absmax = w.table2 != NULL ? w.table2[code] : dynamic8_values[code];
    absmax *= w.nested[block / OZ_NESTED_BLOCKS];
    return absmax + *w.offset;
}

static __device__ inline float oz_weight_value(const struct oz_cuda_weight &w, uint8_t code)
{
    return w.table != NULL ? w.table[code] : w.nf4 ? nf4_values[code] : fp4_values[code];
}

/* Scale of a level for an element. */
static __device__ inline float oz_weight_scale(const struct oz_cuda_weight &w, int level,
                                               int64_t row, int64_t col)
{
    int64_t cell_row = w.level[level].cell_rows > 0 ? row / w.level[level].cell_rows : 0;
    int64_t cell_col = w.level[level].cell_cols > 0 ? col / w.level[level].cell_cols : 0;
    return oz_cell(w.level[level].dtype, w.level[level].data + cell_row * w.level[level].row_bytes,
                   cell_col);
}

static __device__ inline float oz_weight_get(const struct oz_cuda_weight &w, int64_t row,
                                             int64_t col, bool codes_only)
{
    const uint8_t *codes = w.codes + row * w.row_bytes;
    if (w.block > 0) {
        return oz_weight_value(w, oz_nibble_get(codes, col)) * oz_weight_absmax(w, row, col);
    }
    float value = oz_cell(w.dtype, codes, col);
    for (int i = 0; i < (codes_only ? 0 : w.levels); i++) {
        value *= oz_weight_scale(w, i, row, col);
    }
    return value;
}

#endif
