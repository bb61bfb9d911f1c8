/* Text forms of values: device ids (128-bit UUIDs), hexadecimal bytes, numbers of a command line,
 * and patterns with '*'. */
#ifndef FEDGE_EDGE_CORE_TEXT_H
#define FEDGE_EDGE_CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* A device's permanent identity. Plain data. */
typedef struct fedge_device_id {
    uint8_t bytes[16];
} fedge_device_id;

#define FEDGE_DEVICE_ID_TEXT_SIZE 37 /* "01234567-89ab-cdef-0123-456789abcdef" with NUL */

/* Writes the canonical form: lower case, 8-4-4-4-12 digits. Returns [text]. */
char *fedge_device_id_format(const fedge_device_id *id, char text[FEDGE_DEVICE_ID_TEXT_SIZE]);

/* Reads only the canonical form, so that an id has one spelling. FEDGE_INVALID_ARGUMENT. */
FEDGE_MUST_USE fedge_status fedge_device_id_parse(const char *text, fedge_device_id *id,
                                                  fedge_error *err);

/* A random id (UUID version 4, RFC 9562) from the system's CSPRNG. */
FEDGE_MUST_USE fedge_status fedge_device_id_random(fedge_device_id *id, fedge_error *err);

/* Writes 2 · size lower-case digits and a NUL to [text]; returns [text]. */
char *fedge_hex_encode(const void *data, size_t size, char *text);

/* Reads exactly 2 · size lower-case digits and the end of the string. FEDGE_INVALID_ARGUMENT;
 * [data] is undefined then. */
FEDGE_MUST_USE fedge_status fedge_hex_decode(const char *text, void *data, size_t size,
                                             fedge_error *err);

/* Parses the value of --[option]: only decimal digits, from [min] to [max] ≤ 2^56.
 * FEDGE_INVALID_ARGUMENT names the option and its limits and leaves *number unchanged. */
FEDGE_MUST_USE fedge_status fedge_option_number(const char *option, const char *text, uint64_t min,
                                                uint64_t max, uint64_t *number, fedge_error *err);

/* Parses a number from 1 to [max]. */
FEDGE_MUST_USE fedge_status fedge_option_count(const char *option, const char *text, uint32_t max,
                                               uint32_t *count, fedge_error *err);

/* Whether [text] matches [pattern], in which '*' matches any characters. */
bool fedge_glob_matches(const char *pattern, const char *text);

#endif
