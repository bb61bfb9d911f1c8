/* What the files of the simulation share; nobody else includes it. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_RUN_SIMULATION_INTERNAL_H
#define FEDGE_AGGREGATOR_SIMULATE_RUN_SIMULATION_INTERNAL_H

#include "aggregator/rounds/evaluator.h"
#include "aggregator/rounds/rounds.h"
#include "aggregator/simulate/cohort/client_states.h"
#include "aggregator/simulate/run/ranks.h"
#include "aggregator/simulate/run/simulation.h"
#include "aggregator/simulate/time/virtual_clock.h"

/* A task that was sent and what came of it. */
typedef struct sent_task {
    uint64_t task_id;
    uint32_t slot, size; /* size: examples of its client */
    uint32_t
        tie_break; /* among those that end at the same time, or without client profiles; drawn */
    bool worked, reported;
    fedge_sim_backend_task work;
} sent_task;

/* A task whose work is to be done. */
typedef struct wave_task {
    uint32_t size, slot; /* size: its client's examples */
    uint32_t task;       /* its place in [sent] */
} wave_task;

struct fedge_simulation {
    fedge_simulation_config config;
    const fedge_plan *plan;
    fedge_global_model global;
    fedge_view test_set;        /* all of it, by index; count 0: none */
    fedge_evaluator *evaluator; /* of a plugin's metrics; NULL: there are none */
    fedge_client_states states; /* what clients keep for the strategy */
    uint64_t states_memory;     /* bytes, as config.states has it: what was found if that is 0 */
    uint64_t promised;          /* bytes: fedge_memory of this run */
    fedge_sim_backend backend;
    fedge_sim_ranks ranks; /* that share its work; all 0: none */
    fedge_rounds *rounds;
    uint64_t now_ms;                   /* without client profiles */
    fedge_virtual_clock virtual_clock; /* with one */
    uint64_t clock_us;                 /* likewise: when the last phase ended */
    uint64_t waiting_us;               /* likewise: since when a phase could open */
    bool evaluation_due;               /* the next phase is an evaluation */
    bool mid_step;                     /* the model is between two rounds */
    uint32_t rounds_closed;
    uint32_t last_round; /* of an asynchronous run */
    uint64_t next_task_id;
    uint32_t failures;        /* of attempts, one after another */
    uint64_t first_opened_us; /* with client profiles: when the first of them opened, or this one */
    uint32_t asked_failed[FEDGE_SPEED_QUANTILES]; /* likewise: tasks in them */
    char why[FEDGE_ERROR_MESSAGE_SIZE];           /* the last attempt failed */
    /* The open phase. */
    int8_t bounds_log2[FEDGE_MAX_TENSORS];
    sent_task *sent; /* as sent; without client profiles, those in work by tie-break */
    uint32_t num_sent, num_done, capacity;
    uint32_t num_reported;
    uint64_t bytes_down; /* of the tasks that were sent, those of attempts before with them; */
    uint64_t download;   /* and of the last of them */
    bool from_seed;      /* clients make the first model, and do not fetch it */
    uint32_t *held;      /* by client: rounds closed when it got its model, and 1; 0: it has none */
    fedge_sim_backend_task *wave; /* room for [capacity] */
    wave_task *order;             /* likewise: whose work [wave] is */
    uint64_t phase_started_ns;
    size_t model_bytes;
    bool testing; /* the backend is at the test set */
};

/* simulation_close.c */

/* A training phase begins: the bounds of its updates are set. */
void fedge_simulation_begin_round(fedge_simulation *self);

/* The step, the evaluation and the line of a phase, whose tasks are in [sent]; not the end of its
 * time. */
FEDGE_MUST_USE fedge_status fedge_simulation_conclude(fedge_simulation *self,
                                                      const fedge_rounds_action *action,
                                                      fedge_error *err);

/* simulation_async.c: all rounds that are left of such a run. */
FEDGE_MUST_USE fedge_status fedge_simulation_run_async(fedge_simulation *self, fedge_error *err);

/* simulation_work.c */

/* Do clients train while rounds close (an asynchronous strategy)? Then the round machine is idle.
 */
bool fedge_simulation_is_async(const fedge_simulation *self);

/* What the round machine takes for the time. */
uint64_t fedge_simulation_now_ms(const fedge_simulation *self);

/* FEDGE_CANCELLED when the caller wants an end. */
FEDGE_MUST_USE fedge_status fedge_simulation_check_cancelled(const fedge_simulation *self,
                                                             fedge_error *err);

/* Puts the work of sent[task] on order[place]. */
void fedge_simulation_plan_work(fedge_simulation *self, uint32_t place, uint32_t task);

/* Does the work of the tasks order[0, count), all threads together. */
FEDGE_MUST_USE fedge_status fedge_simulation_do_work(fedge_simulation *self, uint32_t count,
                                                     fedge_error *err);

/* Tells the machine what became of a task that was worked on. */
FEDGE_MUST_USE fedge_status fedge_simulation_report(fedge_simulation *self, sent_task *task,
                                                    fedge_error *err);

/* Why the last attempt failed, if it does: this client's message. */
void fedge_simulation_note_failure(fedge_simulation *self, const fedge_sim_backend_task *work);

/* As fedge_sim_backend_config.on_done: user is the simulation. */
void fedge_simulation_report_progress(void *user, uint32_t num_done);

bool fedge_simulation_is_cancelled(const fedge_simulation *self);

/* simulation_work.c: virtual time, with client profiles. */

/* The open phase, which ends now; .present is false without client profiles. */
fedge_virtual_phase fedge_simulation_virtual_phase(const fedge_simulation *self);

/* All that are there at the beginning join the machine, without client profiles too. */
FEDGE_MUST_USE fedge_status fedge_simulation_join_all(fedge_simulation *self, fedge_error *err);

/* The phase is over. Whoever comes or goes now has done so before the next one opens. */
FEDGE_MUST_USE fedge_status fedge_simulation_end_time(fedge_simulation *self, fedge_error *err);

/* A client begins sent[task]: when the task ends, and how, is known beforehand. */
FEDGE_MUST_USE fedge_status fedge_simulation_begin_task(fedge_simulation *self,
                                                        const fedge_rounds_action *action,
                                                        uint32_t task, fedge_error *err);

/* Goes to what happens next. */
FEDGE_MUST_USE fedge_status fedge_simulation_pass_time(fedge_simulation *self, fedge_error *err);

#endif
