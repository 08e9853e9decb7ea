/*
 * ops/side.h: operators beside others. A side is a second exec with a piece of the first one's step arena,
 * and, where the device has one, its second queue; so small work fills what large work leaves idle. Each
 * begins by waiting for the other's present end: fork and join. Without a second queue, while somebody
 * looks at every operator and while weights come block by block, all goes through one queue in the order
 * of the calls.
 */
#ifndef OZ_OPS_SIDE_H
#define OZ_OPS_SIDE_H

#include "ops/exec.h"

struct oz_side {
    struct oz_exec *main; /* borrowed */
    struct oz_exec exec;
    struct oz_arena arena;
    struct oz_event *events[2]; /* of forks, of joins; NULL until the first */
};

/* Has the device a second queue? Otherwise sides only cost memory. */
static inline bool oz_side_pays(const struct oz_exec *x)
{
    return x->dev->has_side;
}

/* Takes `bytes` of x's step arena until x is reset; the side's own marks lie within. */
void oz_side_begin(struct oz_side *s, struct oz_exec *x, size_t bytes);
void oz_side_fork(struct oz_side *s); /* the side goes on behind all that main was given */
void oz_side_join(struct oz_side *s); /* main goes on behind all that the side was given */
/* Joins, also behind a failure or a stop: the side's memory may then be used by others. Every side that
 * began ends. */
void oz_side_end(struct oz_side *s);

#endif
