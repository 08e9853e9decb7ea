/* load/expand.h: weights that are expanded to bf16 while loading. Internal to src/load. */
#ifndef OZ_LOAD_EXPAND_H
#define OZ_LOAD_EXPAND_H

#include "load/item.h"

/* The weight as the file has it. */
struct oz_weight oz_load_expand_weight(const struct oz_load_item *item);

/* Rows of a band: whole scopes of the file's codec, and multiples of `scope`. */
int64_t oz_load_expand_rows(const struct oz_load_item *item, int64_t scope);

/* Memory that bands of so many rows take for a while. */
int64_t oz_load_expand_staging(const struct oz_load_item *item, int64_t rows);

/* Takes the memory (oz_free, after failures too) and reads what all bands need. */
OZ_MUST_USE enum oz_status oz_load_expand_open(const struct oz_load_args *args,
                                               const struct oz_load_item *item, int64_t rows,
                                               uint8_t **memory, struct oz_error *err);

/* Rows [row0, row0 + rows) as bf16 to dst [rows, cols]. Not from several threads: `memory` is used. */
OZ_MUST_USE enum oz_status oz_load_expand_band(const struct oz_load_args *args,
                                               const struct oz_load_item *item, int64_t row0,
                                               int64_t rows, uint8_t *memory, uint16_t *dst,
                                               struct oz_error *err);

/* Memory that oz_load_unshift takes for a while. */
int64_t oz_load_unshift_staging(const struct oz_load_item *item);

/* Puts back into a bias [rows], in f32, what its maker took off it for kernels that shift their inputs (see
 * oz_stored_weight.shifted). */
OZ_MUST_USE enum oz_status oz_load_unshift(const struct oz_load_args *args,
                                           const struct oz_load_item *item, float *bias,
                                           struct oz_error *err);

#endif
