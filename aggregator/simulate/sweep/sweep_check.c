/* Checks a sweep's combinations before the first run, and counts the clients that train at once. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/sampler.h"
#include "aggregator/simulate/experiment/experiment.h"
#include "aggregator/simulate/sweep/sweep_internal.h"
#include "edge/data/formats/file_list.h"

#define TEST_SET "test-set"
#define SEED_PART ",seed=1000" /* the longest suffix of a run's folder */

/* ---- messages -------------------------------------------------------------------------------- */

/* A message of a job file, "job.json:3: …", from the colon on. */
static const char *after_position(const char *message)
{
    const char *colon = strstr(message, ": ");
    return colon ? colon : message;
}

/* Puts the combination before *err's message, and drops the line number, which is of a text that
 * the user does not have. */
static fedge_status fail_with(const fedge_sweep *sweep, const char *name, fedge_status status,
                              fedge_error *err)
{
    const fedge_error cause = *err;
    const char *path = sweep->options->job;
    const size_t size = strlen(path);
    if (strncmp(cause.message, path, size) != 0 || cause.message[size] != ':')
        return fedge_error_prefix(err, status, "with %.80s", name);
    const char *text = cause.message + size + 1;
    return fedge_fail(err, status, "with %.80s: %s:%s", name, path,
                      text + strspn(text, "0123456789") + (*text == ' ' ? 0 : 1));
}

/* ---- clients and cohorts --------------------------------------------------------------------- */

/* Counts the clients of a division, once for each partition of each data set; 0: unknown, and the
 * run will say why. */
static uint32_t count_clients(fedge_sweep *sweep, const fedge_experiment *experiment)
{
    const fedge_simulate_options *options = experiment->config.options;
    const char *name = experiment->job->plan.data.name;
    if (options->num_clients > 0)
        return options->num_clients;
    for (uint32_t i = 0; i < sweep->num_counted; i++) {
        if (sweep->counted[i].partition == options->partition &&
            strcmp(sweep->counted[i].data, name) == 0)
            return sweep->counted[i].clients;
    }
    uint32_t clients = 0;
    if (fedge_partition_num_parts(&experiment->data.partition, experiment->data.values, &clients,
                                  NULL) != FEDGE_OK)
        clients = 0;
    if (sweep->num_counted < FEDGE_SWEEP_MAX_VALUES) {
        sweep_counted *to = &sweep->counted[sweep->num_counted++];
        *to = (sweep_counted){.partition = options->partition, .clients = clients};
        (void)snprintf(to->data, sizeof(to->data), "%s", name);
    }
    return clients;
}

/* ---- files ----------------------------------------------------------------------------------- */

static fedge_status check_files(const char *lines, fedge_error *err)
{
    fedge_file_list list;
    FEDGE_TRY(fedge_file_list_open(&list, lines, err));
    fedge_file_list_close(&list);
    return FEDGE_OK;
}

static fedge_status check_pair(const fedge_test_set *set, fedge_error *err)
{
    FEDGE_TRY(check_files(set->images, err));
    return check_files(set->labels, err);
}

/* Checks the files once, unless they are an axis. */
static fedge_status check_test_set(fedge_sweep *sweep, const fedge_job *job, fedge_error *err)
{
    const fedge_test_set *set = &job->test_set;
    bool swept = false;
    for (uint32_t i = 0; i < sweep->num_axes; i++)
        swept = swept || strncmp(sweep->axes[i].key, TEST_SET, strlen(TEST_SET)) == 0;
    if (!set->present || (sweep->has_test_set && !swept))
        return FEDGE_OK;
    const fedge_status status = check_pair(set, err);
    sweep->has_test_set = status == FEDGE_OK;
    return status == FEDGE_OK ? status : fedge_error_prefix(err, status, TEST_SET);
}

/* Checks the profiles once for each number of clients. */
static fedge_status check_profiles(fedge_sweep *sweep, const fedge_simulate_options *options,
                                   const fedge_job *job, uint32_t clients, fedge_error *err)
{
    fedge_client_profiles *profiles = NULL;
    bool known = !fedge_client_profiles_is_wanted(&options->profiles);
    for (uint32_t i = 0; i < sweep->num_profiles && !known; i++)
        known = sweep->profiles[i] == clients;
    if (known)
        return FEDGE_OK;
    const fedge_status status =
        fedge_client_profiles_new(&options->profiles, job->plan.seed, clients, &profiles, err);
    if (status == FEDGE_OK && sweep->num_profiles < FEDGE_SWEEP_MAX_VALUES)
        sweep->profiles[sweep->num_profiles++] = clients;
    fedge_client_profiles_free(profiles);
    return status;
}

/* ---- backends -------------------------------------------------------------------------------- */

/* With "auto", takes the backend that all combinations would choose, so that runs can go side by
 * side on it. */
static fedge_status choose_backend(fedge_sweep *sweep, const fedge_simulate_options *options,
                                   const fedge_job *job, uint32_t clients, fedge_error *err)
{
    const fedge_client_data no_data = {.num_clients = clients};
    const fedge_sim_backend_config config = {.job = job,
                                             .client_data = &no_data,
                                             .num_gpus = options->sums.num_gpus,
                                             .gpus = options->sums.gpus};
    const fedge_sim_backend_ops *chosen = NULL;
    fedge_error why = {.message = ""};
    const char *wanted = sweep->options->backend;
    if (strcmp(wanted, FEDGE_SIM_BACKEND_AUTO) != 0) {
        sweep->backend = wanted;
        return FEDGE_OK;
    }
    if (fedge_sim_backend_check(fedge_sim_backends[0], &config, &why) != FEDGE_OK)
        memcpy(sweep->no_gpus, why.message, sizeof(sweep->no_gpus));
    FEDGE_TRY(fedge_sim_backend_choose(wanted, &config, &chosen, err));
    const bool same = !sweep->backend || strcmp(sweep->backend, chosen->name) == 0;
    sweep->backend = same ? chosen->name : FEDGE_SIM_BACKEND_AUTO;
    return FEDGE_OK;
}

/* ---- evaluation ------------------------------------------------------------------------------ */

/* Has the run anything to evaluate on? A partition file may set examples for validation apart. */
static bool may_evaluate(const fedge_experiment *experiment)
{
    const fedge_job *job = experiment->job;
    return job->test_set.present || job->server_evaluates || job->rounds.fraction_evaluate > 0.0 ||
           experiment->config.options->validation_split > 0.0 ||
           experiment->data.partition.scheme == FEDGE_PARTITION_FILE;
}

/* ---- one combination ------------------------------------------------------------------------- */

static fedge_status examine_job(fedge_sweep *sweep, const fedge_experiment *experiment,
                                uint32_t *cohort, fedge_error *err)
{
    const fedge_simulate_options *options = experiment->config.options;
    const fedge_job *job = experiment->job;
    FEDGE_TRY(check_test_set(sweep, job, err));
    const uint32_t clients = count_clients(sweep, experiment);
    if (clients > 0) {
        *cohort = fedge_cohort_size_of(&job->rounds, FEDGE_TASK_TRAIN, clients).wanted;
        FEDGE_TRY(fedge_simulation_check_clients(&job->rounds, clients, err));
        FEDGE_TRY(check_profiles(sweep, options, job, clients, err));
    }
    return choose_backend(sweep, options, job, clients, err);
}

/* Checks a combination as far as possible without data. *cohort: clients that train in a round; 0:
 * unknown. */
static fedge_status examine(fedge_sweep *sweep, const fedge_simulate_options *options,
                            const char *text, size_t size, uint32_t *cohort, bool *shareable,
                            fedge_error *err)
{
    fedge_experiment *experiment = calloc(1, sizeof(*experiment));
    if (!experiment)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an experiment");
    const fedge_experiment_config config = {.options = options, .job_text = text, .job_size = size};
    fedge_status status;
    *shareable = false;
    FEDGE_TRY_OR(fedge_experiment_check(experiment, &config, err), done);
    FEDGE_TRY_OR(examine_job(sweep, experiment, cohort, err), done);
    /* Only one process alone measures a backdoor, or resumes with what trainers have kept. */
    *shareable = !options->trainer && !fedge_attack_is_backdoor(&options->attack) &&
                 fedge_simulation_check_shared(experiment->job, NULL) == FEDGE_OK;
    sweep->is_measured = sweep->is_measured || may_evaluate(experiment);
done:
    sweep->uses_plugin = sweep->uses_plugin || experiment->uses_plugin;
    fedge_experiment_fini(experiment);
    free(experiment);
    return status;
}

/* Does the job fail in the same way without the sweep's settings? Then *err names the line in the
 * job's own text. */
static bool fails_without_sweep(fedge_sweep *sweep, fedge_error *err)
{
    uint32_t cohort = 0;
    bool shareable = false;
    fedge_error unswept;
    const fedge_status status = examine(sweep, sweep->options, sweep->job_text, sweep->job_size,
                                        &cohort, &shareable, &unswept);
    if (status == FEDGE_OK ||
        strcmp(after_position(unswept.message), after_position(err->message)) != 0)
        return false;
    *err = unswept;
    return true;
}

static fedge_status check(fedge_sweep *sweep, uint32_t combination, fedge_error *err)
{
    char name[FEDGE_SWEEP_MAX_NAME], *text = NULL;
    fedge_simulate_options options;
    FEDGE_TRY(fedge_sweep_make(sweep, combination, &options, &text, err));
    options.seed_offset = sweep->num_seeds - 1; /* the highest */
    const fedge_status status =
        examine(sweep, &options, text, strlen(text), &sweep->cohorts[combination],
                &sweep->shareable[combination], err);
    free(text);
    FEDGE_TRY(status);
    if (sweep->options->out && fedge_sweep_folder_of(sweep, combination, name) + sizeof(SEED_PART) >
                                   FEDGE_SWEEP_MAX_NAME) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "its folder would have a name over %u bytes: sweep fewer settings, or "
                          "shorter ones, at once",
                          FEDGE_SWEEP_MAX_NAME - 1);
    }
    return FEDGE_OK;
}

fedge_status fedge_sweep_check(fedge_sweep *sweep, uint32_t combination, fedge_error *err)
{
    char name[FEDGE_SWEEP_MAX_NAME];
    const fedge_status status = check(sweep, combination, err);
    if (status == FEDGE_OK || fails_without_sweep(sweep, err))
        return status;
    if (fedge_sweep_name_of(sweep, combination, name) == 0) /* the only axis is seeds */ {
        (void)snprintf(name, sizeof(name), "seeds=%" PRIu32, sweep->num_seeds);
    }
    return fail_with(sweep, name, status, err);
}
