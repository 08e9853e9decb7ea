#include "pipe/mod_rows.h"

#include "base/alloc.h"
#include "base/error.h"

enum oz_status oz_mod_rows_init(struct oz_mod_rows *m, int64_t capacity, struct oz_error *err)
{
    size_t n = (size_t)capacity;
    *m = (struct oz_mod_rows){.times = oz_alloc_zero(n, sizeof *m->times),
                              .users = oz_alloc_zero(n, sizeof *m->users),
                              .filled = oz_alloc_zero(n, sizeof *m->filled),
                              .capacity = capacity};
    if (m->times == NULL || m->users == NULL || m->filled == NULL) {
        oz_mod_rows_deinit(m);
        return OZ_FAIL_NOMEM(err, "schedules");
    }
    return OZ_OK;
}

void oz_mod_rows_deinit(struct oz_mod_rows *m)
{
    oz_free(m->times);
    oz_free(m->users);
    oz_free(m->filled);
    *m = (struct oz_mod_rows){0};
}

/* The row that holds a timestep, or -1. */
static int64_t find(const struct oz_mod_rows *m, float time)
{
    for (int64_t row = 0; row < m->count; row++) {
        if (m->times[row] == time) {
            return row;
        }
    }
    return -1;
}

/* A row for a new timestep, or -1: a fresh one, else from `*from` on one that nobody needs. */
static int64_t make_room(struct oz_mod_rows *m, int64_t *from)
{
    if (m->count < m->capacity) {
        return m->count++;
    }
    while (*from < m->count && m->users[*from] > 0) {
        ++*from;
    }
    return *from < m->count ? *from : -1;
}

bool oz_mod_rows_take(struct oz_mod_rows *m, const struct oz_sched_flow_config *c,
                      struct oz_sequence *s)
{
    int64_t from = 0;
    /* First those that are there, so that none of them is given away for another. */
    for (int32_t k = 0; k < s->task.steps; k++) {
        s->mod_rows[k] = (int32_t)find(m, oz_sched_flow_model_time(c, s->sigmas[k]));
        if (s->mod_rows[k] >= 0) {
            m->users[s->mod_rows[k]]++;
        }
    }
    for (int32_t k = 0; k < s->task.steps; k++) {
        if (s->mod_rows[k] >= 0) {
            continue;
        }
        float time = oz_sched_flow_model_time(c, s->sigmas[k]);
        int64_t row = find(m, time); /* a schedule may have a timestep twice */
        if (row < 0) {
            row = make_room(m, &from);
            if (row < 0) {
                oz_mod_rows_release(m, s);
                return false;
            }
            m->times[row] = time;
            m->filled[row] = false;
        }
        m->users[row]++;
        s->mod_rows[k] = (int32_t)row;
    }
    return true;
}

void oz_mod_rows_release(struct oz_mod_rows *m, struct oz_sequence *s)
{
    for (int32_t k = 0; k < s->task.steps; k++) {
        if (s->mod_rows[k] >= 0) {
            m->users[s->mod_rows[k]]--;
            s->mod_rows[k] = -1;
        }
    }
}
