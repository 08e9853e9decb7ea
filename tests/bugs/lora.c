/* Entries about adapters; on the bundled model. */
#include "bugs/bugs.h"
#include "test.h"

#include <ounce/ounce.h>
#include <string.h>

#include "scratch.h"

#define MODEL OZ_TEST_DIR "/../models/emoji"
#define LORA OZ_TEST_DIR "/golden/lora/kohya.safetensors"

/* Smaller pictures of this small model turn on roundings. */
#define SIDE 64

static struct oz_error err;

static enum oz_status draw(const char *method, const char *lora, struct oz_image **image)
{
    struct oz_engine *engine;
    struct oz_engine_options o;
    struct oz_image_request r;
    *image = NULL;
    oz_engine_options_default(&o);
    oz_image_request_default(&r);
    o.model = MODEL;
    o.log = scratch_log_line;
    o.quantization = method;
    o.loras = &lora;
    o.lora_count = lora != NULL;
    r.prompt = "red apple";
    r.width = r.height = SIDE;
    r.num_inference_steps = 4;
    scratch_log_clear();
    enum oz_status status = oz_engine_open(&engine, &o, &err);
    if (status == OZ_OK) {
        status = oz_image_generate(engine, &r, 1, image, &err);
    }
    oz_engine_close(&engine);
    return status;
}

/* Mean squared difference of two pictures' pixels. */
static double difference(const struct oz_image *a, const struct oz_image *b)
{
    double squares = 0;
    for (int i = 0; i < SIDE * SIDE * 3; i++) {
        double d = (double)oz_image_pixels(a)[i] - (double)oz_image_pixels(b)[i];
        squares += d * d;
    }
    return squares / (SIDE * SIDE * 3);
}

/* Quantized with the adapter is nearer to the adapter's own picture than to the one without. */
void b59_lora_on_quantized_weights(void)
{
    static const char *const methods[] = {"fp8", "fp8_per_block", "int8", "mxfp8"};
    struct oz_image *with;
    struct oz_image *without;
    if (!bugs_works(draw(NULL, LORA ":0.25", &with), &err, "the adapter") ||
        !bugs_works(draw(NULL, NULL, &without), &err, "the model alone")) {
        return;
    }
    bugs_right(strstr(scratch_log, "LoRA") == NULL, "no adapter is told where there is none");
    bugs_right(difference(with, without) > 0, "the adapter changes the picture");
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct oz_image *image;
        if (bugs_works(draw(methods[i], LORA ":0.25", &image), &err, methods[i])) {
            bugs_right(4 * difference(image, with) < difference(image, without), methods[i]);
            bugs_right(strstr(scratch_log, "adapts 4 layers") != NULL, "layers are counted");
        }
        oz_image_destroy(&image);
    }
    oz_image_destroy(&with);
    oz_image_destroy(&without);
    bugs_refused(draw("fp8", MODEL "/../../tests/golden/lora/golden.safetensors", &with), &err,
                 OZ_ERR_FORMAT, "no part of a LoRA", "a file without keys of an adapter");
}
