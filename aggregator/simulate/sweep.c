#include "aggregator/simulate/sweep.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/experiment.h"
#include "aggregator/simulate/sweep_internal.h"
#include "edge/core/os.h"

#define MAX_NAME 256u /* of a combination: its folder, as long as file systems allow */
#define MAX_SEEDS 1000u
#define SEED_PART ",seed=1000" /* of a run's folder, at its longest */
#define SEEDS "seeds"
#define ROUNDS_PATH "rounds.num-server-rounds"

/* ---- axes ------------------------------------------------------------------------------------ */

static const struct {
    const char *name, *path;
} SHORT_NAMES[] = {{"lr", "training.learning-rate"},
                   {"epochs", "training.local-epochs"},
                   {"batch", "training.batch-size"},
                   {"fraction", "rounds.fraction-train"},
                   {"server-lr", "strategy.server-learning-rate"},
                   {"momentum", "training.optimizer.momentum"},
                   {"strategy", "strategy.type"},
                   {"codec", "update.codec"}};

/* Where a key stands in the job; partition, clients and rounds stand for themselves. */
static const char *path_of(const char *key)
{
    for (size_t k = 0; k < sizeof(SHORT_NAMES) / sizeof(SHORT_NAMES[0]); k++) {
        if (strcmp(key, SHORT_NAMES[k].name) == 0) {
            return SHORT_NAMES[k].path;
        }
    }
    return key;
}

static bool has_value(const sweep_axis *of, const char *value)
{
    for (uint32_t i = 0; i < of->num_values; i++) {
        if (strcmp(of->values[i], value) == 0) {
            return true;
        }
    }
    return false;
}

static fedge_status parse_axis(const char *text, sweep_axis *to, fedge_error *err)
{
    const size_t length = strlen(text);
    *to = (sweep_axis){.num_values = 0};
    if (length >= sizeof(to->text)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--sweep: %.40s… is over %u bytes", text,
                          FEDGE_SWEEP_MAX_TEXT - 1);
    }
    memcpy(to->text, text, length + 1);
    char *at = strchr(to->text, '=');
    if (!at || at == to->text || at[1] == '\0') {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--sweep wants KEY=VALUE,VALUE…, such as lr=0.03,0.1, not '%.80s'", text);
    }
    *at = '\0';
    to->key = to->text;
    while (at) {
        if (to->num_values == FEDGE_SWEEP_MAX_VALUES) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--sweep: %s has more than %u values",
                              to->key, FEDGE_SWEEP_MAX_VALUES);
        }
        const char *value = ++at;
        at = strchr(at, ',');
        if (at) {
            *at = '\0';
        }
        if (value[0] == '\0' || has_value(to, value)) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--sweep: %s in '%.80s'",
                              value[0] ? "a value stands twice" : "an empty value", text);
        }
        to->values[to->num_values++] = value;
    }
    return FEDGE_OK;
}

static fedge_status take_seeds(fedge_sweep *sweep, const sweep_axis *seeds, fedge_error *err)
{
    char *end = NULL;
    const unsigned long count = strtoul(seeds->values[0], &end, 10);
    if (seeds->num_values != 1 || *end != '\0' || count < 1 || count > MAX_SEEDS) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--sweep: seeds=N is a number of seeds, 1 to %u", MAX_SEEDS);
    }
    sweep->num_seeds = (uint32_t)count;
    return FEDGE_OK;
}

/* The same setting twice, by whatever name, would be two columns of which one is a lie. */
static fedge_status check_once(const fedge_sweep *sweep, const char *key, fedge_error *err)
{
    bool twice = strcmp(key, SEEDS) == 0 && sweep->num_seeds > 0;
    for (uint32_t i = 0; i < sweep->num_axes; i++) {
        twice = twice || strcmp(path_of(key), path_of(sweep->axes[i].key)) == 0;
    }
    if (twice) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--sweep: '%.80s' is set twice", key);
    }
    if ((strcmp(key, "seed") == 0 && sweep->options->has_seed) ||
        (strcmp(key, ROUNDS_PATH) == 0 && sweep->options->num_rounds > 0)) {
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT,
            "--sweep: an option comes before the job's '%s', so that all runs would be "
            "the same: leave the option out",
            key);
    }
    return FEDGE_OK;
}

static fedge_status parse_axes(fedge_sweep *sweep, fedge_error *err)
{
    sweep->num_combinations = 1;
    for (uint32_t i = 0; i < sweep->options->num_axes; i++) {
        sweep_axis *to = &sweep->axes[sweep->num_axes];
        fedge_status status = parse_axis(sweep->options->axes[i], to, err);
        if (status == FEDGE_OK) {
            status = check_once(sweep, to->key, err);
        }
        if (status == FEDGE_OK && strcmp(to->key, SEEDS) == 0) {
            status = take_seeds(sweep, to, err);
        } else if (status == FEDGE_OK) {
            sweep->num_axes++;
            sweep->num_combinations *= to->num_values;
        }
        if (status != FEDGE_OK) {
            return status;
        }
        const uint32_t seeds = sweep->num_seeds > 0 ? sweep->num_seeds : 1;
        if ((uint64_t)sweep->num_combinations * seeds > FEDGE_SWEEP_MAX_RUNS) {
            return fedge_fail(err, FEDGE_TOO_BIG, "--sweep: more than %u runs: take fewer values",
                              FEDGE_SWEEP_MAX_RUNS);
        }
    }
    sweep->num_seeds = sweep->num_seeds > 0 ? sweep->num_seeds : 1;
    return FEDGE_OK;
}

const char *fedge_sweep_value_of(const fedge_sweep *sweep, uint32_t combination, uint32_t at)
{
    for (uint32_t i = sweep->num_axes - 1; i > at; i--) {
        combination /= sweep->axes[i].num_values;
    }
    const sweep_axis *of = &sweep->axes[at];
    return of->values[combination % of->num_values];
}

/* "lr=0.1,partition=iid"; returns its bytes, of which MAX_NAME − 1 are written. */
static size_t name_of(const fedge_sweep *sweep, uint32_t combination, char name[MAX_NAME])
{
    size_t size = 0;
    name[0] = '\0';
    for (uint32_t i = 0; i < sweep->num_axes; i++) {
        const size_t at = size < MAX_NAME ? size : MAX_NAME - 1;
        size += (size_t)snprintf(name + at, MAX_NAME - at, "%s%s=%s", i > 0 ? "," : "",
                                 sweep->axes[i].key, fedge_sweep_value_of(sweep, combination, i));
    }
    return size;
}

/* ---- one combination ------------------------------------------------------------------------- */

/* Puts a value where [path] says, making the objects on the way; the job's own check comes after.
 */
static bool set_key(cJSON *job, const char *path, const char *text)
{
    char key[128];
    cJSON *at = job;
    const char *dot;
    while ((dot = strchr(path, '.')) != NULL) {
        if ((size_t)(dot - path) >= sizeof(key)) {
            return false;
        }
        memcpy(key, path, (size_t)(dot - path));
        key[dot - path] = '\0';
        cJSON *next = cJSON_GetObjectItemCaseSensitive(at, key);
        at = next ? next : cJSON_AddObjectToObject(at, key);
        path = dot + 1;
        if (!cJSON_IsObject(at)) {
            return false;
        }
    }
    /* All of it is JSON, or it is a text. */
    cJSON *value = cJSON_ParseWithOpts(text, NULL, true);
    value = value ? value : cJSON_CreateString(text);
    cJSON_DeleteItemFromObjectCaseSensitive(at, path);
    return cJSON_AddItemToObject(at, path, value);
}

static fedge_status set_count(const char *key, const char *text, uint32_t *count, fedge_error *err)
{
    char *end = NULL;
    const unsigned long value = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || value < 1 ||
        value > FEDGE_SIMULATE_MAX_CLIENTS) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--sweep: %s=%.40s is not a number from 1 to %u", key, text,
                          FEDGE_SIMULATE_MAX_CLIENTS);
    }
    *count = (uint32_t)value;
    return FEDGE_OK;
}

static fedge_status apply(const fedge_sweep *sweep, uint32_t combination, cJSON *job,
                          fedge_simulate_options *options, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < sweep->num_axes && status == FEDGE_OK; i++) {
        const char *key = path_of(sweep->axes[i].key),
                   *value = fedge_sweep_value_of(sweep, combination, i);
        if (strcmp(key, "partition") == 0) {
            options->partition = value;
        } else if (strcmp(key, "clients") == 0) {
            status = set_count(key, value, &options->num_clients, err);
        } else if (strcmp(key, "rounds") == 0) {
            status = set_count(key, value, &options->num_rounds, err);
        } else if (!set_key(job, key, value)) {
            status = fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                                "--sweep: cannot set '%.80s': a part of it is no object in the job",
                                key);
        }
    }
    return status;
}

/* cJSON writes 15 digits of a number: those that need more get all of theirs. */
static bool keep_digits(cJSON *within)
{
    bool kept = true;
    for (cJSON *at = within->child, *next = NULL; at && kept; at = next) {
        char text[32];
        next = at->next;
        (void)snprintf(text, sizeof(text), "%.15g", at->valuedouble);
        if (cJSON_IsNumber(at) && strtod(text, NULL) != at->valuedouble) {
            (void)snprintf(text, sizeof(text), "%.17g", at->valuedouble);
            cJSON *exact = cJSON_CreateRaw(text);
            kept = exact &&
                   (at->string ? cJSON_ReplaceItemInObjectCaseSensitive(within, at->string, exact)
                               : cJSON_ReplaceItemViaPointer(within, at, exact));
        } else {
            kept = keep_digits(at);
        }
    }
    return kept;
}

/* The options and the job's text of a combination; *text is malloc'ed. */
static fedge_status make(const fedge_sweep *sweep, uint32_t combination,
                         fedge_simulate_options *options, char **text, fedge_error *err)
{
    *options = *sweep->options;
    *text = NULL;
    cJSON *job = cJSON_ParseWithLength(sweep->job_text, sweep->job_size);
    if (!cJSON_IsObject(job)) {
        cJSON_Delete(job);
        return fedge_fail(err, FEDGE_CORRUPT, "%s is not a JSON object", sweep->options->job);
    }
    fedge_status status = apply(sweep, combination, job, options, err);
    if (status == FEDGE_OK) {
        *text = keep_digits(job) ? cJSON_Print(job) : NULL;
        status = *text ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a job");
    }
    cJSON_Delete(job);
    return status;
}

/* Are the combination's job and partition valid? */
static fedge_status check(const fedge_sweep *sweep, uint32_t combination, fedge_error *err)
{
    char name[MAX_NAME], *text = NULL;
    fedge_simulate_options options;
    fedge_job *job = NULL;
    fedge_status status = make(sweep, combination, &options, &text, err);
    if (status == FEDGE_OK) {
        status = fedge_job_parse(text, strlen(text), sweep->options->job, &job, err);
    }
    if (status == FEDGE_OK && options.partition) {
        fedge_partition_spec spec;
        status = fedge_partition_parse(options.partition, &spec, err);
    }
    fedge_job_free(job);
    free(text);
    const size_t size = name_of(sweep, combination, name);
    if (status == FEDGE_OK && sweep->options->out && size + sizeof(SEED_PART) > MAX_NAME) {
        status = fedge_fail(err, FEDGE_TOO_BIG,
                            "its folder would have a name over %u bytes: sweep fewer settings, or "
                            "shorter ones, at once",
                            MAX_NAME - 1);
    }
    return status == FEDGE_OK ? status : fedge_error_prefix(err, status, "with %.80s", name);
}

/* ---- running --------------------------------------------------------------------------------- */

static fedge_status run_folder(const fedge_sweep *sweep, uint32_t combination, uint32_t seed,
                               char path[FEDGE_MAX_PATH], fedge_error *err)
{
    char name[MAX_NAME];
    (void)name_of(sweep, combination, name);
    for (char *at = name; *at; at++) {
        *at = *at == '/' ? '_' : *at;
    }
    int size = snprintf(path, FEDGE_MAX_PATH, "%s/%s%sseed=%" PRIu32, sweep->options->out, name,
                        name[0] ? "," : "", seed + 1);
    return size > 0 && size < FEDGE_MAX_PATH
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_TOO_BIG,
                            "the folder of %s is over %d bytes: take a shorter "
                            "--out",
                            name, FEDGE_MAX_PATH - 1);
}

static bool is_begun(const char *out)
{
    char path[FEDGE_MAX_PATH + 32];
    (void)snprintf(path, sizeof(path), "%s/simulation.json", out);
    return fedge_os_exists(path);
}

/* *begun: it got as far as its rounds. */
static fedge_status run_one(const fedge_sweep *sweep, uint32_t combination, uint32_t seed,
                            fedge_cancel_fn cancel, void *user, fedge_totals *totals, bool *begun,
                            fedge_error *err)
{
    char *text = NULL, out[FEDGE_MAX_PATH];
    fedge_simulate_options options;
    fedge_experiment *experiment = calloc(1, sizeof(*experiment));
    *begun = false;
    if (!experiment) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a run");
    }
    fedge_status status = make(sweep, combination, &options, &text, err);
    fedge_experiment_config config = {.options = &options,
                                      .job_text = text,
                                      .job_size = text ? strlen(text) : 0,
                                      .out = sweep->options->out ? out : NULL,
                                      .summary = sweep->options->out != NULL,
                                      .cancel = cancel,
                                      .cancel_user = user};
    options.seed_offset = seed;
    if (status == FEDGE_OK && config.out) {
        status = run_folder(sweep, combination, seed, out, err);
        config.resume = status == FEDGE_OK && sweep->options->resume && is_begun(out);
    }
    if (status == FEDGE_OK) {
        status = fedge_experiment_init(experiment, &config, err);
    }
    *begun = status == FEDGE_OK;
    if (*begun) {
        status = fedge_experiment_run(experiment, err);
        *totals = experiment->results.totals;
    }
    fedge_experiment_fini(experiment);
    free(experiment);
    free(text);
    return status;
}

static void print_outcome(uint32_t number, uint32_t runs, const char *name, uint32_t seed,
                          const sweep_outcome *of)
{
    const fedge_totals *totals = &of->totals;
    const double accuracy =
        isnan(totals->test.accuracy) ? totals->validation.accuracy : totals->test.accuracy;
    fprintf(stderr, "%" PRIu32 " of %" PRIu32 ": %s seed %" PRIu32 ": ", number, runs, name,
            seed + 1);
    fputs(of->failed ? "failed at " : "", stderr);
    if (isnan(accuracy)) {
        fprintf(stderr, "round %" PRIu32, totals->rounds);
    } else {
        fprintf(stderr, "%.2f%%", 100.0 * accuracy);
    }
    fprintf(stderr, " in %.1f s%s%s\n", totals->seconds, of->failed ? ": " : "", of->why);
}

fedge_status fedge_sweep_run(fedge_sweep *sweep, fedge_cancel_fn cancel, void *user,
                             fedge_error *err)
{
    const uint32_t runs = sweep->num_combinations * sweep->num_seeds;
    for (uint32_t i = 0; i < runs; i++) {
        char name[MAX_NAME];
        bool begun = false;
        sweep_outcome *to = &sweep->outcomes[i];
        const uint32_t combination = i / sweep->num_seeds, seed = i % sweep->num_seeds;
        (void)name_of(sweep, combination, name);
        fedge_status status =
            run_one(sweep, combination, seed, cancel, user, &to->totals, &begun, err);
        if (status == FEDGE_CANCELLED || (status != FEDGE_OK && !begun)) {
            return status == FEDGE_CANCELLED ? status
                                             : fedge_error_prefix(err, status, "with %s", name);
        }
        to->done = true;
        to->failed = status != FEDGE_OK;
        if (to->failed) {
            memcpy(to->why, err->message, sizeof(to->why));
        }
        if (!sweep->options->quiet && !sweep->options->json) {
            print_outcome(i + 1, runs, name, seed, to);
        }
    }
    return FEDGE_OK;
}

uint32_t fedge_sweep_num_done(const fedge_sweep *sweep)
{
    uint32_t done = 0;
    for (uint32_t i = 0; i < sweep->num_combinations * sweep->num_seeds; i++) {
        done += sweep->outcomes[i].done;
    }
    return done;
}

/* ---- life ------------------------------------------------------------------------------------ */

fedge_status fedge_sweep_new(const fedge_simulate_options *options, const char *job_text,
                             size_t job_size, fedge_sweep **sweep, fedge_error *err)
{
    fedge_sweep *fresh = calloc(1, sizeof(*fresh));
    if (!fresh) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a sweep");
    }
    fresh->options = options;
    fresh->job_text = job_text;
    fresh->job_size = job_size;
    fedge_status status = parse_axes(fresh, err);
    for (uint32_t c = 0; status == FEDGE_OK && c < fresh->num_combinations; c++) {
        status = check(fresh, c, err);
    }
    if (status == FEDGE_OK) {
        assert(fresh->num_combinations > 0 && fresh->num_seeds > 0);
        fresh->outcomes =
            calloc((size_t)fresh->num_combinations * fresh->num_seeds, sizeof(*fresh->outcomes));
        status = fresh->outcomes ? FEDGE_OK
                                 : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u runs",
                                              fresh->num_combinations * fresh->num_seeds);
    }
    if (status != FEDGE_OK) {
        fedge_sweep_free(fresh);
        return status;
    }
    *sweep = fresh;
    return FEDGE_OK;
}

void fedge_sweep_free(fedge_sweep *sweep)
{
    if (sweep) {
        free(sweep->outcomes);
        free(sweep);
    }
}
