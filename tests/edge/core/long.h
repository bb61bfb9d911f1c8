/* Whether a test takes its time: tests/run.sh --all sets FEDGE_TEST_LONG, and there are more cases
 * of the same kind. */
#ifndef FEDGE_TESTS_EDGE_CORE_LONG_H
#define FEDGE_TESTS_EDGE_CORE_LONG_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool fedge_test_is_long(void)
{
    const char *value = getenv("FEDGE_TEST_LONG");
    return value && *value;
}

#endif
