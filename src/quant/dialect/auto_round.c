/*
 * auto_round.c: the config of an AutoRound checkpoint ("quant_method": "auto-round"), whose packing is
 * GPTQ's or AWQ's, as a name says that is read by its parts. Its tensors: int_groups.c.
 */
#include <string.h>

#include "base/error.h"
#include "quant/dialect/dialect.h"

enum oz_status oz_auto_round_config(struct oz_int_groups *out, const struct oz_json *q,
                                    const char *path, struct oz_error *err)
{
    const char *packing;
    const char *backend;
    const char *type;
    int64_t act_bits;
    OZ_TRY(oz_json_get_integer(q, "bits", 4, 1, 16, &out->bits, path, err));
    OZ_TRY(oz_json_get_integer(q, "group_size", 128, -1, INT32_MAX, &out->group_cols, path, err));
    OZ_TRY(oz_json_get_integer(q, "act_bits", 16, 1, 64, &act_bits, path, err));
    OZ_TRY(oz_json_get_string(q, "data_type", "int", &type, path, err));
    OZ_TRY(oz_json_get_string(q, "backend", "auto_round", &backend, path, err)); /* of old files */
    OZ_TRY(oz_json_get_string(q, "packing_format", backend, &packing, path, err));
    bool other = strstr(packing, "llm_compressor") != NULL || strstr(packing, "fp8") != NULL ||
                 strstr(packing, "gguf") != NULL || strstr(packing, "marlin") != NULL ||
                 strstr(packing, "nunchaku") != NULL || strstr(packing, "mlx") != NULL;
    bool rotated = oz_json_count(oz_json_get(q, "rotation_config")) > 0;
    if (strcmp(type, "int") != 0 || other || act_bits < 16 || rotated) {
        return OZ_FAIL(
            err, OZ_ERR_UNSUPPORTED,
            "%s: of AutoRound checkpoints this version reads integers in the packings of "
            "GPTQ and AWQ, with plain activations; this one is \"%.40s\" in \"%.60s\", "
            "activations of %d bits%s.",
            path, type, packing, (int)act_bits, rotated ? ", rotated" : "");
    }
    out->awq = strstr(packing, "awq") != NULL;
    bool gptqmodel = strstr(packing, "gptqmodel") != NULL;
    out->one_less = !out->awq && !gptqmodel && strstr(packing, "gptq") != NULL;
    out->overrides = oz_json_count(oz_json_get(q, "extra_config")) > 0;
    return OZ_OK;
}
