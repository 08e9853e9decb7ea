/* The reference kernels as entries of the lists. Each is wrapped, since the lists' functions take the
 * arguments of any operator. */
#include "cpu/kern/ref/ref.h"
#include "cpu/kernel.h"

#define OZ_REF(id, member, type, function, scratch_fn)                                 \
    static enum oz_status call_##member(const struct oz_op_ctx *ctx, const void *args) \
    {                                                                                  \
        return function(ctx, args);                                                    \
    }                                                                                  \
    const struct oz_cpu_kernel oz_kernel_##member##__scalar = {.name = #function,      \
                                                               .op = id,               \
                                                               .tier = OZ_TIER_SCALAR, \
                                                               .proven = "everywhere", \
                                                               .scratch = scratch_fn,  \
                                                               .run = call_##member};
#include "cpu/kern/ref/ref.inc"
#undef OZ_REF
