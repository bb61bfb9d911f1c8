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

#endif
