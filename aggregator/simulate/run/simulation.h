/* A simulated run: the round state machine of the server over virtual clients.
 *
 * Rounds, cohorts, training, codec, sums and strategy are those of deployment, so a simulated run
 * gives the model that a deployed one with the same job, seed and cohorts gives, bit for bit on the
 * same CPU kernels. Without client profiles nobody waits for a network: whoever is asked has
 * reported at once. With client profiles time is virtual: the machine sees each client's report,
 * failure or absence at the time at which it would see it, and only work that is sure to be
 * reported is done.
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

#define FEDGE_SIMULATE_MAX_WAIT_US ((uint64_t)30 * 86400 * 1000000) /* for enough clients */
#define FEDGE_SIMULATE_MAX_FAILURES 10 /* attempts of one round that fail before the run does */

typedef struct fedge_simulation fedge_simulation;

typedef struct fedge_simulation_config {
    const fedge_job *job;
    const fedge_client_data *client_data;
    const fedge_dataset
        *test_set; /* NULL: none; the client data may have examples for validation */
    const fedge_metric_plugin *metrics; /* counted on the test set, too; NULL: none */
    const fedge_client_profiles
        *profiles; /* of the client data's clients; NULL: time is not virtual */
    const fedge_collective *collective; /* of the ranks that share the work; NULL: alone */
    uint32_t num_threads;
    const char *backend;           /* what trains, or "auto" (training_backend.h); NULL: "cpu" */
    fedge_sim_shared *shared;      /* with simulations beside it; NULL: none */
    const fedge_log *log;          /* is told what trains, and why; may be NULL */
    const char *accumulator;       /* what sums; NULL: what trains, where it can, else "cpu" */
    fedge_accumulator_config sums; /* its gpus, which are the backend's too, and shard */
    fedge_attack attack;           /* all 0: nobody lies; the data are spoilt already */
    const struct fedge_replay *replay; /* of an asynchronous job: its order; NULL: as the
                                          seed and the profiles have it */
    uint32_t evaluate_every; /* ≥ 1: rounds between evaluations of the model; the last one always */
    /* fedge_simulation_evaluate will not be called: without examples to test or validate with, no
     * memory is taken for evaluation. */
    bool rounds_only;
    /* Summaries are without the hash of their model, which takes longer than a step of a small one.
     */
    bool no_hashes;
    fedge_client_states_limit states; /* of what clients keep */
    fedge_cancel_fn cancel;           /* asked between steps of training; may be NULL */
    /* After each phase; the simulation's model is that of the round's end. May be NULL. A failure
     * ends the run. */
    fedge_status (*on_round)(void *user, const fedge_round_summary *summary, fedge_error *err);
    /* Before clients begin to work, and now and then while they do: [done] of [asked] of the phase.
     * May be NULL. */
    void (*on_progress)(void *user, uint32_t round, uint32_t done, uint32_t asked);
    void *user; /* of all three */
} fedge_simulation_config;

/* What a run has to know to go on. Plain data. */
typedef struct fedge_simulation_state {
    uint32_t rounds_closed;
    uint64_t next_task_id; /* ≥ 1 */
    uint64_t clock_us;     /* virtual, of the last phase that has ended */
    bool evaluation_due;   /* on clients: that of the last closed round has not been */
} fedge_simulation_state;

/* Are there as many clients as the job's rounds need? FEDGE_INVALID_ARGUMENT says what to change.
 */
FEDGE_MUST_USE fedge_status fedge_simulation_check_clients(const fedge_rounds_spec *spec,
                                                           uint32_t num_clients, fedge_error *err);

/* Can ranks share the job's rounds? FEDGE_UNSUPPORTED says why not. */
FEDGE_MUST_USE fedge_status fedge_simulation_check_shared(const fedge_job *job, fedge_error *err);

/* What decides how much memory the run will take (memory.h). */
FEDGE_MUST_USE fedge_status fedge_simulation_demand(const fedge_simulation_config *config,
                                                    fedge_memory_demand *demand, fedge_error *err);

/* Checks the job against the client data and takes all memory. FEDGE_UNSUPPORTED: an external
 * model, or a job that the backend cannot train. FEDGE_INVALID_ARGUMENT: the job wants more clients
 * than there are, or clients to evaluate, of whom none holds out examples. FEDGE_TOO_BIG: more than
 * memory holds, in all (memory.h). */
FEDGE_MUST_USE fedge_status fedge_simulation_new(const fedge_simulation_config *config,
                                                 fedge_simulation **simulation, fedge_error *err);
void fedge_simulation_free(fedge_simulation *simulation); /* NULL is fine */

/* Where clients keep something for the strategy, before fedge_simulation_restore: what
 * fedge_client_states_save wrote. */
FEDGE_MUST_USE fedge_status fedge_simulation_load_states(fedge_simulation *simulation,
                                                         const char *path, fedge_error *err);
/* Goes on from [state] with the model in [file] and the strategy's saved state; before
 * fedge_simulation_run. What clients keep is loaded first, unless no round was
 * closed or none is left: FEDGE_MISMATCH when they are of another round. */
FEDGE_MUST_USE fedge_status fedge_simulation_restore(fedge_simulation *simulation,
                                                     const fedge_simulation_state *state,
                                                     const uint8_t *file, size_t file_size,
                                                     const uint8_t *strategy, size_t strategy_size,
                                                     fedge_error *err);

/* Runs all rounds that are left. FEDGE_CANCELLED when [cancel] said so; the open round is dropped
 * and the model is that of the last closed one, which was evaluated and given to [on_round]: what
 * evaluates is not interrupted. After any other failure it is that of the last closed round too,
 * which [on_round] may not have seen, if fedge_simulation_is_whole. FEDGE_NO_MEMORY: also when a
 * client's work lacked it; then the threads are gone, and nothing is run or evaluated any more. */
FEDGE_MUST_USE fedge_status fedge_simulation_run(fedge_simulation *simulation, fedge_error *err);

/* On several ranks, when all have made theirs: rank 0 leads from here on until it frees its
 * simulation, and the others serve until then, of all that follows only this. Any status but
 * FEDGE_OK is one that rank 0 cannot be told (fedge_sim_ranks_serve). */
void fedge_simulation_lead(fedge_simulation *simulation);
FEDGE_MUST_USE fedge_status fedge_simulation_serve(fedge_simulation *simulation, fedge_error *err);

/* No round follows [round]: from on_round the one that has ended, or before
 * fedge_simulation_restore the one to go on from. Its evaluation on clients does, if the job has
 * one. */
void fedge_simulation_end_after(fedge_simulation *simulation, uint32_t round);

/* The SHA-256 of the present model's file. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_simulation_hash(const fedge_simulation *simulation,
                                                  char text[FEDGE_HASH_TEXT], fedge_error *err);

/* Where it stands. */
fedge_simulation_state fedge_simulation_get_state(const fedge_simulation *simulation);
/* Are model, strategy and what clients keep those of the last closed round? False only after a
 * failure. */
bool fedge_simulation_is_whole(const fedge_simulation *simulation);
const fedge_global_model *fedge_simulation_model(const fedge_simulation *simulation);
/* What clients keep for the strategy, of the last closed round once fedge_simulation_run has ended
 * or in on_round; NULL where they keep nothing. */
const fedge_client_states *fedge_simulation_states(const fedge_simulation *simulation);
/* Before they are saved: brings together what clients of other ranks keep. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_simulation_collect_states(fedge_simulation *simulation,
                                                            fedge_error *err);
/* What sums, by name; of this rank. */
const char *fedge_simulation_accumulator(const fedge_simulation *simulation);
const char *fedge_simulation_backend(const fedge_simulation *simulation); /* "cpu" */
/* For people, a line for each place: who trains how many clients at once, and what sums, with the
 * memory that they have taken. */
void fedge_simulation_plan(const fedge_simulation *simulation, char *text, size_t size);
uint64_t fedge_simulation_bytes_per_thread(const fedge_simulation *simulation);
/* All that it may come to take, besides the data. */
uint64_t fedge_simulation_promised_bytes(const fedge_simulation *simulation);

/* All of the test set, by index; count 0: none. Not to be freed. */
fedge_view fedge_simulation_test_set(const fedge_simulation *simulation);

/* The present model on any examples, while no round is open: fedge_evaluate_sets. */
FEDGE_MUST_USE fedge_status fedge_simulation_evaluate(fedge_simulation *simulation,
                                                      fedge_evaluation_set *sets, uint32_t num_sets,
                                                      bool may_stop, fedge_error *err);

/* The order of an asynchronous run: the updates of each of its rounds and the models they began
 * from, as its rounds.jsonl lists them. Training in this order gives the same run, bit for bit. */

#define FEDGE_REPLAY_MAX_UPDATES 16777216u

/* Plain data, its own. */
typedef struct fedge_replay {
    fedge_told_update *updates;
    uint32_t *ends; /* (num_rounds): one past the last update of each round */
    uint32_t num_rounds, num_updates;
    uint32_t most; /* updates of one round */
} fedge_replay;

/* Reads the training lines of [path]. FEDGE_MISMATCH: a line names no updates, or is not of the
 * next round; FEDGE_TOO_BIG; and as fedge_round_lines_read. */
FEDGE_MUST_USE fedge_status fedge_replay_read(const char *path, fedge_replay *replay,
                                              fedge_error *err);
void fedge_replay_fini(fedge_replay *replay); /* all 0 is fine */

/* The updates of [round], from 1; *num of them. FEDGE_MISMATCH: it has no such round. */
FEDGE_MUST_USE fedge_status fedge_replay_round(const fedge_replay *replay, uint32_t round,
                                               const fedge_told_update **updates, uint32_t *num,
                                               fedge_error *err);

#endif
