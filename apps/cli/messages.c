#include "messages.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

/* Every status has its exit code here; scripts rely on them, so they are never changed. */
static const struct {
    enum oz_status status;
    int exit_code;
} exit_codes[] = {
    {OZ_OK, 0},              /* done */
    {OZ_ERR_INTERNAL, 1},    /* our bug */
    {OZ_ERR_ARG, 2},         /* usage */
    {OZ_ERR_FORMAT, 3},      /* malformed file */
    {OZ_ERR_UNSUPPORTED, 4}, /* valid but unsupported */
    {OZ_ERR_NOMEM, 5},       /* out of memory */
    {OZ_ERR_IO, 6},          /* input/output */
    {OZ_ERR_THRESHOLD, 7},   /* a threshold was missed */
    {OZ_ERR_NO_MODEL, 8},    /* no such model */
    {OZ_ERR_DEVICE, 9},      /* device absent or lost */
    {OZ_ERR_CANCELLED, 130}, /* interrupted */
    {OZ_ERR_BUSY, 11},       /* busy, try again later */
};
#define COUNT_STATUS(name, value, text) +1
_Static_assert(sizeof exit_codes / sizeof *exit_codes == 0 OZ_STATUS_MAP(COUNT_STATUS),
               "a status without an exit code");

int cli_exit_code(enum oz_status status)
{
    for (size_t i = 0; i < sizeof exit_codes / sizeof *exit_codes; i++) {
        if (exit_codes[i].status == status) {
            return exit_codes[i].exit_code;
        }
    }
    return 1;
}

/* ---- stderr ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* log lines come from any thread */
static bool status_drawn;

static void erase_status(void)
{
    if (status_drawn) {
        fputs("\r\033[K", stderr);
        status_drawn = false;
    }
}

static void put_clean(const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if ((c < ' ' && c != '\n') || c == 0x7f) {
            fprintf(stderr, "\\x%02x", c);
        } else {
            putc(c, stderr);
        }
    }
}

static void put_line(const char *head, const char *text)
{
    pthread_mutex_lock(&lock);
    erase_status();
    fputs(head, stderr);
    put_clean(text);
    putc('\n', stderr);
    (void)fflush(stderr);
    pthread_mutex_unlock(&lock);
}

enum oz_status cli_fail(enum oz_status status, const char *format, ...)
{
    char text[2 * OZ_ERROR_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put_line("ounce: ", text);
    return status;
}

enum oz_status cli_fail_with(const struct oz_error *err)
{
    if (err->code == OZ_ERR_INTERNAL && err->file != NULL) {
        return cli_fail(err->code, "%s (%s:%d)", err->message, err->file, err->line);
    }
    return cli_fail(err->code, "%s", err->message);
}

void cli_say(const char *format, ...)
{
    char text[2 * OZ_ERROR_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put_line("", text);
}

/* Has this line been said before? Pictures of one prompt bring the same warning each. The list lives
 * as long as the program; when it is full, lines are said again. */
static bool said_before(const char *message)
{
    static char *said[256];
    static size_t count;
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count && !found; i++) {
        found = strcmp(said[i], message) == 0;
    }
    if (!found && count < sizeof said / sizeof *said) {
        said[count++] = cli_format("%s", message);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void cli_log(void *ctx, enum oz_log_level level, const char *topic, const char *message)
{
    const bool *verbose = ctx;
    char head[64];
    switch (level) {
    case OZ_LOG_ERROR: (void)snprintf(head, sizeof head, "ounce: error: "); break;
    case OZ_LOG_WARN:
        if (said_before(message)) {
            return;
        }
        (void)snprintf(head, sizeof head, "ounce: warning: ");
        break;
    case OZ_LOG_INFO:
        if (!*verbose) {
            return;
        }
        (void)snprintf(head, sizeof head, "ounce: %s: ", topic);
        break;
    default: (void)snprintf(head, sizeof head, "ounce: debug: %s: ", topic); break;
    }
    put_line(head, message);
}

void cli_status_line(const char *text)
{
    pthread_mutex_lock(&lock);
    if (text == NULL) {
        erase_status();
    } else {
        fprintf(stderr, "\r%s\033[K", text);
        status_drawn = true;
    }
    (void)fflush(stderr);
    pthread_mutex_unlock(&lock);
}

bool cli_status_line_works(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term != NULL && strcmp(term, "dumb") != 0;
}

/* ---- stdout ---- */

static int stdout_error; /* errno of the first failure */
static bool stdout_error_said;

void cli_streams_init(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFL) < 0 && errno == EBADF) {
            /* The wrong direction: using it fails, as using a closed one would. */
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file too large is an error of its write */
}

static bool printed(bool ok)
{
    if (!ok && stdout_error == 0) {
        stdout_error = errno != 0 ? errno : EIO;
    }
    return stdout_error == 0;
}

bool cli_print(const char *text, size_t bytes)
{
    errno = 0;
    return printed(fwrite(text, 1, bytes, stdout) == bytes);
}

bool cli_printf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    errno = 0;
    bool ok = vfprintf(stdout, format, args) >= 0;
    va_end(args);
    return printed(ok);
}

enum oz_status cli_print_end(void)
{
    errno = 0;
    if (printed(fflush(stdout) == 0)) {
        return OZ_OK;
    }
    if (stdout_error != EPIPE && !stdout_error_said) {
        stdout_error_said = true;
        return cli_fail(OZ_ERR_IO, "Cannot write to standard output: %s.", strerror(stdout_error));
    }
    return OZ_ERR_IO;
}

int cli_write(void *ctx, const char *text, size_t bytes)
{
    (void)ctx;
    return !cli_print(text, bytes);
}

enum oz_status cli_print_done(enum oz_status status, const struct oz_error *err)
{
    enum oz_status flushed = cli_print_end();
    if (flushed != OZ_OK) {
        return flushed;
    }
    return status == OZ_OK ? OZ_OK : cli_fail_with(err);
}
