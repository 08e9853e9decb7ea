/* pipe/batcher_inner.h: what a batcher is inside. Internal to batcher*.c. */
#ifndef OZ_PIPE_BATCHER_INNER_H
#define OZ_PIPE_BATCHER_INNER_H

#include <pthread.h>
#include <stdbool.h>

#include "base/arena.h"
#include "pipe/batch.h"
#include "pipe/batcher.h"
#include "pipe/mod_rows.h"
#include "pipe/stages.h"

/* One picture that was asked for. */
struct oz_ticket {
    struct oz_ticket *next; /* all that are not forgotten, in the order of their numbers */
    uint64_t id;
    struct oz_task task; /* strings are its own */
    char *client;
    int32_t preview_every;
    double timeout; /* 0: none */

    /* Fixed when it is submitted. */
    struct oz_sequence sequence; /* the thread's from then on */
    size_t stage_bytes;          /* step arena: text, decoding, preview */
    size_t sequence_bytes, picture_bytes;
    int64_t rows; /* of all its branches: the size of its share of a step */

    /* Under the lock. */
    enum oz_ticket_state state;
    uint64_t
        turn; /* while it waits: its client's, the same for all of it that wait; the lowest is next */
    int32_t ahead;  /* of its client in the queue */
    bool held;      /* the thread works with it: it must not be freed */
    bool forgotten; /* not in the list; freed when it is not held */
    int32_t step, preview_number, preview_width, preview_height;
    float *preview;
    void *result;
    enum oz_status status; /* with `error`, of one that failed */
    struct oz_error error;
    double submitted_s, started_s, ended_s;
};

/* Device memory that is replaced as a whole. */
struct oz_room {
    const char *name;
    void *memory;
    struct oz_arena arena;
};

/* Bytes that a set of sequences takes together, from MEASURE. */
struct oz_batch_need {
    size_t step, table, plan, sequences, pictures;
    int64_t mod_rows, image_rows, text_rows;
};

struct oz_batcher {
    struct oz_batcher_options options;
    const struct oz_pipeline *p;
    struct oz_device *dev;
    size_t limit; /* SIZE_MAX: unknown */

    pthread_mutex_t submit_lock; /* the tokenizer, and whose number comes next */
    pthread_mutex_t lock;        /* what follows, and tickets where they say so */
    pthread_cond_t work, ended;
    pthread_t thread;
    bool stopped; /* the thread is gone */
    bool closing;
    int32_t waiters;
    uint64_t last_id;
    struct oz_ticket *tickets;
    int32_t queued, ended_count, active_count;
    uint64_t last_turn;
    double next_deadline; /* of all that have not ended; infinite: none */
    double row_s,
        pixel_s; /* measured: seconds of a step for a row, of decoding for a pixel; 0: unknown */
    struct oz_batcher_stats stats;

    /* The thread's own. */
    struct oz_ticket **active;    /* [max_num_seqs], in the order in which they joined */
    struct oz_sequence **members; /* [max_num_seqs]: those of the composition */
    int32_t member_count;
    bool composed;
    struct oz_sequence **wanted; /* [max_num_seqs]: for measuring */
    struct oz_batch_need need;   /* what was measured last for somebody to join */
    uint64_t blocked;            /* who did not fit to those that run; 0: nobody */
    struct oz_room step, table, plan;
    size_t sequences; /* bytes of those that have joined */
    struct oz_mod_rows rows;
    struct oz_act *mod_acts;
    struct oz_qwen_image_mod mod;
    struct oz_latent_scale latents;
    float *device_times;
    struct oz_batch batch;
    struct oz_ticket *alone; /* whose own stage runs; NULL: a step */
    double asked_s;          /* when the thread last looked whether to stop */
};

/* ---- batcher_memory.c: what everything takes; the thread's, but for the first ---- */

/* Fixes what a new ticket takes by itself, and refuses one that could never run. */
OZ_MUST_USE enum oz_status oz_batcher_measure_ticket(const struct oz_batcher *b,
                                                     struct oz_ticket *t, struct oz_error *err);

/* How a ticket could join. */
enum oz_batcher_fit { OZ_FITS, OZ_WAITS };
OZ_MUST_USE enum oz_status oz_batcher_fit(struct oz_batcher *b, struct oz_ticket *t,
                                          enum oz_batcher_fit *fit, struct oz_error *err);
/* Makes room for the one that oz_batcher_fit has just said fits, and gives it its rows of the table (not filled yet). */
OZ_MUST_USE enum oz_status oz_batcher_make_room(struct oz_batcher *b, struct oz_ticket *t,
                                                struct oz_error *err);
/* The composition's memory for members[0 .. member_count), which is measured anew, and the table's rows
 * that are not filled yet. OZ_ERR_NOMEM: more than there may be, or than there is. */
OZ_MUST_USE enum oz_status oz_batcher_fit_members(struct oz_batcher *b, struct oz_error *err);
/* At least so many bytes of step arena, while nothing is in it. */
OZ_MUST_USE enum oz_status oz_batcher_reserve_step(struct oz_batcher *b, size_t bytes,
                                                   struct oz_error *err);
/* What is held now, and `also`, into the figures; without the lock. */
void oz_batcher_note_bytes(struct oz_batcher *b, size_t also);
void oz_batcher_free_rooms(struct oz_batcher *b);

/* ---- batcher_queue.c: tickets and turns ---- */

/* Calls with the lock held; oz_batcher_tell without. */
struct oz_ticket *oz_batcher_next(const struct oz_batcher *b); /* whose turn it is, or NULL */
void oz_batcher_dequeue(struct oz_batcher *b, struct oz_ticket *t);
/* Ends a ticket that has not ended. `err` may be NULL. */
void oz_batcher_end(struct oz_batcher *b, struct oz_ticket *t, enum oz_ticket_state state,
                    enum oz_status status, const struct oz_error *err);
/* The thread does not work with it any more; it may be gone afterwards. */
void oz_batcher_let_go(struct oz_batcher *b, struct oz_ticket *t);
static inline bool oz_ticket_has_ended(const struct oz_ticket *t)
{
    return t->state >= OZ_TICKET_DONE;
}

/* Without the lock. Ends those that are late. */
void oz_batcher_expire(struct oz_batcher *b);
void oz_batcher_tell(const struct oz_batcher *b, uint64_t id);
/* Closing begins: cancels all, and returns when nobody waits any more. */
void oz_batcher_end_all(struct oz_batcher *b);
void oz_batcher_free_tickets(struct oz_batcher *b);

/* ---- batcher_run.c ---- */

/* Work in the step arena for one ticket, or for all that run (NULL); it stops when nobody waits for it. */
struct oz_exec oz_batcher_begin(struct oz_batcher *b, struct oz_ticket *alone,
                                struct oz_error *err);

void *oz_batcher_thread(void *batcher);

#endif
