/* What a device keeps in its store from round to round: a strategy's client state, or the residual
 * of a codec that sparsifies (edge/plan/client_hooks.h).
 *
 * The state that counts is that of the last update that the server has counted; each task names
 * this update, since an acknowledgement may be lost, and in a round that fails it means nothing.
 * So the store holds two states, each with its task. Before the first counted update the state is
 * 0. If the named state is missing (a lost disk, a damaged file), a strategy's update reports it
 * (FEDGE_CLIENT_STATE_LOST), and all clients begin anew: the server's sum over the clients would be
 * wrong for good. A lost residual is 0 again.
 */
#ifndef FEDGE_CLIENT_CLIENT_STATE_H
#define FEDGE_CLIENT_CLIENT_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/store.h"
#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/update.h"
#include "edge/wire/protocol.h"

/* The caller fills in the first three, which outlive it; fedge_client_state_begin the others. */
typedef struct fedge_client_state {
    fedge_store *store;
    const char *run_id;
    const fedge_log *log; /* gets warnings; NULL: none */
    bool lost;            /* the store lacks the state that the task names */
    unsigned next;        /* the next state goes to key 0 or 1 */
} fedge_client_state;

/* Begins a task: reads the broadcast state from the task's control file [file] and the client state
 * from the store, then begins the hooks. A damaged file of the store is only a warning.
 * FEDGE_UNSUPPORTED: the task names no update; the server is too old to know of client states. */
FEDGE_MUST_USE fedge_status fedge_client_state_begin(fedge_client_state *state,
                                                     fedge_hooks_state *hooks,
                                                     const fedge_task *task, const uint8_t *file,
                                                     size_t size, fedge_error *err);

/* Encodes as fedge_update_encode does, and updates the client state in [hooks] to what it becomes
 * if this upload counts. */
FEDGE_MUST_USE fedge_status fedge_client_state_encode(fedge_hooks_state *hooks,
                                                      const fedge_update *update,
                                                      fedge_upload *upload, uint8_t **bytes,
                                                      fedge_error *err);
/* Stores that state. May be repeated after FEDGE_NO_SPACE. */
FEDGE_MUST_USE fedge_status fedge_client_state_store(const fedge_client_state *state,
                                                     const fedge_hooks_state *hooks,
                                                     const fedge_upload *upload, fedge_error *err);

#endif
