/* A scheduler_config.json, as the model's own and laid over another. What is accepted gives schedules of numbers, or says why not. */
#include <math.h>

#include "base/json.h"
#include "fuzz/fuzz.h"
#include "pipe/sched_flow.h"

static void check(const struct oz_sched_flow_config *c)
{
    static const int32_t steps[] = {1, 2, 7};
    struct oz_error err;
    for (int i = 0; i < 3; i++) {
        float sigmas[8];
        if (oz_sched_flow_sigmas(c, 64, steps[i], sigmas, &err) == OZ_OK) {
            for (int32_t k = 0; k <= steps[i]; k++) {
                FUZZ_CHECK(isfinite(sigmas[k]) && (k == 0 || sigmas[k] < sigmas[k - 1]));
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct oz_json *v;
    struct oz_error err;
    struct oz_sched_flow_config c;
    if (oz_json_parse(&v, (const char *)data, bytes, "scheduler_config.json", &err) != OZ_OK) {
        return 0;
    }
    if (oz_sched_flow_config_read(&c, v, "scheduler_config.json", &err) == OZ_OK) {
        check(&c);
    }
    c = (struct oz_sched_flow_config){.num_train_timesteps = 1000,
                                      .shift = 1,
                                      .base_shift = 0.5,
                                      .max_shift = 0.9,
                                      .base_image_seq_len = 256,
                                      .max_image_seq_len = 8192};
    if (oz_sched_flow_config_override(&c, v, "scheduler_config", &err) == OZ_OK) {
        check(&c);
    }
    oz_json_free(v);
    return 0;
}
