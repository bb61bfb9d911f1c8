/* Texts that a user gave, paths above all, in JSON. */
#ifndef FEDGE_AGGREGATOR_STORE_JSON_TEXT_H
#define FEDGE_AGGREGATOR_STORE_JSON_TEXT_H

#include <cjson/cJSON.h>
#include <stdbool.h>

/* Adds a text with a '?' for each byte that is no UTF-8, which JSON must be and a path need not.
 * False without memory. */
bool fedge_json_add_text(cJSON *json, const char *key, const char *text);

#endif
