/* fedge-simulate model FILE: what a model file says of itself, and whether it is still that model.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_MODEL_COMMAND_H
#define FEDGE_AGGREGATOR_SIMULATE_MODEL_COMMAND_H

#include <stdbool.h>
#include <stdio.h>

#include "edge/core/command_line.h"
#include "edge/core/status.h"

typedef struct fedge_model_command {
    const char *path; /* argv's */
    bool json, help;
} fedge_model_command;

/* Reads argv, "model" first. FEDGE_INVALID_ARGUMENT. */
FEDGE_MUST_USE fedge_status fedge_model_command_parse(int argc, char **argv,
                                                      fedge_model_command *command,
                                                      fedge_error *err);

/* For model --help: fits a screen; returns [text]. */
const char *fedge_model_command_help(char text[FEDGE_HELP_SIZE]);

/* Prints the file's metadata, a line for each, or with json one object; the last line names the
 * tensors. FEDGE_MISMATCH, after it is printed, when they are not those that "model_sha256" in the
 * metadata names. Else fails as fedge_model_file_read. */
FEDGE_MUST_USE fedge_status fedge_model_command_run(const fedge_model_command *command, FILE *out,
                                                    fedge_error *err);

#endif
