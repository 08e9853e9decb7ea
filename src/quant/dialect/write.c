/* write.c: which toolchain's format a component is written in, and what the formats share. */
#include <string.h>

#include "base/error.h"
#include "quant/dialect/dialect.h"

bool oz_dialect_is_written(const struct oz_assignment *a, int32_t row)
{
    return a->choices[row].scheme.codec != NULL;
}

const char *oz_dialect_bare_module(const char *module)
{
    static const char *const prefixes[] = {"model.", "language_model."};
    for (size_t i = 0; i < 4; i++) { /* both, in either order */
        size_t n = strlen(prefixes[i % 2]);
        module += strncmp(module, prefixes[i % 2], n) == 0 ? n : 0;
    }
    return module;
}

static void tell(oz_dialect_module_fn fn, void *ctx, const char *module, size_t length,
                 bool any_prefix)
{
    const char *bare = any_prefix ? oz_dialect_bare_module(module) : module;
    fn(ctx, bare, length - (size_t)(bare - module));
}

void oz_dialect_each_plain(const struct oz_assignment *a, const struct oz_ckpt *ckpt,
                           bool any_prefix, oz_dialect_module_fn fn, void *ctx)
{
    bool head = false;
    for (int32_t i = 0; i < a->table->count; i++) {
        const struct oz_layer *row = &a->table->rows[i];
        head = head || row->role == OZ_ROLE_LM_HEAD;
        if (row->kind == OZ_LAYER_LINEAR && !oz_dialect_is_written(a, i)) {
            tell(fn, ctx, row->module, strlen(row->module), any_prefix);
        }
    }
    for (int64_t i = 0; i < oz_ckpt_count(ckpt); i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(ckpt, i);
        const char *ending = strrchr(t->name, '.');
        if (t->rank == 2 && ending != NULL && strcmp(ending, ".weight") == 0 &&
            oz_layer_find(a->table, t->name) == NULL) {
            tell(fn, ctx, t->name, (size_t)(ending - t->name), any_prefix);
        }
    }
    if (any_prefix && !head && oz_ckpt_find(ckpt, "lm_head.weight", NULL) == NULL) {
        fn(ctx, "lm_head", strlen("lm_head")); /* tied: a module without a tensor */
    }
}

static int32_t first_written(const struct oz_assignment *a)
{
    int32_t row = 0;
    while (row < a->table->count && !oz_dialect_is_written(a, row)) {
        row++;
    }
    return row;
}

enum oz_status oz_dialect_layout(struct oz_dialect_tensor out[OZ_DIALECT_TENSORS], int32_t *count,
                                 const struct oz_scheme *scheme, const struct oz_layer *layer,
                                 enum oz_dtype stored, struct oz_error *err)
{
    return oz_bnb_writes(scheme->name) ? oz_bnb_layout(out, count, scheme, layer, stored, err)
                                       : oz_ct_layout(out, count, scheme, layer, err);
}

enum oz_status oz_dialect_check(const struct oz_assignment *a, const struct oz_ckpt *ckpt,
                                bool any_prefix, struct oz_error *err)
{
    int32_t first = first_written(a);
    if (first == a->table->count) {
        return OZ_OK;
    }
    const char *scheme = a->choices[first].scheme.name;
    bool bnb = oz_bnb_writes(scheme);
    for (int32_t i = first; i < a->table->count; i++) {
        const char *other = a->choices[i].scheme.name;
        if (oz_dialect_is_written(a, i) && strcmp(other, scheme) != 0 &&
            (bnb || oz_bnb_writes(other))) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "%s (%s) and %s (%s) cannot be in one component's files: those of "
                           "bitsandbytes have one scheme. Take one of the two for both.",
                           a->table->rows[first].module, scheme, a->table->rows[i].module, other);
        }
    }
    return bnb ? oz_bnb_check(a, ckpt, any_prefix, err) : OZ_OK;
}

void oz_dialect_config(struct oz_buf *out, const struct oz_assignment *a,
                       const struct oz_ckpt *ckpt, bool any_prefix)
{
    int32_t first = first_written(a);
    if (first < a->table->count && oz_bnb_writes(a->choices[first].scheme.name)) {
        oz_bnb_config(out, a, ckpt, any_prefix);
    } else {
        oz_ct_config(out, a, ckpt, any_prefix);
    }
}
