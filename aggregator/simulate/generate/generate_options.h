/* The command line of fedge-simulate generate. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_GENERATE_GENERATE_OPTIONS_H
#define FEDGE_AGGREGATOR_SIMULATE_GENERATE_GENERATE_OPTIONS_H

#include <stdbool.h>

#include "aggregator/simulate/generate/generate.h"
#include "edge/core/command_line.h"
#include "edge/core/status.h"

typedef struct fedge_generate_options {
    fedge_generate_settings settings; /* dir is argv's */
    bool help;
} fedge_generate_options;

/* Reads what follows the program's name, argv[0] being "generate". FEDGE_INVALID_ARGUMENT, and
 * FEDGE_OUT_OF_RANGE for a kind's numbers. */
FEDGE_MUST_USE fedge_status fedge_generate_options_parse(int argc, char **argv,
                                                         fedge_generate_options *options,
                                                         fedge_error *err);

/* For --help: fits a screen; returns [text]. */
const char *fedge_generate_options_help(char text[FEDGE_HELP_SIZE]);

#endif
