#include "ops/side.h"

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
    if (x->dump == NULL && x->watch == NULL && x->trace == NULL && x->dev->side != NULL) {
        s->exec.queue = x->dev->side;
    }
}

/* `behind` goes on when `before` has done what it has. The first failure is both's. */
static void order(struct oz_exec *before, struct oz_exec *behind)
{
    struct oz_device *dev = before->dev;
    struct oz_event *event = NULL;
    enum oz_status status = before->status != OZ_OK ? before->status : behind->status;
    if (status == OZ_OK && before->mode == OZ_EXEC_RUN && before->queue != behind->queue) {
        status = dev->record(dev, before->queue, &event, before->err);
        if (status == OZ_OK) {
            status = dev->await(dev, behind->queue, event, before->err);
            dev->event_destroy(dev, event);
        }
    }
    before->status = status;
    behind->status = status;
}

void oz_side_fork(struct oz_side *s)
{
    order(s->main, &s->exec);
}

void oz_side_join(struct oz_side *s)
{
    order(&s->exec, s->main);
}

void oz_side_end(struct oz_side *s)
{
    struct oz_exec *x = s->main;
    struct oz_event *event = NULL;
    oz_side_join(s);
    if (x->status == OZ_OK || x->mode != OZ_EXEC_RUN || x->queue == s->exec.queue) {
        return;
    }
    if (x->dev->record(x->dev, s->exec.queue, &event, NULL) == OZ_OK) {
        if (x->dev->await(x->dev, x->queue, event, NULL) != OZ_OK) {
            x->status = OZ_ERR_DEVICE; /* the device is lost; its memory with it */
        }
        x->dev->event_destroy(x->dev, event);
    }
}
