/* Entries about requests: prompts, sizes, seeds; on the bundled model. */
#include "bugs/bugs.h"
#include "test.h"

#include <ounce/ounce.h>

#include "base/buf.h"
#include "base/unicode.h"
#include "scratch.h"
#include "text/tokenizer.h"

#define MODEL OZ_TEST_DIR "/../models/emoji"

static struct oz_error err;
static struct oz_engine *engine;

static struct oz_engine *the_engine(void)
{
    struct oz_engine_options o;
    oz_engine_options_default(&o);
    o.model = MODEL;
    o.log = scratch_log_line;
    if (engine == NULL) {
        (void)bugs_works(oz_engine_open(&engine, &o, &err), &err, "the bundled model");
    }
    return engine;
}

void bugs_close_engine(void)
{
    oz_engine_close(&engine);
}

/* The least work that gives a picture. */
static struct oz_image_request small(const char *prompt)
{
    struct oz_image_request r;
    oz_image_request_default(&r);
    r.prompt = prompt;
    r.width = r.height = 32;
    r.num_inference_steps = 1;
    return r;
}

static enum oz_status draw(const struct oz_image_request *r, int32_t count,
                           struct oz_image **images)
{
    scratch_log_clear();
    return oz_image_generate(the_engine(), r, count, images, &err);
}

static void draws(const char *prompt, const char *what)
{
    struct oz_image *image = NULL;
    struct oz_image_request r = small(prompt);
    if (bugs_works(draw(&r, 1, &image), &err, what)) {
        bugs_right(strstr(scratch_log, "no numbers") == NULL && oz_image_width(image) == 32, what);
    }
    oz_image_destroy(&image);
}

static bool same_pixels(const struct oz_image *a, const struct oz_image *b)
{
    return a != NULL && b != NULL && oz_image_width(a) == oz_image_width(b) &&
           memcmp(oz_image_pixels(a), oz_image_pixels(b),
                  3 * (size_t)oz_image_width(a) * (size_t)oz_image_height(a)) == 0;
}

void b43_prompts_beyond_ascii(void)
{
    draws("chaton tr\xC3\xA8s mignon", "accents");
    draws("\xE7\x8C\xAB", "a Chinese character");
    draws("\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",
          "a family of joined emoji");
    draws("", "an empty prompt");
    static const char *const bad[] = {"a\xED\xA0\x80", "\xFF", "\xC0\x80", "cut \xE7\x8C"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct oz_image *image = NULL;
        struct oz_image_request r = small(bad[i]);
        bugs_refused(draw(&r, 1, &image), &err, OZ_ERR_ARG, "not valid UTF-8 at byte",
                     "invalid UTF-8");
        r = small("x");
        r.negative_prompt = bad[i];
        bugs_refused(draw(&r, 1, &image), &err, OZ_ERR_ARG, "negative prompt is not valid UTF-8",
                     "invalid UTF-8");
        oz_image_destroy(&image);
    }
}

void b44_characters_over_several_tokens(void)
{
    static const char text[] = "a\xF0\x9F\x8E\x89\xE7\x8C\xAB z";
    struct oz_tokenizer *tok;
    struct oz_token_list ids;
    oz_token_list_init(&ids, 64);
    if (!bugs_works(oz_tokenizer_open(&tok, OZ_TEST_DIR "/golden/tokenizer/qwen2_files", &err),
                    &err, "a tokenizer") ||
        !bugs_works(oz_tokenizer_encode(tok, text, strlen(text), NULL, 0, &ids, &err), &err,
                    "encoding")) {
        return;
    }
    bugs_right(ids.count > 5, "a character takes several tokens");
    struct oz_buf all;
    struct oz_buf shown;
    bool whole = true;
    size_t at;
    oz_buf_init(&all, 1 << 16);
    oz_buf_init(&shown, 1 << 16);
    for (size_t i = 0; i < ids.count; i++) {
        if (!bugs_works(oz_tokenizer_decode(tok, &ids.ids[i], 1, &all, &err), &err, "decoding")) {
            break;
        }
        size_t ready = oz_utf8_whole(all.data, all.bytes);
        whole = whole && ready >= shown.bytes && oz_utf8_valid(all.data, ready, &at);
        oz_buf_append(&shown, all.data + shown.bytes, ready - shown.bytes);
    }
    bugs_right(whole, "only whole characters are shown");
    bugs_right(strcmp(oz_buf_text(&shown), text) == 0, "and in the end all of them");
    bugs_right(oz_utf8_whole("ab\xF0\x9F\x8E", 5) == 2, "an unfinished tail is held back");
    bugs_right(oz_utf8_whole("ab\xFF\x80", 4) == 4, "what can never be a character is not");
    oz_buf_deinit(&all);
    oz_buf_deinit(&shown);
    oz_token_list_deinit(&ids);
    oz_tokenizer_close(&tok);
}

void b45_prompts_of_any_length(void)
{
    static const size_t counts[] = {1, 76, 77, 78, 512, 513, 10000};
    static char prompt[2 * 10000 + 1];
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct oz_image *image = NULL;
        char what[64];
        for (size_t k = 0; k < counts[i]; k++) {
            memcpy(prompt + 2 * k, "x ", 2);
        }
        prompt[2 * counts[i] - 1] = '\0';
        (void)snprintf(what, sizeof what, "a prompt of %zu words", counts[i]);
        struct oz_image_request r = small(prompt);
        r.negative_prompt = "";
        if (bugs_works(draw(&r, 1, &image), &err, what)) {
            bool told = strstr(scratch_log, "these words are lost") != NULL;
            bugs_right(told == (counts[i] > 512), what);
        }
        oz_image_destroy(&image);
    }
}

void b47_odd_sizes(void)
{
    static const struct {
        int32_t width, height;
        const char *phrase; /* NULL: fine */
    } sizes[] = {
        {1, 1, "the width is 1; it must lie in 16 to"},
        {7, 7, "the width is 7"},
        {513, 520, "the width is 513; it must be a multiple of 16. The nearest is 512."},
        {800, 1200, NULL},
        {990, 316, "the width is 990; it must be a multiple of 16. The nearest is 992."},
        {992, 316, "the height is 316; it must be a multiple of 16. The nearest is 320."},
        {608, 608, NULL},
        {INT32_MAX, 16, "the width is 2147483647"},
        {-16, 16, "the width is -16"},
        {100000, 10000, "the width is 100000; it must lie in"},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char what[64];
        struct oz_image_request r = small("x");
        r.width = sizes[i].width;
        r.height = sizes[i].height;
        (void)snprintf(what, sizeof what, "%d x %d", r.width, r.height);
        enum oz_status status = oz_image_check(the_engine(), &r, 1, &err);
        if (sizes[i].phrase != NULL) {
            bugs_refused(status, &err, OZ_ERR_ARG, sizes[i].phrase, what);
        } else if (bugs_works(status, &err, what)) {
            bugs_count(PASSED, "%s", what);
        }
    }
    struct oz_image *image = NULL;
    struct oz_image_request r = small("x");
    r.width = 48;
    if (bugs_works(draw(&r, 1, &image), &err, "48 x 32")) {
        bugs_right(oz_image_width(image) == 48 && oz_image_height(image) == 32, "48 x 32");
    }
    oz_image_destroy(&image);
}

void b48_seeds_inside_a_batch(void)
{
    struct oz_image *four[4] = {NULL};
    struct oz_image_request r[4];
    for (int i = 0; i < 4; i++) {
        r[i] = small("red apple");
        r[i].num_inference_steps = 3;
        r[i].seed = 100 + (uint64_t)i;
    }
    if (!bugs_works(draw(r, 4, four), &err, "four pictures")) {
        return;
    }
    for (int i = 0; i < 4; i++) {
        struct oz_image *one = NULL;
        if (bugs_works(draw(&r[i], 1, &one), &err, "one of them alone")) {
            bugs_right(same_pixels(one, four[i]), "alone as in the batch, bit for bit");
        }
        bugs_right(i == 0 || !same_pixels(four[0], four[i]), "another seed, another picture");
        oz_image_destroy(&one);
    }
    for (int i = 0; i < 4; i++) {
        oz_image_destroy(&four[i]);
    }
}
