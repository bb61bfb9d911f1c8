/* The accepted updates of a training phase, as its journal has them: what they say of themselves,
 * their bytes where a strategy goes through them, and their way into the sums again. All of it is
 * for the round finalizer's thread, or a start.
 */
#ifndef FEDGE_AGGREGATOR_RUN_SERVER_RUN_UPDATES_H
#define FEDGE_AGGREGATOR_RUN_SERVER_RUN_UPDATES_H

#include "aggregator/run/ingest/accepted_updates.h"
#include "aggregator/run/server_run.h"

/* Plain data; all of it is its own. */
typedef struct fedge_gathered {
    fedge_update_facts *facts;      /* (room for the cohort), of those that are whole */
    fedge_accepted_updates updates; /* the same, when the strategy collects */
    uint32_t states_lost;           /* how many clients have lost what they kept for it */
    uint32_t num_damaged; /* whose bytes the disk has damaged: their slots are open again */
} fedge_gathered;

/* Reads all that the step needs of the updates, and the part of [summary] that they tell. Before
 * the phase is sealed, since what is found damaged then is asked for again; behind the seal, which
 * has their number, damage is FEDGE_CORRUPT. _fini is to be called also after a failure. */
FEDGE_MUST_USE fedge_status fedge_server_run_gather(fedge_server_run *server,
                                                    fedge_journal *journal,
                                                    fedge_round_summary *summary,
                                                    fedge_gathered *gathered, fedge_error *err);
void fedge_gathered_fini(fedge_gathered *gathered); /* one that is all 0 is fine */

/* Adds the updates that are in this journal to the sums. */
FEDGE_MUST_USE fedge_status fedge_server_run_replay(fedge_server_run *server,
                                                    fedge_journal *journal, fedge_error *err);

#endif
