#include "tests/world/shrink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/scheduler.h"
#include "tests/world/world.h"

/* A smaller world draws other steps, so this number of orders is tried. */
enum { NUM_ORDERS = 12 };

/* Replaces the number after [key] in the job's text if it is greater. */
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

/* The fewest clients with which a run completes: those whose site forbids the job do not help. */
static uint32_t fewest_clients(const world_plan *of)
{
    uint32_t fewest = 0, helping = 0;
    while (fewest < of->job.num_clients && (fewest == 0 || helping < of->job.min_available_nodes))
        helping += !plan_site_forbids(&of->sites[fewest++]);
    return fewest;
}

/* Faults of removed clients are removed, too. */
static void cut_clients(const shrink_cuts *cuts, world_plan *out)
{
    const uint32_t drawn = out->job.num_clients, fewest = fewest_clients(out);
    const uint32_t kept = cuts->clients > fewest ? cuts->clients : fewest;
    uint32_t left = 0;
    if (cuts->clients > 0 && kept < drawn)
        out->job.num_clients = kept;
    for (uint32_t i = 0; i < out->num_faults; i++) {
        const uint32_t client = out->faults[i].node - WORLD_FIRST_CLIENT;
        const bool goes = client >= out->job.num_clients && client < drawn;
        if (!goes && (cuts->without >> i & 1) == 0)
            out->faults[left++] = out->faults[i];
    }
    out->num_faults = left;
}

void shrink_plan(uint64_t seed, const shrink_cuts *cuts, world_plan *out)
{
    plan_draw(seed, out);
    cut_clients(cuts, out);
    if (cuts->rounds > 0 && cuts->rounds < out->job.num_rounds) {
        lower(out->job.text, "\"num-server-rounds\":", cuts->rounds);
        out->job.num_rounds = cuts->rounds;
    }
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
    for (uint32_t clients = fewest_clients(&drawn);
         clients < drawn.job.num_clients && cuts->clients == 0; clients++) {
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
