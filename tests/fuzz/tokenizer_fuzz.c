/* A tokenizer.json. One that opens encodes a text to ids that it has, and decodes them. */
#include <string.h>

#include "base/buf.h"
#include "fuzz/fuzz.h"
#include "text/tokenizer.h"

#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#define OPEN_ONLY 1 /* what PCRE2 writes counts as never written */
#endif
#endif

static void use(const struct oz_tokenizer *tok)
{
    static const char text[] = "a red apple <|im_end|> \xE7\x8C\xAB 12";
    struct oz_token_list ids;
    struct oz_buf back;
    struct oz_error err;
    oz_token_list_init(&ids, 1000);
    oz_buf_init(&back, 1 << 16);
    if (oz_tokenizer_encode(tok, text, sizeof text - 1, NULL, 0, &ids, &err) == OZ_OK) {
        for (size_t i = 0; i < ids.count; i++) {
            FUZZ_CHECK(ids.ids[i] >= 0 && ids.ids[i] < oz_tokenizer_count(tok));
        }
        FUZZ_CHECK(oz_tokenizer_decode(tok, ids.ids, ids.count, &back, &err) == OZ_OK);
    }
    oz_buf_deinit(&back);
    oz_token_list_deinit(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct oz_tokenizer *tok;
    struct oz_error err;
    (void)fuzz_file("tokenizer.json", data, bytes);
    if (oz_tokenizer_open(&tok, fuzz_folder(), &err) != OZ_OK) {
        FUZZ_CHECK(tok == NULL && err.message[0] != '\0');
        return 0;
    }
#ifdef OPEN_ONLY
    (void)use;
#else
    use(tok);
#endif
    oz_tokenizer_close(&tok);
    return 0;
}
