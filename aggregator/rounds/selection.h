/* Which round's model was the best, and when there is no point in going on.
 *
 * Pure rules over the evaluations of a run: phases go in, in order. With the same evaluations they
 * say the same, in the server, in a simulation, and in a run that goes on from its saved state.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_SELECTION_H
#define FEDGE_AGGREGATOR_ROUNDS_SELECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/rounds/round_summary.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

/* What one metric has been. Plain data, all 0 at first. */
typedef struct fedge_watch_state {
    uint32_t best_round; /* 0: none yet */
    double best;         /* its value */
    uint32_t waited;     /* evaluations since, none of which was better */
    uint32_t seen;       /* round of the last evaluation that was counted */
} fedge_watch_state;

/* A closed round's model. Plain data; NaN: not known. */
typedef struct fedge_selected {
    uint32_t round;              /* 0: none */
    char model[FEDGE_HASH_TEXT]; /* "" where rounds are not hashed */
    double loss, accuracy;       /* on the server's test set */
    double validation_loss, validation_accuracy;
} fedge_selected;

/* What a run that goes on has to know. Plain data, all 0 at first. */
typedef struct fedge_selection_state {
    fedge_watch_state keep, stop;
    fedge_selected best; /* of keep-best */
} fedge_selection_state;

typedef struct fedge_selection {
    fedge_watch_spec keep, stop; /* the job's, with a metric that is not AUTO */
    bool set_apart;              /* validation is by the server, at the end of rounds */
    fedge_selection_state state;
    fedge_selected last; /* the last closed round */
} fedge_selection;

/* "test-accuracy" */
const char *fedge_criterion_text(fedge_criterion metric);
bool fedge_criterion_is_loss(fedge_criterion metric);
bool fedge_criterion_is_of_test_set(fedge_criterion metric);

/* The job's rules. [set_apart]: examples are set apart for validation, as a simulation can; without
 * them validation is by clients. AUTO becomes an accuracy, or where the job has none a loss: on the
 * examples for validation if there are any, else on the test set. FEDGE_INVALID_ARGUMENT: nothing
 * has the metric; the message names the key. */
FEDGE_MUST_USE fedge_status fedge_selection_init(fedge_selection *selection, const fedge_job *job,
                                                 bool set_apart, fedge_error *err);

/* Goes on from [state], when [last] had closed. */
void fedge_selection_restore(fedge_selection *selection, const fedge_selection_state *state,
                             const fedge_selected *last);

/* A phase has ended. An evaluation that is repeated counts once, as it was at first. Returns
 * whether the model of its round is the best so far. */
bool fedge_selection_add(fedge_selection *selection, const fedge_round_summary *summary);

/* Does keep-best or early-stopping go by what clients evaluate? */
bool fedge_selection_asks_clients(const fedge_selection *selection);

/* The metric of keep-best, or else of early-stopping, that no evaluation has given a finite value
 * so far; FEDGE_CRITERION_AUTO: there is none. */
fedge_criterion fedge_selection_lacks(const fedge_selection *selection);

/* Has early-stopping's patience come to an end? */
bool fedge_selection_is_over(const fedge_selection *selection);

#endif
