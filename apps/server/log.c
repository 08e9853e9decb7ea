/* log.c: log lines of keys and values. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app.h"

void sv_line_begin(struct sv_line *line, const char *level, const char *event)
{
    struct timespec now;
    struct tm utc;
    char text[32];
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    *line = (struct sv_line){0};
    sv_text_printf(&line->text, "time=%s.%03ldZ level=%s event=%s", text, now.tv_nsec / 1000000,
                   level, event);
}

void sv_line_put(struct sv_line *line, const char *key, const char *value)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/:@+[]";
    sv_text_printf(&line->text, " %s=", key);
    if (value != NULL && value[0] != '\0' && value[strspn(value, plain)] == '\0') {
        sv_text_put(&line->text, value);
        return;
    }
    /* As in JSON: no quote, line end or control character gets out. */
    struct sv_text quoted = {0};
    sv_json_put_string(&quoted, NULL, value != NULL ? value : "");
    if (quoted.failed) {
        line->text.failed = true;
    } else {
        sv_text_add(&line->text, quoted.data, quoted.bytes);
    }
    sv_text_free(&quoted);
}

void sv_line_printf(struct sv_line *line, const char *key, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sv_line_put(line, key, text);
}

void sv_line_end(struct sv_line *line, const struct sv_options *options)
{
    options->say(options->ctx, line->text.failed
                                   ? "level=error event=log message=\"no memory for a log line\""
                                   : line->text.data);
    sv_text_free(&line->text);
}
