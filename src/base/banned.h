/*
 * Functions that this project does not use. The build forces this file into every unit of src/ and
 * apps/ (-include), so using one does not compile. Owns nothing else; include it nowhere by hand.
 *
 *   instead of                          write
 *   strcpy strcat stpcpy                memcpy with a length, or a bounded buffer
 *   sprintf vsprintf                    snprintf, vsnprintf
 *   gets strtok                         getline; strchr and strcspn
 *   atoi atol atoll atof                strtol, strtod with their end pointer checked
 *   gmtime localtime asctime ctime      gmtime_r, localtime_r, strftime
 *   alloca                              an arena
 *
 * The headers that declare them come first: poisoning must not break the system's own text.
 */
#ifndef OZ_BASE_BANNED_H
#define OZ_BASE_BANNED_H

#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#undef strcpy
#undef strcat
#undef stpcpy
#undef sprintf
#undef vsprintf
#undef strtok
#undef alloca
#pragma GCC poison strcpy strcat stpcpy
#pragma GCC poison sprintf vsprintf
#pragma GCC poison gets strtok
#pragma GCC poison atoi atol atoll atof
#pragma GCC poison gmtime localtime asctime ctime
#pragma GCC poison alloca

#endif
