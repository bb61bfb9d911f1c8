/* The file of --gpus-file: which GPUs sum, in one line, as --gpus has them. It is read at the start
 * and at each SIGHUP.
 */
#ifndef FEDGE_AGGREGATOR_PROGRAM_GPUS_FILE_H
#define FEDGE_AGGREGATOR_PROGRAM_GPUS_FILE_H

#include "aggregator/reduce/accumulator.h"
#include "edge/core/status.h"

#define FEDGE_GPUS_FILE_MAX_SIZE 1024

/* Sets config->gpus. FEDGE_NOT_FOUND, FEDGE_IO: it cannot be read; FEDGE_TOO_BIG,
 * FEDGE_INVALID_ARGUMENT: it holds something else. The messages name the file; *config is as it was
 * then. */
FEDGE_MUST_USE fedge_status fedge_gpus_file_read(const char *path, fedge_accumulator_config *config,
                                                 fedge_error *err);

#endif
