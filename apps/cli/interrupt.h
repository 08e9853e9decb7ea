/* interrupt.h: Ctrl-C and SIGTERM as a flag that work looks at. A second signal ends the process at
 * once. Signals that the caller had ignored (nohup, a job in the background) stay ignored. */
#ifndef OUNCE_CLI_INTERRUPT_H
#define OUNCE_CLI_INTERRUPT_H

#include <stdbool.h>

void cli_interrupt_catch(void);
bool cli_interrupted(void);

#endif
