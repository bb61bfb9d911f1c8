#include "aggregator/store/json_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/json/json.h"

#define MAX_WHOLE 9007199254740992.0 /* 2^53: a double has every whole number up to it */

fedge_status fedge_json_file_write(const char *path, const char *object, size_t size,
                                   fedge_error *err)
{
    char *text = malloc(size + FEDGE_SEAL_SIZE + 1);
    if (!text)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to write %s", path);
    memcpy(text, object, size);
    fedge_seal_make(object, size, text + size - 1);
    text[size - 1 + FEDGE_SEAL_SIZE] = '\n';
    fedge_status status = fedge_os_write_file(path, text, size + FEDGE_SEAL_SIZE, 0600, err);
    free(text);
    return status;
}

fedge_status fedge_json_file_read(const char *path, size_t limit, cJSON **json, fedge_error *err)
{
    *json = NULL;
    uint8_t *text;
    size_t size;
    FEDGE_TRY(fedge_os_read_file(path, limit, &text, &size, err));
    fedge_status status;
    FEDGE_TRY_OR(fedge_seal_check((const char *)text, size, path, err), end);
    const char *stop = NULL;
    cJSON *parsed = cJSON_ParseWithLengthOpts((const char *)text, size, &stop, 0);
    if (cJSON_IsObject(parsed)) {
        *json = parsed;
    } else {
        cJSON_Delete(parsed);
        status = fedge_fail(err, FEDGE_CORRUPT, "%s is not a JSON object (at byte %lld)", path,
                            stop ? (long long)(stop - (const char *)text) : 0LL);
    }
end:
    free(text);
    return status;
}

bool fedge_json_add_numbers(cJSON *json, const fedge_json_number_field *numbers, size_t count)
{
    bool made = true;
    for (size_t i = 0; i < count && made; i++)
        made = cJSON_AddNumberToObject(json, numbers[i].key, numbers[i].value) != NULL;
    return made;
}

double fedge_json_number(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

fedge_status fedge_json_get_u64(const cJSON *json, const char *key, const char *path,
                                uint64_t *value, fedge_error *err)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    double number = cJSON_IsNumber(item) ? item->valuedouble : -1.0;
    if (!(number >= 0.0 && number <= MAX_WHOLE) || floor(number) != number) {
        return fedge_fail(err, FEDGE_CORRUPT, "%s: \"%s\" is missing or not a whole number", path,
                          key);
    }
    *value = (uint64_t)number;
    return FEDGE_OK;
}

fedge_status fedge_json_get_u32(const cJSON *json, const char *key, const char *path,
                                uint32_t *value, fedge_error *err)
{
    uint64_t wide = 0;
    FEDGE_TRY(fedge_json_get_u64(json, key, path, &wide, err));
    if (wide > UINT32_MAX) {
        return fedge_fail(err, FEDGE_CORRUPT, "%s: \"%s\" is %" PRIu64 ", over 32 bits", path, key,
                          wide);
    }
    *value = (uint32_t)wide;
    return FEDGE_OK;
}

fedge_status fedge_json_get_text(const cJSON *json, const char *key, const char *path, char *text,
                                 size_t size, fedge_error *err)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    if (!cJSON_IsString(item) || strlen(item->valuestring) >= size) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s: \"%s\" is missing or not a text of at most %zu bytes", path, key,
                          size - 1);
    }
    memcpy(text, item->valuestring, strlen(item->valuestring) + 1);
    return FEDGE_OK;
}

/* ---- texts and numbers that cJSON alone would change ----------------------------------------- */

bool fedge_json_add_text(cJSON *json, const char *key, const char *text)
{
    const size_t size = strlen(text);
    unsigned char *clean = malloc(size + 1);
    if (!clean)
        return false;
    memcpy(clean, text, size + 1);
    for (size_t at = 0; at < size;) {
        const size_t length = fedge_utf8_sequence(clean + at, size - at);
        clean[at] = length > 0 ? clean[at] : '?';
        at += length > 0 ? length : 1;
    }
    const bool added = cJSON_AddStringToObject(json, key, (const char *)clean) != NULL;
    free(clean);
    return added;
}

bool fedge_json_keep_digits(cJSON *within)
{
    bool done = true;
    for (cJSON *at = within->child, *next = NULL; at && done; at = next) {
        char text[32];
        next = at->next;
        (void)snprintf(text, sizeof(text), "%.15g", at->valuedouble);
        if (!cJSON_IsNumber(at)) {
            done = fedge_json_keep_digits(at);
        } else if (isfinite(at->valuedouble) && strtod(text, NULL) != at->valuedouble) {
            (void)snprintf(text, sizeof(text), "%.17g", at->valuedouble);
            cJSON *exact = cJSON_CreateRaw(text);
            done = exact &&
                   (at->string ? cJSON_ReplaceItemInObjectCaseSensitive(within, at->string, exact)
                               : cJSON_ReplaceItemViaPointer(within, at, exact));
        }
    }
    return done;
}
