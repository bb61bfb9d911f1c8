/* What the server and honest clients owe each other, message by message, whatever the sums are.
 *
 * - A client announces results of its connection's run and incarnation.
 * - The server refuses nothing of it as wrong: an honest client sends what the protocol allows.
 * - A task names as last accepted an update that the client has sent to its end.
 * - A result stays on the client's disk until the server has answered it, and is answered soon.
 * - A client declines no task, unless its trainer or its disk may fail.
 * - In an asynchronous run with work for all, each client gets some.
 *
 * Everything that does not hold is a world_fail.
 */
#ifndef FEDGE_TESTS_WORLD_ANSWERS_H
#define FEDGE_TESTS_WORLD_ANSWERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/plan/plan.h"

/* A new world, of whose clients the first [num_clients] are honest. [job] outlives it. [damaged]:
 * bits of its disks flip, so that only what goes over the wire in order is certain. */
void answers_begin(const fedge_job *job, uint32_t num_clients, bool damaged);

/* The client has a reason to decline tasks. */
void answers_may_decline(uint32_t client);

/* A whole message, as in oracle.h; those of other clients are passed over. */
void answers_client_sent(uint32_t client, const uint8_t *frame, size_t size);
void answers_server_sent(uint32_t client, const uint8_t *frame, size_t size);
/* The client's process has ended, or lost its store. */
void answers_client_ended(uint32_t client);

/* What is due, of honest clients that are connected. [calm_ns]: since then nothing is broken or
 * slow; WORLD_NEVER: something is. */
void answers_check(uint64_t calm_ns);

#endif
