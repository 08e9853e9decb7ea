/* tests/op_call.h: any operator of a device, by its id. */
#ifndef OZ_TESTS_OP_CALL_H
#define OZ_TESTS_OP_CALL_H

#include "dev/device.h"
#include "dev/ops.h"

/* args: of the operator's own type, as OZ_OP_MAP has it. OZ_ERR_ARG: no operator. */
static inline enum oz_status op_call(const struct oz_op_ctx *ctx, enum oz_op op, const void *args)
{
    switch (op) {
#define CALL(id, name, type) \
    case id: return ctx->dev->ops->name(ctx, args);
        OZ_OP_MAP(CALL)
#undef CALL
    case OZ_OP_COUNT: break;
    }
    return OZ_ERR_ARG;
}

#endif
