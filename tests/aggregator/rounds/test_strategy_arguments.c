/* Every argument of every strategy: what is out of its range, or of another type, is refused by its
 * name and with what it may be. Goes by the tables, so that a new argument is tested as it is. */
#include "tests/aggregator/rounds/strategy_jobs.h"

#include <math.h>

static bool is_number(const fedge_json_field *field)
{
    return field->kind == FEDGE_JSON_U32 || field->kind == FEDGE_JSON_F32 ||
           field->kind == FEDGE_JSON_F64;
}

/* Parses the job with the value, which is taken over, under the field's key. */
static fedge_status parse_with(const fedge_strategy_reader *reader, const fedge_json_field *field,
                               cJSON *value, fedge_error *err)
{
    fedge_job *job = NULL;
    cJSON *strategy = least_strategy(reader);
    cJSON_DeleteItemFromObjectCaseSensitive(strategy, field->key);
    cJSON_AddItemToObject(strategy, field->key, value);
    const fedge_status status = parse_strategy_object(strategy, &(job_parts){0}, &job, err);
    cJSON_Delete(strategy);
    fedge_job_free(job);
    return status;
}

static void refuse(const fedge_strategy_reader *reader, const fedge_json_field *field, cJSON *value,
                   const char *said)
{
    char wanted[160];
    fedge_error err;
    char *shown = cJSON_PrintUnformatted(value);
    (void)snprintf(wanted, sizeof(wanted), "strategy.%s: ", field->key);
    const fedge_status status = parse_with(reader, field, value, &err);
    const char *at = strstr(err.message, wanted);
    if (status != FEDGE_INVALID_ARGUMENT || !at || !strstr(at, said)) {
        fail_msg("%s.%s with %s gave \"%s\"\n  expected %s… %s", reader->name, field->key, shown,
                 err.message, wanted, said);
    }
    free(shown);
}

/* The bounds themselves are no fault of the argument's, whatever else the job lacks then. */
static void take(const fedge_strategy_reader *reader, const fedge_json_field *field, double value)
{
    fedge_error err;
    const fedge_status status = parse_with(reader, field, cJSON_CreateNumber(value), &err);
    if (status != FEDGE_OK && strstr(err.message, "is not in ["))
        fail_msg("%s.%s with %g gave \"%s\"", reader->name, field->key, value, err.message);
}

static void check_number(const fedge_strategy_reader *reader, const fedge_json_field *field)
{
    char range[80];
    const bool integer = field->kind == FEDGE_JSON_U32;
    const double step = integer ? 1.0 : fmax(fabs(field->max), 1.0) * 1e-6;
    if (!(field->min < field->max))
        fail_msg("%s.%s has no range", reader->name, field->key);
    (void)snprintf(range, sizeof(range), "[%.16g, %.16g]", field->min, field->max);
    refuse(reader, field, cJSON_CreateNumber(field->min - step), range);
    refuse(reader, field, cJSON_CreateNumber(field->max + step), range);
    refuse(reader, field, cJSON_CreateNumber(-1e300), range);
    refuse(reader, field, cJSON_CreateNumber(1e300), range);
    refuse(reader, field, cJSON_CreateString("much"), range);
    refuse(reader, field, cJSON_CreateBool(true), range);
    refuse(reader, field, cJSON_CreateObject(), range);
    if (integer)
        refuse(reader, field, cJSON_CreateNumber(field->min + 0.5), "is not an integer");
    take(reader, field, field->min);
    take(reader, field, field->max);
}

/* Names what may be said instead. */
static void check_choice(const fedge_strategy_reader *reader, const fedge_json_field *field)
{
    const char *first = field->kind == FEDGE_JSON_ENUM ? field->name_of(0) : field->choices[0];
    refuse(reader, field, cJSON_CreateString("something"), first);
    refuse(reader, field, cJSON_CreateNumber(1), "must be");
}

static void check_argument(const fedge_strategy_reader *reader, const fedge_json_field *field)
{
    refuse(reader, field, cJSON_CreateArray(),
           field->kind == FEDGE_JSON_LINES ? "must have at least one element" : "must be");
    if (is_number(field)) {
        check_number(reader, field);
    } else if (field->kind == FEDGE_JSON_ENUM) {
        check_choice(reader, field);
    } else if (field->kind == FEDGE_JSON_BOOL) {
        refuse(reader, field, cJSON_CreateString("yes"), "true or false");
        refuse(reader, field, cJSON_CreateNumber(1), "true or false");
    } else if (field->kind == FEDGE_JSON_LINES) {
        refuse(reader, field, cJSON_CreateNumber(1), "must be a text");
        refuse(reader, field, cJSON_CreateString(""), "must have");
    } else if (field->kind == FEDGE_JSON_OBJECT) {
        refuse(reader, field, cJSON_CreateString("file"), "must be an object");
        refuse(reader, field, cJSON_CreateNumber(1), "must be an object");
    } else {
        fail_msg("%s.%s is of a kind that this test does not know", reader->name, field->key);
    }
}

static void each_argument_names_its_range(void **state)
{
    (void)state;
    unsigned count = 0;
    for (size_t i = 0; fedge_strategy_readers[i]; i++) {
        fedge_strategy_fields table;
        fedge_strategy_fields_of(fedge_strategy_readers[i], false, &table);
        for (const fedge_json_field *field = table.fields + 1; field->key; field++, count++)
            check_argument(fedge_strategy_readers[i], field);
    }
    assert_in_range(count, 75, UINT32_MAX);
}

static void what_is_needed_is_said_to_be_missing(void **state)
{
    (void)state;
    unsigned count = 0;
    for (size_t i = 0; fedge_strategy_readers[i]; i++) {
        const fedge_strategy_reader *reader = fedge_strategy_readers[i];
        fedge_strategy_fields table;
        fedge_strategy_fields_of(reader, false, &table);
        for (const fedge_json_field *field = table.fields + 1; field->key; field++) {
            char wanted[160];
            fedge_job *job = NULL;
            fedge_error err;
            if (!(field->flags & FEDGE_JSON_REQUIRED))
                continue;
            cJSON *strategy = least_strategy(reader);
            cJSON_DeleteItemFromObjectCaseSensitive(strategy, field->key);
            assert_int_equal(parse_strategy_object(strategy, &(job_parts){0}, &job, &err),
                             FEDGE_INVALID_ARGUMENT);
            (void)snprintf(wanted, sizeof(wanted), "strategy.%s: is missing", field->key);
            if (!strstr(err.message, wanted))
                fail_msg("%s gave \"%s\"\n  expected %s", reader->name, err.message, wanted);
            cJSON_Delete(strategy);
            count++;
        }
    }
    assert_int_equal(count, 4); /* proximal-mu, num-malicious-nodes three times */
}

static void each_strategy_has_a_job(void **state)
{
    (void)state;
    for (size_t i = 0; fedge_strategy_readers[i]; i++) {
        fedge_job *job = least_job(fedge_strategy_readers[i], &(job_parts){0});
        assert_string_equal(job->strategy, fedge_strategy_readers[i]->name);
        fedge_job_free(job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_strategy_has_a_job),
        cmocka_unit_test(each_argument_names_its_range),
        cmocka_unit_test(what_is_needed_is_said_to_be_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
