/* docs/job.schema.json says of every strategy what the parser does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "aggregator/rounds/strategy.h"
#include "edge/plan/plan_fields.h"
#include "tests/edge/plan/schema_checks.h"

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static void each_strategy_matches(void **state)
{
    (void)state;
    const cJSON *defs = get(schema_root(), "$defs");
    const cJSON *choices = get(get(get(schema_root(), "properties"), "strategy"), "oneOf");
    int count = 0;
    for (; fedge_strategy_readers[count] != NULL; count++) {
        fedge_strategy_fields table;
        char name[64], reference[80];
        fedge_strategy_fields_of(fedge_strategy_readers[count], count == 0, &table);
        (void)snprintf(name, sizeof(name), "strategy-%s", fedge_strategy_readers[count]->name);
        (void)snprintf(reference, sizeof(reference), "#/$defs/%s", name);
        if (!get(defs, name))
            fail_msg("the schema does not have %s", name);
        check_object(table.fields, get(defs, name));
        const cJSON *choice = cJSON_GetArrayItem(choices, count);
        assert_non_null(choice);
        assert_string_equal(get(choice, "$ref")->valuestring, reference);
    }
    assert_int_equal(cJSON_GetArraySize(choices), count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_strategy_matches),
    };
    return cmocka_run_group_tests(tests, load_schema, free_schema);
}
