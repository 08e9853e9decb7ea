/* keep.c: keep-lists by role (decisions.md 13), and the names of sources. */
#include "base/error.h"
#include "base/names.h"
#include "quant/assign.h"

#define SOURCE_NAME(id, name) name,
static const char *const source_names[] = {OZ_SOURCE_MAP(SOURCE_NAME)};

const char *oz_source_name(enum oz_source source)
{
    return (unsigned)source < OZ_SOURCE_COUNT ? source_names[source] : "?";
}

#define KEEP_NAME(id, name) name,
static const char *const keep_names[] = {OZ_KEEP_MAP(KEEP_NAME)};

const char *oz_keep_name(enum oz_keep keep)
{
    return (unsigned)keep < OZ_KEEP_COUNT ? keep_names[keep] : "?";
}

enum oz_status oz_keep_parse(enum oz_keep *out, const char *name, struct oz_error *err)
{
    *out = OZ_KEEP_STANDARD;
    if (name == NULL || *name == '\0') {
        return OZ_OK;
    }
    for (int i = 0; i < OZ_KEEP_COUNT; i++) {
        if (oz_names_same(keep_names[i], name)) {
            *out = (enum oz_keep)i;
            return OZ_OK;
        }
    }
    const char *near = oz_names_nearest(name, keep_names, OZ_KEEP_COUNT);
    return OZ_FAIL(err, OZ_ERR_ARG,
                   "There is no keep-list \"%.100s\"%s%s%s; there are none, standard and "
                   "conservative.",
                   name, near != NULL ? " (did you mean \"" : "", near != NULL ? near : "",
                   near != NULL ? "\"?)" : "");
}

bool oz_keep_has(enum oz_keep keep, enum oz_role role)
{
    switch (role) {
    case OZ_ROLE_EMBEDDER:
    case OZ_ROLE_TOKEN_EMBED:
    case OZ_ROLE_MODULATION:
    case OZ_ROLE_FINAL:
    case OZ_ROLE_ROUTER:
    case OZ_ROLE_LM_HEAD:
    case OZ_ROLE_REFINER: return keep != OZ_KEEP_NONE;
    case OZ_ROLE_ATTN_OUT:
    case OZ_ROLE_MLP_DOWN: return keep == OZ_KEEP_CONSERVATIVE;
    default: return false;
    }
}
