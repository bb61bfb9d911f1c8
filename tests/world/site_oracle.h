/* What a client's site forbids, and what it must say: an oracle that knows the policy from the
 * world's plan, and looks at every message that the client sends. Everything that does not hold is
 * a world_fail. */
#ifndef FEDGE_TESTS_WORLD_SITE_ORACLE_H
#define FEDGE_TESTS_WORLD_SITE_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/world/plan.h"

/* A new world. [plan] outlives it. */
void site_oracle_begin(const world_plan *plan);
/* The client's disk fails or is slow: it may look at its condition late, or not know it. */
void site_oracle_excuse(uint32_t client);
/* A plan with this hash is of a job that the policy of every site forbids. */
void site_oracle_forbid(const char *hash);
/* Whole messages, as oracle.h has them. */
void site_oracle_client_sent(uint32_t client, const uint8_t *frame, size_t size);
void site_oracle_server_sent(uint32_t client, const uint8_t *frame, size_t size);

#endif
