/* What a world sees of its nodes; world.c passes it on to the oracles. On any fiber. */
#ifndef FEDGE_TESTS_WORLD_OBSERVER_H
#define FEDGE_TESTS_WORLD_OBSERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/exchange/exchange.h"
#include "edge/core/log.h"

/* A whole message that a client's or the server's process gives to its network. */
void world_observe_client_sent(uint32_t client, const uint8_t *frame, size_t size);
/* A whole message that a client's process took from its network, and the end of its connection. */
void world_observe_client_received(uint32_t client, const uint8_t *frame, size_t size);
void world_observe_client_disconnected(uint32_t client);
/* A message of a hostile client, damaged or not, and the bytes of the result that it is about. */
void world_observe_hostile_sent(uint32_t client, const uint8_t *frame, size_t size,
                                const uint8_t *bytes, size_t num_bytes);
/* A message of a hostile server, damaged or not. */
void world_observe_hostile_answer(uint32_t client, const uint8_t *frame, size_t size);
void world_observe_server_sent(uint32_t client, const uint8_t *frame, size_t size);
/* A phase has closed, or the run has been opened. */
void world_observe_round(const fedge_round_summary *summary);
void world_observe_opened(const fedge_run_status *status);
/* The run is complete and its results are written; it is not marked as finished yet. */
void world_observe_complete(const fedge_run_status *status);
/* A node's process ends by itself, after it has freed all it had. */
void world_observe_exit(uint32_t node, int code, const char *why);
/* A rank of the server gets SIGTERM ([stop]) or SIGHUP. */
void world_observe_signal(uint32_t node, bool stop);
/* Log lines of the running node, for the world's story. */
const fedge_log *world_observed_log(void);

#endif
