#include "ops/side.h"

#include "base/error.h"

void oz_side_begin(struct oz_side *s, struct oz_exec *x, size_t bytes)
{
    *s = (struct oz_side){.main = x, .exec = *x};
    void *memory = oz_exec_push(x, bytes);
    if (x->mode == OZ_EXEC_MEASURE || memory == NULL) {
        oz_arena_init_measure(&s->arena, "side");
    } else {
        oz_arena_init_view(&s->arena, "side", memory, bytes, x->dev->host_memory);
    }
    s->exec.step = &s->arena;
    s->exec.status = x->status;
    /* Blocks that come and go are waited for, and let go, by main's queue alone. */
    bool looked_at = x->dump != NULL || x->watch != NULL || x->trace != NULL;
    if (!looked_at && x->block == NULL && x->dev->side != NULL) {
        s->exec.queue = x->dev->side;
    }
}

/* `behind` goes on when `before` has done what it has; *event is used again. */
static enum oz_status wait_for(struct oz_exec *before, struct oz_exec *behind,
                               struct oz_event **event, struct oz_error *err)
{
    struct oz_device *dev = before->dev;
    if (before->mode != OZ_EXEC_RUN || before->queue == behind->queue) {
        return OZ_OK;
    }
    OZ_TRY(dev->record(dev, before->queue, event, err));
    return dev->await(dev, behind->queue, *event, err);
}

/* The first failure is both's. */
static void order(struct oz_exec *before, struct oz_exec *behind, struct oz_event **event)
{
    enum oz_status status = before->status != OZ_OK ? before->status : behind->status;
    if (status == OZ_OK) {
        status = wait_for(before, behind, event, before->err);
    }
    before->status = status;
    behind->status = status;
}

void oz_side_fork(struct oz_side *s)
{
    order(s->main, &s->exec, &s->events[0]);
}

void oz_side_join(struct oz_side *s)
{
    order(&s->exec, s->main, &s->events[1]);
}

void oz_side_end(struct oz_side *s)
{
    struct oz_exec *x = s->main;
    oz_side_join(s);
    if (x->status != OZ_OK && wait_for(&s->exec, x, &s->events[1], NULL) != OZ_OK) {
        x->status = OZ_ERR_DEVICE; /* the device is lost; its memory with it */
    }
    for (int i = 0; i < 2; i++) {
        x->dev->event_destroy(x->dev, s->events[i]);
    }
}
