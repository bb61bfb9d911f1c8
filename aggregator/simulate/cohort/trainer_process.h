/* A process that trains virtual clients: the user's program with libfedge_client, which serves the
 * simulator on a channel (edge/plan/simulated.h). One call at a time. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_TRAINER_PROCESS_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_TRAINER_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/simulate/cohort/trainer_values.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/plan/simulated.h"
#include "edge/train/trainer.h"

/* Where the processes come from. */
typedef struct fedge_trainers {
    const char *command; /* a shell command; NULL: another program has started them */
    const int *channels; /* (num_channels): then their channels, which the simulator takes over */
    uint32_t num_channels;
} fedge_trainers;

typedef struct fedge_trainer_process {
    uint32_t index;
    int channel;   /* −1: none */
    int64_t pid;   /* process group; 0: another program has started it */
    int memory;    /* −1: none */
    float *values; /* shared memory */
    fedge_simulated_layout layout;
} fedge_trainer_process;

/* A report. Means that were not reported are NaN. */
typedef struct fedge_trainer_report {
    uint64_t num_examples, num_steps;
    uint32_t chosen;
    double loss, accuracy, start_loss;
} fedge_trainer_report;

/* Starts process [index] of [trainers], or takes over its channel. Call _end in any case. */
FEDGE_MUST_USE fedge_status fedge_trainer_process_start(fedge_trainer_process *process,
                                                        const fedge_trainers *trainers,
                                                        uint32_t index, fedge_error *err);
/* What a call needs besides. */
typedef struct fedge_trainer_calls {
    fedge_trainer_values *stored;
    fedge_cancel_fn cancel; /* asked now and then; NULL: none */
    void *user;             /* argument of [cancel] */
} fedge_trainer_calls;

/* Hands it the plan, once. FEDGE_UNSUPPORTED, …: it declines the plan; others as _call. */
FEDGE_MUST_USE fedge_status fedge_trainer_process_plan(fedge_trainer_process *process,
                                                       const fedge_plan *plan,
                                                       const fedge_trainer_calls *calls,
                                                       fedge_error *err);
/* Trains or evaluates process->values, as [message] says. *declined: the trainer has failed, as
 * the status says, and can be called again. Otherwise FEDGE_CANCELLED: [cancel] said so; FEDGE_IO:
 * the process has ended, or is of another release. Then it cannot be called again. */
FEDGE_MUST_USE fedge_status fedge_trainer_process_call(fedge_trainer_process *process,
                                                       const fedge_simulated_message *message,
                                                       const fedge_trainer_calls *calls,
                                                       fedge_trainer_report *report, bool *declined,
                                                       fedge_error *err);
/* Ends it, after a second by a signal. All 0 but channel and memory (−1) is fine. */
void fedge_trainer_process_end(fedge_trainer_process *process);

#endif
