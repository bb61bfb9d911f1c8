/* docs/job.schema.json says of every key what the parser does: name, other spellings, whether it is
 * needed, range, default. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "edge/plan/plan_fields.h"
#include "tests/edge/plan/schema_checks.h"

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static void the_job_matches(void **state)
{
    (void)state;
    check_object(fedge_job_fields, schema_root());
    const cJSON *data = get(get(get(schema_root(), "properties"), "data"), "properties");
    check_object(fedge_targets_fields, cJSON_GetArrayItem(get(get(data, "targets"), "oneOf"), 2));
}

static void models_match(void **state)
{
    (void)state;
    const cJSON *defs = get(schema_root(), "$defs");
    check_object(fedge_model_fields, get(defs, "model"));
    check_object(fedge_external_fields, get(defs, "external"));
    check_object(fedge_tensor_fields, get(defs, "tensor"));
    fedge_argument_fields table;
    for (int i = 0; i < FEDGE_LAYER_COUNT; i++) {
        fedge_layer_fields((fedge_layer_type)i, &table);
        check_object(table.fields, get(defs, table.type[0]));
    }
    for (int i = 0; i < FEDGE_LOSS_COUNT; i++) {
        fedge_loss_fields((fedge_loss_type)i, &table);
        check_object(table.fields, get(defs, table.type[0]));
    }
    for (int i = 0; i < FEDGE_OPTIMIZER_COUNT; i++) {
        fedge_optimizer_fields((fedge_optimizer_type)i, &table);
        check_object(table.fields, get(defs, table.type[0]));
    }
    int shared = 0; /* "layer-…": what layers have; "strategy-…": test_strategy_schema */
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, defs)
    {
        shared += strncmp(item->string, "layer-", 6) == 0;
        shared += strncmp(item->string, "strategy-", 9) == 0;
    }
    assert_int_equal(cJSON_GetArraySize(defs) - shared,
                     3 + FEDGE_LAYER_COUNT + FEDGE_LOSS_COUNT + FEDGE_OPTIMIZER_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_job_matches),
        cmocka_unit_test(models_match),
    };
    return cmocka_run_group_tests(tests, load_schema, free_schema);
}
