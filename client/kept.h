/* What a device keeps from round to round, for the strategy or as the residual of a codec that
 * chooses (edge/plan/client_hooks.h), in the store.
 *
 * It is that of the last update that the server has counted, which the next task names: an
 * acknowledgement may be lost, and one in a round that fails means nothing. So the store has two,
 * each with its task. When no update has counted it is 0. When one has and it is not here (a lost
 * disk, a damaged file), a strategy's update says so (FEDGE_KEPT_LOST) and all clients begin anew:
 * what the server has of them would be wrong for good. A residual that is lost is 0 again.
 */
#ifndef FEDGE_CLIENT_KEPT_H
#define FEDGE_CLIENT_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/store.h"
#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/update.h"
#include "edge/wire/protocol.h"

/* What the store had when a round began. */
typedef struct fedge_kept {
    bool lost;     /* it is not there */
    unsigned next; /* where the next one goes: 0 or 1 */
} fedge_kept;

/* The round begins: what is told comes from [file] (the task's control file), what is kept from the
 * store; then the hooks begin. A damaged file of the store goes with a warning in [log] (NULL is
 * fine). FEDGE_UNSUPPORTED: the task names no update; it is of a server that cannot tell. */
FEDGE_MUST_USE fedge_status fedge_kept_begin(fedge_hooks_state *state, const fedge_task *task,
                                             const uint8_t *file, size_t size, fedge_store *store,
                                             const char *run_id, const fedge_log *log,
                                             fedge_kept *kept, fedge_error *err);

/* fedge_update_encode, which besides moves what is kept to what it will be if this upload counts.
 * [update]: as fedge_update_encode takes it. */
FEDGE_MUST_USE fedge_status fedge_kept_encode(fedge_hooks_state *state, const fedge_update *update,
                                              fedge_upload *upload, uint8_t **bytes,
                                              fedge_error *err);
/* Stores what fedge_kept_encode has made; to be repeated where there was no room (FEDGE_NO_SPACE).
 */
FEDGE_MUST_USE fedge_status fedge_kept_store(const fedge_hooks_state *state, const fedge_kept *kept,
                                             fedge_store *store, const fedge_upload *upload,
                                             fedge_error *err);

#endif
