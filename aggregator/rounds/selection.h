/* Model selection and early stopping.
 *
 * These are pure rules over the evaluations of a run, which are added in order. The same
 * evaluations give the same result in the server, in a simulation, and in a resumed run.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_SELECTION_H
#define FEDGE_AGGREGATOR_ROUNDS_SELECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/rounds/round_summary.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

/* The progress of one metric. Plain data, all 0 at first. */
typedef struct fedge_watch_state {
    uint32_t best_round; /* 0: none yet */
    double best;         /* the value of best_round */
    uint32_t waited;     /* evaluations since best_round */
    uint32_t seen;       /* round of the last evaluation that was counted */
} fedge_watch_state;

/* A closed round's model. Plain data; NaN: not known. */
typedef struct fedge_selected {
    uint32_t round;              /* 0: none */
    char model[FEDGE_HASH_TEXT]; /* SHA-256; "" where rounds are not hashed */
    double loss, accuracy;       /* results on the server's test set */
    double validation_loss, validation_accuracy;
    double errors[FEDGE_ERROR_METRICS], validation_errors[FEDGE_ERROR_METRICS]; /* not stored */
} fedge_selected;

/* The state that a resumed run restores. Plain data, all 0 at first. */
typedef struct fedge_selection_state {
    fedge_watch_state keep, stop;
    fedge_selected best; /* model of keep-best */
} fedge_selection_state;

typedef struct fedge_selection {
    fedge_watch_spec keep, stop; /* the job's, with a metric that is not AUTO */
    bool set_apart;              /* the server validates at the end of rounds */
    fedge_selection_state state;
    fedge_selected last; /* the last closed round */
} fedge_selection;

/* "test-accuracy" */
const char *fedge_criterion_text(fedge_criterion metric);
/* Whether less is better. */
bool fedge_criterion_is_loss(fedge_criterion metric);
/* The fedge_error_metric; -1: it is none. */
int fedge_criterion_error(fedge_criterion metric);
bool fedge_criterion_is_of_test_set(fedge_criterion metric);

/* Takes the job's rules. [set_apart]: a simulation has set examples apart for validation; otherwise
 * clients validate. AUTO becomes the accuracy, or the loss when the job has no accuracy, on the
 * validation examples if there are any, else on the test set. FEDGE_INVALID_ARGUMENT: no evaluation
 * gives the metric; the message names the key. */
FEDGE_MUST_USE fedge_status fedge_selection_init(fedge_selection *selection, const fedge_job *job,
                                                 bool set_apart, fedge_error *err);

/* Continues from [state], after round [last] closed. */
void fedge_selection_restore(fedge_selection *selection, const fedge_selection_state *state,
                             const fedge_selected *last);

/* Adds a phase that has ended. A repeated evaluation counts once, with its first result. Returns
 * whether the model of its round is the best so far. */
bool fedge_selection_add(fedge_selection *selection, const fedge_round_summary *summary);

/* Whether keep-best or early-stopping uses the clients' evaluations. */
bool fedge_selection_asks_clients(const fedge_selection *selection);

/* The metric of keep-best, or else of early-stopping, that has had no finite value so far;
 * FEDGE_CRITERION_AUTO: there is none. */
fedge_criterion fedge_selection_lacks(const fedge_selection *selection);

/* Whether early-stopping's patience is used up. */
bool fedge_selection_is_over(const fedge_selection *selection);

#endif
