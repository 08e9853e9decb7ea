/* cases.h: the cases of reference.safetensors, as its own metadata lists them (cmocka tests). */
#ifndef OZ_TESTS_PARITY_CASES_H
#define OZ_TESTS_PARITY_CASES_H

#include "ckpt/table.h"
#include "pipe/task.h"

#define CASES 3

struct reference_case {
    char prompt[64];
    struct oz_task task; /* resolved; its prompt is the one above */
};

/* Fails the test with the error's message unless status is OZ_OK. */
void require(enum oz_status status, const struct oz_error *err);

void read_cases(const struct oz_ckpt *reference, const struct oz_pipeline *p,
                struct reference_case cases[CASES]);

#endif
