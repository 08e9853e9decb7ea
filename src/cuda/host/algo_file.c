/*
 * Algorithms that were chosen by timing, in a text file of the card and cuBLASLt's version: a line for
 * each, its key and its 64 bytes. Lines that do not read are passed over, and what an algorithm says is
 * checked by the library before it is used.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "cuda/host/gemm.h"

#define MOST_PATH 4096
#define WORDS 8

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == WORDS * sizeof(uint64_t), "eight words");

/* OUNCE_CACHE, XDG_CACHE_HOME/ounce or HOME/.cache/ounce; false: there is none, or none is wanted. */
static bool folder(char path[MOST_PATH])
{
    const char *own = getenv("OUNCE_CACHE");
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int length = own != NULL                        ? snprintf(path, MOST_PATH, "%s", own)
                 : cache != NULL && cache[0] == '/' ? snprintf(path, MOST_PATH, "%s/ounce", cache)
                 : home != NULL && home[0] == '/'
                     ? snprintf(path, MOST_PATH, "%s/.cache/ounce", home)
                     : 0;
    return length > 0 && length < MOST_PATH - 300;
}

static bool file_name(const struct oz_cuda *c, char path[MOST_PATH])
{
    struct cudaDeviceProp card;
    char name[sizeof card.name];
    if (!folder(path) || cudaGetDeviceProperties(&card, c->index) != cudaSuccess) {
        return false;
    }
    memcpy(name, card.name, sizeof name);
    name[sizeof name - 1] = '\0';
    for (char *s = name; *s != '\0'; s++) {
        bool plain =
            (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9');
        *s = plain ? *s : '-';
    }
    size_t at = strlen(path);
    (void)snprintf(path + at, MOST_PATH - at, "/cublaslt-%zu-%s.txt", cublasLtGetVersion(), name);
    return true;
}

void oz_cuda_read_algos(struct oz_cuda *c)
{
    char path[MOST_PATH];
    char line[512];
    FILE *f = file_name(c, path) ? fopen(path, "re") : NULL;
    if (f == NULL) {
        return;
    }
    while (fgets(line, sizeof line, f) != NULL && c->algo_count < OZ_CUDA_MOST_ALGOS) {
        struct oz_cuda_algo a = {.from_file = true};
        long long values[6];
        char *at = line;
        bool good = true;
        for (int i = 0; i < 6 && good; i++) {
            char *end;
            values[i] = strtoll(at, &end, 10);
            good = end != at;
            at = end;
        }
        for (int i = 0; i < WORDS && good; i++) {
            char *end;
            a.algo.data[i] = strtoull(at, &end, 16);
            good = end != at;
            at = end;
        }
        if (good && values[0] > 0 && values[1] > 0 && *at == '\n') {
            a.n = values[0], a.k = values[1];
            a.x_type = (int32_t)values[2], a.w_type = (int32_t)values[3];
            a.y_type = (int32_t)values[4], a.kind = (int32_t)values[5];
            c->algos[c->algo_count++] = a;
        }
    }
    (void)fclose(f);
    oz_log(OZ_LOG_DEBUG, "dispatch", "%d algorithms of products from %s", (int)c->algo_count, path);
}

/* Every folder on the way. */
static void make_folders(char *path)
{
    for (char *s = path + 1; *s != '\0'; s++) {
        if (*s == '/') {
            *s = '\0';
            (void)mkdir(path, 0777);
            *s = '/';
        }
    }
}

static bool write_all(const struct oz_cuda *c, FILE *f)
{
    bool good = true;
    for (int32_t i = 0; i < c->algo_count && good; i++) {
        const struct oz_cuda_algo *a = &c->algos[i];
        if (a->passing || a->none) { /* that there is none is found at once */
            continue;
        }
        good = fprintf(f, "%lld %lld %d %d %d %d", (long long)a->n, (long long)a->k, a->x_type,
                       a->w_type, a->y_type, a->kind) > 0;
        for (int w = 0; w < WORDS && good; w++) {
            good = fprintf(f, " %llx", (unsigned long long)a->algo.data[w]) > 0;
        }
        good = good && fputc('\n', f) != EOF;
    }
    return good;
}

void oz_cuda_keep_algos(struct oz_cuda *c)
{
    char path[MOST_PATH];
    char beside[MOST_PATH];
    if (!c->algos_changed || !file_name(c, path)) {
        return;
    }
    make_folders(path);
    if (snprintf(beside, sizeof beside, "%s.%d", path, (int)getpid()) >= (int)sizeof beside) {
        return;
    }
    FILE *f = fopen(beside, "wxe");
    if (f == NULL) {
        oz_log(OZ_LOG_DEBUG, "dispatch", "%s: %s; the choice of algorithms is not kept.", beside,
               strerror(errno));
        return;
    }
    bool good = write_all(c, f);
    good = fclose(f) == 0 && good;
    if (!good || rename(beside, path) != 0) {
        (void)unlink(beside);
    }
}
