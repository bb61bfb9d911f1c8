/* A client's control variate c_i (edge/io/control.h) from round to round: kept in the store for the
 * run, moved only once the server has acknowledged the update. Without it (a new device, a lost
 * disk) it is 0, as in the first round.
 */
#ifndef FEDGE_CLIENT_CONTROL_H
#define FEDGE_CLIENT_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "client/store.h"
#include "edge/core/status.h"
#include "edge/io/control.h"
#include "edge/io/protocol.h"

/* The round begins: c from [file] (a task's control file), c_i from the store; fills correction. */
FEDGE_MUST_USE fedge_status fedge_control_begin(fedge_control *control, const uint8_t *file,
                                                size_t size, fedge_store *store, const char *run_id,
                                                fedge_error *err);

/* Keeps c_i as it will be once this upload is acknowledged. */
FEDGE_MUST_USE fedge_status fedge_control_keep(fedge_control *control, fedge_store *store,
                                               const int8_t *bounds_log2,
                                               const fedge_upload *upload, const uint8_t *bytes,
                                               fedge_error *err);

/* The upload has been acknowledged; nothing happens without a c_i that was kept for it. May be
 * repeated. */
FEDGE_MUST_USE fedge_status fedge_control_commit(fedge_store *store, const fedge_upload *upload,
                                                 fedge_error *err);

#endif
