/* A simulated server: fedge-aggregator's sequence of calls around the real engine, its threads and
 * the real connections, on the simulated network. With several ranks it also runs the messages
 * between them. */
#ifndef FEDGE_TESTS_WORLD_SERVER_H
#define FEDGE_TESTS_WORLD_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/world/ranks.h"

/* Requests of the world to a rank's process, in place of signals. */
typedef struct world_signals {
    bool stop, reload, drain, gpus_changed;
} world_signals;

typedef struct world_server {
    /* Set by the world before each start. */
    const char *job_text;
    bool restored; /* the state comes from a backup, as with --restored */
    uint32_t num_workers;
    const char *accumulator; /* world_gpus_configure sets the GPUs */
    uint32_t heartbeat_s;
    uint32_t num_devices; /* devices in the registry */
    bool admitted[32];    /* whether each client's certificate is active */
    uint64_t queue_bytes; /* memory for frames under way, in each direction */

    world_signals signals[WORLD_MAX_RANKS]; /* world_server_signal wakes the rank */
} world_server;

/* The entry of the first fiber of a rank started by world_ranks_start. The argument is a
 * world_server. */
void world_server_main(void *server);
void world_server_signal(uint32_t rank);

#endif
