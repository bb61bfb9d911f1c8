/* What the server and honest clients owe each other, message by message, whatever the sums are.
 *
 * - A client announces results of its connection's run and incarnation.
 * - The server refuses nothing of it as wrong: an honest client sends what the protocol allows.
 * - A task names as last accepted an update that the client has sent to its end.
 * - The server asks for bytes that a result has, and the client sends them.
 * - A result stays on the client's disk until the server has answered it, and is answered soon.
 * - A client pauses before it connects again.
 * - A client declines no task, unless its trainer or its disk may fail.
 * - What a client keeps of its accepted updates outlives every crash.
 * - In an asynchronous run with work for all, each client gets some.
 *
 * Everything that does not hold is a world_fail.
 */
#ifndef FEDGE_TESTS_WORLD_ANSWERS_H
#define FEDGE_TESTS_WORLD_ANSWERS_H

#include <stddef.h>
#include <stdint.h>

#include "edge/plan/plan.h"
#include "tests/world/plan.h"
#include "tests/world/stub_trainer.h"

/* A new world, without a client that is connected. [job], [plan] and [trainers], of its honest
 * clients, outlive it. */
void answers_begin(const fedge_job *job, const world_plan *plan, const stub_trainer *trainers);

/* A whole message, as in oracle.h; those of other clients are passed over. */
void answers_client_sent(uint32_t client, const uint8_t *frame, size_t size);
void answers_server_sent(uint32_t client, const uint8_t *frame, size_t size);
void answers_client_received(uint32_t client, const uint8_t *frame, size_t size);
/* A line of the client's log. */
void answers_client_warned(uint32_t client, const char *line);
/* Its connection or its process has ended. */
void answers_client_disconnected(uint32_t client);
/* It has lost its store. */
void answers_client_wiped(uint32_t client);

/* What is due, of honest clients that are connected. [calm_ns]: since then nothing is broken or
 * slow; WORLD_NEVER: something is. */
void answers_check(uint64_t calm_ns);

#endif
