/* A safetensors file in pieces, for tests that damage it: read, changed, written to the scratch folder. It
 * encodes headers itself: nothing of what is tested makes its own tests. */
#ifndef OZ_TESTS_UNIT_DIALECT_FILE_H
#define OZ_TESTS_UNIT_DIALECT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIALECT_MAX_PIECES 64

struct dialect_piece {
    char name[256], dtype[16];
    int64_t shape[8];
    int rank;
    uint8_t *data;
    size_t bytes;
    bool gone; /* is not written */
};

struct dialect_file {
    struct dialect_piece pieces[DIALECT_MAX_PIECES];
    int count;
    char *metadata; /* JSON of "__metadata__", or NULL */
};

void dialect_file_read(struct dialect_file *f, const char *path);
void dialect_file_free(struct dialect_file *f);
/* Pieces [first, last) as a file of that name in scratch. */
void dialect_file_write(const struct dialect_file *f, int first, int last, const char *name);
struct dialect_piece *dialect_file_find(struct dialect_file *f, const char *name);

#endif
