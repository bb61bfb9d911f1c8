/* cmocka with the headers it wants before it. */
#ifndef FEDGE_TESTS_EDGE_CORE_CMOCKA_ALL_H
#define FEDGE_TESTS_EDGE_CORE_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
