/*
 * A model for tests of the loader: tensors with values by a hash, in shards; rows, parameters and an
 * assignment over them; loading into exactly what measuring said; and what the planes should be.
 * One model at a time: new, add ..., write, open, load ..., close.
 */
#ifndef OZ_TESTS_UNIT_LOAD_MODEL_H
#define OZ_TESTS_UNIT_LOAD_MODEL_H

#include "test.h"

#include "base/pool.h"
#include "ckpt/writer.h"
#include "dev/ops.h"
#include "load/load.h"

#define MAX_TENSORS 64
#define CODECS 13

extern struct oz_error err;
extern struct oz_pool *pools[4];
extern struct oz_device *devices[4]; /* of so many threads, scalar tier */
extern const char *const codecs[CODECS];
extern float odd_value; /* takes the place of element odd_at of tensor odd_tensor */
extern int32_t odd_tensor;
extern int64_t odd_at;
extern struct oz_arena host;
extern struct oz_layer_table table;
extern struct oz_ckpt *ckpt;
extern struct oz_match *match;
extern struct oz_param params[MAX_TENSORS];
extern struct oz_choice choices[MAX_TENSORS];

/* What a load merges, and its definition: the weight w of the tensor's row r (of out features) and
 * column c after it; NULL: nothing. */
extern const struct oz_lora *lora_used;
extern float (*lora_merged)(const struct oz_layer *row, int64_t r, int64_t c, float w);

struct loaded {
    struct oz_arena model;
    struct oz_load_schedule schedule;
    struct oz_load_stats stats;
    struct oz_load_report report;
};

void load_model_ok(enum oz_status status);
int load_model_start(void **state);
int load_model_stop(void **state);
void load_model_new_model(void);
int32_t load_model_add_tensor(const char *name, enum oz_dtype dtype, int32_t rank,
                              const int64_t *shape);
void load_model_add(const char *name, struct oz_layer row, enum oz_dtype dtype,
                    struct oz_param *param, const char *codec);
void load_model_write_model(int64_t max_shard_bytes);
void load_model_open_model(void);
void load_model_close_model(void);
struct oz_load_args load_model_args_of(struct oz_device *dev, int64_t ring, struct oz_arena *model);
void load_model_unload(struct loaded *l);
enum oz_status load_model_load(struct loaded *l, struct oz_device *dev, int64_t ring);
void load_model_expect_all(void);
struct oz_layer load_model_matrix(enum oz_layer_kind kind, int64_t rows, int64_t cols);
void load_model_blocks(const char *codec, bool fused_scope);
float load_model_value(int32_t i, int64_t j);

#endif
