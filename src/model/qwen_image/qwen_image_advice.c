/* What is known of the family's layers under quantization; shown where it applies. */
#include "model/qwen_image/qwen_image.h"

const struct oz_advice oz_qwen_image_advice[] = {
    {.layers = "img_mlp",
     .schemes = "fp8",
     .text = "the first to ignore (ignored_layers) if quality regresses under FP8"},
};
const int32_t oz_qwen_image_advice_count =
    (int32_t)(sizeof oz_qwen_image_advice / sizeof *oz_qwen_image_advice);
