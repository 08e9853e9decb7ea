/*
 * What a cmocka test includes first: cmocka.h needs these headers before it, in no order that a
 * formatter would keep. Owns nothing else.
 */
#ifndef OZ_TESTS_TEST_H
#define OZ_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#endif
