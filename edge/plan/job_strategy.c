/* A job's "strategy": its type, what every strategy has, and the type's own arguments. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/plan/client_hooks.h"
#include "edge/plan/plan_fields.h"

#define AT FEDGE_JSON_AT
#define SMALLEST 1e-9 /* rate above 0 */
#define MAX_RATE 1e6  /* of the server */
#define MAX_NAMES 64  /* strategies of one program */
#define TYPE "type"
#define NUM_OWNERS 100 /* bytes of a list of names */

const fedge_json_field fedge_strategy_common_fields[] = {
    {"server-learning-rate", "server_learning_rate", FEDGE_JSON_F64,
     AT(fedge_strategy_common, server_learning_rate), .min = SMALLEST, .max = MAX_RATE,
     .fallback = 1},
    {"server-schedule", "server_schedule", FEDGE_JSON_OBJECT, AT(fedge_strategy_common, schedule),
     .fields = fedge_schedule_fields},
    FEDGE_JSON_END,
};

/* Appends a table's fields; returns how many there are then. */
static unsigned add_fields(const fedge_json_field *from, fedge_strategy_fields *to, unsigned count)
{
    for (; from && from->key && count + 1 < FEDGE_MAX_STRATEGY_FIELDS; from++)
        to->fields[count++] = *from;
    return count;
}

void fedge_strategy_fields_of(const fedge_strategy_reader *reader, bool is_default,
                              fedge_strategy_fields *out)
{
    *out = (fedge_strategy_fields){.type = {reader->name, NULL}};
    out->fields[0] = (fedge_json_field){.key = TYPE,
                                        .kind = FEDGE_JSON_NAME,
                                        .flags = is_default ? 0 : FEDGE_JSON_REQUIRED,
                                        .choices = out->type};
    const unsigned count = add_fields(fedge_strategy_common_fields, out, 1);
    if (reader->default_rate > 0)
        out->fields[1].fallback = reader->default_rate;
    (void)add_fields(reader->arguments, out, count);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Finds the reader of the type; the first of them where the job names none. */
static fedge_status find_reader(const fedge_json *json, const cJSON *node, fedge_job *job,
                                const fedge_strategy_reader **reader, fedge_error *err)
{
    const char *names[MAX_NAMES + 1] = {NULL};
    for (size_t i = 0; i < MAX_NAMES && job->strategies[i]; i++)
        names[i] = job->strategies[i]->name;
    const fedge_json_field type[] = {
        {.key = TYPE, .kind = FEDGE_JSON_NAME, AT(fedge_job, strategy), .choices = names},
        FEDGE_JSON_END,
    };
    fedge_json lenient = *json;
    lenient.options.strict = false;
    fedge_json_defaults(type, job);
    const fedge_status st = node ? fedge_json_read(&lenient, node, type, job, err) : FEDGE_OK;
    for (size_t i = 0; st == FEDGE_OK && names[i]; i++) {
        if (strcmp(names[i], job->strategy) == 0)
            *reader = job->strategies[i];
    }
    return st;
}

/* A key that other strategies have is no misspelt one. */
static fedge_status check_owner(const fedge_json *json, const cJSON *child, const fedge_job *job,
                                fedge_error *err)
{
    char owners[NUM_OWNERS] = "";
    for (size_t i = 0; job->strategies[i] != NULL; i++) {
        const size_t used = strlen(owners);
        if (fedge_json_field_of(job->strategies[i]->arguments, child->string)) {
            (void)snprintf(owners + used, sizeof(owners) - used, "%s%s", used > 0 ? ", " : "",
                           job->strategies[i]->name);
        }
    }
    return owners[0] == '\0'
               ? FEDGE_OK
               : fedge_json_fail(json, child, NULL, err,
                                 "is not an argument of %s, but of %s; remove it, or change the "
                                 "type",
                                 job->strategy, owners);
}

static fedge_status read_settings(const fedge_json *json, const cJSON *node, fedge_job *job,
                                  const fedge_strategy_reader *reader, fedge_error *err)
{
    fedge_strategy_fields table;
    fedge_strategy_fields_of(reader, reader == job->strategies[0], &table);
    job->strategy_settings = calloc(1, reader->settings_size);
    if (!job->strategy_settings)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the strategy's arguments");
    if (!node) {
        fedge_json_defaults(table.fields, job->strategy_settings);
        return FEDGE_OK;
    }
    const cJSON *child = NULL;
    cJSON_ArrayForEach(child, node)
    {
        const fedge_status st = !fedge_json_field_of(table.fields, child->string)
                                    ? check_owner(json, child, job, err)
                                    : FEDGE_OK;
        if (st != FEDGE_OK)
            return st;
    }
    fedge_status st = fedge_json_read(json, node, table.fields, job->strategy_settings, err);
    if (st == FEDGE_OK) {
        const fedge_strategy_common *common = job->strategy_settings;
        st = fedge_schedule_check(json, "strategy.server-schedule", &common->schedule, err);
    }
    return st;
}

fedge_status fedge_strategy_read(const fedge_json *json, fedge_job *job, fedge_error *err)
{
    const cJSON *node = fedge_json_get(json->root, "strategy");
    fedge_status st = FEDGE_OK;
    if (job->strategies) {
        const fedge_strategy_reader *reader = job->strategies[0];
        st = find_reader(json, node, job, &reader, err);
        if (st == FEDGE_OK)
            st = read_settings(json, node, job, reader, err);
    } else {
        st = fedge_job_strategy_type(json, job->strategy, err);
    }
    job->plan.hooks = fedge_client_hooks_find(job->strategy);
    return st == FEDGE_OK ? fedge_hooks_read_arguments(json, node, &job->plan, err) : st;
}

/* --- what has to hold between it and the rest of the job -------------------------------------- */

fedge_status fedge_job_check_server_rates(const fedge_job *job, fedge_error *err)
{
    const fedge_strategy_common *common = job->strategy_settings;
    const bool grows = common && common->schedule.gamma > 1;
    for (uint32_t round = 1; grows && round <= job->rounds.num_server_rounds; round++) {
        const double rate =
            fedge_schedule_rate(&common->schedule, common->server_learning_rate, round);
        if (!(rate <= MAX_RATE)) {
            return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                              "makes the server learning rate of round %" PRIu32
                              " %g, and %g is the most; lower it, or num-server-rounds",
                              round, rate, MAX_RATE);
        }
    }
    return FEDGE_OK;
}

const fedge_strategy_reader *fedge_strategy_reader_of(const fedge_job *job)
{
    for (size_t i = 0; job->strategies && job->strategies[i]; i++) {
        if (strcmp(job->strategies[i]->name, job->strategy) == 0)
            return job->strategies[i];
    }
    return NULL;
}

fedge_status fedge_strategy_derive(const fedge_json *json, fedge_job *job, fedge_error *err)
{
    fedge_error cause = {0};
    const fedge_strategy_reader *reader = fedge_strategy_reader_of(job);
    if (!reader)
        return FEDGE_OK;
    if (fedge_job_check_server_rates(job, &cause) != FEDGE_OK)
        return fedge_json_fail_at(json, "strategy.server-schedule.gamma", err, "%s", cause.message);
    return reader->derive ? reader->derive(json, job, job->strategy_settings, err) : FEDGE_OK;
}

fedge_status fedge_strategy_check(const fedge_json *json, const fedge_job *job, fedge_error *err)
{
    const fedge_strategy_reader *reader = fedge_strategy_reader_of(job);
    return reader && reader->check ? reader->check(json, job, err) : FEDGE_OK;
}
