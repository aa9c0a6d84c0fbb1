/* test.h - cmocka with the headers that it needs, for every C test */
#ifndef PUNICA_TESTS_SUPPORT_TEST_H
#define PUNICA_TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
