/* Client state that a device stores between rounds: a strategy's, or the residual of a sparsifying
 * codec (edge/plan/client_hooks.h).
 *
 * The valid state is that of the last update that the server accepted. Each task names this update,
 * since an acknowledgement may be lost, and is meaningless if the round fails. Therefore the store
 * has two states, each with its task. Before the first accepted update the state is 0. If the named
 * state is missing (a lost disk, a damaged file), a strategy's update reports it
 * (FEDGE_CLIENT_STATE_LOST), and all clients start over: otherwise the server's sum over the
 * clients would stay wrong. A lost residual becomes 0.
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

/* The caller sets the first three, which outlive it; fedge_client_state_begin sets the others. */
typedef struct fedge_client_state {
    fedge_store *store;
    const char *run_id;
    const fedge_log *log; /* gets warnings; NULL: none */
    bool lost;            /* the store lacks the state named by the task */
    unsigned next;        /* key 0 or 1 for the next state */
} fedge_client_state;

/* Begins a task: reads the broadcast state from the task's control file [file] and the client state
 * from the store, then calls the hooks' begin. A damaged file in the store only causes a warning.
 * FEDGE_UNSUPPORTED: a task that trains names no update; the server is too old for client states.
 */
FEDGE_MUST_USE fedge_status fedge_client_state_begin(fedge_client_state *state,
                                                     fedge_hooks_state *hooks,
                                                     const fedge_task *task, const uint8_t *file,
                                                     size_t size, fedge_error *err);

/* Encodes as fedge_update_encode does, and changes the client state in [hooks] to its value if the
 * server accepts this upload. */
FEDGE_MUST_USE fedge_status fedge_client_state_encode(fedge_hooks_state *hooks,
                                                      const fedge_update *update,
                                                      fedge_upload *upload, uint8_t **bytes,
                                                      fedge_error *err);
/* Stores that state. May be repeated after FEDGE_NO_SPACE. */
FEDGE_MUST_USE fedge_status fedge_client_state_store(const fedge_client_state *state,
                                                     const fedge_hooks_state *hooks,
                                                     const fedge_upload *upload, fedge_error *err);

#endif
