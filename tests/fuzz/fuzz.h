/*
 * What a fuzz target is: one function that takes bytes and must neither crash nor hang nor leak, and
 * whose findings are checked where they can be. Built with clang and OUNCE_FUZZ each is a libFuzzer
 * program; without, `regress.c` runs its corpus and simple mutations of it, as an ordinary test.
 */
#ifndef OZ_TESTS_FUZZ_H
#define OZ_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Writes bytes to a file of that name in a folder of this process (in memory where there is such a
 * place), and gives its path. Ends the process when it cannot. */
const char *fuzz_file(const char *name, const void *data, size_t bytes);
const char *fuzz_folder(void);

/* Ends the process loudly unless a finding holds. */
#define FUZZ_CHECK(condition) \
    do {                      \
        if (!(condition)) {   \
            __builtin_trap(); \
        }                     \
    } while (0)

#endif
