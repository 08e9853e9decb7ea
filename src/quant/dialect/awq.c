/* awq.c: the config of an AWQ checkpoint ("quant_method": "awq"). Its tensors: int_groups.c. */
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "quant/dialect/dialect.h"

enum oz_status oz_awq_config(struct oz_int_groups *out, const struct oz_json *q, const char *path,
                             struct oz_error *err)
{
    const char *version;
    const char *backend;
    int64_t bits;
    int64_t group;
    OZ_TRY(oz_json_get_integer(q, "w_bit", 4, 1, 16, &bits, path, err));
    OZ_TRY(oz_json_get_integer(q, "bits", bits, 1, 16, &out->bits, path, err));
    OZ_TRY(oz_json_get_integer(q, "q_group_size", 128, -1, INT32_MAX, &group, path, err));
    OZ_TRY(oz_json_get_integer(q, "group_size", group, -1, INT32_MAX, &out->group_cols, path, err));
    OZ_TRY(oz_json_get_string(q, "version", "gemm", &version, path, err));
    OZ_TRY(oz_json_get_string(q, "backend", "autoawq", &backend, path, err));
    bool gemv = strcasecmp(version, "gemv") == 0;
    if ((!gemv && strcasecmp(version, "gemm") != 0) || strcmp(backend, "llm-awq") == 0) {
        return OZ_FAIL(
            err, OZ_ERR_UNSUPPORTED,
            "%s: of AWQ checkpoints this version reads the versions gemm and gemv; this "
            "one is \"%.40s\" of \"%.40s\", rearranged for a kernel. Take the checkpoint "
            "of another version, or the plain one and quantize it while loading.",
            path, version, backend);
    }
    out->awq = true;
    out->gemv = gemv;
    out->one_less = false;
    out->overrides = false;
    return OZ_OK;
}
