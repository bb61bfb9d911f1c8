/* Checkpoints: the model after each closed round.
 *
 *     checkpoints/round-RRRRRR/model.safetensors
 *     checkpoints/round-RRRRRR/state.json         everything else that the next round depends on
 *     checkpoints/round-RRRRRR/strategy.bin       the strategy's state, then the residual of
 *                                                 "down"; absent when both are empty
 *     checkpoints/round-RRRRRR/last-accepted.bin  for strategies that report to clients which of
 *                                                 their updates counted: u64 task ids by client
 *                                                 index
 *
 * A checkpoint is written under a temporary name, synced and renamed, so one that exists is
 * complete unless the disk has damaged it. The SHA-256 sums in state.json detect that. Round 0 is
 * the initial model.
 */
#ifndef FEDGE_AGGREGATOR_STORE_CHECKPOINT_H
#define FEDGE_AGGREGATOR_STORE_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "aggregator/rounds/selection.h"
#include "aggregator/rounds/strategy.h"
#include "edge/core/status.h"
#include "edge/wire/protocol.h"

#define FEDGE_CHECKPOINT_MAX_STATE ((size_t)64 * 1024)       /* bytes of state.json */
#define FEDGE_CHECKPOINT_MAX_LAST_ACCEPTED ((size_t)8000000) /* bytes of last-accepted.bin */

/* state.json. Plain data. */
typedef struct fedge_checkpoint {
    uint32_t round; /* number of closed rounds */
    char run_id[FEDGE_RUN_ID_TEXT];
    uint32_t incarnation;
    char model[FEDGE_HASH_TEXT];            /* SHA-256 of model.safetensors; set by save */
    char strategy[FEDGE_MAX_STRATEGY_NAME]; /* name as in "FedAvg" */
    char strategy_state[FEDGE_HASH_TEXT]; /* SHA-256 of strategy.bin; set by save, "" without one */
    char last_accepted[FEDGE_HASH_TEXT];  /* SHA-256 of last-accepted.bin; "" without one */
    uint64_t next_task_id;
    double loss, accuracy;         /* results on the server's test set; NaN: unknown */
    uint64_t bytes_up, bytes_down; /* bytes of the run's phases so far */
    uint64_t elapsed_ms;           /* time of the run so far, without the pauses between starts */
    fedge_selection_state selection;
} fedge_checkpoint;

/* Contents of a checkpoint's files. Size 0: no such file. */
typedef struct fedge_checkpoint_files {
    const char *model_sha256; /* NULL: unknown */
    const uint8_t *model, *strategy_state, *last_accepted;
    size_t model_size, strategy_state_size, last_accepted_size;
} fedge_checkpoint_files;

/* Path of the model in a round's checkpoint. */
FEDGE_MUST_USE fedge_status fedge_checkpoint_model_path(const char *dir, uint32_t round,
                                                        char path[FEDGE_MAX_PATH],
                                                        fedge_error *err);

/* Writes the checkpoint of checkpoint->round under [dir] (the run's "checkpoints"), atomically and
 * durably. Replaces an existing one of the same round; an error leaves that one intact. */
FEDGE_MUST_USE fedge_status fedge_checkpoint_save(const char *dir, fedge_checkpoint *checkpoint,
                                                  const fedge_checkpoint_files *files,
                                                  fedge_error *err);

/* Rewrites state.json of an existing checkpoint, that of checkpoint->round, with values that have
 * become known since it was saved. */
FEDGE_MUST_USE fedge_status fedge_checkpoint_update(const char *dir,
                                                    const fedge_checkpoint *checkpoint,
                                                    fedge_error *err);

/* A loaded checkpoint and its files; the bytes are malloc'ed, NULL for an absent file. */
typedef struct fedge_checkpoint_data {
    fedge_checkpoint checkpoint;
    uint8_t *model, *strategy_state, *last_accepted;
    size_t model_size, strategy_state_size, last_accepted_size;
} fedge_checkpoint_data;

/* Loads the checkpoint of [round] and verifies its checksums. FEDGE_NOT_FOUND, FEDGE_CORRUPT (the
 * message names the file). */
FEDGE_MUST_USE fedge_status fedge_checkpoint_load(const char *dir, uint32_t round,
                                                  fedge_checkpoint_data *data, fedge_error *err);

/* Reads only state.json of the checkpoint of [round]. Errors as above. */
FEDGE_MUST_USE fedge_status fedge_checkpoint_read_state(const char *dir, uint32_t round,
                                                        fedge_checkpoint *checkpoint,
                                                        fedge_error *err);

/* The newest round ≤ [highest] that has a checkpoint, intact or damaged. FEDGE_NOT_FOUND: none. */
FEDGE_MUST_USE fedge_status fedge_checkpoint_find(const char *dir, uint32_t highest,
                                                  uint32_t *round, fedge_error *err);
/* Removes the checkpoint of [round]. */
FEDGE_MUST_USE fedge_status fedge_checkpoint_remove(const char *dir, uint32_t round,
                                                    fedge_error *err);

/* Loads the newest intact checkpoint and names the damaged ones that it skipped in [note]
 * (note_size bytes, "" when none). FEDGE_NOT_FOUND: there is no checkpoint. FEDGE_CORRUPT: all are
 * damaged. */
FEDGE_MUST_USE fedge_status fedge_checkpoint_load_newest(const char *dir,
                                                         fedge_checkpoint_data *data, char *note,
                                                         size_t note_size, fedge_error *err);
void fedge_checkpoint_data_fini(fedge_checkpoint_data *data);

/* True when [status], an error of loading, means that this checkpoint is damaged. Other errors may
 * be temporary or affect every checkpoint. */
bool fedge_checkpoint_is_damaged(fedge_status status);

#endif
