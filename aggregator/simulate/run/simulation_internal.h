/* Internals of a simulation. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_RUN_SIMULATION_INTERNAL_H
#define FEDGE_AGGREGATOR_SIMULATE_RUN_SIMULATION_INTERNAL_H

#include "aggregator/rounds/evaluator.h"
#include "aggregator/rounds/rounds.h"
#include "aggregator/simulate/cohort/client_states.h"
#include "aggregator/simulate/run/ranks.h"
#include "aggregator/simulate/run/simulation.h"
#include "aggregator/simulate/time/virtual_clock.h"

/* A sent task and its result. */
typedef struct sent_task {
    uint64_t task_id;
    uint32_t slot, size; /* size: examples of its client */
    uint32_t tie_break;  /* random: the order of tasks that end at the same time */
    bool worked, reported;
    fedge_sim_backend_task work;
} sent_task;

/* A task to work on. */
typedef struct batch_task {
    uint32_t size, slot; /* size: its client's examples */
    uint32_t task;       /* its index in [sent] */
} batch_task;

struct fedge_simulation {
    fedge_simulation_config config;
    const fedge_plan *plan;
    fedge_global_model global;
    fedge_view test_set;        /* all of it, by index; count 0: none */
    fedge_evaluator *evaluator; /* counts a plugin's metrics; NULL: none */
    fedge_client_states states;
    fedge_trainer_values values; /* what trainers of one's own keep; all 0: none */
    uint64_t states_memory;      /* bytes: config.states.memory, or what the machine allows */
    uint64_t promised;           /* bytes that this run may take */
    fedge_sim_backend backend;
    fedge_sim_ranks ranks; /* all 0: alone */
    fedge_rounds *rounds;
    uint64_t now_ms;                   /* the time without client profiles */
    fedge_virtual_clock virtual_clock; /* the time with client profiles */
    uint64_t clock_us;                 /* end of the last phase, with client profiles */
    uint64_t waiting_us; /* end of the last phase or start of the run, with client profiles */
    bool evaluation_due; /* the next phase is an evaluation */
    bool mid_step;       /* the model is between two rounds */
    uint32_t rounds_closed;
    uint32_t last_round; /* used by asynchronous runs */
    uint64_t next_task_id;
    uint32_t failures;        /* consecutive failed attempts of a round */
    uint64_t first_opened_us; /* start of the round's first attempt, with client profiles */
    uint32_t asked_failed[FEDGE_SPEED_QUANTILES]; /* tasks of failed attempts, with profiles */
    char why[FEDGE_ERROR_MESSAGE_SIZE];           /* why the last attempt failed */
    /* The open phase. */
    int8_t bounds_log2[FEDGE_MAX_TENSORS];
    sent_task *sent; /* (capacity) in sent order; without profiles, work sorts them by tie-break */
    uint32_t num_sent, num_done, capacity;
    uint32_t num_reported;
    uint64_t bytes_down;    /* total of the sent tasks, with those of failed attempts */
    uint64_t download;      /* bytes down of the last sent task */
    bool from_seed;         /* clients make the first model from the seed and do not fetch it */
    uint32_t *model_rounds; /* (num_clients): 1 + closed rounds of the client's model; 0: none */
    fedge_sim_backend_task *batch; /* (capacity) */
    batch_task *order;             /* (capacity): the tasks of [batch] */
    uint64_t phase_started_ns;
    size_t model_bytes;
    bool testing; /* the backend evaluates a set */
};

/* simulation_close.c */

/* Begins a training phase and sets the bounds of its updates. */
void fedge_simulation_begin_round(fedge_simulation *self);

/* Does the step, the evaluation and the line of a phase; its tasks are in [sent]. */
FEDGE_MUST_USE fedge_status fedge_simulation_conclude(fedge_simulation *self,
                                                      const fedge_rounds_action *action,
                                                      fedge_error *err);

/* simulation_async.c: runs all remaining rounds. */
FEDGE_MUST_USE fedge_status fedge_simulation_run_async(fedge_simulation *self, fedge_error *err);

/* simulation_work.c */

/* Do clients train while rounds close (an asynchronous strategy)? Then the round machine is idle.
 */
bool fedge_simulation_is_async(const fedge_simulation *self);

/* The time of the round machine. */
uint64_t fedge_simulation_now_ms(const fedge_simulation *self);

/* Reserves memory for [capacity] tasks, more than before. */
FEDGE_MUST_USE fedge_status fedge_simulation_reserve(fedge_simulation *self, uint32_t capacity,
                                                     fedge_error *err);

/* Examples that a task takes time for, with client profiles. Those of a trainer of one's own are
 * known in local-steps alone; others are 0. */
double fedge_simulation_examples(const fedge_simulation *self, uint32_t client,
                                 fedge_task_kind kind);

/* Makes sent[task] the task of order[at]. */
void fedge_simulation_plan_work(fedge_simulation *self, uint32_t at, uint32_t task);

/* Does the work of the tasks in order[0, count) on all threads. */
FEDGE_MUST_USE fedge_status fedge_simulation_do_work(fedge_simulation *self, uint32_t count,
                                                     fedge_error *err);

/* Reports the result of a task to the round machine. */
FEDGE_MUST_USE fedge_status fedge_simulation_report(fedge_simulation *self, sent_task *task,
                                                    fedge_error *err);

/* Stores a client's message, in case the attempt fails. */
void fedge_simulation_note_failure(fedge_simulation *self, const fedge_sim_backend_task *work);

/* fedge_sim_backend_config.on_done; user is the simulation. */
void fedge_simulation_report_progress(void *user, uint32_t num_done);

bool fedge_simulation_is_cancelled(const fedge_simulation *self);

/* simulation_work.c: virtual time, with client profiles. */

/* The open phase as if it ended now; .present is false without client profiles. */
fedge_virtual_phase fedge_simulation_virtual_phase(const fedge_simulation *self);

/* Lets the clients that are online at the beginning join the round machine. */
FEDGE_MUST_USE fedge_status fedge_simulation_join_all(fedge_simulation *self, fedge_error *err);

/* Ends a phase; arrivals and departures of this moment count before the next one opens. */
FEDGE_MUST_USE fedge_status fedge_simulation_end_time(fedge_simulation *self, fedge_error *err);

/* A client begins sent[task]; schedules the task's end. */
FEDGE_MUST_USE fedge_status fedge_simulation_begin_task(fedge_simulation *self,
                                                        const fedge_rounds_action *action,
                                                        uint32_t task, fedge_error *err);

/* Moves to the next event. */
FEDGE_MUST_USE fedge_status fedge_simulation_pass_time(fedge_simulation *self, fedge_error *err);

#endif
