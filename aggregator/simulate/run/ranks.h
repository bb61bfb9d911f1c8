/* A simulation on several ranks (aggregator/reduce/collective.h).
 *
 * Rank 0 runs it: rounds, steps, results. The others serve: each has a backend, sums of its own,
 * and what its clients keep for the strategy. For each piece of work rank 0 tells them the model,
 * if it has moved, and the tasks; each does its share and sends back what came of it. Before a step
 * the sums of all are joined on rank 0.
 *
 * Work is dealt to ranks that have the data for it (placement.h), so that all have as many
 * examples. Where clients keep something, a client always trains on the same rank, and what it
 * keeps stays there; rank 0 collects what has moved before a checkpoint. What a task gives depends
 * on neither, so the run is that of one process, bit for bit on the same CPU kernels.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_RUN_RANKS_H
#define FEDGE_AGGREGATOR_SIMULATE_RUN_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/collective.h"
#include "aggregator/simulate/cohort/training_backend.h"

/* One that is all 0 is alone: then every call below returns at once. */
typedef struct fedge_sim_ranks {
    const fedge_collective *collective; /* NULL: alone */
    fedge_sim_backend_config config;    /* of the backend */
    bool has_states;                    /* clients keep something for the strategy */
    fedge_sim_backend local;            /* of this rank */
    fedge_sim_backend_ops shared;       /* what the simulation takes for its backend on rank 0 */
    bool has_sent_model;                /* rank 0: the others have the present model */
    bool leads;                         /* rank 0: the others serve */
    bool lost_states;   /* rank 0: what a client keeps was lost for want of memory */
    fedge_error failed; /* not on rank 0: why it can do no more work; FEDGE_OK: it can */
    bool *unsent; /* (num_clients), not on rank 0: what it keeps has moved since rank 0 had it */
    fedge_placement placement; /* config.client_data's, or all 0 */
    uint64_t *loads;           /* (num_ranks): room to deal */
} fedge_sim_ranks;

/* Bytes that a task takes on its way between ranks. */
size_t fedge_ranks_task_bytes(const fedge_collective *collective);

/* Takes [*backend], which was opened with [config], and on rank 0 leaves in its place one that
 * shares the work; the accumulator of config->global becomes one that joins, as [sums] say. Nothing
 * when [collective] is alone. FEDGE_NO_MEMORY. Not to be moved after; _fini after the backend's
 * close. */
FEDGE_MUST_USE fedge_status fedge_sim_ranks_init(fedge_sim_ranks *ranks,
                                                 const fedge_collective *collective,
                                                 const fedge_sim_backend_config *config,
                                                 const fedge_accumulator_config *sums,
                                                 fedge_sim_backend *backend, fedge_error *err);
void fedge_sim_ranks_fini(fedge_sim_ranks *ranks);

/* Any rank but 0: does what rank 0 says until it says that all is done. What it fails in rank
 * 0 learns from its tasks or sums. Any status but FEDGE_OK is one that rank 0 cannot be told, and
 * would wait for: fedge_collective_abort. */
FEDGE_MUST_USE fedge_status fedge_sim_ranks_serve(fedge_sim_ranks *ranks, fedge_error *err);

/* Rank 0. */

/* The model has moved otherwise than by fedge_sim_ranks_join's step. */
void fedge_sim_ranks_moved(fedge_sim_ranks *ranks);
/* Joins the sums of all in the accumulator of the model, which moves now. As
 * fedge_distributed_join. */
FEDGE_MUST_USE fedge_status fedge_sim_ranks_join(fedge_sim_ranks *ranks, fedge_error *err);
/* [round] has closed: the others' sums are 0, and what their clients keep has moved for good. */
void fedge_sim_ranks_commit(fedge_sim_ranks *ranks, uint32_t round);
/* The open round is dropped: the others' sums are 0, and their clients keep what they kept. */
void fedge_sim_ranks_drop(fedge_sim_ranks *ranks);
/* Brings what clients keep from the others into config.states. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_sim_ranks_collect(fedge_sim_ranks *ranks, fedge_error *err);
/* Gives the others what their clients keep, from config.states, which has been loaded. */
FEDGE_MUST_USE fedge_status fedge_sim_ranks_spread(fedge_sim_ranks *ranks, fedge_error *err);
/* The others serve from now on, or are about to. */
void fedge_sim_ranks_lead(fedge_sim_ranks *ranks);
/* All is done: the others stop serving, if they do. */
void fedge_sim_ranks_end(fedge_sim_ranks *ranks);

#endif
