/* The server of a world: fedge-aggregator's order of calls around the real engine, its threads and
 * the real state of connections, on the world's network; on several ranks also around what they say
 * to each other. */
#ifndef FEDGE_TESTS_WORLD_SERVER_H
#define FEDGE_TESTS_WORLD_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/world/ranks.h"

/* Requests of the world to a rank's process, as signals are. */
typedef struct world_signals {
    bool stop, reload, drain, gpus_changed;
} world_signals;

typedef struct world_server {
    /* Set by the world before a start. */
    const char *job_text;
    bool restored; /* --restored: the state comes from a backup */
    uint32_t num_workers;
    const char *accumulator; /* with GPUs as world_gpus_configure says */
    uint32_t heartbeat_s;
    uint32_t num_devices; /* in the registry */
    bool admitted[32];    /* by client: its certificate is active */
    uint64_t queue_bytes; /* memory for frames under way, in each direction */

    world_signals signals[WORLD_MAX_RANKS]; /* world_server_signal wakes the rank */
} world_server;

/* The process of one of the ranks of world_ranks_start: a fiber's entry, with a world_server. */
void world_server_main(void *server);
void world_server_signal(uint32_t rank);

#endif
