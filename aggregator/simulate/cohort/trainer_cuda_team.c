/* Teams: GPUs with their cohorts, and the runs that join, work together and leave. */
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/cohort/trainer_cuda_internal.h"

/* ---- one team -------------------------------------------------------------------------------- */

static void free_team(void *state)
{
    trainer_cuda_team *team = state;
    if (!team)
        return;
    fedge_worker_pool_free(team->threads);
    for (uint32_t i = 0; team->gpus && i < team->num_gpus; i++)
        fedge_cohort_free(team->gpus[i].cohort);
    pthread_cond_destroy(&team->changed);
    pthread_mutex_destroy(&team->mutex);
    free(team->gpus);
    free(team->plan);
    free(team);
}

/* Writes the plan without name, seed and learning rate, in which the runs of a team may differ.
 * *text is malloc'ed. */
static fedge_status write_plan(const fedge_plan *plan, char **text, fedge_error *err)
{
    fedge_plan *common = malloc(sizeof(*common));
    size_t size = 0;
    *text = NULL;
    if (!common)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to compare plans");
    *common = *plan;
    memcpy(common->name, "sweep", sizeof("sweep"));
    common->seed = 0;
    common->training.learning_rate = 1.0f;
    common->training.schedule = (fedge_schedule){0};
    const fedge_status status = fedge_plan_write(common, text, &size, err);
    free(common);
    return status;
}

static const fedge_dataset *set_of(const fedge_sim_backend_config *config, uint32_t index)
{
    return index == 0                                         ? config->client_data->dataset
           : config->test_set != config->client_data->dataset ? config->test_set
                                                              : NULL;
}

static fedge_status open_gpu(trainer_cuda_team *team, const fedge_sim_backend_config *config,
                             uint32_t index, fedge_error *err)
{
    trainer_cuda_gpu *at = &team->gpus[index];
    fedge_cohort_config cohort =
        fedge_trainer_cuda_cohort_of(config, team->num_gpus, team->max_members, &team->storage);
    cohort.gpu = (int)fedge_trainer_cuda_number(config, index);
    at->team = team;
    at->index = index;
    FEDGE_TRY(fedge_cohort_new(&cohort, &at->cohort, err));
    cohort.most_slots = fedge_cohort_slots(at->cohort); /* those that it has memory for */
    return fedge_cohort_bytes(&cohort, &at->memory, err);
}

static fedge_status open_gpus(trainer_cuda_team *team, const fedge_sim_backend_config *config,
                              fedge_error *err)
{
    FEDGE_TRY(write_plan(&config->job->plan, &team->plan, err));
    for (uint32_t i = 0; i < FEDGE_COHORT_SETS && set_of(config, i); i++) {
        team->crc32[i] = fedge_dataset_crc32(set_of(config, i));
        team->counts[i] = fedge_dataset_size(set_of(config, i));
    }
    FEDGE_TRY(fedge_trainer_cuda_count_gpus(config, &team->num_gpus, err));
    team->gpus = calloc(team->num_gpus, sizeof(*team->gpus));
    if (!team->gpus)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for GPUs' trainer");
    for (uint32_t i = 0; i < team->num_gpus; i++)
        FEDGE_TRY(open_gpu(team, config, i, err));
    /* Fewer threads suffice: the other GPUs do the work of one without a thread. */
    const fedge_worker_pool_config threads = {.name = "GPU's thread",
                                              .thread = "gpu",
                                              .num_workers = team->num_gpus - 1,
                                              .allow_fewer = true};
    return fedge_worker_pool_new(&team->threads, &threads, err);
}

static fedge_status new_team(const fedge_sim_backend_config *config, uint32_t max_members,
                             trainer_cuda_team **team, fedge_error *err)
{
    *team = NULL;
    trainer_cuda_team *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for GPUs' trainer");
    pthread_mutex_init(&fresh->mutex, NULL);
    pthread_cond_init(&fresh->changed, NULL);
    fresh->max_members = max_members;
    const fedge_status status = open_gpus(fresh, config, err);
    if (status != FEDGE_OK) {
        free_team(fresh);
        return status;
    }
    *team = fresh;
    return FEDGE_OK;
}

/* ---- joining and leaving --------------------------------------------------------------------- */

/* May the run join? */
static bool is_alike(const trainer_cuda_team *team, const fedge_sim_backend_config *config)
{
    char *plan = NULL;
    fedge_error why;
    bool alike =
        write_plan(&config->job->plan, &plan, &why) == FEDGE_OK && strcmp(plan, team->plan) == 0;
    for (uint32_t i = 0; i < FEDGE_COHORT_SETS && alike; i++) {
        const fedge_dataset *set = set_of(config, i);
        alike = team->counts[i] == (set ? fedge_dataset_size(set) : 0) &&
                (!set || team->crc32[i] == fedge_dataset_crc32(set));
    }
    free(plan);
    return alike;
}

static void add_member(trainer_cuda_team *team, trainer_cuda *self)
{
    pthread_mutex_lock(&team->mutex);
    team->runs[team->num_runs++] = self;
    pthread_mutex_unlock(&team->mutex);
    self->team = team;
}

static bool is_lost(trainer_cuda_team *team)
{
    pthread_mutex_lock(&team->mutex);
    const bool lost = team->lost;
    pthread_mutex_unlock(&team->mutex);
    return lost;
}

/* Finds or makes the shared team; *team NULL: the run needs a new one. The caller holds
 * shared->mutex. */
static fedge_status find_shared(fedge_sim_shared *shared, const fedge_sim_backend_config *config,
                                trainer_cuda_team **team, fedge_error *err)
{
    const uint32_t max_members =
        shared->max_runs < FEDGE_COHORT_MAX_MEMBERS ? shared->max_runs : FEDGE_COHORT_MAX_MEMBERS;
    trainer_cuda_team *existing = shared->state;
    fedge_status status = FEDGE_OK;
    *team = NULL;
    if (existing && existing->num_runs == 0 && (is_lost(existing) || !is_alike(existing, config))) {
        free_team(existing);
        shared->state = existing = NULL;
    }
    if (!existing) {
        status = new_team(config, max_members, &existing, err);
        shared->state = existing;
        shared->close = free_team;
    } else if (is_lost(existing) || existing->num_runs == existing->max_members ||
               !is_alike(existing, config)) {
        existing = NULL;
    }
    *team = existing;
    return status == FEDGE_NO_MEMORY && max_members > 1 ? FEDGE_OK
                                                        : status; /* a team of one run may fit */
}

fedge_status fedge_trainer_cuda_join(trainer_cuda *self, fedge_error *err)
{
    fedge_sim_shared *shared = self->config.shared;
    trainer_cuda_team *team = NULL;
    if (shared) {
        pthread_mutex_lock(&shared->mutex);
        const fedge_status status = find_shared(shared, &self->config, &team, err);
        self->is_shared = team != NULL;
        if (team)
            add_member(team, self);
        pthread_mutex_unlock(&shared->mutex);
        FEDGE_TRY(status);
    }
    if (!team) {
        FEDGE_TRY(new_team(&self->config, 1, &team, err));
        add_member(team, self);
    }
    return FEDGE_OK;
}

/* Wakes the runs that wait: this one may be the last they waited for. */
void fedge_trainer_cuda_leave(trainer_cuda *self)
{
    trainer_cuda_team *team = self->team;
    fedge_sim_shared *shared = self->config.shared;
    if (!team)
        return;
    if (!self->is_shared) {
        free_team(team);
        return;
    }
    pthread_mutex_lock(&shared->mutex); /* so that no other run frees the empty team */
    pthread_mutex_lock(&team->mutex);
    uint32_t at = 0;
    while (team->runs[at] != self)
        at++;
    team->runs[at] = team->runs[--team->num_runs];
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->mutex);
    pthread_mutex_unlock(&shared->mutex);
}

void fedge_trainer_cuda_run_together(trainer_cuda *self)
{
    trainer_cuda_team *team = self->team;
    pthread_mutex_lock(&team->mutex);
    self->waiting = true;
    team->num_waiting++;
    pthread_cond_broadcast(&team->changed);
    while (self->waiting) {
        if (team->busy || team->num_waiting < team->num_runs) {
            pthread_cond_wait(&team->changed, &team->mutex);
            continue;
        }
        team->busy = true;
        team->num_members = 0;
        for (uint32_t i = 0; i < team->num_runs; i++) {
            if (team->runs[i]->waiting)
                team->members[team->num_members++] = team->runs[i];
        }
        pthread_mutex_unlock(&team->mutex);
        fedge_trainer_cuda_work(team);
        pthread_mutex_lock(&team->mutex);
        for (uint32_t i = 0; i < team->num_members; i++)
            team->members[i]->waiting = false;
        team->num_waiting -= team->num_members;
        team->busy = false;
        pthread_cond_broadcast(&team->changed);
    }
    pthread_mutex_unlock(&team->mutex);
}
