/* Disks: where the ranks of one aggregator keep what they have acknowledged.
 *
 *     STATE/disk                     a random number, as text: two ranks that read the same one
 *                                    share the state directory
 *     STATE/ranks/RUN_ID/RANK/       journals of ranks from 1 on (journal.h); rank 0's are the
 * run's
 */
#ifndef FEDGE_AGGREGATOR_STORE_DISK_H
#define FEDGE_AGGREGATOR_STORE_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/plan/plan.h"

/* ---- paths ----------------------------------------------------------------------------------- */

/* Paths of what is kept in a folder. */

/* path: "dir/name". FEDGE_TOO_BIG when it has FEDGE_MAX_PATH bytes or more. */
FEDGE_MUST_USE fedge_status fedge_path_join(const char *dir, const char *name,
                                            char path[FEDGE_MAX_PATH], fedge_error *err);

/* *disk is ≥ 1; 0: there is no number and [make] is false. The directory exists. Nobody else makes
 * one at the same time. FEDGE_CORRUPT: the file is none. */
FEDGE_MUST_USE fedge_status fedge_disk_read(const char *state_dir, bool make, uint64_t *disk,
                                            fedge_error *err);

/* STATE/ranks/RUN_ID/RANK, or without [rank] (UINT32_MAX) the folder of all. FEDGE_TOO_BIG. */
#define FEDGE_DISK_ALL_RANKS UINT32_MAX
FEDGE_MUST_USE fedge_status fedge_disk_folder(const char *state_dir, const char *run_id,
                                              uint32_t rank, char path[FEDGE_MAX_PATH],
                                              fedge_error *err);

/* Removes the journals in [dir] of rounds before [oldest], and what a crash left half made. */
FEDGE_MUST_USE fedge_status fedge_disk_tidy(const char *dir, uint32_t oldest, fedge_error *err);

#endif
