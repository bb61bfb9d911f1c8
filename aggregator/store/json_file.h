/* Small JSON files of the store, each with its checksum (edge/json/json.h): reading with checks and
 * messages that name the file.
 */
#ifndef FEDGE_AGGREGATOR_STORE_JSON_FILE_H
#define FEDGE_AGGREGATOR_STORE_JSON_FILE_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* Replaces [path] by object[0, size) with its seal and a line's end; mode 0600. */
FEDGE_MUST_USE fedge_status fedge_json_file_write(const char *path, const char *object, size_t size,
                                                  fedge_error *err);

/* Reads [path] (at most [limit] bytes), which must hold one JSON object. The caller frees it with
 * cJSON_Delete. FEDGE_CORRUPT when it does not, or has another seal than its bytes. */
FEDGE_MUST_USE fedge_status fedge_json_file_read(const char *path, size_t limit, cJSON **json,
                                                 fedge_error *err);

/* A number and its key. */
typedef struct fedge_json_number_field {
    const char *key;
    double value;
} fedge_json_number_field;

/* Adds [count] numbers to an object, in their order; what is not finite becomes null. False without
 * memory. */
bool fedge_json_add_numbers(cJSON *json, const fedge_json_number_field *numbers, size_t count);

/* The number of this key, or NaN where there is none: null stands for what is not known. */
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

/* What cJSON alone would not keep: texts that a user gave, paths above all, and the last digits of
 * numbers. */

/* Adds a text with a '?' for each byte that is no UTF-8, which JSON must be and a path need not.
 * False without memory. */
bool fedge_json_add_text(cJSON *json, const char *key, const char *text);

/* Gives every number below [within] the digits that read back as the same double: cJSON takes 15
 * where they come within its tolerance, a unit of the last place off. Values that are not finite
 * stay as they are (null when printed). Changes those numbers to raw items; so call it last, before
 * printing. False without memory. */
bool fedge_json_keep_digits(cJSON *within);

#endif
