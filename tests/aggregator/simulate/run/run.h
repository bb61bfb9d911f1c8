/* A simulation of the fixture's points, and what it says; POINTS_FILE as there. */
#ifndef FEDGE_TESTS_AGGREGATOR_SIMULATE_RUN_RUN_H
#define FEDGE_TESTS_AGGREGATOR_SIMULATE_RUN_RUN_H

#include <stdatomic.h>

#include "aggregator/simulate/run/simulation.h"
#include "tests/aggregator/simulate/run/fixture.h"

#define MAX_LINES 64

/* A run and what it said. */
typedef struct run {
    fedge_job *job;
    fedge_client_data *client_data;
    fedge_client_profiles *profiles; /* NULL: time is not virtual */
    fedge_simulation *simulation;
    fedge_round_summary lines[MAX_LINES];
    uint32_t num_lines;
    uint32_t stop_at;    /* ≠ 0: cancelled once so many lines were said */
    atomic_uint asked;   /* how often it was asked whether to stop */
    uint32_t stop_asked; /* ≠ 0: cancelled when asked so often */
    fedge_error err;
} run;

static inline fedge_status on_round(void *user, const fedge_round_summary *summary,
                                    fedge_error *err)
{
    run *self = user;
    (void)err;
    assert_true(self->num_lines < MAX_LINES);
    self->lines[self->num_lines++] = *summary;
    return FEDGE_OK;
}

static inline bool is_over(void *user)
{
    run *self = user;
    const uint32_t asked = atomic_fetch_add(&self->asked, 1) + 1;
    return (self->stop_at > 0 && self->num_lines >= self->stop_at) ||
           (self->stop_asked > 0 && asked >= self->stop_asked);
}

/* [profiles] is the run's from now on. */
static inline fedge_status begin_with(run *self, fedge_client_profiles *profiles,
                                      const char *rounds, const char *more, const char *partition,
                                      uint32_t clients, uint32_t threads)
{
    *self = (run){.job = make_job(rounds, more), .profiles = profiles};
    self->client_data = make_client_data(self->job, partition, clients,
                                         self->job->rounds.fraction_evaluate > 0 ? 0.2 : 0);
    const fedge_simulation_config config = {.job = self->job,
                                            .client_data = self->client_data,
                                            .test_set = self->client_data->dataset,
                                            .profiles = profiles,
                                            .num_threads = threads,
                                            .evaluate_every = 1,
                                            .cancel = is_over,
                                            .on_round = on_round,
                                            .user = self};
    return fedge_simulation_new(&config, &self->simulation, &self->err);
}

static inline fedge_status begin(run *self, const char *rounds, const char *more,
                                 const char *partition, uint32_t clients, uint32_t threads)
{
    return begin_with(self, NULL, rounds, more, partition, clients, threads);
}

static inline void end(run *self)
{
    fedge_simulation_free(self->simulation);
    fedge_client_profiles_free(self->profiles);
    fedge_client_data_free(self->client_data);
    fedge_job_free(self->job);
}

static inline void go(run *self)
{
    if (fedge_simulation_run(self->simulation, &self->err) != FEDGE_OK)
        fail_msg("%s", self->err.message);
}

#endif
