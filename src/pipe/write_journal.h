/*
 * pipe/write_journal.h: what an interrupted run of oz_pipeline_write leaves for the next one: a file in
 * its working folder that says of which plan and source the run is, and which files are whole. A line
 * is a JSON object: first {"plan": "..", "source": ".."}, then for each file, after it has reached the
 * disk, {"file": "transformer/x.safetensors", "bytes": .., "modified_ns": ..}. A torn last line does
 * not count. Internal to src/pipe.
 */
#ifndef OZ_PIPE_WRITE_JOURNAL_H
#define OZ_PIPE_WRITE_JOURNAL_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#define OZ_WRITE_MARK ".ounce-part" /* the journal's name; also says whose the folder is */

/* What must be equal for a run to go on. Hashes, by oz_write_hash. */
struct oz_write_identity {
    uint64_t plan;   /* of everything that is decided before a weight is read */
    uint64_t source; /* of names, sizes and times of the files that are read */
};

/* FNV-1a over bytes, from `hash` on; begin with OZ_WRITE_HASH. */
#define OZ_WRITE_HASH UINT64_C(0xCBF29CE484222325)
uint64_t oz_write_hash(uint64_t hash, const void *data, size_t bytes);

struct oz_write_file {
    char *name;   /* below the folder */
    int32_t line; /* its place in the journal */
    int64_t bytes, modified_ns;
};

struct oz_write_journal {
    const char *folder;          /* borrowed */
    int fd;                      /* of the mark; borrowed */
    struct oz_write_file *files; /* that are whole */
    int32_t count, capacity;
    int64_t end;         /* of the journal */
    int32_t kept;        /* files of an earlier run */
    int64_t kept_bytes;  /* theirs */
    int32_t changed;     /* files of an earlier run that are not what was written any more */
    bool another_plan;   /* there were whole files, of another plan: they are gone */
    bool another_source; /* likewise, of a model that has been changed since */
};

/*
 * Reads the journal behind `fd`, the folder's mark, which is opened for reading and writing and locked.
 * Of the same identity: whole files stay and are listed, each with the size and the time that were
 * recorded; everything else in the folder is removed. Else the folder is cleared and the journal begins
 * anew. Links are removed, never followed. OZ_ERR_IO, OZ_ERR_NOMEM. Deinit after either.
 */
OZ_MUST_USE enum oz_status oz_write_journal_open(struct oz_write_journal *j, const char *folder,
                                                 int fd, const struct oz_write_identity *identity,
                                                 struct oz_error *err);
void oz_write_journal_deinit(struct oz_write_journal *j); /* zeroes are fine */

bool oz_write_journal_has(const struct oz_write_journal *j, const char *file);

/* Of all files that are listed; INT64_MAX when they claim more. */
int64_t oz_write_journal_bytes(const struct oz_write_journal *j);

/* Records a file that is whole, on the disk and under its name. OZ_ERR_IO, OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_write_journal_add(struct oz_write_journal *j, const char *file,
                                                struct oz_error *err);

#endif
