/* A job of any strategy that there is, by the table of its arguments. */
#ifndef FEDGE_TESTS_AGGREGATOR_ROUNDS_STRATEGY_JOBS_H
#define FEDGE_TESTS_AGGREGATOR_ROUNDS_STRATEGY_JOBS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/strategy.h"
#include "edge/plan/plan_fields.h"

#define LINEAR                                                                                     \
    "{\"input-shape\": [3], \"layers\": [{\"type\": \"Linear\", \"in_features\": 3, "              \
    "\"out_features\": 4}, {\"type\": \"Linear\", \"in_features\": 4, \"out_features\": 4}]}"
#define BATCHNORM                                                                                  \
    "{\"input-shape\": [3, 1, 1], \"layers\": [{\"type\": \"BatchNorm2d\", \"num_features\": 3}, " \
    "{\"type\": \"Flatten\"}, {\"type\": \"Linear\", \"in_features\": 3, \"out_features\": 4}]}"

/* Parts of a job's text; NULL: as there is no need to say it. Keys of rounds, training and of the
 * job begin with a comma. */
typedef struct job_parts {
    const char *strategy, *model, *training, *rounds, *more;
} job_parts;

static inline const char *or_nothing(const char *text)
{
    return text ? text : "";
}

/* Four examples of data for each of eight clients, and nothing that a strategy would refuse. */
static inline fedge_status parse_parts(const job_parts *parts, fedge_job **job, fedge_error *err)
{
    char text[4096];
    const char *model = parts->model ? parts->model : LINEAR;
    const int size =
        snprintf(text, sizeof(text),
                 "{\"fedge-job\": 1, \"name\": \"s\", \"model\": %s,"
                 "\"data\": {\"name\": \"d\", \"shape\": %s, \"dtype\": \"f32\", \"labels\": 4},"
                 "\"training\": {\"learning-rate\": 0.1%s},"
                 "\"rounds\": {\"num-server-rounds\": 10, \"min-train-nodes\": 8%s},"
                 "\"strategy\": %s%s}",
                 model, strstr(model, "[3, 1, 1]") ? "[3, 1, 1]" : "[3]",
                 or_nothing(parts->training), or_nothing(parts->rounds),
                 parts->strategy ? parts->strategy : "{}", or_nothing(parts->more));
    assert_in_range(size, 1, sizeof(text) - 1);
    *err = (fedge_error){0};
    return fedge_strategy_job_parse(text, (size_t)size, "job.json", job, err);
}

/* A value that the field takes: the least, or a text. */
static inline cJSON *least_value(const fedge_json_field *field)
{
    if (field->kind == FEDGE_JSON_OBJECT) {
        cJSON *object = cJSON_CreateObject();
        for (const fedge_json_field *part = field->fields; part->key; part++) {
            if (part->flags & FEDGE_JSON_REQUIRED)
                cJSON_AddItemToObject(object, part->key, least_value(part));
        }
        return object;
    }
    if (field->kind == FEDGE_JSON_LINES || field->kind == FEDGE_JSON_TEXT)
        return cJSON_CreateString("file");
    if (field->kind == FEDGE_JSON_ENUM)
        return cJSON_CreateString(field->name_of(0));
    if (field->kind == FEDGE_JSON_NAME)
        return cJSON_CreateString(field->choices[0]);
    return field->kind == FEDGE_JSON_BOOL ? cJSON_CreateBool(false)
                                          : cJSON_CreateNumber(field->min);
}

/* The strategy with the arguments that it needs. */
static inline cJSON *least_strategy(const fedge_strategy_reader *reader)
{
    fedge_strategy_fields table;
    cJSON *object = cJSON_CreateObject();
    fedge_strategy_fields_of(reader, false, &table);
    for (const fedge_json_field *field = table.fields; field->key; field++) {
        if (field->flags & FEDGE_JSON_REQUIRED)
            cJSON_AddItemToObject(object, field->key, least_value(field));
    }
    return object;
}

static inline fedge_status parse_strategy_object(const cJSON *strategy, const job_parts *parts,
                                                 fedge_job **job, fedge_error *err)
{
    char *text = cJSON_PrintUnformatted(strategy);
    job_parts with = *parts;
    with.strategy = text;
    const fedge_status status = parse_parts(&with, job, err);
    free(text);
    return status;
}

/* A job of the strategy with a model that it takes. */
static inline fedge_job *least_job(const fedge_strategy_reader *reader, const job_parts *parts)
{
    fedge_job *job = NULL;
    fedge_error err;
    job_parts with = *parts;
    cJSON *strategy = least_strategy(reader);
    if (parse_strategy_object(strategy, &with, &job, &err) != FEDGE_OK) {
        with.model = BATCHNORM;
        if (parse_strategy_object(strategy, &with, &job, &err) != FEDGE_OK)
            fail_msg("%s: %s", reader->name, err.message);
    }
    cJSON_Delete(strategy);
    return job;
}

#endif
