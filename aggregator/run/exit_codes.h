/* What fedge-aggregator's exit codes mean; --help and docs/reference/exit-codes.md repeat them. */
#ifndef FEDGE_AGGREGATOR_RUN_EXIT_CODES_H
#define FEDGE_AGGREGATOR_RUN_EXIT_CODES_H

#include "edge/core/status.h"

typedef enum fedge_exit_code {
    FEDGE_EXIT_OK = 0,      /* the run is complete or drained, or a signal asked to stop */
    FEDGE_EXIT_FAILURE = 1, /* no memory, threads or files, or failed while running: start again */
    FEDGE_EXIT_USAGE = 2,   /* wrong command line */
    FEDGE_EXIT_CONFIG = 3,  /* job, identity, trust, registry or data: mend the file named */
    FEDGE_EXIT_STATE = 4,   /* state directory in use, damaged, of another job or release */
    FEDGE_EXIT_PORT = 5,    /* an address to listen on is in use or not of this machine */
    FEDGE_EXIT_DISK = 6,    /* no space, or an I/O error, at the start, too: check the disk first */
    FEDGE_EXIT_GPU = 7,     /* a GPU failed, or a requested one is missing */
    FEDGE_EXIT_GPU_MEMORY = 8 /* a requested GPU has too little memory for the sums */
} fedge_exit_code;

/* The exit code of a failure. A failing or full disk, missing memory and a lost or small GPU have
 * codes of their own, whatever the program was doing; [otherwise] is the code of all else. */
int fedge_exit_code_of(fedge_status status, fedge_exit_code otherwise);

#endif
