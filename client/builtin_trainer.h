/* The built-in trainer: the plan's layers, trained by edge/train on the data that the client file
 * names. One implementation of fedge_client_callbacks, made of public parts only.
 *
 * The model's memory is one block, allocated when a plan arrives. The first task loads the data
 * set, and later tasks reuse it: decoding 60,000 gzip images costs more than training on some of
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
    /* Called when a device of the backend is lost; only a new process can use the others. May be
     * NULL. On the trainer's thread, or on another while the trainer's waits for the device. */
    void (*lost)(const fedge_error *err);
} fedge_builtin_config;

typedef struct fedge_builtin fedge_builtin;

/* Loads this device's part of a data set, as the client file divides it. */
FEDGE_MUST_USE fedge_status fedge_builtin_load(const fedge_data_spec *spec,
                                               const fedge_site_data *data, fedge_dataset **dataset,
                                               fedge_error *err);

/* Fills [callbacks] with the trainer's functions. */
FEDGE_MUST_USE fedge_status fedge_builtin_new(const fedge_builtin_config *config,
                                              fedge_builtin **trainer,
                                              fedge_client_callbacks *callbacks, fedge_error *err);
void fedge_builtin_free(fedge_builtin *trainer); /* NULL is fine */

#endif
