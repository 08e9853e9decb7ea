/*
 * base/mapguard.h: faults in maps of files. Reading a page that the file no longer has, because
 * another process cut it short, or that the disk cannot give, raises SIGBUS, which would end the
 * program. In guarded ranges such a fault reads zeros instead and is remembered; whoever has read asks
 * oz_mapguard_lost before using the result. Faults elsewhere go to the handler that was there before.
 */
#ifndef OZ_BASE_MAPGUARD_H
#define OZ_BASE_MAPGUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OZ_MAPGUARD_MAX 16384 /* ranges at a time in the process */

/* Guards [begin, begin + bytes) of a private, read-only map until oz_mapguard_remove. Gives a number
 * from 1, or 0 when there are too many. The first call installs the process's handler. Thread safe. */
int32_t oz_mapguard_add(const void *begin, size_t bytes);
void oz_mapguard_remove(int32_t guard); /* before munmap; 0 is fine */

/* Has a fault been met in the range? */
bool oz_mapguard_lost(int32_t guard);

#endif
