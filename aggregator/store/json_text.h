/* What cJSON alone would not keep: texts that a user gave, paths above all, and the last digits of
 * numbers. */
#ifndef FEDGE_AGGREGATOR_STORE_JSON_TEXT_H
#define FEDGE_AGGREGATOR_STORE_JSON_TEXT_H

#include <cjson/cJSON.h>
#include <stdbool.h>

/* Adds a text with a '?' for each byte that is no UTF-8, which JSON must be and a path need not.
 * False without memory. */
bool fedge_json_add_text(cJSON *json, const char *key, const char *text);

/* Gives every number below [within] the digits that read back as the same double: cJSON takes 15
 * where they come within its tolerance, a unit of the last place off. Values that are not finite
 * stay as they are (null when printed). Changes those numbers to raw items; so call it last, before
 * printing. False without memory. */
bool fedge_json_keep_digits(cJSON *within);

#endif
