/* hello.c: draws a red apple with the bundled model into hello.png. */
#include <ounce/ounce.h>
#include <stdio.h>

int main(void)
{
    struct oz_engine_options options;
    struct oz_image_request request;
    struct oz_engine *engine = NULL;
    struct oz_image *image = NULL;
    struct oz_error err;

    oz_engine_options_default(&options);
    enum oz_status status = oz_engine_open(&engine, &options, &err);
    if (status == OZ_OK) {
        oz_image_request_default(&request);
        request.prompt = "red apple";
        request.seed = 42;
        status = oz_image_generate(engine, &request, 1, &image, &err);
    }
    if (status == OZ_OK) {
        status = oz_image_write_png(image, "hello.png", NULL, &err);
    }
    if (status != OZ_OK) {
        fprintf(stderr, "hello: %s\n", err.message);
    }
    oz_image_destroy(&image);
    oz_engine_close(&engine);
    return status == OZ_OK ? 0 : 1;
}
