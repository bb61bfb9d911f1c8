/* A simulated run: the round state machine of the server over virtual clients.
 *
 * Rounds, cohorts, training, codec, sums and strategy are those of deployment, so a simulated run
 * gives the model that a deployed one with the same job, seed and cohorts gives, bit for bit on the
 * same CPU kernels. Without client profiles clients report at once. With client profiles time is
 * virtual: the round machine sees each client's report, failure or absence at its virtual time, and
 * only work that is sure to be reported is done.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_RUN_SIMULATION_H
#define FEDGE_AGGREGATOR_SIMULATE_RUN_SIMULATION_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/collective.h"
#include "aggregator/rounds/metric_plugin_api.h"
#include "aggregator/rounds/round_summary.h"
#include "aggregator/simulate/cohort/attacks.h"
#include "aggregator/simulate/cohort/client_states.h"
#include "aggregator/simulate/cohort/evaluation.h"
#include "aggregator/simulate/cohort/memory.h"
#include "aggregator/simulate/cohort/training_backend.h"
#include "aggregator/simulate/time/client_profiles.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"

#define FEDGE_SIMULATE_MAX_WAIT_US ((uint64_t)30 * 86400 * 1000000) /* longest wait for clients */
#define FEDGE_SIMULATE_MAX_FAILURES 10 /* failed attempts of a round that fail the run */

typedef struct fedge_simulation fedge_simulation;

typedef struct fedge_simulation_config {
    const fedge_job *job;
    const fedge_client_data *client_data;
    const fedge_dataset *test_set;         /* NULL: none */
    const struct fedge_plugin *plugin;     /* measures and evaluates, too; NULL: none */
    const fedge_client_profiles *profiles; /* NULL: time is not virtual */
    const fedge_collective *collective;    /* the ranks that share the work; NULL: alone */
    uint32_t num_threads;
    const char *backend; /* name of the training backend, or "auto"; NULL: "cpu" */
    const struct fedge_trainers *trainers; /* trainers of one's own, one for each thread, which
                                              then need no client data; NULL: fedge's */
    fedge_sim_shared *shared;              /* what concurrent simulations share; NULL: none */
    const fedge_log *log;                  /* says which backend trains, and why; may be NULL */
    const char *accumulator;           /* NULL: that of the backend, if it has one, else "cpu" */
    fedge_accumulator_config sums;     /* its GPUs are the backend's too */
    fedge_attack attack;               /* all 0: none; an attack on data is made already */
    const struct fedge_replay *replay; /* asynchronous order; NULL: by seed and profiles */
    uint32_t evaluate_every; /* ≥ 1: rounds between evaluations of the model; the last round always
                                has one */
    /* fedge_simulation_evaluate will not be called: no memory for evaluation is taken, unless there
     * are examples to test or validate with. */
    bool rounds_only;
    /* Summaries have no hash of the model, which takes longer than the step of a small one. */
    bool no_hashes;
    fedge_client_states_limit states; /* limit of the clients' states */
    fedge_cancel_fn cancel;           /* asked between steps of training; may be NULL */
    /* Called after each phase, with the model of the round's end. May be NULL. A failure ends the
     * run. */
    fedge_status (*on_round)(void *user, const fedge_round_summary *summary, fedge_error *err);
    /* Called before clients begin, and now and then while they work, with [done] of [asked] tasks
     * of the phase. May be NULL. */
    void (*on_progress)(void *user, uint32_t round, uint32_t done, uint32_t asked);
    void *user; /* argument of the callbacks */
} fedge_simulation_config;

/* What a resumed run needs to know. Plain data. */
typedef struct fedge_simulation_state {
    uint32_t rounds_closed;
    uint64_t next_task_id; /* ≥ 1 */
    uint64_t clock_us;     /* virtual, of the last phase that has ended */
    bool evaluation_due;   /* the last closed round's evaluation on clients is missing */
} fedge_simulation_state;

/* FEDGE_INVALID_ARGUMENT when there are fewer clients than the job's rounds need. */
FEDGE_MUST_USE fedge_status fedge_simulation_check_clients(const fedge_rounds_spec *spec,
                                                           uint32_t num_clients, fedge_error *err);

/* FEDGE_UNSUPPORTED says why ranks cannot share the job's rounds. */
FEDGE_MUST_USE fedge_status fedge_simulation_check_shared(const fedge_job *job, fedge_error *err);

/* What determines the run's memory (memory.h). */
FEDGE_MUST_USE fedge_status fedge_simulation_demand(const fedge_simulation_config *config,
                                                    fedge_memory_demand *demand, fedge_error *err);

/* Checks the job against the client data and takes all memory. FEDGE_UNSUPPORTED: an external
 * model without trainers, or a job that the backend cannot train. FEDGE_INVALID_ARGUMENT: the job
 * needs more clients than there are, or clients shall evaluate and none holds out examples.
 * FEDGE_TOO_BIG: the run needs more memory than there is (memory.h). */
FEDGE_MUST_USE fedge_status fedge_simulation_new(const fedge_simulation_config *config,
                                                 fedge_simulation **simulation, fedge_error *err);
void fedge_simulation_free(fedge_simulation *simulation); /* NULL is fine */

/* Loads what fedge_client_states_save wrote. Call it before fedge_simulation_restore. */
FEDGE_MUST_USE fedge_status fedge_simulation_load_states(fedge_simulation *simulation,
                                                         const char *path, fedge_error *err);
/* Resumes from [state] with the model in [file] and the strategy's saved state. Call it before
 * fedge_simulation_run. Clients' states must be loaded first, unless no round was closed or none is
 * left. FEDGE_MISMATCH: they are of another round. */
FEDGE_MUST_USE fedge_status fedge_simulation_restore(fedge_simulation *simulation,
                                                     const fedge_simulation_state *state,
                                                     const uint8_t *file, size_t file_size,
                                                     const uint8_t *strategy, size_t strategy_size,
                                                     fedge_error *err);

/* Runs all remaining rounds. FEDGE_CANCELLED: [cancel] said so; the open round is dropped, and the
 * model is that of the last closed one, which was evaluated and passed to [on_round], since
 * evaluation is not interrupted. After another failure, if fedge_simulation_is_whole, the model is
 * that of the last closed round too, but perhaps not passed to [on_round]. After FEDGE_NO_MEMORY,
 * also of a client's work, the backend is closed, and nothing can be run or evaluated. */
FEDGE_MUST_USE fedge_status fedge_simulation_run(fedge_simulation *simulation, fedge_error *err);

/* On several ranks, once each has its simulation: rank 0 leads until it frees its own; the others
 * only serve until then. A returned failure has not reached rank 0 (fedge_sim_ranks_serve).
 */
void fedge_simulation_lead(fedge_simulation *simulation);
FEDGE_MUST_USE fedge_status fedge_simulation_serve(fedge_simulation *simulation, fedge_error *err);

/* Makes [round] the last. Call it in on_round for the round that has ended, or before
 * fedge_simulation_restore for the one to resume from. Its evaluation on clients still follows, if
 * the job has one. */
void fedge_simulation_end_after(fedge_simulation *simulation, uint32_t round);

/* The SHA-256 of the current model's file. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_simulation_hash(const fedge_simulation *simulation,
                                                  char text[FEDGE_HASH_TEXT], fedge_error *err);

fedge_simulation_state fedge_simulation_get_state(const fedge_simulation *simulation);
/* Are model, strategy and clients' states those of the last closed round? False only after a
 * failure. */
bool fedge_simulation_is_whole(const fedge_simulation *simulation);
const fedge_global_model *fedge_simulation_model(const fedge_simulation *simulation);
/* Clients' states of the last closed round, in on_round or after fedge_simulation_run; NULL: none.
 */
const fedge_client_states *fedge_simulation_states(const fedge_simulation *simulation);
/* What trainers of one's own keep for the clients, likewise; NULL: fedge's trainer, or values that
 * are spread over ranks. */
const fedge_trainer_values *fedge_simulation_values(const fedge_simulation *simulation);
/* Loads what fedge_trainer_values_save wrote. Call it before fedge_simulation_restore. */
FEDGE_MUST_USE fedge_status fedge_simulation_load_values(fedge_simulation *simulation,
                                                         const char *path, fedge_error *err);
/* Collects the states of other ranks' clients, before they are saved. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_simulation_collect_states(fedge_simulation *simulation,
                                                            fedge_error *err);
/* The name of this rank's accumulator. */
const char *fedge_simulation_accumulator(const fedge_simulation *simulation);
const char *fedge_simulation_backend(const fedge_simulation *simulation); /* "cpu" */
/* Writes a line for each CPU or GPU with its clients at once, and the accumulator, with their
 * memory. */
void fedge_simulation_plan(const fedge_simulation *simulation, char *text, size_t size);
uint64_t fedge_simulation_bytes_per_thread(const fedge_simulation *simulation);
/* All memory that it may take, besides the data. */
uint64_t fedge_simulation_promised_bytes(const fedge_simulation *simulation);

/* The whole test set; count 0: none. The caller must not free it. */
fedge_view fedge_simulation_test_set(const fedge_simulation *simulation);

/* fedge_evaluate_sets with the current model, while no round is open. */
FEDGE_MUST_USE fedge_status fedge_simulation_evaluate(fedge_simulation *simulation,
                                                      fedge_evaluation_set *sets, uint32_t num_sets,
                                                      bool may_stop, fedge_error *err);

/* The order of an asynchronous run: the updates of each of its rounds and the models they began
 * from, as its rounds.jsonl lists them. Training in this order gives the same run, bit for bit. */

#define FEDGE_REPLAY_MAX_UPDATES 16777216u

/* Owns its arrays. */
typedef struct fedge_replay {
    fedge_buffered_update *updates;
    uint32_t *ends; /* (num_rounds): one past the last update of each round */
    uint32_t num_rounds, num_updates;
    uint32_t max_updates; /* updates of one round */
} fedge_replay;

/* Reads the training lines of [path]. FEDGE_MISMATCH: a line names no updates, or is not of the
 * next round; FEDGE_TOO_BIG; and as fedge_round_lines_read. */
FEDGE_MUST_USE fedge_status fedge_replay_read(const char *path, fedge_replay *replay,
                                              fedge_error *err);
void fedge_replay_fini(fedge_replay *replay); /* all 0 is fine */

/* The updates of [round], from 1; *num of them. FEDGE_MISMATCH: it has no such round. */
FEDGE_MUST_USE fedge_status fedge_replay_round(const fedge_replay *replay, uint32_t round,
                                               const fedge_buffered_update **updates, uint32_t *num,
                                               fedge_error *err);

#endif
