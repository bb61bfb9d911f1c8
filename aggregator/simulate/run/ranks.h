/* A simulation on several ranks (aggregator/reduce/collective.h).
 *
 * Rank 0 runs it: rounds, steps, results. The others serve: each has a backend, its own sums, and
 * the states of its clients. For each set of tasks rank 0 sends them the model, if it has changed,
 * and the tasks; each does its part and sends the results back. Before a step the sums of all are
 * joined on rank 0.
 *
 * Work is dealt to ranks that have the data for it (placement.h), about the same number of examples
 * to each. Where clients have states, a client always trains on the same rank, and its state stays
 * there; rank 0 collects changed states before a checkpoint. A task's result depends on neither, so
 * the run equals that of one process, bit for bit on the same CPU kernels.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_RUN_RANKS_H
#define FEDGE_AGGREGATOR_SIMULATE_RUN_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/collective.h"
#include "aggregator/simulate/cohort/training_backend.h"

/* All 0: alone, and every call below returns at once. */
typedef struct fedge_sim_ranks {
    const fedge_collective *collective; /* NULL: alone */
    fedge_sim_backend_config config;    /* configuration of the backend */
    bool has_states;                    /* clients have states */
    fedge_sim_backend local;            /* this rank's backend */
    fedge_sim_backend_ops shared; /* rank 0: the simulation's backend, which shares the work */
    bool has_sent_model;          /* rank 0: the others have the current model */
    bool leads;                   /* rank 0: the others serve */
    bool lost_states;             /* rank 0: a client's state was lost for lack of memory */
    fedge_error failed; /* other ranks: why this one can do no more work; FEDGE_OK: it can */
    bool *unsent;       /* (num_clients), other ranks: its state has changed since rank 0 had it */
    fedge_placement placement; /* config.client_data's, or all 0 */
    uint64_t *loads;           /* (num_ranks): buffer for fedge_placement_deal */
} fedge_sim_ranks;

/* Bytes of a task's copies for other ranks. */
size_t fedge_ranks_task_bytes(const fedge_collective *collective);

/* Takes [*backend], which was opened with [config], and on rank 0 replaces it by one that shares
 * the work. The accumulator of config->global becomes a distributed one, as [sums] say. Does
 * nothing when [collective] is alone. FEDGE_NO_MEMORY. [ranks] must not be moved afterwards; call
 * _fini after the backend's close. */
FEDGE_MUST_USE fedge_status fedge_sim_ranks_init(fedge_sim_ranks *ranks,
                                                 const fedge_collective *collective,
                                                 const fedge_sim_backend_config *config,
                                                 const fedge_accumulator_config *sums,
                                                 fedge_sim_backend *backend, fedge_error *err);
void fedge_sim_ranks_fini(fedge_sim_ranks *ranks);

/* On the ranks after 0: carries out rank 0's commands until the last. Rank 0 learns of failures
 * from tasks or sums. A returned failure has not reached rank 0, which would wait for this rank:
 * call fedge_collective_abort. */
FEDGE_MUST_USE fedge_status fedge_sim_ranks_serve(fedge_sim_ranks *ranks, fedge_error *err);

/* Rank 0. */

/* The model has changed other than by the step after fedge_sim_ranks_join. */
void fedge_sim_ranks_model_changed(fedge_sim_ranks *ranks);
/* Joins the sums of all ranks in the model's accumulator, before a step. As
 * fedge_distributed_join. */
FEDGE_MUST_USE fedge_status fedge_sim_ranks_join(fedge_sim_ranks *ranks, fedge_error *err);
/* Closes [round]: clears the others' sums and commits their clients' states. */
void fedge_sim_ranks_commit(fedge_sim_ranks *ranks, uint32_t round);
/* Drops the open round: clears the others' sums and rolls their clients' states back. */
void fedge_sim_ranks_drop(fedge_sim_ranks *ranks);
/* Collects changed states of the others' clients in config.states. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_sim_ranks_collect(fedge_sim_ranks *ranks, fedge_error *err);
/* Sends the others their clients' states from config.states, which has been loaded. */
FEDGE_MUST_USE fedge_status fedge_sim_ranks_spread(fedge_sim_ranks *ranks, fedge_error *err);
/* The others serve from now on, or soon. */
void fedge_sim_ranks_lead(fedge_sim_ranks *ranks);
/* Makes the others stop serving, if they serve. */
void fedge_sim_ranks_end(fedge_sim_ranks *ranks);

#endif
