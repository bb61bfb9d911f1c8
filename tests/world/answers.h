/* What the server and honest clients must send each other, whatever the sums are:
 *
 * - A client announces results of the run and incarnation that the connection's WELCOME named.
 * - The server refuses nothing of it as wrong: an honest client sends what the protocol allows.
 * - The update that a task names as last accepted was sent completely by the client.
 * - The server asks only for bytes that a result has, and the client sends them.
 * - A result stays on the client's disk until the server has answered it. The server answers soon.
 * - A client pauses before it connects again.
 * - A client declines no task, unless its trainer or its disk may fail.
 * - What a client keeps of its accepted updates survives every crash.
 * - In an asynchronous run with work for all, each client gets some.
 *
 * Each violation is a world_fail. */
#ifndef FEDGE_TESTS_WORLD_ANSWERS_H
#define FEDGE_TESTS_WORLD_ANSWERS_H

#include <stddef.h>
#include <stdint.h>

#include "edge/plan/plan.h"
#include "tests/world/plan.h"
#include "tests/world/stub_trainer.h"

/* Begins a new world, in which no client is connected. [job], [plan] and the honest clients'
 * [trainers] outlive it. */
void answers_begin(const fedge_job *job, const world_plan *plan, const stub_trainer *trainers);

/* A whole message, as in oracle.h. Messages of hostile clients are ignored. */
void answers_client_sent(uint32_t client, const uint8_t *frame, size_t size);
void answers_server_sent(uint32_t client, const uint8_t *frame, size_t size);
void answers_client_received(uint32_t client, const uint8_t *frame, size_t size);
/* A line of the client's log. */
void answers_client_warned(uint32_t client, const char *line);
/* The client's connection or process has ended. */
void answers_client_disconnected(uint32_t client);
/* The client has lost its store. */
void answers_client_wiped(uint32_t client);

/* Fails the world where an honest, connected client or the server is late. [calm_ns]: nothing has
 * been broken or slow since then; WORLD_NEVER: something is. */
void answers_check(uint64_t calm_ns);

#endif
