#include "interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

/* Any thread may be the one that takes the signal. */
static atomic_int interrupted;
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a signal handler may write it");

static void note(int number)
{
    (void)number;
    atomic_store(&interrupted, 1);
}

void cli_interrupt_catch(void)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction old, action = {.sa_handler = note};
        /* No SA_RESTART: reading prompts from a terminal ends, too. SA_RESETHAND: the second one
         * kills. */
        action.sa_flags = (int)SA_RESETHAND;
        (void)sigemptyset(&action.sa_mask);
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) {
            (void)sigaction(numbers[i], &action, NULL);
        }
    }
}

bool cli_interrupted(void)
{
    return atomic_load(&interrupted) != 0;
}
