/* Checkpoints: the model after each closed round.
 *
 *     checkpoints/round-RRRRRR/model.safetensors
 *     checkpoints/round-RRRRRR/state.json         what else the next round depends on
 *     checkpoints/round-RRRRRR/strategy.bin       when the strategy keeps something, and behind it
 * the residual of "down"
 *     checkpoints/round-RRRRRR/last-accepted.bin        for a strategy that tells clients which of
 * their updates counted: u64 task ids by client index
 *
 * Written beside its place, synced and renamed: a checkpoint that is there is whole, unless the
 * disk has damaged it, which the SHA-256 sums in state.json show. Round 0 is the initial model.
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
    uint32_t round; /* closed rounds */
    char run_id[FEDGE_RUN_ID_TEXT];
    uint32_t incarnation;
    char model[FEDGE_HASH_TEXT];            /* SHA-256 of model.safetensors: filled by save */
    char strategy[FEDGE_MAX_STRATEGY_NAME]; /* "FedAvg" */
    char strategy_state[FEDGE_HASH_TEXT]; /* SHA-256 of strategy.bin, "" without: filled by save */
    char last_accepted[FEDGE_HASH_TEXT];  /* SHA-256 of last-accepted.bin, likewise */
    uint64_t next_task_id;
    double loss, accuracy;         /* of the model on the server's test set; NaN: not known */
    uint64_t bytes_up, bytes_down; /* of the run's phases so far */
    uint64_t elapsed_ms;           /* of the run so far, without the time it was not running */
    fedge_selection_state selection;
} fedge_checkpoint;

/* Bytes of a checkpoint's files. Of size 0: no such file. */
typedef struct fedge_checkpoint_files {
    const char *model_sha256; /* where it is known, else NULL */
    const uint8_t *model, *strategy_state, *last_accepted;
    size_t model_size, strategy_state_size, last_accepted_size;
} fedge_checkpoint_files;

/* Where the model of a round's checkpoint lies. */
FEDGE_MUST_USE fedge_status fedge_checkpoint_model_path(const char *dir, uint32_t round,
                                                        char path[FEDGE_MAX_PATH],
                                                        fedge_error *err);

/* Writes the checkpoint of checkpoint->round under [dir] (the run's "checkpoints"), atomically and
 * durably; one of the same round is replaced. An error leaves what was there before. */
FEDGE_MUST_USE fedge_status fedge_checkpoint_save(const char *dir, fedge_checkpoint *checkpoint,
                                                  const fedge_checkpoint_files *files,
                                                  fedge_error *err);

/* Writes state.json of the checkpoint of checkpoint->round anew, which was saved or loaded before:
 * what has become known of it since. */
FEDGE_MUST_USE fedge_status fedge_checkpoint_update(const char *dir,
                                                    const fedge_checkpoint *checkpoint,
                                                    fedge_error *err);

/* A loaded checkpoint and its files; the bytes are malloc'ed, NULL when there are none. */
typedef struct fedge_checkpoint_data {
    fedge_checkpoint checkpoint;
    uint8_t *model, *strategy_state, *last_accepted;
    size_t model_size, strategy_state_size, last_accepted_size;
} fedge_checkpoint_data;

/* Loads the checkpoint of [round] and checks it. FEDGE_NOT_FOUND, FEDGE_CORRUPT (the message names
 * the file). */
FEDGE_MUST_USE fedge_status fedge_checkpoint_load(const char *dir, uint32_t round,
                                                  fedge_checkpoint_data *data, fedge_error *err);

/* Reads state.json of the checkpoint of [round], and nothing else of it. FEDGE_NOT_FOUND,
 * FEDGE_CORRUPT, as above. */
FEDGE_MUST_USE fedge_status fedge_checkpoint_read_state(const char *dir, uint32_t round,
                                                        fedge_checkpoint *checkpoint,
                                                        fedge_error *err);

/* The newest round ≤ [highest] that has a checkpoint, whole or not. FEDGE_NOT_FOUND when none. */
FEDGE_MUST_USE fedge_status fedge_checkpoint_find(const char *dir, uint32_t highest,
                                                  uint32_t *round, fedge_error *err);
/* Removes the checkpoint of [round]. */
FEDGE_MUST_USE fedge_status fedge_checkpoint_remove(const char *dir, uint32_t round,
                                                    fedge_error *err);

/* Loads the newest checkpoint that is whole. Those that are not are passed over and named in
 * [note] (note_size bytes, "" when none). FEDGE_NOT_FOUND when there is no checkpoint at all,
 * FEDGE_CORRUPT when there are some and none is usable. */
FEDGE_MUST_USE fedge_status fedge_checkpoint_load_newest(const char *dir,
                                                         fedge_checkpoint_data *data, char *note,
                                                         size_t note_size, fedge_error *err);
void fedge_checkpoint_data_fini(fedge_checkpoint_data *data);

/* Is the checkpoint that [status] speaks of damaged? Other errors may pass, or concern all. */
bool fedge_checkpoint_is_damaged(fedge_status status);

#endif
