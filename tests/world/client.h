/* A client of a world: libfedge_client with its session, store and worker, on the world's network
 * and with a given trainer. */
#ifndef FEDGE_TESTS_WORLD_CLIENT_H
#define FEDGE_TESTS_WORLD_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/fedge_client.h"

typedef struct world_client {
    uint32_t index;
    const fedge_client_callbacks *callbacks;
    const char *site_file; /* in WORLD_DISK_ROOT; NULL: no policy */
    fedge_client *running; /* NULL: no process, or it has not begun */
    uint64_t backoff_cap_ms;
    bool stop;        /* asked before it ran */
    uint64_t stop_ns; /* when it was asked while it ran; 0: not */
    bool strict;      /* its server is hostile, and its disk healthy: see world_client_check */
} world_client;

/* The process: a fiber's entry, with a world_client. */
void world_client_main(void *client);
/* As SIGTERM does. */
void world_client_stop(world_client *client);
/* Of a strict client: a world_fail if it fills its disk, or was asked to stop and still runs, long
 * after its grace. */
void world_client_check(const world_client *client);

#endif
