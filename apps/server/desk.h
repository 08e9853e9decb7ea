/* desk.h: what the desk is inside, for jobs.c, jobs_submit.c and job_view.c alone. */
#ifndef OUNCE_SERVER_DESK_H
#define OUNCE_SERVER_DESK_H

#include <pthread.h>

#include "jobs.h"

struct sv_desk {
    struct sv_desk_options options;
    struct oz_service *service;
    pthread_t thread;
    bool runs;

    pthread_mutex_t lock;
    struct sv_job *jobs; /* newest first */
    int64_t kept_bytes, kept_jobs;
    int64_t refused; /* pictures beyond the share of their address */

    pthread_mutex_t changes_lock;
    pthread_cond_t changed;
    uint64_t *changes; /* each once */
    size_t change_count, change_room;
    bool stopping, lost; /* lost: there was no memory for a change, so look at all */
};

/* With the desk locked; of a job that nobody else holds. */
void sv_job_free(struct sv_desk *desk, struct sv_job *job);

#endif
