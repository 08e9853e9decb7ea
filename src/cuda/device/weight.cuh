/* cuda/device/weight.cuh: an element of a stored weight, in its codec's own arithmetic. */
#ifndef OZ_CUDA_DEVICE_WEIGHT_CUH
#define OZ_CUDA_DEVICE_WEIGHT_CUH

#include "cuda/device/rows.cuh"
#include "num/codebook_table.c" /* the values, for the device */

#define OZ_NESTED_BLOCKS 256 /* under one nested scale */

/* bitsandbytes: a table's value times the absmax of its block of the flat matrix. */
static __device__ inline float oz_weight_get_block(const struct oz_cuda_weight &w, int64_t row,
                                                   int64_t col)
{
    int64_t block = (row * w.cols + col) / w.block;
    float absmax;
    if (w.nested_codes != NULL) {
        uint8_t code = w.nested_codes[block];
        absmax = w.table2 != NULL ? w.table2[code] : dynamic8_values[code];
        absmax *= w.nested[block / OZ_NESTED_BLOCKS];
        absmax += *w.offset;
    } else {
        absmax = oz_cell(w.level[0].dtype, w.level[0].data, block);
    }
    uint8_t code = oz_nibble_get(w.codes + row * w.row_bytes, col);
    return (w.table != NULL ? w.table[code] : w.nf4 ? nf4_values[code] : fp4_values[code]) * absmax;
}

static __device__ inline float oz_weight_get(const struct oz_cuda_weight &w, int64_t row,
                                             int64_t col, bool codes_only)
{
    if (w.block > 0) {
        return oz_weight_get_block(w, row, col);
    }
    float value = oz_cell(w.dtype, w.codes + row * w.row_bytes, col);
    for (int i = 0; i < (codes_only ? 0 : w.levels); i++) {
        int64_t cell_row = w.level[i].cell_rows > 0 ? row / w.level[i].cell_rows : 0;
        int64_t cell_col = w.level[i].cell_cols > 0 ? col / w.level[i].cell_cols : 0;
        value *=
            oz_cell(w.level[i].dtype, w.level[i].data + cell_row * w.level[i].row_bytes, cell_col);
    }
    return value;
}

#endif
