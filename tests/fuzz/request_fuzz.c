/*
 * A command line: the first byte chooses the command, words end in zero bytes. What is accepted lies in
 * the ranges of options.inc; what is refused was said.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "fuzz/fuzz.h"
#include "messages.h"
#include "options.h"

enum { MAX_WORDS = 64, MAX_BYTES = 4096 };

static void check(const struct settings *s)
{
#define OPTION(member, type, long, letter, argument, commands, least, most, ...) \
    CHECK_##type(s->member, least, most);
#define CHECK_FLAG(v, least, most)
#define CHECK_TEXT(v, least, most)
#define CHECK_LIST(v, least, most) FUZZ_CHECK((v).count == 0 || (v).items != NULL)
#define CHECK_U64(v, least, most)
#define CHECK_CHOICE(v, least, most) FUZZ_CHECK((v) != NULL)
#define CHECK_I32(v, least, most) FUZZ_CHECK((v) == 0 || ((v) >= (least) && (v) <= (most)))
#define CHECK_F64(v, least, most) FUZZ_CHECK((v) < 0 || ((v) >= (least) && (v) <= (most)))
#include "options.inc"
#undef OPTION
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const unsigned commands[] = {COMMAND_TOP,      COMMAND_GENERATE, COMMAND_INSPECT,
                                        COMMAND_KERNELS,  COMMAND_BENCH,    COMMAND_RANDOM_MODEL,
                                        COMMAND_QUANTIZE, COMMAND_PLAN,     COMMAND_COMPARE,
                                        COMMAND_SERVE,    COMMAND_CONVERT};
    static char text[MAX_BYTES + 1];
    static char name[] = "ounce";
    static int quiet;
    char *argv[MAX_WORDS + 2] = {name};
    int argc = 1;
    if (!quiet) { /* what is said goes nowhere; the fuzzer keeps the stream that it has */
        quiet = 1;
        stderr = fopen("/dev/null", "w");
        if (stderr == NULL) {
            abort();
        }
    }
    if (bytes < 1 || bytes > MAX_BYTES) {
        return 0;
    }
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = '\0';
    for (size_t at = 0; at + 1 < bytes && argc <= MAX_WORDS; at += strlen(text + at) + 1) {
        argv[argc++] = text + at;
    }
    struct settings s;
    if (cli_options_parse(&s, commands[data[0] % (sizeof commands / sizeof *commands)], argc,
                          argv) == OZ_OK) {
        check(&s);
    }
    cli_settings_free(&s);
    return 0;
}
