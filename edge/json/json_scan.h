/* Whole JSON values, gone over with the lexer: texts before cJSON sees them, and what a reader of a
 * stream passes over. Internal to edge/json. */
#ifndef FEDGE_EDGE_JSON_JSON_SCAN_H
#define FEDGE_EDGE_JSON_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/json/json.h"
#include "edge/json/json_lex.h"

/* Checks that text[0, size) is one JSON value within the limits; FEDGE_CORRUPT with the line. */
FEDGE_MUST_USE fedge_status fedge_json_scan(const char *text, size_t size,
                                            const fedge_json_options *options, fedge_error *err);

/* Passes one value of any kind, of at most [max_depth] arrays and objects in each other. */
bool fedge_json_skip(fedge_json_lexer *lexer, uint32_t max_depth);

/* The line, from 1, of value number [index] (from 0, in the order in which values begin) of a text
 * that fedge_json_scan has accepted. */
uint32_t fedge_json_line(const char *text, size_t size, uint32_t index);

#endif
