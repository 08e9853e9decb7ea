#include "pipe/convert.h"

#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "pipe/quantize.h"
#include "pipe/write_list.h"
#include "quant/dialect/dialect.h"

static const char *const names[OZ_CONVERT_COUNT] = {
    [OZ_CONVERT_BF16] = "bf16", [OZ_CONVERT_CODES] = "codes"};

enum oz_status oz_convert_parse(enum oz_convert_to *out, const char *name, struct oz_error *err)
{
    *out = OZ_CONVERT_BF16;
    for (int i = 0; name != NULL && i < OZ_CONVERT_COUNT; i++) {
        if (strcasecmp(name, names[i]) == 0) {
            *out = (enum oz_convert_to)i;
            return OZ_OK;
        }
    }
    return name == NULL
               ? OZ_OK
               : OZ_FAIL(err, OZ_ERR_ARG,
                         "\"%.100s\" is nothing that weights are converted to: bf16 or codes.",
                         name);
}

/* Is a component not what any reader of the diffusers layout opens? */
static bool is_foreign(const struct oz_component *c)
{
    bool safetensors = true;
    for (int32_t i = 0; i < oz_ckpt_file_count(c->ckpt); i++) {
        const char *ending = strrchr(oz_ckpt_file(c->ckpt, i)->path, '.');
        safetensors = safetensors && ending != NULL && strcmp(ending, ".safetensors") == 0;
    }
    return c->stored.method != NULL || c->stored.count > 0 || c->replaced ||
           c->convention != NULL || !safetensors;
}

/* Rows that the file holds quantized: schemes of ours keep their codes, or all are expanded. */
static void expand(struct oz_component *c, enum oz_convert_to to)
{
    for (int32_t i = 0; c->stored.count > 0 && i < c->table.count; i++) {
        const struct oz_scheme *s = &c->stored.schemes[i];
        if (s->codec != NULL && (to == OZ_CONVERT_BF16 || oz_scheme_find(s->name) == NULL)) {
            oz_stored_expand(&c->stored, i);
        }
    }
}

/* As if a request had asked for what the file holds; what is expanded is plain then. */
static enum oz_status choose(struct oz_component *c, struct oz_error *err)
{
    struct oz_assignment *a = &c->assignment;
    struct oz_dialect_tensor tensors[OZ_DIALECT_TENSORS];
    int32_t count;
    for (int32_t i = 0; c->stored.count > 0 && i < c->table.count; i++) {
        struct oz_choice *choice = &a->choices[i];
        if (choice->scheme.codec == NULL) {
            continue;
        }
        if (oz_scheme_find(choice->scheme.name) == NULL) {
            choice->scheme = oz_scheme_as_stored();
            choice->source = OZ_SOURCE_STORED;
            continue;
        }
        struct oz_error why;
        if (oz_dialect_layout(tensors, &count, &choice->scheme, &c->table.rows[i], OZ_DTYPE_BF16,
                              &why) != OZ_OK) {
            return OZ_FAIL(err, why.code, "%s Convert the model to bf16 (--to bf16).", why.message);
        }
        choice->source = OZ_SOURCE_METHOD;
        a->quantized++;
    }
    return OZ_OK;
}

enum oz_status oz_pipeline_convert(struct oz_pipeline *p, const struct oz_device *dev,
                                   enum oz_convert_to to, struct oz_error *err)
{
    bool any = false;
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        struct oz_component *c = &p->components[i];
        c->converted = is_foreign(c);
        any = any || c->converted;
        expand(c, to);
    }
    if (!any) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "%s is plain and in the diffusers layout: there is nothing to convert. To "
                       "quantize it: ounce quantize.",
                       p->path);
    }
    OZ_TRY(oz_pipeline_assign(p, dev, NULL, OZ_KEEP_STANDARD, false, err));
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        OZ_TRY(choose(&p->components[i], err));
    }
    return OZ_OK;
}
