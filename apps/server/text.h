/*
 * text.h: text that grows, and small things with text. A text that could not grow is `failed` from then
 * on and stays as it is: whoever hands it on looks once, at the end.
 */
#ifndef OUNCE_SERVER_TEXT_H
#define OUNCE_SERVER_TEXT_H

#include <ounce/status.h>
#include <stdbool.h>

struct sv_text {
    char *data; /* zero-terminated once anything was added; NULL before */
    size_t bytes, room;
    bool failed;
};

void sv_text_add(struct sv_text *text, const void *data, size_t bytes);
void sv_text_put(struct sv_text *text, const char *string);
void sv_text_printf(struct sv_text *text, const char *format, ...) OZ_PRINTF(2, 3);
/* With padding, as RFC 4648 has it. */
void sv_text_base64(struct sv_text *text, const void *data, size_t bytes);
void sv_text_free(struct sv_text *text);

/* An oz_write_fn that adds to a struct sv_text. */
int sv_text_write(void *ctx, const char *data, size_t bytes);

/* Fills the record; returns the status. */
enum oz_status sv_error(struct oz_error *err, enum oz_status status, const char *format, ...)
    OZ_PRINTF(3, 4);

char *sv_format(const char *format, ...) OZ_PRINTF(1, 2); /* NULL: no memory. free() */
char *sv_copy(const char *string);                        /* likewise */

/* A whole file of at most so many bytes. False: *why is a sentence's end, "cannot be read: ..." */
bool sv_read_file(struct sv_text *text, const char *path, size_t most, const char **why);

/* Is `string` one of "a b c"? NULL is not. */
bool sv_one_of(const char *string, const char *words);

/* 128 random bits as 32 hexadecimal digits and a zero; false when the system has none. */
bool sv_random_id(char id[33]);
bool sv_random_seed(uint32_t *seed);

#endif
