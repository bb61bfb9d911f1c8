/* An oracle of sites: what a client's site forbids, and what the client must report. It knows the
 * policy from the world's plan and sees every message of the client. Each violation is a
 * world_fail. */
#ifndef FEDGE_TESTS_WORLD_SITE_ORACLE_H
#define FEDGE_TESTS_WORLD_SITE_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/world/plan.h"

/* Begins a new world. [plan] outlives it. */
void site_oracle_begin(const world_plan *plan);
/* The client's disk fails or is slow, so it may read its condition late or not at all. */
void site_oracle_excuse(uint32_t client);
/* The plan with this hash is of a job that every site's policy forbids. */
void site_oracle_forbid(const char *hash);
/* Whole messages, as in oracle.h. */
void site_oracle_client_sent(uint32_t client, const uint8_t *frame, size_t size);
void site_oracle_client_received(uint32_t client, const uint8_t *frame, size_t size);
void site_oracle_server_sent(uint32_t client, const uint8_t *frame, size_t size);

#endif
