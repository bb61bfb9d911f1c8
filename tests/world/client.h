/* A simulated client: libfedge_client with its session, store and worker, on the simulated network
 * and with a given trainer. */
#ifndef FEDGE_TESTS_WORLD_CLIENT_H
#define FEDGE_TESTS_WORLD_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/fedge_client.h"

typedef struct world_client {
    uint32_t index;
    const fedge_client_callbacks *callbacks;
    const char *site_file; /* below WORLD_DISK_ROOT; NULL: no policy */
    fedge_client *running; /* NULL: there is no process, or it has not begun */
    uint64_t backoff_cap_ms;
    bool stop;        /* a stop was requested before it ran */
    uint64_t stop_ns; /* time of a stop request while it ran; 0: none */
    bool strict;      /* its server is hostile and its disk healthy: see world_client_check */
} world_client;

/* The entry of the process's first fiber. The argument is a world_client. */
void world_client_main(void *client);
/* Stops the client as SIGTERM does. */
void world_client_stop(world_client *client);
/* Fails the world if a strict client fills its disk, or still runs long after a stop request and
 * its grace period. */
void world_client_check(const world_client *client);

#endif
