#include "cases.h"

#include "base/json.h"
#include "test.h"

void require(enum oz_status status, const struct oz_error *err)
{
    if (status != OZ_OK) {
        fail_msg("%s (%s:%d)", err->message, err->file, err->line);
    }
}

void read_cases(const struct oz_ckpt *reference, const struct oz_pipeline *p,
                struct reference_case cases[CASES])
{
    struct oz_error err;
    struct oz_json *json;
    const char *text = oz_ckpt_metadata(reference, "cases");
    assert_non_null(text);
    require(oz_json_parse(&json, text, strlen(text), "cases", &err), &err);
    assert_int_equal(oz_json_count(json), CASES);
    for (size_t i = 0; i < CASES; i++) {
        const struct oz_json *c = oz_json_at(json, i);
        struct reference_case *r = &cases[i];
        (void)snprintf(r->prompt, sizeof r->prompt, "%s",
                       oz_json_string(oz_json_get(c, "prompt"), ""));
        r->task = (struct oz_task){
            .prompt = r->prompt,
            .negative_prompt = " ",
            .width = (int32_t)oz_json_integer(oz_json_get(c, "width"), 0),
            .height = (int32_t)oz_json_integer(oz_json_get(c, "height"), 0),
            .steps = (int32_t)oz_json_integer(oz_json_get(c, "steps"), 0),
            .scale = oz_json_number(oz_json_get(c, "true_cfg_scale"), 0),
            .seed = (uint64_t)oz_json_integer(oz_json_get(c, "seed"), 0),
        };
        require(oz_task_resolve(&r->task, p, 0, &err), &err);
    }
    oz_json_free(json);
}
