/* load/lora_names.h: the names of adapters' tensors. Internal to src/load. */
#ifndef OZ_LOAD_LORA_NAMES_H
#define OZ_LOAD_LORA_NAMES_H

#include <ounce/status.h>

#include "base/map.h"
#include "quant/layer.h"

enum oz_lora_half {
    OZ_LORA_DOWN,
    OZ_LORA_UP,
    OZ_LORA_ALPHA,
    OZ_LORA_REFUSED, /* another kind of adapter */
    OZ_LORA_UNKNOWN,
};

struct oz_lora_key {
    enum oz_lora_half half;
    size_t module_bytes; /* of the key's beginning: prefixes and module */
    const char *what;    /* REFUSED: words for it */
};
struct oz_lora_key oz_lora_read_key(const char *key);

/* Modules of a table by their names, and with underscores for dots. */
struct oz_lora_names {
    const struct oz_layer_table *table; /* borrowed */
    struct oz_string_map flat;          /* to the row of the weight; two of one name: -2 */
    char **texts;                       /* [table->count]: owned; NULL: the row is no weight */
};
OZ_MUST_USE enum oz_status oz_lora_names_init(struct oz_lora_names *n,
                                              const struct oz_layer_table *table,
                                              struct oz_error *err);
void oz_lora_names_deinit(struct oz_lora_names *n); /* zeroes are fine */

#define OZ_LORA_NO_ROW (-1)
#define OZ_LORA_TWO_ROWS (-2)    /* with underscores the names of two modules are the same */
#define OZ_LORA_OTHER_MODEL (-3) /* the key says that it is for a text encoder */

/* The row of the weight that a key's module names; < 0: see above. */
int32_t oz_lora_find_row(const struct oz_lora_names *n, const char *key, size_t module_bytes);

/* The module that the key may have been meant for, or NULL. */
const char *oz_lora_nearest(const struct oz_lora_names *n, const char *key, size_t module_bytes);

#endif
