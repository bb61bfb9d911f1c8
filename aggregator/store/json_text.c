#include "aggregator/store/json_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/json/json.h"

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
    bool kept = true;
    for (cJSON *at = within->child, *next = NULL; at && kept; at = next) {
        char text[32];
        next = at->next;
        (void)snprintf(text, sizeof(text), "%.15g", at->valuedouble);
        if (!cJSON_IsNumber(at)) {
            kept = fedge_json_keep_digits(at);
        } else if (isfinite(at->valuedouble) && strtod(text, NULL) != at->valuedouble) {
            (void)snprintf(text, sizeof(text), "%.17g", at->valuedouble);
            cJSON *exact = cJSON_CreateRaw(text);
            kept = exact &&
                   (at->string ? cJSON_ReplaceItemInObjectCaseSensitive(within, at->string, exact)
                               : cJSON_ReplaceItemViaPointer(within, at, exact));
        }
    }
    return kept;
}
