/* Small JSON files of the store, each with its checksum (edge/json/json.h), and typed access to
 * their members with errors that name the file.
 */
#ifndef FEDGE_AGGREGATOR_STORE_JSON_FILE_H
#define FEDGE_AGGREGATOR_STORE_JSON_FILE_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* Replaces [path] by object[0, size), its checksum and a newline; mode 0600. */
FEDGE_MUST_USE fedge_status fedge_json_file_write(const char *path, const char *object, size_t size,
                                                  fedge_error *err);

/* Reads [path] (at most [limit] bytes), which must hold one JSON object; the caller frees it with
 * cJSON_Delete. FEDGE_CORRUPT: it holds none, or the checksum is wrong. */
FEDGE_MUST_USE fedge_status fedge_json_file_read(const char *path, size_t limit, cJSON **json,
                                                 fedge_error *err);

/* A number and its key. */
typedef struct fedge_json_number_field {
    const char *key;
    double value;
} fedge_json_number_field;

/* Adds [count] numbers to an object in this order; infinities and NaN become null. False: out of
 * memory. */
bool fedge_json_add_numbers(cJSON *json, const fedge_json_number_field *numbers, size_t count);

/* The number of this key; NaN if it is missing or null (unknown). */
double fedge_json_number(const cJSON *json, const char *key);

/* A whole number 0 … 2^53. FEDGE_CORRUPT names [path] and [key]. */
FEDGE_MUST_USE fedge_status fedge_json_get_u64(const cJSON *json, const char *key, const char *path,
                                               uint64_t *value, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_json_get_u32(const cJSON *json, const char *key, const char *path,
                                               uint32_t *value, fedge_error *err);

/* A string of fewer than [size] bytes, copied with its NUL. */
FEDGE_MUST_USE fedge_status fedge_json_get_text(const cJSON *json, const char *key,
                                                const char *path, char *text, size_t size,
                                                fedge_error *err);

/* ---- texts and numbers that cJSON alone would change ----------------------------------------- */

/* Adds a text with a '?' for each byte that is not UTF-8: JSON must be UTF-8, a path need not be.
 * False: out of memory. */
bool fedge_json_add_text(cJSON *json, const char *key, const char *text);

/* Makes every number in [within] print with enough digits to read back as the same double. cJSON
 * stops at 15 digits if those are within its tolerance, which may be one unit in the last place
 * off. Values that are not finite stay (they print as null). The numbers become raw items, so call
 * this last, before printing. False: out of memory. */
bool fedge_json_keep_digits(cJSON *within);

#endif
