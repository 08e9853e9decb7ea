#include "pipe/quantize.h"

#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "dev/ops.h"

static enum oz_status assign_component(struct oz_component *c, const struct oz_assign_input *in,
                                       struct oz_error *err)
{
    size_t bytes = oz_assign_bytes(&c->table, in->request);
    OZ_TRY(oz_arena_init_host(&c->assign_memory, "assignment", bytes, err));
    return oz_assign(&c->assignment, in, &c->assign_memory, err);
}

enum oz_status oz_pipeline_assign(struct oz_pipeline *p, const struct oz_device *dev,
                                  const struct oz_request *request, enum oz_keep keep,
                                  bool allow_unmatched, struct oz_error *err)
{
    const char *names[OZ_COMPONENT_COUNT];
    bool asks = false;
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        names[i] = p->components[i].name;
    }
    if (request != NULL) {
        OZ_TRY(oz_request_check_components(request, names, OZ_COMPONENT_COUNT, err));
    }
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        struct oz_component *c = &p->components[i];
        bool main = i == OZ_COMPONENT_TRANSFORMER;
        struct oz_assign_input in = {
            .table = &c->table,
            .request = request != NULL ? oz_request_for(request, c->name, main) : NULL,
            .stored = c->stored.schemes,
            .checkpoint_method = c->stored.method,
            .acts = dev->ops->act_support(dev),
            .keep = keep,
            .allow_unmatched = allow_unmatched,
        };
        if (main) {
            in.advice = oz_qwen_image_advice;
            in.advice_count = oz_qwen_image_advice_count;
        }
        asks = asks || (in.request != NULL && !in.request->leave && c->stored.count == 0);
        OZ_TRY(assign_component(c, &in, err));
    }
    const struct oz_assignment *main = &p->components[OZ_COMPONENT_TRANSFORMER].assignment;
    p->fallback_steps = main->fallback_steps;
    p->fallback_step_count = main->fallback_step_count;
    if (asks && oz_pipeline_quantized(p) == 0) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "The request quantizes nothing in any component; leave it out, or see "
                       "what it names.");
    }
    return OZ_OK;
}

int64_t oz_pipeline_quantized(const struct oz_pipeline *p)
{
    int64_t count = 0;
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        count += p->components[i].assignment.quantized;
    }
    return count;
}

void oz_pipeline_log_assignments(const struct oz_pipeline *p, const struct oz_request *request)
{
    for (int32_t i = 0; request != NULL && i < request->note_count; i++) {
        oz_log(OZ_LOG_WARN, "quant", "%s %s.", request->notes[i].what, request->notes[i].why);
    }
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_component *c = &p->components[i];
        const struct oz_assignment *a = &c->assignment;
        struct oz_arena memory = c->assign_memory; /* a copy: the line is given back */
        const char *line;
        for (int32_t k = 0; k < a->note_count; k++) {
            oz_log(a->notes[k].advice ? OZ_LOG_INFO : OZ_LOG_WARN, "quant", "%s: %s: %s.", c->name,
                   a->notes[k].what, a->notes[k].why);
        }
        if (a->quantized > 0 && oz_assignment_summary(a, &memory, &line, NULL) == OZ_OK) {
            oz_log(OZ_LOG_INFO, "quant", "%s: %s", c->name, line);
        }
    }
}
