/* A hostile client: a device with a valid certificate, whose program may send anything.
 *
 * It knows the protocol and packs its messages itself. At times it acts as an honest client, so
 * that it gets tasks and its updates count. At other times it sends damaged messages, messages out
 * of order or about other clients' tasks, too many of them, or none. It stays within what TCP and
 * TLS permit: it has at most two connections at once, and no certificate of another device. */
#ifndef FEDGE_TESTS_WORLD_HOSTILE_CLIENT_H
#define FEDGE_TESTS_WORLD_HOSTILE_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/plan/plan.h"

typedef struct hostile_client {
    uint32_t index; /* number of the client, above those of all honest ones */
    uint64_t seed;
    const fedge_plan *plan; /* the job's plan */
    uint64_t until_ns;      /* it disconnects for good then */
    bool takes_back;        /* it declines tasks whose results it has sent */
    bool stop;              /* it disconnects now */
} hostile_client;

/* The entry of the process's fiber. The argument is a hostile_client. */
void hostile_client_main(void *client);
void hostile_client_stop(hostile_client *client);

#endif
