/* Where data lie, when ranks have files of their own.
 *
 * With the division per-file each file is one client's, and a rank does without the files of
 * clients whom another rank has. A file is known by the line of the clients' file that names it,
 * and by its name without folders, so that its folder may be another on each machine. Who has which
 * file is asked once, of all ranks; from then on all of them know it, and deal work by it. The test
 * set is on rank 0, and may be on others.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_PLACEMENT_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/collective.h"
#include "edge/core/status.h"
#include "edge/site/site.h"

#define FEDGE_PLACEMENT_ANYONE UINT32_MAX /* a client whose work is no one's in particular */

/* Read by any number of threads. One that is all 0: all ranks have all. */
typedef struct fedge_placement {
    uint32_t num_ranks;
    uint32_t num_clients;
    uint8_t *holders;   /* (num_clients, (num_ranks + 7) / 8): a bit for each rank that has the
                         * client's file; NULL: all ranks have all files */
    uint8_t *tests;     /* (num_ranks): 1: has the test set; NULL: all have it, if there is one */
    uint32_t *homes;    /* (num_clients), with holders: fedge_placement_home */
    uint32_t *local;    /* (num_local), with holders: whose files this rank has, ascending */
    uint32_t num_local; /* with holders */
    char *values, *labels; /* with holders: this rank's files, a path a line */
} fedge_placement;

/* All ranks together, of per-file's [data], which has as many lines everywhere: who has which file?
 * Nothing is kept where all have all. [wanted]: clients, 0 for as many as there are files. On all
 * ranks alike: FEDGE_NOT_FOUND for a client whose file no rank has, with its number, its name and
 * the ranks; FEDGE_MISMATCH for another number than is wanted, or for a line that names another
 * file on another rank, or for values without labels; FEDGE_NO_MEMORY; what listing files gives. */
FEDGE_MUST_USE fedge_status fedge_placement_find(fedge_placement *placement,
                                                 const fedge_collective *collective,
                                                 const fedge_site_data *data, uint32_t wanted,
                                                 fedge_error *err);

/* All ranks together: who has the test set? FEDGE_NO_MEMORY, on all alike. */
FEDGE_MUST_USE fedge_status fedge_placement_find_tests(fedge_placement *placement,
                                                       const fedge_collective *collective,
                                                       bool has_test_set, fedge_error *err);
void fedge_placement_fini(fedge_placement *placement);

/* Has [rank] the data of [client]? */
bool fedge_placement_has(const fedge_placement *placement, uint32_t rank, uint32_t client);
/* The lowest of the ranks that have it. */
uint32_t fedge_placement_first(const fedge_placement *placement, uint32_t client);
/* The rank that always does its work, where the client keeps something for the strategy: one that
 * has its data, chosen so that each has about as many clients. */
uint32_t fedge_placement_home(const fedge_placement *placement, uint32_t num_ranks,
                              uint32_t client);

/* One piece of work. */
typedef struct fedge_placement_work {
    uint32_t client; /* whose data it needs; FEDGE_PLACEMENT_ANYONE: none */
    bool tests;      /* it needs the test set */
    bool is_at_home; /* it needs what [client] keeps */
    uint32_t size;   /* examples */
} fedge_placement_work;

/* rank_of[i] gets who does work[i] (num_work): one that has what it needs. First what only one can
 * do, then the others in their order, each to the rank that has the least until then. [loads]:
 * (num_ranks), room. */
void fedge_placement_deal(const fedge_placement *placement, uint32_t num_ranks,
                          const fedge_placement_work *work, uint32_t num_work, uint64_t *loads,
                          uint32_t *rank_of);

#endif
