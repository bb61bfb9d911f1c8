/* Which ranks have which clients' data, where ranks have local files.
 *
 * With the division per-file each file is one client's, and a rank needs only the files of some
 * clients. A file is identified by its line in the client file and its name without folders, so its
 * folder may differ on each machine. The ranks exchange their lists of files once; then each deals
 * work by them. The test set is on rank 0, and perhaps on others.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_PLACEMENT_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/collective.h"
#include "edge/core/status.h"
#include "edge/site/site.h"

#define FEDGE_PLACEMENT_ANYONE UINT32_MAX /* a client index: any rank can do the work */

/* Read by any number of threads. All 0: all ranks have all data. */
typedef struct fedge_placement {
    uint32_t num_ranks;
    uint32_t num_clients;
    uint8_t *holders; /* (num_clients, (num_ranks + 7) / 8): a bit for each rank that has the
                       * client's file; NULL: all ranks have all files */
    uint8_t *tests;   /* (num_ranks): 1: the rank has the test set; NULL: all have it, or none */
    uint32_t *homes;  /* (num_clients): fedge_placement_home; NULL without holders */
    uint32_t *local;  /* (num_local): ascending clients with files on this rank; NULL: no holders */
    uint32_t num_local;    /* 0 without holders */
    char *values, *labels; /* this rank's files, one path per line; NULL without holders */
} fedge_placement;

/* All ranks call this, with the division per-file and the same number of lines in [data]. Finds the
 * ranks that have each file; [placement] stays all 0 where all ranks have all files. [wanted]: the
 * number of clients, 0: of files. Fails on all ranks alike. FEDGE_NOT_FOUND: no rank has a client's
 * file; the message has its number, its name and the ranks. FEDGE_MISMATCH: there are not [wanted]
 * files, or a line names different files on two ranks, or values lack labels. FEDGE_NO_MEMORY;
 * errors of listing files. */
FEDGE_MUST_USE fedge_status fedge_placement_find(fedge_placement *placement,
                                                 const fedge_collective *collective,
                                                 const fedge_site_data *data, uint32_t wanted,
                                                 fedge_error *err);

/* All ranks call this. Finds those that have the test set. FEDGE_NO_MEMORY, on all alike. */
FEDGE_MUST_USE fedge_status fedge_placement_find_tests(fedge_placement *placement,
                                                       const fedge_collective *collective,
                                                       bool has_test_set, fedge_error *err);
void fedge_placement_fini(fedge_placement *placement);

/* Has [rank] the data of [client]? */
bool fedge_placement_has(const fedge_placement *placement, uint32_t rank, uint32_t client);
/* The lowest rank that has the data of [client]. */
uint32_t fedge_placement_first(const fedge_placement *placement, uint32_t client);
/* The rank that always does the client's work where clients have states: one that has its data,
 * chosen so that clients are spread evenly. */
uint32_t fedge_placement_home(const fedge_placement *placement, uint32_t num_ranks,
                              uint32_t client);

/* One task. */
typedef struct fedge_placement_work {
    uint32_t client; /* it needs this client's data; FEDGE_PLACEMENT_ANYONE: none */
    bool tests;      /* it needs the test set */
    bool is_at_home; /* it needs the state of [client] */
    uint32_t size;   /* examples */
} fedge_placement_work;

/* Sets rank_of[i], the rank that does work[i], to one that has what it needs: first the work that
 * only one rank can do, then the others in order, each to the rank with the least work so far.
 * rank_of, work: (num_work); loads: (num_ranks), overwritten. */
void fedge_placement_deal(const fedge_placement *placement, uint32_t num_ranks,
                          const fedge_placement_work *work, uint32_t num_work, uint64_t *loads,
                          uint32_t *rank_of);

#endif
