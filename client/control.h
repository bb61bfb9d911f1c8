/* A client's control variate c_i (edge/io/control.h) from round to round: kept in the store for the
 * run. It moves only with an update that is in the model, as the server's next task says: an
 * acknowledgement may be lost, and one in a round that fails means nothing. Without it (a new
 * device, a lost disk) it is 0, as in the first round.
 */
#ifndef FEDGE_CLIENT_CONTROL_H
#define FEDGE_CLIENT_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "client/store.h"
#include "edge/core/status.h"
#include "edge/io/control.h"
#include "edge/io/protocol.h"

/* The round begins: c from [file] (a task's control file), c_i from the store; fills correction.
 * [last_counted]: the task's. */
FEDGE_MUST_USE fedge_status fedge_control_begin(fedge_control *control, const uint8_t *file,
                                                size_t size, uint64_t last_counted,
                                                fedge_store *store, const char *run_id,
                                                fedge_error *err);

/* Keeps c_i as it will be if this upload counts. */
FEDGE_MUST_USE fedge_status fedge_control_keep(fedge_control *control, fedge_store *store,
                                               const int8_t *bounds_log2,
                                               const fedge_upload *upload, const uint8_t *bytes,
                                               fedge_error *err);

#endif
