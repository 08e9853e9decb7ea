/*
 * messages.h: everything that the program says. stderr: errors, warnings, log lines and one status
 * line (the progress bar), which other lines never tear. stdout: results, with the first failure
 * remembered. Control characters are shown as \xNN on stderr, so that a file's names cannot steer a
 * terminal.
 */
#ifndef OUNCE_CLI_MESSAGES_H
#define OUNCE_CLI_MESSAGES_H

#include <ounce/status.h>
#include <stdbool.h>

/* The exit code of a status; the table is in messages.c. */
int cli_exit_code(enum oz_status status);

/* "ounce: ..." on stderr; returns status. The text is whole sentences. */
enum oz_status cli_fail(enum oz_status status, const char *format, ...) OZ_PRINTF(2, 3);
/* The same for what the library reported. */
enum oz_status cli_fail_with(const struct oz_error *err);
/* A plain line on stderr. */
void cli_say(const char *format, ...) OZ_PRINTF(1, 2);

/* The library's log callback. ctx: a bool, true for information too. Warnings and errors always
 * show; debug lines show when they come, because OUNCE_LOG asked for them. */
void cli_log(void *ctx, enum oz_log_level level, const char *topic, const char *message);

/* A line at the bottom of a terminal, drawn over the one before; NULL erases it. */
void cli_status_line(const char *text);
/* Is stderr a terminal that can draw one? */
bool cli_status_line_works(void);

/* Opens what the caller left closed of stdin, stdout and stderr, so that no file of ours gets their
 * numbers, and turns a reader that went away into an error of the write. */
void cli_streams_init(void);

/* Results, to stdout. A failure is remembered; cli_print returns false from then on. */
bool cli_print(const char *text, size_t bytes);
bool cli_printf(const char *format, ...) OZ_PRINTF(1, 2);
/*
 * Flushes stdout. OZ_ERR_IO when anything was lost; this has been said, except when the reader went
 * away (ounce inspect | head), who knows.
 */
enum oz_status cli_print_end(void);

/* An oz_write_fn onto stdout; ctx is not looked at. */
int cli_write(void *ctx, const char *text, size_t bytes);
/* Ends the output of a library call that wrote with it, and says what went wrong: lost output first
 * and alone, for what the library makes of it is only its echo. Returns the status to end with. */
enum oz_status cli_print_done(enum oz_status status, const struct oz_error *err);

#endif
