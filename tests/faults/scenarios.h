/*
 * What the sweeps of tests/faults run with one fault at a time: small jobs, one for each module. A job
 * either succeeds, and then its digest says what came out, or fails with a status and a message.
 */
#ifndef OZ_TESTS_SCENARIOS_H
#define OZ_TESTS_SCENARIOS_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

struct scenario {
    const char *name;
    enum oz_status (*run)(uint64_t *digest, struct oz_error *err);
    bool large; /* thousands of sites: all of them only when asked for (OUNCE_FAULTS=full) */
};

extern const struct scenario scenarios[];
extern const int scenario_count;

/* The "quantize" scenario goes on with what the run before has left. */
extern bool scenarios_resume;

/* Group fixtures of cmocka: the files that the scenarios read. */
int scenarios_open(void **state);
int scenarios_close(void **state);

/* Is every site to be tried? */
bool scenarios_full(void);

#endif
