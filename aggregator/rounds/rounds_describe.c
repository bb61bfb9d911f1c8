/* Texts about the round machine's state, for logs and health checks. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/rounds/rounds_internal.h"
#include "aggregator/rounds/sampler.h"

#define MAX_NAMED 4u /* clients in a description */

fedge_rounds_state fedge_rounds_get_state(const fedge_rounds *rounds)
{
    return rounds->state;
}

bool fedge_rounds_is_complete(const fedge_rounds *rounds)
{
    return rounds->state == FEDGE_ROUNDS_FINISHED && rounds->complete;
}

uint32_t fedge_rounds_round(const fedge_rounds *rounds)
{
    return rounds->round;
}

uint32_t fedge_rounds_attempt(const fedge_rounds *rounds)
{
    return rounds->attempt;
}

fedge_task_kind fedge_rounds_kind(const fedge_rounds *rounds)
{
    return rounds->kind;
}

uint64_t fedge_rounds_deadline_ms(const fedge_rounds *rounds)
{
    return rounds->deadline_ms;
}

fedge_draw fedge_rounds_draw(const fedge_rounds *rounds)
{
    return rounds->draw;
}

uint32_t fedge_rounds_wanted(const fedge_rounds *rounds)
{
    return rounds->wanted;
}

uint32_t fedge_rounds_num_connected(const fedge_rounds *rounds)
{
    return rounds->num_connected;
}

const fedge_rounds_task *fedge_rounds_cohort(const fedge_rounds *rounds, uint32_t *num_tasks)
{
    *num_tasks = rounds->num_tasks;
    return rounds->tasks;
}

bool fedge_rounds_is_stalled(const fedge_rounds *rounds)
{
    if (rounds->state != FEDGE_ROUNDS_RUNNING)
        return rounds->state == FEDGE_ROUNDS_WAITING;
    for (uint32_t p = 0; p < rounds->num_participants; p++) {
        const participant *one = &rounds->participants[p];
        if (one->connected && fedge_rounds_open_task(rounds, one))
            return false;
    }
    return true;
}

static const char *phase_of(const fedge_rounds *rounds)
{
    return rounds->kind == FEDGE_TASK_TRAIN ? "training" : "evaluation";
}

typedef bool (*is_one_fn)(const fedge_rounds *rounds, const participant *of);

static uint32_t count_clients(const fedge_rounds *rounds, is_one_fn is_one)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < rounds->num_participants; p++)
        count += is_one(rounds, &rounds->participants[p]);
    return count;
}

/* Appends [before], then "client 4" or "clients 4, 7, 9 and 12 more", to [text]. */
static void name_clients(char *text, size_t size, const char *before, const fedge_rounds *rounds,
                         is_one_fn is_one)
{
    const uint32_t count = count_clients(rounds, is_one);
    size_t used = strlen(text);
    uint32_t named = 0;
    for (uint32_t p = 0; p < rounds->num_participants && named < MAX_NAMED && used < size; p++) {
        const participant *one = &rounds->participants[p];
        if (is_one(rounds, one)) {
            const char *between = named > 0 ? ", " : count > 1 ? "clients " : "client ";
            snprintf(text + used, size - used, "%s%s%" PRIu32, named == 0 ? before : "", between,
                     one->client_index);
            used = strlen(text);
            named++;
        }
    }
    if (count > named)
        snprintf(text + used, size - used, " and %" PRIu32 " more", count - named);
}

static bool is_away(const fedge_rounds *rounds, const participant *of)
{
    return !of->connected && fedge_rounds_open_task(rounds, of);
}

static bool has_given_up(const fedge_rounds *rounds, const participant *of)
{
    (void)rounds;
    return of->aside && !of->declined;
}

static bool has_declined(const fedge_rounds *rounds, const participant *of)
{
    (void)rounds;
    return of->declined;
}

#define DECLINED "; declined the job: "

static void describe_waiting(const fedge_rounds *rounds, char *text, size_t size)
{
    const uint32_t needed = fedge_cohort_needed(&rounds->spec, rounds->kind);
    const uint32_t available = fedge_rounds_num_available(rounds);
    if (available < rounds->num_connected) {
        snprintf(text, size,
                 "waiting for nodes: %" PRIu32 " of %" PRIu32 " ready, %" PRIu32 " connected",
                 available, needed, rounds->num_connected);
    } else {
        snprintf(text, size, "waiting for nodes: %" PRIu32 " of %" PRIu32 " connected", available,
                 needed);
    }
    if (rounds->num_hopeless > 0) {
        const size_t used = strlen(text);
        snprintf(text + used, size - used, "; attempt %" PRIu32 " of round %" PRIu32 " %s",
                 rounds->attempt + 1, rounds->round,
                 rounds->open_at_ms != 0 ? "follows after a pause" : "follows");
        name_clients(text, size,
                     "; gave up, asked again after a pause, or on connecting anew: ", rounds,
                     has_given_up);
    }
    name_clients(text, size, DECLINED, rounds, has_declined);
}

static void describe_running(const fedge_rounds *rounds, char *text, size_t size)
{
    snprintf(text, size,
             "round %" PRIu32 ", %s: %" PRIu32 " of %" PRIu32 " reported, %" PRIu32 " at work",
             rounds->round, phase_of(rounds), rounds->num_reported, rounds->wanted,
             rounds->num_open - count_clients(rounds, is_away));
    name_clients(text, size, "; not connected: ", rounds, is_away);
    name_clients(text, size, "; gave up: ", rounds, has_given_up);
    name_clients(text, size, DECLINED, rounds, has_declined);
}

void fedge_rounds_describe(const fedge_rounds *rounds, char *text, size_t size)
{
    const char *phase = phase_of(rounds);
    switch (rounds->state) {
    case FEDGE_ROUNDS_WAITING:
        describe_waiting(rounds, text, size);
        return;
    case FEDGE_ROUNDS_OPENING:
        snprintf(text, size, "opening round %" PRIu32 ": %s on %" PRIu32 " clients", rounds->round,
                 phase, rounds->num_tasks);
        return;
    case FEDGE_ROUNDS_RUNNING:
        describe_running(rounds, text, size);
        return;
    case FEDGE_ROUNDS_CLOSING:
        snprintf(text, size, "%s round %" PRIu32 ": %s, %" PRIu32 " reported",
                 rounds->failing ? "giving up an attempt at" : "closing", rounds->round, phase,
                 rounds->num_reported);
        return;
    case FEDGE_ROUNDS_FINISHED:
        snprintf(text, size, "%s after round %" PRIu32, rounds->draining ? "drained" : "finished",
                 rounds->round);
        return;
    }
}
