/* The built-in trainer: the plan's layers, trained by edge/train on the data that the client file
 * names. One implementation of fedge_client_callbacks, made of public parts only.
 *
 * The model's memory is one block, taken when a plan comes. The data set is loaded with the first
 * task and kept for the following ones: decoding 60,000 gzip images costs more than training some
 * of them. A client without a task has neither.
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
    const fedge_backend_settings *settings; /* of it; outlive the trainer */
    const fedge_log *log;                   /* of the backend; NULL: silence */
    /* A device of the backend is lost, and only a new process can use what is left; may be NULL.
     * Called on the trainer's thread, or on another while the trainer's waits for the device. */
    void (*lost)(const fedge_error *err);
} fedge_builtin_config;

typedef struct fedge_builtin fedge_builtin;

/* Loads what is this device's of a data set, by the division that the client file has. */
FEDGE_MUST_USE fedge_status fedge_builtin_load(const fedge_data_spec *spec,
                                               const fedge_site_data *data, fedge_dataset **dataset,
                                               fedge_error *err);

/* Fills [callbacks] with the trainer's functions. */
FEDGE_MUST_USE fedge_status fedge_builtin_new(const fedge_builtin_config *config,
                                              fedge_builtin **trainer,
                                              fedge_client_callbacks *callbacks, fedge_error *err);
void fedge_builtin_free(fedge_builtin *trainer); /* NULL is fine */

#endif
