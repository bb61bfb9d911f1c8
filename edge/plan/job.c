/* Jobs: what users write. A job is its plan (plan.c), which clients get, and what the aggregator
 * alone needs: rounds, strategy, test set, what is kept. The tables read each key by itself; what
 * has to hold between keys is derived afterwards, in an order in which each step may look at what
 * the ones before it have derived. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/plan/path.h"
#include "edge/plan/plan_fields.h"

#define REQUIRED FEDGE_JSON_REQUIRED
#define AT FEDGE_JSON_AT
#define SMALLEST 1e-9 /* the least that a share above 0 can be */
#define DEFAULT_MAX_COHORT 4096
#define DEFAULT_MIN_FREE_DISK ((double)64 * 1024 * 1024)

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

/* It is read when all else is, by the types that the job is read with (job_strategy.c). */
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
    static const char *const NAMES[] = {"auto", "validation-accuracy", "validation-loss",
                                        "test-accuracy", "test-loss"};
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
    {.key = "rounds", /* check_given */
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

/* The sums of fixed.h cannot overflow while max-cohort · max-weight ≤ 2^32. */
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
    fedge_status st = derive_cohort(json, rounds, err);
    if (st != FEDGE_OK)
        return st;
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
    /* Only a gamma over 1 can take the rate over its limit, and exponentially at that. A job whose
     * last rounds clients would refuse is refused now, not after days of work. */
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
        /* As a float, which clients train with. */
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

/* Makes the job's paths relative to where its file lies. */
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

/* What every job has to say, for who has not yet. */
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
    /* Robust strategies ask how few updates a round may close with, so the rounds are complete
     * before the strategy is checked. Its hooks bring a section of their own into what clients
     * send, so the plan is derived after it. */
    fedge_status st = check_given(json, job, err);
    if (st == FEDGE_OK)
        st = fedge_strategy_read(json, job, err);
    if (st == FEDGE_OK)
        st = derive_rounds(json, &job->rounds, err);
    if (st == FEDGE_OK)
        st = fedge_strategy_derive(json, job, err);
    if (st == FEDGE_OK)
        st = fedge_plan_derive(json, &job->plan, err);
    if (st == FEDGE_OK)
        st = fedge_strategy_check(json, job, err);
    if (st == FEDGE_OK)
        st = fedge_job_check_models(json, &job->plan, err);
    if (st == FEDGE_OK)
        st = derive_schedule(json, job, err);
    if (st == FEDGE_OK && job->test_set.present && job->plan.external) {
        st = fedge_json_fail_at(json, "test-set", err,
                                "the server cannot evaluate an external model; remove it and use "
                                "rounds.fraction-evaluate");
    }
    return st == FEDGE_OK ? derive_paths(json, job, err) : st;
}

/* --- jobs as text ----------------------------------------------------------------------------- */

fedge_status fedge_job_parse_with(const char *text, size_t size, const char *name,
                                  const fedge_strategy_reader *const *strategies, fedge_job **job,
                                  fedge_error *err)
{
    *job = NULL;
    fedge_json json;
    fedge_status st = fedge_job_open(&json, text, size, name, err);
    if (st != FEDGE_OK)
        return st;
    fedge_job *made = calloc(1, sizeof(*made));
    st = !made ? fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for a job", name) : FEDGE_OK;
    if (st == FEDGE_OK) {
        made->strategies = strategies;
        st = fedge_json_read(&json, json.root, fedge_job_fields, made, err);
    }
    if (st == FEDGE_OK)
        st = derive_job(&json, made, err);
    fedge_json_close(&json);
    if (st != FEDGE_OK) {
        fedge_job_free(made);
        return st;
    }
    *job = made;
    return FEDGE_OK;
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
    fedge_status st = fedge_os_read_file(path, FEDGE_JOB_MAX_SIZE, &text, &size, err);
    if (st == FEDGE_OK)
        st = fedge_job_parse((const char *)text, size, path, job, err);
    free(text);
    return st;
}

void fedge_job_free(fedge_job *job)
{
    if (job) {
        fedge_plan_fini(&job->plan);
        free(job->strategy_settings);
    }
    free(job);
}
