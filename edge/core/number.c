#include "edge/core/number.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DIGITS 17 /* more are over every limit, and may be over what is read */

fedge_status fedge_option_number(const char *option, const char *text, uint64_t min, uint64_t max,
                                 uint64_t *number, fedge_error *err)
{
    const size_t digits = strspn(text, "0123456789");
    const uint64_t value = strtoull(text, NULL, 10);
    if (digits == 0 || digits > MAX_DIGITS || text[digits] != '\0' || value < min || value > max) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--%s must be a number from %llu to %llu, not '%s'", option,
                          (unsigned long long)min, (unsigned long long)max, text);
    }
    *number = value;
    return FEDGE_OK;
}

fedge_status fedge_option_count(const char *option, const char *text, uint32_t max, uint32_t *count,
                                fedge_error *err)
{
    uint64_t number = 0;
    fedge_status status = fedge_option_number(option, text, 1, max, &number, err);
    if (status == FEDGE_OK)
        *count = (uint32_t)number;
    return status;
}
