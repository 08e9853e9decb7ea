/*
 * regress FOLDER [ROUNDS]: runs a fuzz target without a fuzzer: every file of the folder, then ROUNDS
 * (200) mutations of each, the same ones every time. For compilers and checks (MemorySanitizer) that
 * have no libFuzzer, and for everybody's `ctest`.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"

enum { MAX_BYTES = 1 << 20, MAX_FILES = 1000 };

static uint64_t state = 42;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Changes, removes, repeats or swaps a few bytes, or puts a word in that readers look for. */
static size_t mutate(uint8_t *data, size_t bytes, size_t room)
{
    static const char *const words[] = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        "\"",
                                        ",",
                                        ":",
                                        "null",
                                        "-1",
                                        "0",
                                        "18446744073709551615",
                                        "9223372036854775807",
                                        "1e999",
                                        "\\u0000",
                                        "\\ud800",
                                        "\xFF",
                                        "\xE7\x8C",
                                        "__metadata__"};
    for (uint64_t n = 1 + next() % 4; n > 0; n--) {
        size_t at = bytes > 0 ? next() % bytes : 0;
        const char *word = words[next() % (sizeof words / sizeof *words)];
        size_t length = strlen(word);
        switch (next() % 6) {
        case 0:
            if (bytes > 0) {
                data[at] ^= (uint8_t)(1U << next() % 8);
            }
            break;
        case 1:
            if (bytes > 0) {
                data[at] = (uint8_t)next();
            }
            break;
        case 2: bytes = at; break;
        case 3:
            if (bytes > 0) {
                memmove(data + at, data + at + 1, bytes - at - 1);
                bytes--;
            }
            break;
        default:
            if (bytes + length <= room) {
                memmove(data + at + length, data + at, bytes - at);
                memcpy(data + at, word, length);
                bytes += length;
            }
        }
    }
    return bytes;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Runs a copy of exactly that size: a byte too far is found. */
static void run(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    if (copy != NULL) {
        memcpy(copy, data, bytes);
        (void)LLVMFuzzerTestOneInput(copy, bytes);
        free(copy);
    }
}

int main(int argc, char **argv)
{
    static uint8_t original[MAX_BYTES];
    static uint8_t data[MAX_BYTES];
    char *names[MAX_FILES];
    int count = 0;
    long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 200;
    DIR *dir = argc > 1 ? opendir(argv[1]) : NULL;
    if (dir == NULL) {
        printf("usage: %s FOLDER [ROUNDS]\n", argv[0]);
        return 2;
    }
    for (struct dirent *e = readdir(dir); e != NULL && count < MAX_FILES; e = readdir(dir)) {
        if (e->d_name[0] != '.') {
            names[count++] = strdup(e->d_name);
        }
    }
    (void)closedir(dir);
    qsort(names, (size_t)count, sizeof *names, by_text);
    run(data, 0);
    for (int i = 0; i < count; i++) {
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/%s", argv[1], names[i]);
        FILE *f = fopen(path, "rb");
        if (f == NULL) {
            return 1;
        }
        size_t bytes = fread(original, 1, sizeof original, f);
        (void)fclose(f);
        run(original, bytes);
        for (long k = 0; k < rounds; k++) {
            memcpy(data, original, bytes);
            run(data, mutate(data, bytes, sizeof data));
        }
        free(names[i]);
    }
    printf("%d files, %ld mutations of each\n", count, rounds);
    return count == 0;
}
