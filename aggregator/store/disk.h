/* Where the ranks of one aggregator store the updates that they have acknowledged.
 *
 *     STATE/disk                  a random number, as text: ranks that read the same number share
 *                                 the state directory
 *     STATE/ranks/RUN_ID/RANK/    journals of ranks from 1 on (journal.h); those of rank 0 are in
 *                                 the run's directory
 */
#ifndef FEDGE_AGGREGATOR_STORE_DISK_H
#define FEDGE_AGGREGATOR_STORE_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/plan/plan.h"

/* path: "dir/name". FEDGE_TOO_BIG when it has FEDGE_MAX_PATH bytes or more. */
FEDGE_MUST_USE fedge_status fedge_path_join(const char *dir, const char *name,
                                            char path[FEDGE_MAX_PATH], fedge_error *err);

bool fedge_path_ends_with(const char *path, const char *end);

/* Reads the number of an existing state directory into *disk; 0: it has none. With [make] a missing
 * one is created; two processes must not do so at the same time. FEDGE_CORRUPT: the file holds no
 * number. */
FEDGE_MUST_USE fedge_status fedge_disk_read(const char *state_dir, bool make, uint64_t *disk,
                                            fedge_error *err);

/* STATE/ranks/RUN_ID/RANK, or STATE/ranks/RUN_ID for FEDGE_DISK_ALL_RANKS. FEDGE_TOO_BIG. */
#define FEDGE_DISK_ALL_RANKS UINT32_MAX
FEDGE_MUST_USE fedge_status fedge_disk_folder(const char *state_dir, const char *run_id,
                                              uint32_t rank, char path[FEDGE_MAX_PATH],
                                              fedge_error *err);

/* Removes from [dir] the journals of rounds before [oldest] and the temporary files of a crash. */
FEDGE_MUST_USE fedge_status fedge_disk_tidy(const char *dir, uint32_t oldest, fedge_error *err);

#endif
