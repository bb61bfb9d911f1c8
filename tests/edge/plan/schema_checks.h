/* docs/job.schema.json, compared with tables of fields. */
#ifndef FEDGE_TESTS_EDGE_PLAN_SCHEMA_CHECKS_H
#define FEDGE_TESTS_EDGE_PLAN_SCHEMA_CHECKS_H

#include "edge/json/json.h"

/* Set-up and tear-down of cmocka. */
int load_schema(void **state);
int free_schema(void **state);

const cJSON *schema_root(void);

/* The object of the schema has these keys and no others, with their other spellings, whether they
 * are needed, ranges, names and defaults. */
void check_object(const fedge_json_field *fields, const cJSON *object);

#endif
