#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static oz_log_fn sink;
static void *sink_ctx;
static uint64_t sink_number; /* of the last call of oz_log_set */
static char topics[256];     /* of OUNCE_LOG */

uint64_t oz_log_set(oz_log_fn fn, void *ctx)
{
    const char *wanted = getenv("OUNCE_LOG");
    pthread_mutex_lock(&lock);
    sink = fn;
    sink_ctx = ctx;
    uint64_t number = ++sink_number;
    (void)snprintf(topics, sizeof topics, "%s", wanted != NULL ? wanted : "");
    pthread_mutex_unlock(&lock);
    return number;
}

void oz_log_unset(uint64_t number)
{
    pthread_mutex_lock(&lock);
    if (number == sink_number) {
        sink = NULL;
        sink_ctx = NULL;
    }
    pthread_mutex_unlock(&lock);
}

/* Is `topic` one of the comma-separated words of OUNCE_LOG? */
static bool topic_listed(const char *topic)
{
    size_t n = strlen(topic);
    for (const char *p = topics; *p != '\0';) {
        size_t word = strcspn(p, ",");
        if ((word == n && strncmp(p, topic, n) == 0) || (word == 3 && strncmp(p, "all", 3) == 0)) {
            return true;
        }
        p += word + (p[word] == ',');
    }
    return false;
}

bool oz_log_wants(enum oz_log_level level, const char *topic)
{
    pthread_mutex_lock(&lock);
    bool wants = sink != NULL && (level != OZ_LOG_DEBUG || topic_listed(topic));
    pthread_mutex_unlock(&lock);
    return wants;
}

void oz_log(enum oz_log_level level, const char *topic, const char *format, ...)
{
    if (!oz_log_wants(level, topic)) {
        return;
    }
    char line[2048];
    char *whole = NULL; /* of a longer line: lists of names must arrive whole */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n >= (int)sizeof line && (whole = oz_alloc((size_t)n + 1)) != NULL) {
        va_start(args, format);
        (void)vsnprintf(whole, (size_t)n + 1, format, args);
        va_end(args);
    }
    pthread_mutex_lock(&lock);
    if (sink != NULL) {
        sink(sink_ctx, level, topic, whole != NULL ? whole : line);
    }
    pthread_mutex_unlock(&lock);
    oz_free(whole);
}
