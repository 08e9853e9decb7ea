/*
 * base/log.h: log lines by level and topic to one callback. One logger serves the process; the
 * environment variable OUNCE_LOG ("dispatch,load" or "all") lets debug lines of those topics
 * through; without it, debug lines are dropped before they are formatted.
 */
#ifndef OZ_BASE_LOG_H
#define OZ_BASE_LOG_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

/* Sets the sink (NULL: none) and reads OUNCE_LOG. Returns a number for oz_log_unset. */
uint64_t oz_log_set(oz_log_fn fn, void *ctx);

/* The one who set the sink goes: takes it away, unless somebody else has set one since. */
void oz_log_unset(uint64_t number);

bool oz_log_wants(enum oz_log_level level, const char *topic);
void oz_log(enum oz_log_level level, const char *topic, const char *format, ...) OZ_PRINTF(3, 4);

#endif
