#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

static char folder[64];

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *place)
{
    (void)st;
    (void)kind;
    (void)place;
    return remove(path);
}

static void remove_folder(void)
{
    (void)nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *fuzz_folder(void)
{
    if (folder[0] == '\0') {
        const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        (void)snprintf(folder, sizeof folder, "%s/ounce-fuzz-XXXXXX", base);
        if (mkdtemp(folder) == NULL) {
            abort();
        }
        (void)atexit(remove_folder);
    }
    return folder;
}

const char *fuzz_file(const char *name, const void *data, size_t bytes)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || close(fd) != 0) {
        abort();
    }
    return path;
}
