/* What is known of a sweep's runs before the first of them: that they can be, and how many clients
 * train at once. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/sampler.h"
#include "aggregator/simulate/experiment.h"
#include "aggregator/simulate/sweep_internal.h"
#include "edge/io/path.h"

#define SEED_PART ",seed=1000" /* of a run's folder, at its longest */

/* ---- what a message is about ----------------------------------------------------------------- */

/* A message of a job file, "job.json:3: …", without where it is. */
static const char *behind_place(const char *message)
{
    const char *colon = strstr(message, ": ");
    return colon ? colon : message;
}

/* Is the job itself at fault, without any setting? Then *err tells its line, which the
 * combination's text, written anew, has elsewhere. */
static bool is_jobs_own(const fedge_sweep *sweep, fedge_error *err)
{
    fedge_job *job = NULL;
    fedge_error own;
    const fedge_status status =
        fedge_job_parse(sweep->job_text, sweep->job_size, sweep->options->job, &job, &own);
    fedge_job_free(job);
    if (status == FEDGE_OK || strcmp(behind_place(own.message), behind_place(err->message)) != 0) {
        return false;
    }
    *err = own;
    return true;
}

/* Before *err's message: of which combination, without a line of its text, which nobody sees. */
static fedge_status fail_with(const fedge_sweep *sweep, const char *name, fedge_status status,
                              fedge_error *err)
{
    const fedge_error cause = *err;
    const char *path = sweep->options->job;
    const size_t size = strlen(path);
    if (strncmp(cause.message, path, size) != 0 || cause.message[size] != ':') {
        return fedge_error_prefix(err, status, "with %.80s", name);
    }
    const char *rest = cause.message + size + 1;
    return fedge_fail(err, status, "with %.80s: %s:%s", name, path,
                      rest + strspn(rest, "0123456789") + (*rest == ' ' ? 0 : 1));
}

/* ---- clients and cohorts --------------------------------------------------------------------- */

/* What the client's file says of the job's data; NULL: that cannot be told, and the run will say
 * why. */
static const fedge_site_data *load_data(const fedge_simulate_options *options, const fedge_job *job,
                                        fedge_site **site)
{
    char beside[FEDGE_MAX_PATH] = "client.json";
    if (!options->data && !fedge_path_resolve(options->job, beside)) {
        return NULL;
    }
    const fedge_status status = fedge_site_load(options->data ? options->data : beside, site, NULL);
    return status == FEDGE_OK ? fedge_site_find(*site, job->plan.data.name) : NULL;
}

/* As many as the division says; 0: that cannot be told. */
static uint32_t read_clients(const fedge_simulate_options *options, const fedge_job *job)
{
    fedge_site *site = NULL;
    uint32_t clients = 0;
    const fedge_site_data *data = load_data(options, job, &site);
    fedge_partition_spec division = data ? data->partition : (fedge_partition_spec){.seed = 0};
    if (!data ||
        (options->partition &&
         fedge_partition_parse(options->partition, &division, NULL) != FEDGE_OK) ||
        fedge_partition_num_parts(&division, data->values, &clients, NULL) != FEDGE_OK) {
        clients = 0;
    }
    fedge_site_free(site);
    return clients;
}

/* The same, read once for each partition. */
static uint32_t count_clients(fedge_sweep *sweep, const fedge_simulate_options *options,
                              const fedge_job *job)
{
    if (options->num_clients > 0) {
        return options->num_clients;
    }
    for (uint32_t i = 0; i < sweep->num_counted; i++) {
        if (sweep->counted[i].partition == options->partition) {
            return sweep->counted[i].clients;
        }
    }
    const uint32_t clients = read_clients(options, job);
    if (sweep->num_counted < FEDGE_SWEEP_MAX_VALUES) {
        sweep->counted[sweep->num_counted].partition = options->partition;
        sweep->counted[sweep->num_counted++].clients = clients;
    }
    return clients;
}

/* How many clients a round of the combination trains. */
static void note_cohort(fedge_sweep *sweep, uint32_t combination,
                        const fedge_simulate_options *options, const char *text)
{
    fedge_job *job = NULL;
    if (fedge_job_parse(text, strlen(text), options->job, &job, NULL) == FEDGE_OK) {
        const uint32_t clients = count_clients(sweep, options, job);
        sweep->cohorts[combination] =
            clients > 0 ? fedge_cohort_size_of(&job->rounds, FEDGE_TASK_TRAIN, clients).wanted : 0;
    }
    fedge_job_free(job);
}

/* ---- one combination ------------------------------------------------------------------------- */

fedge_status fedge_sweep_check(fedge_sweep *sweep, uint32_t combination, fedge_error *err)
{
    char name[FEDGE_SWEEP_MAX_NAME], *text = NULL;
    fedge_simulate_options options;
    fedge_status status = fedge_sweep_make(sweep, combination, &options, &text, err);
    options.seed_offset = sweep->num_seeds - 1; /* the highest */
    if (status == FEDGE_OK) {
        status = fedge_experiment_check(&options, text, strlen(text), err);
    }
    if (status == FEDGE_OK) {
        note_cohort(sweep, combination, &options, text);
    }
    free(text);
    if (status == FEDGE_OK && sweep->options->out &&
        fedge_sweep_folder_of(sweep, combination, name) + sizeof(SEED_PART) >
            FEDGE_SWEEP_MAX_NAME) {
        status = fedge_fail(err, FEDGE_TOO_BIG,
                            "its folder would have a name over %u bytes: sweep fewer settings, or "
                            "shorter ones, at once",
                            FEDGE_SWEEP_MAX_NAME - 1);
    }
    if (status == FEDGE_OK || is_jobs_own(sweep, err)) {
        return status;
    }
    if (fedge_sweep_name_of(sweep, combination, name) == 0) { /* seeds alone */
        (void)snprintf(name, sizeof(name), "seeds=%" PRIu32, sweep->num_seeds);
    }
    return fail_with(sweep, name, status, err);
}
