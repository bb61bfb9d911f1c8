/* What the nodes report to the world; world.c passes it on to the oracles. Callable on any fiber.
 */
#ifndef FEDGE_TESTS_WORLD_OBSERVER_H
#define FEDGE_TESTS_WORLD_OBSERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/exchange/exchange.h"
#include "edge/core/log.h"

/* A process of a client or the server sends this whole message. */
void world_observe_client_sent(uint32_t client, const uint8_t *frame, size_t size);
/* A client's process has received this whole message, or its connection has ended. */
void world_observe_client_received(uint32_t client, const uint8_t *frame, size_t size);
void world_observe_client_disconnected(uint32_t client);
/* A hostile client sends this message, which may be damaged. [bytes] are those of the result that
 * it may announce. */
void world_observe_hostile_sent(uint32_t client, const uint8_t *frame, size_t size,
                                const uint8_t *bytes, size_t num_bytes);
/* A hostile server sends this message, which may be damaged. */
void world_observe_hostile_answer(uint32_t client, const uint8_t *frame, size_t size);
/* [arrives] false: the client has left the connection. */
void world_observe_server_sent(uint32_t client, bool arrives, const uint8_t *frame, size_t size);
/* A phase has closed; the run has been opened. */
void world_observe_round(const fedge_round_summary *summary);
void world_observe_opened(const fedge_run_status *status);
/* The run is complete and its results are written, but it is not marked as finished yet. */
void world_observe_complete(const fedge_run_status *status);
/* A node's process ends by itself. It has freed all its memory. */
void world_observe_exit(uint32_t node, int code, const char *why);
/* A rank of the server gets SIGTERM ([stop]) or SIGHUP. */
void world_observe_signal(uint32_t node, bool stop);
/* The log of the running node, which goes into the world's trace. */
const fedge_log *world_observed_log(void);

#endif
