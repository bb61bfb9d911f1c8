/* The built-in trainer: it trains the plan's layers by edge/train on the data in the client file.
 * It implements fedge_client_callbacks with public functions only.
 *
 * The model's memory is one block, allocated when a plan arrives. The first task loads the data
 * set, and later tasks reuse it: decoding 60,000 gzip images takes longer than training on some of
 * them.
 */
#ifndef FEDGE_CLIENT_BUILTIN_TRAINER_H
#define FEDGE_CLIENT_BUILTIN_TRAINER_H

#include <stdint.h>

#include "client/fedge_client.h"
#include "client/training_backend.h"
#include "edge/core/status.h"
#include "edge/data/dataset.h"
#include "edge/site/site.h"

typedef struct fedge_builtin_config {
    const fedge_site *site;                 /* outlives the trainer */
    const fedge_training_backend *backend;  /* NULL: the CPU */
    const fedge_backend_settings *settings; /* backend settings; outlive the trainer */
    const fedge_log *log;                   /* backend's log; NULL: none */
    /* Called when the backend loses a device; only a new process can use the others. May be NULL.
     * Runs on the trainer's thread, or on another while the trainer's thread waits for the device.
     */
    void (*lost)(const fedge_error *err);
} fedge_builtin_config;

typedef struct fedge_builtin fedge_builtin;

/* Loads this device's part of a data set, divided as the client file says. */
FEDGE_MUST_USE fedge_status fedge_builtin_load(const fedge_data_spec *spec,
                                               const fedge_site_data *data, fedge_dataset **dataset,
                                               fedge_error *err);

/* Sets [callbacks] to the trainer's functions. */
FEDGE_MUST_USE fedge_status fedge_builtin_new(const fedge_builtin_config *config,
                                              fedge_builtin **trainer,
                                              fedge_client_callbacks *callbacks, fedge_error *err);
void fedge_builtin_free(fedge_builtin *trainer); /* NULL is allowed */

#endif
