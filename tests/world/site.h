/* Sites of a world's clients: their client files, and the facts that their conditions ask for. */
#ifndef FEDGE_TESTS_WORLD_SITE_H
#define FEDGE_TESTS_WORLD_SITE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/world/disk.h"
#include "tests/world/plan.h"

#define SITE_FILE WORLD_DISK_ROOT "/client.json"
#define SITE_DATA "more" /* a data set of every site, which no job asks for */

/* Writes the client's file and facts to its disk, as of now; nothing for a client without a site.
 */
void site_write(const world_plan *plan, uint32_t client, uint64_t now_ns);
/* Whether a condition of the client's site is not met now. */
bool site_is_unmet(const plan_site *site, uint64_t now_ns);
/* Writes the facts that change between [then_ns] and [now_ns]; returns when the next change. */
uint64_t site_pass(const world_plan *plan, uint64_t then_ns, uint64_t now_ns);

#endif
