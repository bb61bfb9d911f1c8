#include "tests/world/shrink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/world.h"

/* A smaller world draws other steps: so many orders are tried. */
enum { NUM_ORDERS = 12 };

/* Replaces the number behind [key] in the job's text, where it is greater. */
static void lower(char *text, const char *key, uint32_t number)
{
    char rest[WORLD_JOB_TEXT], *at = strstr(text, key);
    if (!at)
        return;
    at += strlen(key);
    char *end = NULL;
    if (strtoul(at, &end, 10) <= number)
        return;
    (void)snprintf(rest, sizeof(rest), "%s", end);
    (void)snprintf(at, WORLD_JOB_TEXT - (size_t)(at - text), "%u%s", (unsigned)number, rest);
}

void shrink_plan(uint64_t seed, const shrink_cuts *cuts, world_plan *out)
{
    uint32_t left = 0;
    plan_draw(seed, out);
    for (uint32_t i = 0; i < out->num_faults; i++) {
        if ((cuts->without >> i & 1) == 0)
            out->faults[left++] = out->faults[i];
    }
    out->num_faults = left;
    if (cuts->rounds > 0 && cuts->rounds < out->job.num_rounds) {
        lower(out->job.text, "\"num-server-rounds\":", cuts->rounds);
        out->job.num_rounds = cuts->rounds;
    }
    if (cuts->clients > 0 && cuts->clients < out->job.num_clients)
        out->job.num_clients = cuts->clients;
    if (cuts->peaceful)
        out->num_hostile = 0;
    out->order = cuts->order;
    plan_finish(out);
}

static bool fails(uint64_t seed, shrink_cuts *cuts)
{
    static world_plan smaller;
    world_outcome outcome;
    for (cuts->order = 0; cuts->order < NUM_ORDERS; cuts->order++) {
        shrink_plan(seed, cuts, &smaller);
        world_run(&smaller, &outcome);
        if (outcome.failed)
            return true;
    }
    return false;
}

static void keep_if_it_fails(uint64_t seed, shrink_cuts *cuts, shrink_cuts smaller)
{
    if (fails(seed, &smaller))
        *cuts = smaller;
}

void shrink(uint64_t seed, shrink_cuts *cuts)
{
    static world_plan drawn;
    plan_draw(seed, &drawn);
    for (uint32_t i = 0; i < drawn.num_faults; i++) {
        shrink_cuts smaller = *cuts;
        smaller.without |= 1u << i;
        keep_if_it_fails(seed, cuts, smaller);
    }
    if (drawn.num_hostile > 0) {
        shrink_cuts smaller = *cuts;
        smaller.peaceful = true;
        keep_if_it_fails(seed, cuts, smaller);
    }
    const uint32_t least = drawn.job.min_available_nodes > 0 ? drawn.job.min_available_nodes : 1;
    for (uint32_t clients = least; clients < drawn.job.num_clients && cuts->clients == 0;
         clients++) {
        shrink_cuts smaller = *cuts;
        smaller.clients = clients;
        keep_if_it_fails(seed, cuts, smaller);
    }
    for (uint32_t rounds = 1; rounds < drawn.job.num_rounds && cuts->rounds == 0; rounds++) {
        shrink_cuts smaller = *cuts;
        smaller.rounds = rounds;
        keep_if_it_fails(seed, cuts, smaller);
    }
}
