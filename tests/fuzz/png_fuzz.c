/* A PNG with texts in it. What is decoded can be encoded again. */
#include "base/buf.h"
#include "fuzz/fuzz.h"
#include "media/png.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct oz_png png = {0};
    struct oz_error err;
    struct oz_buf out;
    if (oz_png_decode(data, bytes, 1 << 16, &png, &err) != OZ_OK) {
        FUZZ_CHECK(png.rgb == NULL && err.message[0] != '\0');
        return 0;
    }
    oz_buf_init(&out, 1 << 24);
    FUZZ_CHECK(oz_png_encode(png.rgb, png.width, png.height, NULL, 0, &out, &err) == OZ_OK);
    oz_buf_deinit(&out);
    (void)oz_png_find_text(&png, OZ_PNG_KEYWORD);
    oz_png_deinit(&png);
    return 0;
}
