/* Jobs: what users write. A job consists of its plan (plan.c), which clients receive, and of the
 * server's part: rounds, strategy, test set, checkpoints. The tables check each key separately;
 * relations between keys are checked afterwards, in an order in which each step may use the results
 * of the previous ones. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/plan.h"
#include "edge/plan/plan_fields.h"

#define REQUIRED FEDGE_JSON_REQUIRED
#define AT FEDGE_JSON_AT
#define SMALLEST 1e-9 /* smallest fraction or rate above 0 */
#define DEFAULT_MAX_COHORT 4096
#define DEFAULT_MIN_FREE_DISK ((double)64 * 1024 * 1024)
#define JOB_VERSION 1
#define MAX_RATE 1e6 /* server learning rate */
#define MAX_NAMES 64 /* strategies of a program */
#define TYPE "type"
#define NUM_OWNERS 100 /* bytes of a list of names */

/* --- fields ----------------------------------------------------------------------------------- */

const char *fedge_sampler_name(unsigned kind)
{
#define NAME(name, text) text,
    static const char *const NAMES[] = {FEDGE_SAMPLER_MAP(NAME)};
#undef NAME
    return kind < FEDGE_SAMPLER_COUNT ? NAMES[kind] : NULL;
}

static const fedge_json_field SAMPLER[] = {
    {.key = "type",
     .kind = FEDGE_JSON_ENUM,
     AT(fedge_sampler_spec, type),
     .name_of = fedge_sampler_name,
     .num_names = FEDGE_SAMPLER_COUNT},
    {"minimum-share", "minimum_share", FEDGE_JSON_F64, AT(fedge_sampler_spec, minimum_share),
     .min = 0, .max = 1},
    {"inverse-probability", "inverse_probability", FEDGE_JSON_BOOL,
     AT(fedge_sampler_spec, inverse_probability)},
    FEDGE_JSON_END,
};

static const fedge_json_field ROUNDS[] = {
    {"num-server-rounds", "num_server_rounds num-rounds num_rounds", FEDGE_JSON_U32, REQUIRED,
     AT(fedge_rounds_spec, num_server_rounds), .min = 1, .max = 1e6},
    {"fraction-train", "fraction_train fraction-fit fraction_fit", FEDGE_JSON_F64,
     AT(fedge_rounds_spec, fraction_train), .min = SMALLEST, .max = 1, .fallback = 1},
    {"fraction-evaluate", "fraction_evaluate", FEDGE_JSON_F64,
     AT(fedge_rounds_spec, fraction_evaluate), .min = 0, .max = 1, .fallback = 0},
    {"min-train-nodes", "min_train_nodes min-fit-clients min_fit_clients", FEDGE_JSON_U32,
     AT(fedge_rounds_spec, min_train_nodes), .min = 1, .max = 1e6, .fallback = 2},
    {"min-evaluate-nodes", "min_evaluate_nodes min-evaluate-clients min_evaluate_clients",
     FEDGE_JSON_U32, AT(fedge_rounds_spec, min_evaluate_nodes), .min = 1, .max = 1e6,
     .fallback = 2},
    {"min-available-nodes", "min_available_nodes min-available-clients min_available_clients",
     FEDGE_JSON_U32, AT(fedge_rounds_spec, min_available_nodes), .min = 1, .max = 1e6},
    {"over-selection", "over_selection", FEDGE_JSON_F64, AT(fedge_rounds_spec, over_selection),
     .min = 1, .max = 10, .fallback = 1},
    {"max-cohort", "max_cohort", FEDGE_JSON_U32, AT(fedge_rounds_spec, max_cohort), .min = 1,
     .max = 1048576},
    {"max-weight", "max_weight", FEDGE_JSON_U32, AT(fedge_rounds_spec, max_weight), .min = 1,
     .max = UINT32_MAX, .fallback = (double)FEDGE_FIXED_DEFAULT_MAX_WEIGHT},
    {"round-deadline-s", "round_deadline_s", FEDGE_JSON_SECONDS,
     AT(fedge_rounds_spec, round_deadline_ms), .min = 0.001, .max = 2592000, .fallback = 600},
    {"min-report-fraction", "min_report_fraction", FEDGE_JSON_F64,
     AT(fedge_rounds_spec, min_report_fraction), .min = SMALLEST, .max = 1, .fallback = 1},
    {.key = "sampler",
     .kind = FEDGE_JSON_OBJECT,
     AT(fedge_rounds_spec, sampler),
     .fields = SAMPLER},
    FEDGE_JSON_END,
};

/* Read last, by the strategies passed to the reader. */
static fedge_status skip_strategy(const fedge_json *json, const cJSON *node, void *record,
                                  fedge_error *err)
{
    (void)record;
    return cJSON_IsObject(node) ? FEDGE_OK
                                : fedge_json_fail(json, node, NULL, err, "must be an object, {…}");
}

static const fedge_json_field TEST_SET[] = {
    {"values", NULL, FEDGE_JSON_LINES, REQUIRED, AT(fedge_test_set, images), .min = 1,
     .max = FEDGE_MAX_PATH - 1},
    {.key = "labels",
     .kind = FEDGE_JSON_LINES,
     AT(fedge_test_set, labels),
     .max = FEDGE_MAX_PATH - 1},
    FEDGE_JSON_END,
};

const char *fedge_criterion_name(unsigned metric)
{
    static const char *const NAMES[] = {"auto",
                                        "validation-accuracy",
                                        "validation-loss",
                                        "test-accuracy",
                                        "test-loss",
#define ERROR_NAMES(upper, name) "validation-" name, "test-" name,
                                        FEDGE_ERROR_METRIC_MAP(ERROR_NAMES)
#undef ERROR_NAMES
    };
    return metric < FEDGE_CRITERION_COUNT ? NAMES[metric] : NULL;
}

#define METRIC                                                                                     \
    {                                                                                              \
        .key = "metric", .kind = FEDGE_JSON_ENUM, AT(fedge_watch_spec, metric),                    \
        .name_of = fedge_criterion_name, .num_names = FEDGE_CRITERION_COUNT                        \
    }

static const fedge_json_field KEEP_BEST[] = {METRIC, FEDGE_JSON_END};

static const fedge_json_field EARLY_STOPPING[] = {
    METRIC,
    {.key = "patience",
     .kind = FEDGE_JSON_U32,
     .flags = REQUIRED,
     AT(fedge_watch_spec, patience),
     .min = 1,
     .max = 1e6},
    {"min-delta", "min_delta", FEDGE_JSON_F64, AT(fedge_watch_spec, min_delta), .min = 0,
     .max = 1e6},
    FEDGE_JSON_END,
};

const fedge_json_field fedge_job_fields[] = {
    {.key = "$schema", .kind = FEDGE_JSON_IGNORED},
    {.key = "fedge-job", .kind = FEDGE_JSON_IGNORED},
    FEDGE_PLAN_FIELDS,
    {.key = "rounds", /* checked by check_given */
     .kind = FEDGE_JSON_OBJECT,
     AT(fedge_job, rounds),
     .fields = ROUNDS},
    {.key = "strategy",
     .kind = FEDGE_JSON_CUSTOM,
     .read = skip_strategy,
     .fields = fedge_strategy_common_fields},
    {"test-set", "test_set", FEDGE_JSON_OBJECT, FEDGE_JSON_PRESENCE, AT(fedge_job, test_set),
     .extra = offsetof(fedge_job, test_set.present), .fields = TEST_SET},
    {"keep-best", "keep_best", FEDGE_JSON_OBJECT, FEDGE_JSON_PRESENCE, AT(fedge_job, keep_best),
     .extra = offsetof(fedge_job, keep_best.present), .fields = KEEP_BEST},
    {"early-stopping", "early_stopping", FEDGE_JSON_OBJECT, FEDGE_JSON_PRESENCE,
     AT(fedge_job, early_stopping), .extra = offsetof(fedge_job, early_stopping.present),
     .fields = EARLY_STOPPING},
    {"initial-model", "initial_model", FEDGE_JSON_TEXT, AT(fedge_job, initial_model), .min = 1},
    {"keep-checkpoints", "keep_checkpoints", FEDGE_JSON_U32, AT(fedge_job, keep_checkpoints),
     .min = 1, .max = 1000, .fallback = 2},
    {"min-free-disk", "min_free_disk", FEDGE_JSON_U64, AT(fedge_job, min_free_disk),
     .fallback = DEFAULT_MIN_FREE_DISK},
    FEDGE_JSON_END,
};

static_assert(offsetof(fedge_job, plan) == 0, "FEDGE_PLAN_FIELDS serve jobs too");

/* --- what has to hold between the parts ------------------------------------------------------- */

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* With max-cohort · max-weight ≤ 2^32 the sums of fixed.h cannot overflow. */
static fedge_status derive_cohort(const fedge_json *json, fedge_rounds_spec *rounds,
                                  fedge_error *err)
{
    uint64_t most = FEDGE_FIXED_MAX_TOTAL_WEIGHT / rounds->max_weight;
    if (rounds->max_cohort == 0)
        rounds->max_cohort = (uint32_t)(most < DEFAULT_MAX_COHORT ? most : DEFAULT_MAX_COHORT);
    if (rounds->max_cohort > most) {
        return fedge_json_fail_at(json, "rounds.max-cohort", err,
                                  "%" PRIu32 " times max-weight %" PRIu32
                                  " is over 2^32, so sums could overflow; lower "
                                  "max-weight to %" PRIu64 " or max-cohort to %" PRIu64,
                                  rounds->max_cohort, rounds->max_weight,
                                  FEDGE_FIXED_MAX_TOTAL_WEIGHT / rounds->max_cohort, most);
    }
    return FEDGE_OK;
}

static fedge_status derive_rounds(const fedge_json *json, fedge_rounds_spec *rounds,
                                  fedge_error *err)
{
    FEDGE_TRY(derive_cohort(json, rounds, err));
    if (rounds->min_train_nodes > rounds->max_cohort) {
        return fedge_json_fail_at(json, "rounds.min-train-nodes", err,
                                  "%" PRIu32 " is over max-cohort %" PRIu32 "; raise max-cohort "
                                  "(and lower max-weight), or lower this",
                                  rounds->min_train_nodes, rounds->max_cohort);
    }
    bool evaluates = rounds->fraction_evaluate > 0;
    uint32_t least = larger(rounds->min_train_nodes, evaluates ? rounds->min_evaluate_nodes : 0);
    if (rounds->min_available_nodes == 0)
        rounds->min_available_nodes = least;
    if (rounds->min_available_nodes < least) {
        return fedge_json_fail_at(
            json, "rounds.min-available-nodes", err,
            "%" PRIu32 " is less than %s %" PRIu32 "; raise it", rounds->min_available_nodes,
            least == rounds->min_train_nodes ? "min-train-nodes" : "min-evaluate-nodes", least);
    }
    return FEDGE_OK;
}

fedge_status fedge_job_check_rates(const fedge_job *job, const char **key, fedge_error *err)
{
    /* Only a gamma over 1 can exceed the limit, and it grows exponentially. A job whose last rounds
     * clients would refuse is refused now, not after days of training. */
    const bool grows = job->plan.training.schedule.gamma > 1;
    const fedge_strategy_reader *reader = fedge_strategy_reader_of(job);
    const bool divides = reader && reader->divides_by_rate;
    for (uint32_t round = 1; (grows || divides) && round <= job->rounds.num_server_rounds;
         round++) {
        const double rate = fedge_plan_learning_rate(&job->plan, round);
        if (!(rate <= FEDGE_MAX_LEARNING_RATE)) {
            *key = "training.schedule.gamma";
            return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                              "makes the learning rate of round %" PRIu32
                              " %g, and %g is the most; lower it, or num-server-rounds",
                              round, rate, FEDGE_MAX_LEARNING_RATE);
        }
        if (divides && job->plan.training.learning_rate == 0) { /* an external model's may be 0 */
            *key = "training.learning-rate";
            return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                              "is missing or 0, and %s divides by it; give your trainer's, e.g. "
                              "0.05",
                              job->strategy);
        }
        /* As a float, as clients use it. */
        if (divides && !((float)rate > 0.0f)) {
            *key = "training.schedule";
            return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                              "makes the learning rate of round %" PRIu32
                              " 0, by which %s divides; set eta_min (or raise gamma), or lower "
                              "num-server-rounds",
                              round, job->strategy);
        }
    }
    return FEDGE_OK;
}

static fedge_status derive_schedule(const fedge_json *json, const fedge_job *job, fedge_error *err)
{
    fedge_error cause = {0};
    const char *key = NULL;
    return fedge_job_check_rates(job, &key, &cause) == FEDGE_OK
               ? FEDGE_OK
               : fedge_json_fail_at(json, key, err, "%s", cause.message);
}

/* Makes the job's paths relative to its file's directory. */
static fedge_status derive_paths(const fedge_json *json, fedge_job *job, fedge_error *err)
{
    const char *folder_of = json->options.name;
    const char *key = !fedge_paths_resolve(folder_of, job->test_set.images)   ? "test-set.values"
                      : !fedge_paths_resolve(folder_of, job->test_set.labels) ? "test-set.labels"
                      : !fedge_path_resolve(folder_of, job->initial_model)    ? "initial-model"
                                                                              : NULL;
    return !key ? FEDGE_OK
                : fedge_json_fail_at(json, key, err,
                                     "is over %d bytes (a list: over %d) with the folder of "
                                     "the job before it",
                                     FEDGE_MAX_PATH - 1, FEDGE_MAX_PATHS - 1);
}

/* Checks that the job gives what has no default. */
static fedge_status check_given(const fedge_json *json, const fedge_job *job, fedge_error *err)
{
    const cJSON *child = NULL;
    if (!fedge_json_get(json->root, "rounds")) {
        return fedge_json_fail_at(json, "rounds", err,
                                  "is missing: give e.g. \"rounds\": {\"num-server-rounds\": 10}");
    }
    cJSON_ArrayForEach(child, fedge_json_get(json->root, "training"))
    {
        const fedge_json_field *field = fedge_json_field_of(fedge_training_fields, child->string);
        if (field && strcmp(field->key, "learning-rate") == 0 && !job->plan.external &&
            job->plan.training.learning_rate == 0) {
            return fedge_json_fail(json, child, NULL, err,
                                   "is 0, with which nothing is learnt; give e.g. 0.05");
        }
    }
    return FEDGE_OK;
}

static fedge_status derive_job(const fedge_json *json, fedge_job *job, fedge_error *err)
{
    /* Robust strategies depend on the smallest number of updates that closes a round, so rounds are
     * derived before the strategy. Its hooks add a section to updates, so the plan is derived after
     * it. */
    FEDGE_TRY(check_given(json, job, err));
    FEDGE_TRY(fedge_strategy_read(json, job, err));
    FEDGE_TRY(derive_rounds(json, &job->rounds, err));
    FEDGE_TRY(fedge_strategy_derive(json, job, err));
    FEDGE_TRY(fedge_plan_derive(json, &job->plan, err));
    FEDGE_TRY(fedge_strategy_check(json, job, err));
    FEDGE_TRY(fedge_job_check_models(json, &job->plan, err));
    FEDGE_TRY(derive_schedule(json, job, err));
    if (job->test_set.present && job->plan.external) {
        return fedge_json_fail_at(json, "test-set", err,
                                  "the server cannot evaluate an external model; remove it and use "
                                  "rounds.fraction-evaluate, or an evaluation in Python "
                                  "(--strategy-plugin)");
    }
    if (job->plan.config && strlen(job->plan.config) > FEDGE_MAX_CONFIG) {
        return fedge_json_fail_at(json, "config", err,
                                  "has %zu bytes without blanks; at most %d fit",
                                  strlen(job->plan.config), FEDGE_MAX_CONFIG);
    }
    return derive_paths(json, job, err);
}

/* --- jobs as text ----------------------------------------------------------------------------- */

fedge_status fedge_job_parse_with(const char *text, size_t size, const char *name,
                                  const fedge_strategy_reader *const *strategies, fedge_job **job,
                                  fedge_error *err)
{
    *job = NULL;
    fedge_json json;
    FEDGE_TRY(fedge_job_open(&json, text, size, name, err));
    fedge_status status = FEDGE_OK;
    fedge_job *made = calloc(1, sizeof(*made));
    if (!made)
        FEDGE_TRY_OR(fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for a job", name), done);
    made->strategies = strategies;
    FEDGE_TRY_OR(fedge_json_read(&json, json.root, fedge_job_fields, made, err), done);
    FEDGE_TRY_OR(derive_job(&json, made, err), done);
    *job = made;
    made = NULL;
done:
    fedge_json_close(&json);
    fedge_job_free(made);
    return status;
}

fedge_status fedge_job_parse(const char *text, size_t size, const char *name, fedge_job **job,
                             fedge_error *err)
{
    *job = NULL;
    return fedge_job_parse_with(text, size, name, NULL, job, err);
}

fedge_status fedge_job_load(const char *path, fedge_job **job, fedge_error *err)
{
    *job = NULL;
    uint8_t *text = NULL;
    size_t size = 0;
    FEDGE_TRY(fedge_os_read_file(path, FEDGE_JOB_MAX_SIZE, &text, &size, err));
    const fedge_status status = fedge_job_parse((const char *)text, size, path, job, err);
    free(text);
    return status;
}

void fedge_job_free(fedge_job *job)
{
    if (job) {
        fedge_plan_fini(&job->plan);
        free(job->strategy_settings);
    }
    free(job);
}

/* ---- the part that clients see --------------------------------------------------------------- */

/* Reads the clients' part of a job. A device does not need the reader of the server's part. */

/* The keys of fedge_job_fields, where the server's are ignored. */
const fedge_json_field fedge_job_plan_fields[] = {
    {.key = "$schema", .kind = FEDGE_JSON_IGNORED},
    {.key = "fedge-job", .kind = FEDGE_JSON_IGNORED},
    FEDGE_PLAN_FIELDS,
    {.key = "rounds", .kind = FEDGE_JSON_IGNORED},
    {.key = "strategy", .kind = FEDGE_JSON_IGNORED},
    {.key = "test-set", .aliases = "test_set", .kind = FEDGE_JSON_IGNORED},
    {.key = "keep-best", .aliases = "keep_best", .kind = FEDGE_JSON_IGNORED},
    {.key = "early-stopping", .aliases = "early_stopping", .kind = FEDGE_JSON_IGNORED},
    {.key = "initial-model", .aliases = "initial_model", .kind = FEDGE_JSON_IGNORED},
    {.key = "keep-checkpoints", .aliases = "keep_checkpoints", .kind = FEDGE_JSON_IGNORED},
    {.key = "min-free-disk", .aliases = "min_free_disk", .kind = FEDGE_JSON_IGNORED},
    FEDGE_JSON_END,
};

static fedge_status check_version(const fedge_json *json, fedge_error *err)
{
    const cJSON *version = fedge_json_get(json->root, "fedge-job");
    if (!version) {
        return fedge_json_fail_at(json, "fedge-job", err,
                                  "is missing: begin the job with \"fedge-job\": %d", JOB_VERSION);
    }
    if (!cJSON_IsNumber(version) || version->valuedouble != JOB_VERSION) {
        return fedge_json_fail_at(json, "fedge-job", err,
                                  "must be %d, the version this release "
                                  "knows",
                                  JOB_VERSION);
    }
    return FEDGE_OK;
}

fedge_status fedge_job_open(fedge_json *json, const char *text, size_t size, const char *name,
                            fedge_error *err)
{
    const fedge_json_options options = {.name = name,
                                        .lines = true,
                                        .strict = true,
                                        .status = FEDGE_INVALID_ARGUMENT,
                                        .max_size = FEDGE_JOB_MAX_SIZE,
                                        .max_depth = FEDGE_JSON_MAX_DEPTH,
                                        .max_values = FEDGE_PLAN_MAX_VALUES};
    FEDGE_TRY(fedge_json_open(json, text, size, &options, err));
    fedge_status status = check_version(json, err);
    if (status != FEDGE_OK)
        fedge_json_close(json);
    return status;
}

fedge_status fedge_job_strategy_type(const fedge_json *json, char type[FEDGE_MAX_STRATEGY_NAME],
                                     fedge_error *err)
{
    const cJSON *node = fedge_json_get(fedge_json_get(json->root, "strategy"), "type");
    type[0] = '\0';
    return !node ? FEDGE_OK : fedge_json_text(json, node, 1, type, FEDGE_MAX_STRATEGY_NAME, err);
}

fedge_status fedge_job_check_models(const fedge_json *json, const fedge_plan *plan,
                                    fedge_error *err)
{
    fedge_model_options options = fedge_plan_model_options(plan);
    fedge_model_memory memory;
    fedge_error cause = {0};
    if (plan->external)
        return FEDGE_OK;
    if (fedge_model_size(&plan->model, &options, &memory, &cause) == FEDGE_OK &&
        (!fedge_plan_evaluation_options(plan, &options) ||
         fedge_model_size(&plan->model, &options, &memory, &cause) == FEDGE_OK))
        return FEDGE_OK;
    return fedge_json_fail_at(json, "model.layers", err, "%s", cause.message);
}

static fedge_status read_plan(const fedge_json *json, fedge_plan *plan, fedge_error *err)
{
    char strategy[FEDGE_MAX_STRATEGY_NAME];
    FEDGE_TRY(fedge_json_read(json, json->root, fedge_job_plan_fields, plan, err));
    FEDGE_TRY(fedge_job_strategy_type(json, strategy, err));
    plan->hooks = fedge_client_hooks_of_job(strategy, plan->external);
    FEDGE_TRY(fedge_hooks_read_arguments(json, fedge_json_get(json->root, "strategy"), plan, err));
    FEDGE_TRY(fedge_plan_derive(json, plan, err));
    return fedge_job_check_models(json, plan, err);
}

fedge_status fedge_job_load_plan(const char *path, fedge_plan **plan, fedge_error *err)
{
    *plan = NULL;
    uint8_t *text = NULL;
    size_t size = 0;
    fedge_json json;
    FEDGE_TRY(fedge_os_read_file(path, FEDGE_JOB_MAX_SIZE, &text, &size, err));
    fedge_status status;
    FEDGE_TRY_OR(fedge_job_open(&json, (const char *)text, size, path, err), done);
    fedge_plan *made = calloc(1, sizeof(*made));
    status = !made ? fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for a plan", path)
                   : read_plan(&json, made, err);
    if (status == FEDGE_OK)
        *plan = made;
    else
        fedge_plan_free(made);
    fedge_json_close(&json);
done:
    free(text);
    return status;
}

/* ---- strategy -------------------------------------------------------------------------------- */

/* A job's "strategy": its type, the arguments common to all, and the type's arguments. */

const fedge_json_field fedge_strategy_common_fields[] = {
    {"server-learning-rate", "server_learning_rate", FEDGE_JSON_F64,
     AT(fedge_strategy_common, server_learning_rate), .min = SMALLEST, .max = MAX_RATE,
     .fallback = 1},
    {"server-schedule", "server_schedule", FEDGE_JSON_OBJECT, AT(fedge_strategy_common, schedule),
     .fields = fedge_schedule_fields},
    FEDGE_JSON_END,
};

/* Appends a table's fields; returns the new count. */
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

/* Finds the reader of the type; the first one if the job names none. */
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
    if (node)
        FEDGE_TRY(fedge_json_read(&lenient, node, type, job, err));
    for (size_t i = 0; names[i]; i++) {
        if (strcmp(names[i], job->strategy) == 0)
            *reader = job->strategies[i];
    }
    return FEDGE_OK;
}

/* An argument of another strategy is reported as such, not as a misspelling. */
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
        if (!fedge_json_field_of(table.fields, child->string))
            FEDGE_TRY(check_owner(json, child, job, err));
    }
    FEDGE_TRY(fedge_json_read(json, node, table.fields, job->strategy_settings, err));
    const fedge_strategy_common *common = job->strategy_settings;
    return fedge_schedule_check(json, "strategy.server-schedule", &common->schedule, err);
}

fedge_status fedge_strategy_read(const fedge_json *json, fedge_job *job, fedge_error *err)
{
    const cJSON *node = fedge_json_get(json->root, "strategy");
    if (job->strategies) {
        const fedge_strategy_reader *reader = job->strategies[0];
        FEDGE_TRY(find_reader(json, node, job, &reader, err));
        FEDGE_TRY(read_settings(json, node, job, reader, err));
    } else {
        FEDGE_TRY(fedge_job_strategy_type(json, job->strategy, err));
    }
    job->plan.hooks = fedge_client_hooks_of_job(job->strategy, job->plan.external);
    return fedge_hooks_read_arguments(json, node, &job->plan, err);
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

/* ---- paths ----------------------------------------------------------------------------------- */

bool fedge_path_resolve(const char *file, char path[FEDGE_MAX_PATH])
{
    const char *slash = strrchr(file, '/');
    size_t folder = slash ? (size_t)(slash - file) + 1 : 0, length = strlen(path);
    if (length == 0 || path[0] == '/' || folder == 0)
        return true;
    if (folder + length >= FEDGE_MAX_PATH)
        return false;
    memmove(path + folder, path, length + 1);
    memcpy(path, file, folder);
    return true;
}

bool fedge_paths_resolve(const char *file, char paths[FEDGE_MAX_PATHS])
{
    char resolved[FEDGE_MAX_PATHS], path[FEDGE_MAX_PATH];
    size_t used = 0;
    for (const char *line = paths;; line++) {
        const size_t length = strcspn(line, "\n");
        if (length >= sizeof(path))
            return false;
        memcpy(path, line, length);
        path[length] = '\0';
        if (!fedge_path_resolve(file, path) || strlen(path) >= sizeof(resolved) - used)
            return false;
        memcpy(resolved + used, path, strlen(path));
        used += strlen(path);
        line += length;
        resolved[used++] = *line;
        if (*line == '\0')
            break;
    }
    memcpy(paths, resolved, used);
    return true;
}
