#include "dev/linear_backend.h"

#include <stddef.h>
#include <string.h>

#include "base/names.h"
#include "dev/device.h"

#define NATIVE "products with activations as the scheme quantizes them (W8A8, W4A4 ...)"
#define WEIGHT_ONLY "weight-only products (linear.activation none)"

/* vLLM's names are those of its kernel libraries; what they share is the kind of product. */
static const struct oz_linear_backend rows[] = {
    {.name = "auto"},
    {.name = "ref", .flags = OZ_DEVICE_LINEAR_REF, .meaning = "the scalar reference"},
    {.name = "cpu", .flags = OZ_DEVICE_LINEAR_CPU, .meaning = "the processor's kernels"},
    {.name = "cublaslt", .flags = OZ_DEVICE_LINEAR_VENDOR, .meaning = "cuBLASLt"},
    {.name = "own", .flags = OZ_DEVICE_LINEAR_OWN, .meaning = "our own kernels of the card"},
    {.name = "cutlass", .meaning = NATIVE},
    {.name = "torch", .meaning = NATIVE},
    {.name = "flashinfer", .meaning = NATIVE},
    {.name = "marlin", .weight_only = true, .meaning = WEIGHT_ONLY},
    {.name = "xpu_woq", .weight_only = true, .meaning = WEIGHT_ONLY},
};

#define ROWS (sizeof rows / sizeof *rows)

/* flashinfer_cutlass and its like are chosen among by the library's version, not by what they do. */
static bool is_flashinfer(const char *name)
{
    char head[] = "flashinfer_";
    size_t n = strlen(head);
    if (strlen(name) <= n) {
        return false;
    }
    memcpy(head, name, n);
    return oz_names_same(head, "flashinfer_");
}

enum oz_status oz_linear_backend_find(const struct oz_linear_backend **out, const char *name,
                                      const char *option, struct oz_error *err)
{
    const char *names[ROWS];
    *out = &rows[0];
    if (name == NULL || name[0] == '\0') {
        return OZ_OK;
    }
    for (size_t i = 0; i < ROWS; i++) {
        names[i] = rows[i].name;
        if (oz_names_same(name, rows[i].name) ||
            (strcmp(rows[i].name, "flashinfer") == 0 && is_flashinfer(name))) {
            *out = &rows[i];
            return OZ_OK;
        }
    }
    return oz_names_unknown(option, name, names, ROWS, err);
}
