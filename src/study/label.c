#include "study/label.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool fits_label(char c)
{
    return is_word(c) || c == '-' || c == '.';
}

/* The words of a text with '-' between. */
static void from_words(const char *text, size_t bytes, char *label)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes && n < OZ_LABEL_BYTES - 1; i++) {
        bool word = is_word(text[i]) || (text[i] == '.' && n > 0 && is_word(label[n - 1]));
        if (word) {
            label[n++] = text[i];
        } else if (n > 0 && label[n - 1] != '-') {
            label[n++] = '-';
        }
    }
    while (n > 0 && !is_word(label[n - 1])) {
        n--;
    }
    label[n] = '\0';
    if (n == 0) {
        (void)snprintf(label, OZ_LABEL_BYTES, "candidate");
    }
}

/* The last part of a path, without the ending of a config file. */
static void from_path(const char *path, char *label)
{
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/') {
        bytes--;
    }
    size_t begin = bytes;
    while (begin > 0 && path[begin - 1] != '/') {
        begin--;
    }
    static const char *const endings[] = {".json", ".yaml", ".yml"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t n = strlen(endings[i]);
        if (bytes - begin > n && strncmp(path + bytes - n, endings[i], n) == 0) {
            bytes -= n;
            break;
        }
    }
    from_words(path + begin, bytes - begin, label);
}

enum oz_status oz_label_split(const char *text, char label[OZ_LABEL_BYTES], const char **request,
                              struct oz_error *err)
{
    size_t word = 0;
    while (fits_label(text[word])) {
        word++;
    }
    if (text[0] != '{' && text[word] == '=') {
        if (word == 0 || word >= OZ_LABEL_BYTES || !is_word(text[0]) || text[word + 1] == '\0') {
            return OZ_FAIL(
                err, OZ_ERR_ARG,
                "\"%.100s\": before = stands a label of 1 to %d letters, digits, _, - and "
                ". that begins with a letter or digit, and behind it the candidate.",
                text, OZ_LABEL_BYTES - 1);
        }
        memcpy(label, text, word);
        label[word] = '\0';
        *request = text + word + 1;
        return OZ_OK;
    }
    if (text[0] == '\0') {
        return OZ_FAIL(err, OZ_ERR_ARG, "A candidate is an empty text.");
    }
    *request = text;
    if (text[0] == '{') {
        from_words(text, strlen(text), label);
    } else {
        from_path(text, label);
    }
    return OZ_OK;
}
