#include "pipe/random_config.h"

#include <string.h>

#include "base/error.h"
#include "base/names.h"

static const struct {
    const char *name;
    struct oz_random_sizes sizes;
} likes[] = {
    {"emoji",
     {.layers = 6,
      .heads = 4,
      .head_dim = 64,
      .joint_dim = 256,
      .text_layers = 4,
      .text_heads = 4,
      .text_kv_heads = 2,
      .text_intermediate = 768,
      .vae_base_dim = 24,
      .vae_res_blocks = 1,
      .width = 128,
      .height = 128,
      .steps = 20}},
    {"qwen-image",
     {.layers = 60,
      .heads = 24,
      .head_dim = 128,
      .joint_dim = 3584,
      .text_layers = 28,
      .text_heads = 28,
      .text_kv_heads = 4,
      .text_intermediate = 18944,
      .vae_base_dim = 96,
      .vae_res_blocks = 2}},
};
#define LIKES (sizeof likes / sizeof *likes)

static enum oz_status take(int32_t wanted, int32_t least, int32_t most, const char *what,
                           int32_t *size, struct oz_error *err)
{
    if (wanted == 0) {
        return OZ_OK;
    }
    if (wanted < least || wanted > most) {
        return OZ_FAIL(err, OZ_ERR_ARG, "A random model cannot have %d %s; %d to %d are possible.",
                       wanted, what, least, most);
    }
    *size = wanted;
    return OZ_OK;
}

enum oz_status oz_random_sizes_fill(struct oz_random_sizes *s, const struct oz_random_model *m,
                                    int32_t vocab, struct oz_error *err)
{
    const char *names[LIKES];
    const char *like = m->like != NULL && m->like[0] != '\0' ? m->like : likes[0].name;
    bool found = false;
    for (size_t i = 0; i < LIKES; i++) {
        names[i] = likes[i].name;
        if (strcmp(like, likes[i].name) == 0) {
            *s = likes[i].sizes;
            found = true;
        }
    }
    if (!found) {
        const char *near = oz_names_nearest(like, names, LIKES);
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "No sizes are named \"%s\"%s%s%s There are emoji and qwen-image.", like,
                       near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
                       near != NULL ? "\"?" : ".");
    }
    OZ_TRY(take(m->layers, 1, 1024, "layers", &s->layers, err));
    OZ_TRY(take(m->heads, 1, 256, "heads", &s->heads, err));
    OZ_TRY(take(m->head_dim, 8, 512, "features in a head", &s->head_dim, err));
    OZ_TRY(take(m->text_layers, 1, 256, "text layers", &s->text_layers, err));
    OZ_TRY(take(m->vae_base_dim, 4, 1024, "base channels in the VAE", &s->vae_base_dim, err));
    if (s->head_dim % 4 != 0 || s->vae_base_dim % 2 != 0) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "%d features in a head must be a multiple of 4, and %d base channels in the "
                       "VAE even.",
                       s->head_dim, s->vae_base_dim);
    }
    s->text_hidden = s->joint_dim;
    s->vocab = vocab;
    return OZ_OK;
}

void oz_random_config_transformer(struct oz_buf *b, const struct oz_random_sizes *s)
{
    /* Frames, then rows and columns alike; all even. */
    int32_t frames = s->head_dim >= 64 ? 16 : s->head_dim / 4 / 2 * 2;
    frames += (s->head_dim - frames) % 4 != 0 ? 2 : 0;
    int32_t side = (s->head_dim - frames) / 2;
    oz_buf_printf(b,
                  "{\n"
                  "  \"_class_name\": \"QwenImageTransformer2DModel\",\n"
                  "  \"attention_head_dim\": %d,\n"
                  "  \"axes_dims_rope\": [%d, %d, %d],\n"
                  "  \"guidance_embeds\": false,\n"
                  "  \"in_channels\": 64,\n"
                  "  \"joint_attention_dim\": %d,\n"
                  "  \"num_attention_heads\": %d,\n"
                  "  \"num_layers\": %d,\n"
                  "  \"out_channels\": 16,\n"
                  "  \"patch_size\": 2\n"
                  "}\n",
                  s->head_dim, frames, side, side, s->joint_dim, s->heads, s->layers);
}

void oz_random_config_text_encoder(struct oz_buf *b, const struct oz_random_sizes *s)
{
    int32_t pairs = s->text_hidden / s->text_heads / 2;
    int32_t time = pairs / 4;
    int32_t rows = (pairs - time) / 2;
    oz_buf_printf(b,
                  "{\n"
                  "  \"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"],\n"
                  "  \"dtype\": \"bfloat16\",\n"
                  "  \"image_token_id\": %d,\n"
                  "  \"model_type\": \"qwen2_5_vl\",\n"
                  "  \"text_config\": {\n"
                  "    \"hidden_act\": \"silu\",\n"
                  "    \"hidden_size\": %d,\n"
                  "    \"intermediate_size\": %d,\n"
                  "    \"max_position_embeddings\": 4096,\n"
                  "    \"model_type\": \"qwen2_5_vl_text\",\n"
                  "    \"num_attention_heads\": %d,\n"
                  "    \"num_hidden_layers\": %d,\n"
                  "    \"num_key_value_heads\": %d,\n"
                  "    \"rms_norm_eps\": 1e-06,\n"
                  "    \"rope_parameters\": {\n"
                  "      \"mrope_section\": [%d, %d, %d],\n"
                  "      \"rope_theta\": 1000000.0,\n"
                  "      \"rope_type\": \"default\",\n"
                  "      \"type\": \"mrope\"\n"
                  "    },\n"
                  "    \"tie_word_embeddings\": true,\n"
                  "    \"use_sliding_window\": false,\n"
                  "    \"vocab_size\": %d\n"
                  "  },\n",
                  s->vocab - 2, s->text_hidden, s->text_intermediate, s->text_heads, s->text_layers,
                  s->text_kv_heads, time, rows, pairs - time - rows, s->vocab);
    oz_buf_printf(b,
                  "  \"tie_word_embeddings\": true,\n"
                  "  \"video_token_id\": %d,\n"
                  "  \"vision_config\": {\n"
                  "    \"depth\": 1,\n"
                  "    \"fullatt_block_indexes\": [0],\n"
                  "    \"hidden_act\": \"silu\",\n"
                  "    \"hidden_size\": %d,\n"
                  "    \"in_channels\": 3,\n"
                  "    \"intermediate_size\": %d,\n"
                  "    \"model_type\": \"qwen2_5_vl_vision\",\n"
                  "    \"num_heads\": 2,\n"
                  "    \"out_hidden_size\": %d,\n"
                  "    \"patch_size\": %d,\n"
                  "    \"spatial_merge_size\": 2,\n"
                  "    \"temporal_patch_size\": 2,\n"
                  "    \"tokens_per_second\": 4,\n"
                  "    \"window_size\": 112\n"
                  "  },\n"
                  "  \"vision_end_token_id\": %d,\n"
                  "  \"vision_start_token_id\": %d\n"
                  "}\n",
                  s->vocab - 1, OZ_RANDOM_VISION_HIDDEN, OZ_RANDOM_VISION_INTERMEDIATE,
                  s->text_hidden, OZ_RANDOM_VISION_PATCH, s->vocab - 4, s->vocab - 5);
}

void oz_random_config_vae(struct oz_buf *b, const struct oz_random_sizes *s)
{
    /* The published mean and deviation of latents. */
    oz_buf_printf(b,
                  "{\n"
                  "  \"_class_name\": \"AutoencoderKLQwenImage\",\n"
                  "  \"attn_scales\": [],\n"
                  "  \"base_dim\": %d,\n"
                  "  \"dim_mult\": [1, 2, 4, 4],\n"
                  "  \"dropout\": 0.0,\n"
                  "  \"input_channels\": 3,\n"
                  "  \"latents_mean\": [-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, "
                  "-0.1517, 1.5508, 0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, "
                  "-0.2921],\n"
                  "  \"latents_std\": [2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, "
                  "2.0743, 3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.916],\n"
                  "  \"num_res_blocks\": %d,\n"
                  "  \"temperal_downsample\": [false, true, true],\n"
                  "  \"z_dim\": 16\n"
                  "}\n",
                  s->vae_base_dim, s->vae_res_blocks);
}

void oz_random_config_scheduler(struct oz_buf *b)
{
    oz_buf_puts(b, "{\n"
                   "  \"_class_name\": \"FlowMatchEulerDiscreteScheduler\",\n"
                   "  \"base_image_seq_len\": 256,\n"
                   "  \"base_shift\": 0.5,\n"
                   "  \"invert_sigmas\": false,\n"
                   "  \"max_image_seq_len\": 8192,\n"
                   "  \"max_shift\": 0.9,\n"
                   "  \"num_train_timesteps\": 1000,\n"
                   "  \"shift\": 1.0,\n"
                   "  \"shift_terminal\": 0.02,\n"
                   "  \"stochastic_sampling\": false,\n"
                   "  \"time_shift_type\": \"exponential\",\n"
                   "  \"use_beta_sigmas\": false,\n"
                   "  \"use_dynamic_shifting\": true,\n"
                   "  \"use_exponential_sigmas\": false,\n"
                   "  \"use_karras_sigmas\": false\n"
                   "}\n");
}

void oz_random_config_ounce(struct oz_buf *b, const struct oz_random_sizes *s)
{
    oz_buf_puts(b, "{\n  \"name\": \"random\"");
    if (s->width > 0) {
        oz_buf_printf(b,
                      ",\n  \"width\": %d,\n  \"height\": %d,\n  \"num_inference_steps\": %d,\n"
                      "  \"true_cfg_scale\": 4.0,\n  \"negative_prompt\": \" \"",
                      s->width, s->height, s->steps);
    }
    oz_buf_puts(b, "\n}\n");
}

void oz_random_config_index(struct oz_buf *b)
{
    oz_buf_puts(b, "{\n"
                   "  \"_class_name\": \"QwenImagePipeline\",\n"
                   "  \"scheduler\": [\"diffusers\", \"FlowMatchEulerDiscreteScheduler\"],\n"
                   "  \"text_encoder\": [\"transformers\", "
                   "\"Qwen2_5_VLForConditionalGeneration\"],\n"
                   "  \"tokenizer\": [\"transformers\", \"Qwen2Tokenizer\"],\n"
                   "  \"transformer\": [\"diffusers\", \"QwenImageTransformer2DModel\"],\n"
                   "  \"vae\": [\"diffusers\", \"AutoencoderKLQwenImage\"]\n"
                   "}\n");
}
