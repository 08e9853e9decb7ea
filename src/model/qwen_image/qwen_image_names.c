/*
 * Names that Qwen-Image's tensors have elsewhere. ComfyUI and the writers of GGUF files keep the names of
 * diffusers, which are the original ones: no layout differs, no halves are exchanged, nothing is fused.
 * Some put the place of the model within their program in front.
 */
#include <string.h>

#include "base/error.h"
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

/* nunchaku calls the three projections of the text stream, fused, otherwise. */
static bool of_nunchaku(void *ctx, const char *name, struct oz_buf *out)
{
    static const char fused[] = ".attn.add_qkv_proj.";
    const char *at = strncmp(name, blocks, sizeof blocks - 1) == 0 ? strstr(name, fused) : NULL;
    (void)ctx;
    if (at == NULL) {
        return false;
    }
    oz_buf_append(out, name, (size_t)(at - name));
    oz_buf_printf(out, ".attn.add_kv_proj.%s", at + sizeof fused - 1);
    return true;
}

enum oz_status oz_qwen_image_rename(struct oz_ckpt *ckpt, const char **convention,
                                    struct oz_error *err)
{
    *convention = NULL;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !has_blocks(ckpt, ""); i++) {
        if (has_blocks(ckpt, prefixes[i])) {
            *convention = prefixes[i];
            OZ_TRY(oz_ckpt_strip(ckpt, prefixes[i], err));
        }
    }
    return oz_ckpt_rename(ckpt, of_nunchaku, NULL, err);
}
