/* gptq.c: the config of a GPTQ checkpoint ("quant_method": "gptq"). Its tensors: int_groups.c. */
#include <string.h>

#include "base/error.h"
#include "quant/dialect/dialect.h"

enum oz_status oz_gptq_config(struct oz_int_groups *out, const struct oz_json *q, const char *path,
                              struct oz_error *err)
{
    const char *format;
    const char *other;
    const char *pack;
    OZ_TRY(oz_json_get_integer(q, "bits", 4, 1, 16, &out->bits, path, err));
    OZ_TRY(oz_json_get_integer(q, "group_size", 128, -1, INT32_MAX, &out->group_cols, path, err));
    OZ_TRY(oz_json_get_string(q, "format", "gptq", &other, path, err));
    OZ_TRY(oz_json_get_string(q, "checkpoint_format", other, &format, path, err));
    OZ_TRY(oz_json_get_string(q, "pack_dtype", "int32", &pack, path, err));
    bool first = strcmp(format, "gptq") == 0;
    bool planar = strcmp(format, "gptq_p") == 0;
    bool marlin = oz_json_bool(oz_json_get(q, "is_marlin_format"), false);
    if ((!first && !planar && strcmp(format, "gptq_v2") != 0) || marlin ||
        strcmp(pack, "int32") != 0) {
        return OZ_FAIL(
            err, OZ_ERR_UNSUPPORTED,
            "%s: of GPTQ checkpoints this version reads the formats gptq, gptq_v2 and "
            "gptq_p in words of int32; this one is \"%.40s\" in \"%.40s\"%s. Its maker's "
            "tool can save it in another format.",
            path, format, pack, marlin ? ", rearranged for Marlin" : "");
    }
    out->awq = false;
    out->planar = planar;
    out->one_less = first;
    out->overrides = oz_json_count(oz_json_get(q, "dynamic")) > 0;
    return OZ_OK;
}
