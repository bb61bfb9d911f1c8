/* A hostile client of a world: a device with a certificate, whose program says what it likes.
 *
 * It knows the protocol, and speaks it by hand: at times as an honest client does, so that it gets
 * tasks and its updates count, and at times damaged, out of order, for others' tasks, too much of
 * it, or nothing at all. It keeps to what TCP and TLS permit: it has at most two connections at
 * once, and no other device's certificate.
 */
#ifndef FEDGE_TESTS_WORLD_HOSTILE_CLIENT_H
#define FEDGE_TESTS_WORLD_HOSTILE_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/plan/plan.h"

typedef struct hostile_client {
    uint32_t index; /* of the client: those of honest ones come first */
    uint64_t seed;
    const fedge_plan *plan; /* of the job */
    uint64_t until_ns;      /* it goes for good then */
    bool stop;              /* it goes now */
} hostile_client;

/* The process: a fiber's entry, with a hostile_client. */
void hostile_client_main(void *client);
void hostile_client_stop(hostile_client *client);

#endif
