/* Numbers as people write them on a command line. */
#ifndef FEDGE_EDGE_CORE_NUMBER_H
#define FEDGE_EDGE_CORE_NUMBER_H

#include <stdint.h>

#include "edge/core/status.h"

/* The value of --[option]: decimal digits alone, from [min] to [max] ≤ 2^56. On
 * FEDGE_INVALID_ARGUMENT, which names the option and its limits, *number is unchanged. */
FEDGE_MUST_USE fedge_status fedge_option_number(const char *option, const char *text, uint64_t min,
                                                uint64_t max, uint64_t *number, fedge_error *err);

/* The same from 1 to [max]. */
FEDGE_MUST_USE fedge_status fedge_option_count(const char *option, const char *text, uint32_t max,
                                               uint32_t *count, fedge_error *err);

#endif
