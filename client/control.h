/* A client's control variate c_i (edge/io/control.h) from round to round, in the store.
 *
 * It is that of the last update that the server's c has, which the next task names: an
 * acknowledgement may be lost, and one in a round that fails means nothing. So the store has two,
 * each with its task. When no update is in c it is 0. When there is one and it is not here (a lost
 * disk, a damaged file), the update says so (FEDGE_CONTROL_LOST) and all variates begin anew: c
 * would be off their mean for good.
 */
#ifndef FEDGE_CLIENT_CONTROL_H
#define FEDGE_CLIENT_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/store.h"
#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/io/control.h"
#include "edge/io/protocol.h"

/* What the store had when a round began. */
typedef struct fedge_control_kept {
    bool lost;     /* c_i is not there */
    unsigned next; /* where the next one goes: 0 or 1 */
} fedge_control_kept;

/* The round begins: c from [file] (the task's control file), c_i from the store; fills correction.
 * A damaged file of the store goes with a warning in [log] (NULL is fine). FEDGE_UNSUPPORTED: the
 * task names no update; it is of a server that cannot tell. */
FEDGE_MUST_USE fedge_status fedge_control_begin(fedge_control *control, const fedge_task *task,
                                                const uint8_t *file, size_t size,
                                                fedge_store *store, const char *run_id,
                                                const fedge_log *log, fedge_control_kept *kept,
                                                fedge_error *err);

/* Moves c_i, once, to what it will be if this upload counts. */
FEDGE_MUST_USE fedge_status fedge_control_next(fedge_control *control, const int8_t *bounds_log2,
                                               const fedge_upload *upload, const uint8_t *bytes,
                                               fedge_error *err);
/* Keeps what fedge_control_next has made; to be repeated where there was no room
 * (FEDGE_NO_SPACE). */
FEDGE_MUST_USE fedge_status fedge_control_keep(const fedge_control *control,
                                               const fedge_control_kept *kept, fedge_store *store,
                                               const fedge_upload *upload, fedge_error *err);

#endif
