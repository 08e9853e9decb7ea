/*
 * Names that Qwen-Image's tensors have elsewhere. ComfyUI and the writers of GGUF files keep the names of
 * diffusers, which are the original ones: no layout differs, no halves are exchanged, nothing is fused.
 * Some put the place of the model within their program in front.
 */
#include <string.h>

#include "ckpt/table.h"
#include "model/qwen_image/qwen_image.h"

static const char *const prefixes[] = {"model.diffusion_model.", "diffusion_model.", "model.",
                                       "net.", "transformer."};
static const char blocks[] = "transformer_blocks.";

static bool has_blocks(const struct oz_ckpt *ckpt, const char *prefix)
{
    size_t n = strlen(prefix);
    for (int64_t i = 0; i < oz_ckpt_count(ckpt); i++) {
        const char *name = oz_ckpt_tensor(ckpt, i)->name;
        if (strncmp(name, prefix, n) == 0 && strncmp(name + n, blocks, sizeof blocks - 1) == 0) {
            return true;
        }
    }
    return false;
}

enum oz_status oz_qwen_image_rename(struct oz_ckpt *ckpt, const char **convention,
                                    struct oz_error *err)
{
    *convention = NULL;
    if (has_blocks(ckpt, "")) {
        return OZ_OK;
    }
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        if (has_blocks(ckpt, prefixes[i])) {
            *convention = prefixes[i];
            return oz_ckpt_strip(ckpt, prefixes[i], err);
        }
    }
    return OZ_OK;
}
