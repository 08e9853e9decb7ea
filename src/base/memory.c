#include "base/memory.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The names of one version of control groups. */
struct version {
    const char *mount, *limit, *used, *cache; /* cache: a word of memory.stat */
};

static const struct version v2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                  "inactive_file"};
static const struct version v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                  "memory.usage_in_bytes", "total_inactive_file"};

static FILE *open_text(const char *root, const char *folder, const char *name)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

/* The number behind `word` in a line "<word> <number>" or "<word>: <number> kB"; -1 when no line has
 * it. An empty word: the first line's. */
static int64_t read_number(const char *root, const char *folder, const char *name, const char *word)
{
    char line[512];
    int64_t value = -1;
    size_t n = strlen(word);
    FILE *f = open_text(root, folder, name);
    if (f == NULL) {
        return -1;
    }
    while (value < 0 && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, word, n) == 0 && (n == 0 || line[n] == ' ' || line[n] == ':')) {
            char *end;
            const char *digits = line + n + (line[n] == ':');
            long long v = strtoll(digits, &end, 10);
            value = end != digits && v >= 0 ? (int64_t)v : -1;
        }
        if (n == 0) {
            break;
        }
    }
    (void)fclose(f);
    return value;
}

/* The process's group under a hierarchy: "/a/b". False when it is in none. */
static bool group_of(const char *root, const struct version *v, char path[PATH_MAX])
{
    char line[PATH_MAX + 256];
    bool found = false;
    FILE *f = open_text(root, "/proc/self", "cgroup");
    if (f == NULL) {
        return false;
    }
    while (!found && fgets(line, sizeof line, f) != NULL) {
        /* "0::/path", or "7:cpu,memory:/path" */
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) {
            continue;
        }
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        controllers++;
        bool memory = false;
        for (char *save, *c = strtok_r(controllers, ",", &save); c != NULL;
             c = strtok_r(NULL, ",", &save)) {
            memory = memory || strcmp(c, "memory") == 0;
        }
        found = v == &v2 ? line[0] == '0' && line[1] == ':' && !memory : memory;
        if (found) {
            found = strlen(group) < PATH_MAX;
            memcpy(path, found ? group : "", found ? strlen(group) + 1 : 1);
        }
    }
    (void)fclose(f);
    return found;
}

static void cut(int64_t *value, int64_t limit)
{
    *value = *value < 0 || limit < *value ? limit : *value;
}

/* The limits of a group and of those above it. In a namespace of its own the process sees its group as
 * "/", or a path that is not mounted here; then what is mounted counts. */
static void apply_groups(const char *root, const struct version *v, int64_t *available,
                         int64_t *total)
{
    char path[PATH_MAX];
    if (!group_of(root, v, path)) {
        return;
    }
    for (;;) {
        char folder[PATH_MAX + 64];
        bool top = strcmp(path, "/") == 0 || path[0] == '\0';
        (void)snprintf(folder, sizeof folder, "%s%s", v->mount, top ? "" : path);
        int64_t limit = read_number(root, folder, v->limit, "");
        int64_t used = read_number(root, folder, v->used, "");
        if (limit >= 0 && used >= 0) { /* "max" is no number */
            int64_t cache = read_number(root, folder, "memory.stat", v->cache);
            used -= cache > 0 ? cache : 0;
            used = used > 0 ? used : 0;
            cut(total, limit);
            cut(available, limit > used ? limit - used : 0);
        }
        if (top) {
            return;
        }
        char *slash = strrchr(path, '/');
        *(slash != NULL ? slash : path) = '\0';
    }
}

void oz_memory_read(const char *root, int64_t *available_bytes, int64_t *total_bytes)
{
    int64_t available = read_number(root, "/proc", "meminfo", "MemAvailable");
    int64_t total = read_number(root, "/proc", "meminfo", "MemTotal");
    *available_bytes = available >= 0 ? available * 1024 : -1;
    *total_bytes = total >= 0 ? total * 1024 : -1;
    apply_groups(root, &v2, available_bytes, total_bytes);
    apply_groups(root, &v1, available_bytes, total_bytes);
}

static int64_t status_bytes(const char *root, const char *word)
{
    int64_t kib = read_number(root, "/proc/self", "status", word);
    return kib >= 0 && kib <= INT64_MAX / 1024 ? kib * 1024 : -1;
}

int64_t oz_memory_anonymous(const char *root)
{
    return status_bytes(root, "RssAnon");
}

int64_t oz_memory_peak(const char *root)
{
    return status_bytes(root, "VmHWM");
}

bool oz_memory_peak_reset(const char *root)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/proc/self/clear_refs", root);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bool done = write(fd, "5", 1) == 1; /* proc(5): resets the peak and nothing else */
    (void)close(fd);
    return done;
}
