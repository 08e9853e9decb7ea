/*
 * ops/exec.h: one forward. An exec carries the device, the step arena and the mode: MEASURE walks
 * the same forward function, advances the arena and runs nothing; RUN computes. Both therefore take
 * exactly the same memory.
 *
 * Errors are sticky: after the first, operators and pushes do nothing, and the forward's caller
 * looks at `status` once at the end. So forward functions read like their formulas. An act from a
 * failed push has the right shape and must only be handed to operators.
 */
#ifndef OZ_OPS_EXEC_H
#define OZ_OPS_EXEC_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "dev/device.h"
#include "dev/ops.h"

enum oz_exec_mode { OZ_EXEC_MEASURE, OZ_EXEC_RUN };

struct oz_trace;

/* Called after an operator ran (RUN only) with what it wrote; `label` says where in the model. The
 * act is device memory. For parity tests and dumps. */
typedef void (*oz_exec_dump_fn)(void *ctx, enum oz_op op, const char *label,
                                const struct oz_act *out);

/* Called after an operator ran (RUN only) with the arguments that it had (the type is the operator's,
 * dev/ops.h). For studies: what really was multiplied with what. */
typedef void (*oz_exec_watch_fn)(void *ctx, enum oz_op op, const void *args);

/* Asked before each operator (RUN only), from the thread that runs the forward: true to stop, which
 * makes the exec's status OZ_ERR_CANCELLED. Must be cheap. */
typedef bool (*oz_exec_stop_fn)(void *ctx);

struct oz_exec;

/* Called by forwards before the first operator that reads weights of a block, blocks from 0 (RUN only):
 * whoever brings weights one block at a time. What it fails with, it makes the exec's status. */
typedef void (*oz_exec_block_fn)(void *ctx, struct oz_exec *x, int32_t block);

struct oz_exec {
    struct oz_device *dev;
    struct oz_queue *queue;
    enum oz_exec_mode mode;
    struct oz_arena *step;  /* borrowed */
    enum oz_status status;  /* first failure */
    struct oz_error *err;   /* its message; may be NULL */
    const char *label;      /* set by forwards before operators: "transformer_blocks.3.attn" */
    struct oz_trace *trace; /* NULL: none */
    oz_exec_dump_fn dump;   /* NULL: none */
    void *dump_ctx;
    oz_exec_watch_fn watch; /* NULL: none */
    void *watch_ctx;
    oz_exec_stop_fn stop; /* NULL: none */
    void *stop_ctx;
    oz_exec_block_fn block; /* NULL: none */
    void *block_ctx;
};

/* Starts an exec in caller's storage. */
void oz_exec_init(struct oz_exec *x, struct oz_device *dev, enum oz_exec_mode mode,
                  struct oz_arena *step, struct oz_error *err);

static inline bool oz_exec_ok(const struct oz_exec *x)
{
    return x->status == OZ_OK;
}

static inline void oz_exec_block(struct oz_exec *x, int32_t block)
{
    if (x->block != NULL && x->mode == OZ_EXEC_RUN && x->status == OZ_OK) {
        x->block(x->block_ctx, x, block);
    }
}

/* Records a failure unless there is one already. */
void oz_exec_fail(struct oz_exec *x, enum oz_status status, const char *format, ...)
    OZ_PRINTF(3, 4);

/* Memory of the step arena, until the mark is reset. */
void *oz_exec_push(struct oz_exec *x, size_t bytes);
struct oz_act oz_exec_act(struct oz_exec *x, int64_t rows, int64_t cols); /* f32, packed */
/* Rows that the next operator rounds to bf16 where the device computes in it: bf16 there, else f32. */
struct oz_act oz_exec_act_half(struct oz_exec *x, int64_t rows, int64_t cols);
struct oz_act oz_exec_act_as(struct oz_exec *x, int64_t rows, int64_t cols,
                             const struct oz_act_spec *spec);

static inline size_t oz_exec_mark(const struct oz_exec *x)
{
    return oz_arena_mark(x->step);
}
void oz_exec_reset(struct oz_exec *x, size_t mark);

/* Host to device in the order of the operators; nothing while measuring. `host` must stay until the
 * device has been waited for. */
void oz_exec_upload(struct oz_exec *x, void *dst, const void *host, size_t bytes);

/* ---- views ---- */

struct oz_act_spec oz_act_spec_f32(void);
bool oz_act_spec_equal(const struct oz_act_spec *a, const struct oz_act_spec *b);
bool oz_act_is_f32(const struct oz_act *a);

/* Packed f32 rows at `data`. */
struct oz_act oz_act_f32(void *data, int64_t rows, int64_t cols);
/* Columns [first, first + count) of a plain activation; its rows: oz_act_rows (dev/ops.h). */
struct oz_act oz_act_cols(const struct oz_act *a, int64_t first, int64_t count);
/* `a` in that spec: itself when it is already, else a converted copy on the step arena. */
struct oz_act oz_exec_convert(struct oz_exec *x, const struct oz_act *a,
                              const struct oz_act_spec *spec, const struct oz_ragged *sequences);
/* The same packed data with other rows x cols. */
struct oz_act oz_act_reshape(const struct oz_act *a, int64_t rows, int64_t cols);

#endif
