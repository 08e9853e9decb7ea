/*
 * Names that the text tower's tensors have elsewhere. GGUF files have llama.cpp's, "blk.0.attn_q.weight";
 * rows and halves are where transformers has them: of this family llama.cpp permutes nothing. ComfyUI has
 * those of transformers, within a whole checkpoint with the place of the model in front.
 */
#include <stdlib.h>
#include <string.h>

#include "ckpt/table.h"
#include "model/qwen25_vl/qwen25_vl.h"

#define CONVENTION "llama.cpp"

static const char *const prefixes[] = {"text_encoders.qwen25_7b.transformer.",
                                       "qwen25_7b.transformer.", "transformer."};

/* Modules outside and within a layer. */
static const struct {
    const char *from, *to;
} ends[] = {{"token_embd", "model.embed_tokens"},
            {"output_norm", "model.norm"},
            {"output", "lm_head"}},
  parts[] = {
      {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
      {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
      {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
      {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
      {"ffn_down", "mlp.down_proj"},
};

/* Is the name `module` and a dot, and what is behind them? */
static const char *behind(const char *name, const char *module)
{
    size_t n = strlen(module);
    return strncmp(name, module, n) == 0 && name[n] == '.' ? name + n : NULL;
}

static bool of_transformers(void *ctx, const char *name, struct oz_buf *out)
{
    static const char layers[] = "blk.";
    char *dot = NULL;
    (void)ctx;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const char *rest = behind(name, ends[i].from);
        if (rest != NULL) {
            oz_buf_printf(out, "%s%s", ends[i].to, rest);
            return true;
        }
    }
    if (strncmp(name, layers, sizeof layers - 1) != 0) {
        return false;
    }
    const char *number = name + sizeof layers - 1;
    long layer = *number >= '0' && *number <= '9' ? strtol(number, &dot, 10) : -1;
    if (layer < 0 || layer > INT32_MAX || *dot != '.') {
        return false;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *rest = behind(dot + 1, parts[i].from);
        if (rest != NULL) {
            oz_buf_printf(out, "model.layers.%ld.%s%s", layer, parts[i].to, rest);
            return true;
        }
    }
    return false;
}

enum oz_status oz_qwen25_vl_rename(struct oz_ckpt *ckpt, const char **convention,
                                   struct oz_error *err)
{
    *convention = NULL;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        if (oz_ckpt_has(ckpt, prefixes[i], "model.layers.0.input_layernorm.weight")) {
            *convention = prefixes[i];
            return oz_ckpt_strip(ckpt, prefixes[i], err);
        }
    }
    if (oz_ckpt_find(ckpt, "token_embd.weight", NULL) == NULL) {
        return OZ_OK;
    }
    *convention = CONVENTION;
    return oz_ckpt_rename(ckpt, of_transformers, NULL, err);
}
