/*
 * Names that the VAE's tensors have elsewhere: those of Wan's own code, which ComfyUI keeps
 * ("decoder.upsamples.3.resample.1.weight"), with or without the place of the model within a checkpoint in
 * front. Shapes are the same, and nothing is fused or turned. What is not in the table keeps its name.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ckpt/table.h"
#include "model/qwen_vae/qwen_vae.h"

#define CONVENTION "Wan"

static const char *const prefixes[] = {"vae.", "first_stage_model."};

struct pair {
    const char *from, *to;
};
/* Outside of encoder and decoder, and at the ends of each. */
static const struct pair ends[] = {
    {"conv1.", "quant_conv."},
    {"conv2.", "post_quant_conv."},
    {"encoder.conv1.", "encoder.conv_in."},
    {"encoder.head.0.", "encoder.norm_out."},
    {"encoder.head.2.", "encoder.conv_out."},
    {"encoder.middle.1.", "encoder.mid_block.attentions.0."},
    {"decoder.conv1.", "decoder.conv_in."},
    {"decoder.head.0.", "decoder.norm_out."},
    {"decoder.head.2.", "decoder.conv_out."},
    {"decoder.middle.1.", "decoder.mid_block.attentions.0."},
};
static const struct pair middles[] = {
    {"encoder.middle.0.", "encoder.mid_block.resnets.0."},
    {"encoder.middle.2.", "encoder.mid_block.resnets.1."},
    {"decoder.middle.0.", "decoder.mid_block.resnets.0."},
    {"decoder.middle.2.", "decoder.mid_block.resnets.1."},
};
/* Within a residual block. */
static const struct pair residual[] = {
    {"residual.0.", "norm1."}, {"residual.2.", "conv1."},       {"residual.3.", "norm2."},
    {"residual.6.", "conv2."}, {"shortcut.", "conv_shortcut."},
};
#define COUNT(list) (sizeof(list) / sizeof *(list))

/* What is behind `prefix`, or NULL. */
static const char *behind(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 ? name + n : NULL;
}

static bool swap(const struct pair *list, size_t count, const char *name, struct oz_buf *out)
{
    for (size_t i = 0; i < count; i++) {
        const char *rest = behind(name, list[i].from);
        if (rest != NULL) {
            oz_buf_printf(out, "%s%s", list[i].to, rest);
            return true;
        }
    }
    return false;
}

static bool is_resample(const char *rest)
{
    return behind(rest, "resample.1.") != NULL || behind(rest, "time_conv.") != NULL;
}

/* "<number>." and what is behind it; false: it is no such thing. */
static bool take_number(const char *text, long *number, const char **rest)
{
    char *dot = NULL;
    if (*text < '0' || *text > '9') {
        return false;
    }
    *number = strtol(text, &dot, 10);
    *rest = dot + 1;
    return *dot == '.' && *number <= INT32_MAX;
}

/* The encoder's blocks keep their numbers; the decoder's are counted through all levels there, each of
 * which has num_res_blocks + 1 residual blocks and then, but for the last, an upsampler. */
static bool of_levels(const struct oz_qwen_vae_config *c, const char *name, struct oz_buf *out)
{
    const char *down = behind(name, "encoder.downsamples.");
    const char *up = behind(name, "decoder.upsamples.");
    const char *rest;
    long number;
    if ((down == NULL && up == NULL) || !take_number(down != NULL ? down : up, &number, &rest)) {
        return false;
    }
    bool resample = is_resample(rest);
    if (down != NULL) {
        oz_buf_printf(out, "encoder.down_blocks.%ld.", number);
    } else {
        long blocks = (long)c->num_res_blocks + 1;
        long level = number / (blocks + 1);
        long block = number % (blocks + 1);
        if (level >= c->levels || resample != (block == blocks)) {
            return false;
        }
        if (resample) {
            oz_buf_printf(out, "decoder.up_blocks.%ld.upsamplers.0.", level);
        } else {
            oz_buf_printf(out, "decoder.up_blocks.%ld.resnets.%ld.", level, block);
        }
    }
    if (resample) {
        oz_buf_puts(out, rest);
        return true;
    }
    return swap(residual, COUNT(residual), rest, out);
}

static bool of_diffusers(void *ctx, const char *name, struct oz_buf *out)
{
    if (swap(ends, COUNT(ends), name, out) || of_levels(ctx, name, out)) {
        return true;
    }
    for (size_t i = 0; i < COUNT(middles); i++) {
        const char *rest = behind(name, middles[i].from);
        if (rest != NULL) {
            oz_buf_puts(out, middles[i].to);
            return swap(residual, COUNT(residual), rest, out);
        }
    }
    return false;
}

enum oz_status oz_qwen_vae_rename(struct oz_ckpt *ckpt, const struct oz_qwen_vae_config *c,
                                  const char **convention, struct oz_error *err)
{
    static const char wan[] = "decoder.conv1.weight";
    static const char own[] = "decoder.conv_in.weight";
    *convention = NULL;
    for (size_t i = 0; i < COUNT(prefixes); i++) {
        if (oz_ckpt_has(ckpt, prefixes[i], wan) || oz_ckpt_has(ckpt, prefixes[i], own)) {
            *convention = prefixes[i];
            OZ_TRY(oz_ckpt_strip(ckpt, prefixes[i], err));
            break;
        }
    }
    if (!oz_ckpt_has(ckpt, "", wan)) {
        return OZ_OK;
    }
    *convention = CONVENTION;
    return oz_ckpt_rename(ckpt, of_diffusers, (void *)(uintptr_t)c, err);
}
