/* Sites of the simulated clients: their client files, and the system files that their conditions
 * read. */
#ifndef FEDGE_TESTS_WORLD_SITE_H
#define FEDGE_TESTS_WORLD_SITE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/world/disk.h"
#include "tests/world/plan.h"

#define SITE_FILE WORLD_DISK_ROOT "/client.json"
#define SITE_DATA "more" /* a data set of every site, which no job uses */

/* Writes the client's file and system files of the present time to its disk. Nothing for a client
 * without a site. */
void site_write(const world_plan *plan, uint32_t client, uint64_t now_ns);
/* Whether a condition of the site is not met at this time. */
bool site_is_unmet(const plan_site *site, uint64_t now_ns);
/* Writes the system files that change between [then_ns] and [now_ns]. Returns the time of the next
 * change. */
uint64_t site_pass(const world_plan *plan, uint64_t then_ns, uint64_t now_ns);

#endif
