/* Connected clients, participants, deferrals and buffers of the round machine, and their memory. */
#include "aggregator/rounds/rounds_internal.h"

#include <stdlib.h>
#include <string.h>

/* --- memory: events that may fail reserve what the others need -------------------------------- */

static fedge_status grow(void **items, size_t item_size, size_t count, fedge_error *err)
{
    void *grown = realloc(*items, item_size * count);
    if (!grown)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %zu clients or actions", count);
    *items = grown;
    return FEDGE_OK;
}

/* Grows an array to at least [needed] items. */
static fedge_status grow_u32(void **items, size_t item_size, uint32_t needed, uint32_t *capacity,
                             fedge_error *err)
{
    if (needed <= *capacity)
        return FEDGE_OK;
    uint32_t more = needed < UINT32_MAX / 2 ? needed * 2 : needed;
    FEDGE_TRY(grow(items, item_size, more, err));
    *capacity = more;
    return FEDGE_OK;
}

/* Makes the queue large enough for [extra] actions and those of one more phase. */
static fedge_status reserve_actions(fedge_rounds *rounds, size_t extra, fedge_error *err)
{
    if (rounds->first_action > 0) {
        memmove(rounds->actions, rounds->actions + rounds->first_action,
                rounds->num_actions * sizeof(rounds->actions[0]));
        rounds->first_action = 0;
    }
    /* OPEN, SEND to each, CANCEL to each, CLOSE; then OPEN or FINISH. */
    size_t needed = rounds->num_actions + extra + 2 * (size_t)rounds->tasks_capacity + 3;
    if (needed <= rounds->actions_capacity)
        return FEDGE_OK;
    void *items = rounds->actions;
    fedge_status status = grow(&items, sizeof(rounds->actions[0]), needed * 2, err);
    rounds->actions = items;
    if (status == FEDGE_OK)
        rounds->actions_capacity = needed * 2;
    return status;
}

fedge_status fedge_rounds_reserve(fedge_rounds *rounds, uint32_t connected, uint32_t tasks,
                                  fedge_error *err)
{
    void *items = rounds->connected;
    uint32_t capacity = rounds->connected_capacity;
    fedge_status status = grow_u32(&items, sizeof(uint32_t), connected, &capacity, err);
    rounds->connected = items;
    /* A sample may have all connected clients. */
    if (status == FEDGE_OK && capacity != rounds->connected_capacity) {
        items = rounds->sampled;
        status = grow(&items, sizeof(uint32_t), capacity, err);
        rounds->sampled = items;
    }
    if (status != FEDGE_OK)
        return status;
    rounds->connected_capacity = capacity;

    items = rounds->tasks;
    status = grow_u32(&items, sizeof(rounds->tasks[0]), tasks, &rounds->tasks_capacity, err);
    rounds->tasks = items;
    if (status != FEDGE_OK)
        return status;

    /* Clients set aside stay while another attempt asks its cohort. */
    items = rounds->participants;
    status = grow_u32(&items, sizeof(rounds->participants[0]), rounds->num_participants + tasks + 1,
                      &rounds->participants_capacity, err);
    rounds->participants = items;
    return status == FEDGE_OK ? reserve_actions(rounds, 1, err) : status;
}

/* --- clients ---------------------------------------------------------------------------------- */

/* Binary search: the first of [num] items, ascending by the client index that they begin with,
 * that is not below [client_index]. */
static uint32_t lower_bound(const void *items, size_t item_size, uint32_t num,
                            uint32_t client_index)
{
    uint32_t low = 0, high = num;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        uint32_t index;
        memcpy(&index, (const uint8_t *)items + mid * item_size, sizeof(index));
        if (index < client_index)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

uint32_t fedge_rounds_connected_position(const fedge_rounds *rounds, uint32_t client_index)
{
    return lower_bound(rounds->connected, sizeof(*rounds->connected), rounds->num_connected,
                       client_index);
}

bool fedge_rounds_is_connected(const fedge_rounds *rounds, uint32_t client_index)
{
    uint32_t position = fedge_rounds_connected_position(rounds, client_index);
    return position < rounds->num_connected && rounds->connected[position] == client_index;
}

static uint32_t participant_position(const fedge_rounds *rounds, uint32_t client_index)
{
    return lower_bound(rounds->participants, sizeof(*rounds->participants),
                       rounds->num_participants, client_index);
}

participant *fedge_rounds_find_participant(const fedge_rounds *rounds, uint32_t client_index)
{
    uint32_t position = participant_position(rounds, client_index);
    if (position == rounds->num_participants ||
        rounds->participants[position].client_index != client_index)
        return NULL;
    return &rounds->participants[position];
}

void fedge_rounds_add_participant(fedge_rounds *rounds, uint32_t client_index, uint32_t slot)
{
    uint32_t position = participant_position(rounds, client_index);
    participant *at = rounds->participants + position;
    memmove(at + 1, at, (rounds->num_participants - position) * sizeof(*at));
    *at = (participant){client_index, slot, fedge_rounds_is_connected(rounds, client_index), false,
                        false};
    rounds->num_participants++;
}

void fedge_rounds_note_connected(fedge_rounds *rounds, uint32_t client_index, bool connected)
{
    participant *has_task = fedge_rounds_find_participant(rounds, client_index);
    if (has_task)
        has_task->connected = connected;
}

static uint32_t score_of(const fedge_rounds *rounds, uint32_t client)
{
    return fedge_draw_score(&rounds->draw, &rounds->spec.sampler, rounds->history, rounds->round,
                            client);
}

/* Picks one of the listed clients, each with the probability of its score. */
static bool pick_by_score(fedge_rounds *rounds, uint32_t listed, uint32_t *client_index)
{
    uint64_t total = 0, reached = 0;
    for (uint32_t i = 0; i < listed; i++)
        total += score_of(rounds, rounds->sampled[i]);
    if (total == 0)
        return false;
    const uint64_t drawn = (uint64_t)fedge_rng_u32(&rounds->rng) << 32;
    /* The bias of the remainder is below total / 2^64. */
    const uint64_t point = (drawn | fedge_rng_u32(&rounds->rng)) % total;
    for (uint32_t i = 0; reached <= point; i++) {
        *client_index = rounds->sampled[i];
        reached += score_of(rounds, *client_index);
    }
    return true;
}

/* Picks one of the listed clients, each equally likely. */
static bool pick_any(fedge_rounds *rounds, uint32_t listed, uint32_t *client_index)
{
    if (listed > 0)
        *client_index = rounds->sampled[fedge_rng_below(&rounds->rng, listed)];
    return listed > 0;
}

bool fedge_rounds_pick_free(fedge_rounds *rounds, uint32_t *client_index)
{
    const bool by_score = rounds->draw.available > 0;
    if (by_score || rounds->num_deferrals > 0) {
        /* Time 0: a deferral that has ended meanwhile counts until the next round opens. */
        const uint32_t listed =
            fedge_rounds_omit_deferred(rounds, fedge_rounds_list_available(rounds), 1, 0);
        return (by_score ? pick_by_score : pick_any)(rounds, listed, client_index);
    }
    uint32_t num_free = rounds->num_connected;
    for (uint32_t p = 0; p < rounds->num_participants; p++)
        num_free -= rounds->participants[p].connected;
    if (num_free == 0)
        return false;
    /* The position of a free client is its rank among the free ones, plus one for each client
     * below it that is not free. */
    uint32_t position = fedge_rng_below(&rounds->rng, num_free);
    for (uint32_t p = 0; p < rounds->num_participants &&
                         rounds->participants[p].client_index <= rounds->connected[position];
         p++)
        position += rounds->participants[p].connected;
    *client_index = rounds->connected[position];
    return true;
}

void fedge_rounds_remove_participant(fedge_rounds *rounds, participant *left)
{
    const participant *end = rounds->participants + rounds->num_participants--;
    memmove(left, left + 1, (size_t)(end - (left + 1)) * sizeof(*left));
}

void fedge_rounds_keep_aside(fedge_rounds *rounds, bool aside)
{
    uint32_t remaining = 0;
    for (uint32_t p = 0; p < rounds->num_participants; p++) {
        participant one = rounds->participants[p];
        if (one.declined || (aside && one.aside)) {
            one.slot = FEDGE_ROUNDS_NO_SLOT;
            one.aside = true;
            rounds->participants[remaining++] = one;
        }
    }
    rounds->num_participants = remaining;
}

uint32_t fedge_rounds_num_available(const fedge_rounds *rounds)
{
    uint32_t available = rounds->num_connected;
    for (uint32_t p = 0; p < rounds->num_participants; p++)
        available -= rounds->participants[p].aside && rounds->participants[p].connected;
    return available;
}

uint32_t fedge_rounds_list_available(fedge_rounds *rounds)
{
    uint32_t listed = 0, p = 0;
    for (uint32_t i = 0; i < rounds->num_connected; i++) {
        const uint32_t client_index = rounds->connected[i];
        while (p < rounds->num_participants && rounds->participants[p].client_index < client_index)
            p++;
        if (p == rounds->num_participants || rounds->participants[p].client_index != client_index)
            rounds->sampled[listed++] = client_index;
    }
    return listed;
}

/* --- deferrals -------------------------------------------------------------------------------- */

static uint32_t deferral_position(const fedge_rounds *rounds, uint32_t client_index)
{
    return lower_bound(rounds->deferrals, sizeof(*rounds->deferrals), rounds->num_deferrals,
                       client_index);
}

uint64_t fedge_rounds_not_before(const fedge_rounds *rounds, uint32_t client_index)
{
    const uint32_t position = deferral_position(rounds, client_index);
    const bool deferred = position < rounds->num_deferrals &&
                          rounds->deferrals[position].client_index == client_index;
    return deferred ? rounds->deferrals[position].not_before_ms : 0;
}

void fedge_rounds_undefer(fedge_rounds *rounds, uint32_t client_index)
{
    const uint32_t position = deferral_position(rounds, client_index);
    deferral *at = rounds->deferrals + position;
    if (position == rounds->num_deferrals || at->client_index != client_index)
        return;
    rounds->num_deferrals--;
    memmove(at, at + 1, (rounds->num_deferrals - position) * sizeof(*at));
}

void fedge_rounds_defer(fedge_rounds *rounds, uint32_t client_index, uint64_t not_before_ms)
{
    fedge_rounds_undefer(rounds, client_index);
    void *items = rounds->deferrals;
    const fedge_status status = grow_u32(&items, sizeof(deferral), rounds->num_deferrals + 1,
                                         &rounds->deferrals_capacity, NULL);
    rounds->deferrals = items;
    /* Without memory the client is asked too soon and then repeats its request. */
    if (status != FEDGE_OK)
        return;
    deferral *at = rounds->deferrals + deferral_position(rounds, client_index);
    memmove(at + 1, at, (size_t)(rounds->deferrals + rounds->num_deferrals - at) * sizeof(*at));
    *at = (deferral){client_index, not_before_ms};
    rounds->num_deferrals++;
}

uint32_t fedge_rounds_omit_deferred(fedge_rounds *rounds, uint32_t listed, uint32_t enough,
                                    uint64_t now_ms)
{
    uint32_t num_awake = 0, remaining = 0;
    for (uint32_t r = 0; r < rounds->num_deferrals; r++) {
        if (rounds->deferrals[r].not_before_ms > now_ms)
            rounds->deferrals[remaining++] = rounds->deferrals[r];
    }
    rounds->num_deferrals = remaining;
    for (int pass = 0; pass < 2; pass++) { /* count, then remove */
        uint32_t r = 0;
        num_awake = 0;
        for (uint32_t i = 0; i < listed; i++) {
            const uint32_t client = rounds->sampled[i];
            while (r < remaining && rounds->deferrals[r].client_index < client)
                r++;
            if (r < remaining && rounds->deferrals[r].client_index == client)
                continue;
            if (pass == 1)
                rounds->sampled[num_awake] = client;
            num_awake++;
        }
        /* A round that would be too small asks deferred clients, too. */
        if (num_awake < enough)
            return listed;
    }
    return num_awake;
}

/* ---------------------------------------------------------------------------------------------- */

const fedge_rounds_task *fedge_rounds_open_task(const fedge_rounds *rounds, const participant *of)
{
    if (of->slot == FEDGE_ROUNDS_NO_SLOT)
        return NULL;
    const fedge_rounds_task *task = &rounds->tasks[of->slot];
    return task->client_index == of->client_index && task->state == FEDGE_TASK_OPEN ? task : NULL;
}

/* ---- rounds with a buffer -------------------------------------------------------------------- */

bool fedge_rounds_has_buffer(const fedge_rounds *rounds)
{
    return rounds->spec.buffer_size > 0;
}

/* Ends the participant's task. A client that has declined the job stays set aside. */
static void free_participant(fedge_rounds *rounds, participant *of)
{
    of->slot = FEDGE_ROUNDS_NO_SLOT;
    of->aside = of->declined;
    if (!of->declined)
        fedge_rounds_remove_participant(rounds, of);
}

void fedge_rounds_keep_carried(fedge_rounds *rounds, bool aside)
{
    fedge_rounds_keep_aside(rounds, aside);
    for (uint32_t slot = 0; fedge_rounds_has_buffer(rounds) && slot < rounds->num_tasks; slot++) {
        const uint32_t client_index = rounds->tasks[slot].client_index;
        participant *of = fedge_rounds_find_participant(rounds, client_index);
        if (of) {
            /* The client declined the job while its result was being written. */
            of->slot = slot;
            of->aside = false;
        } else {
            fedge_rounds_add_participant(rounds, client_index, slot);
        }
    }
}

void fedge_rounds_carry_over(fedge_rounds *rounds, uint32_t round,
                             void (*drop)(fedge_rounds *rounds, uint32_t slot))
{
    uint32_t remaining = 0;
    /* Devices that hang, or whose connection nobody has missed yet, would hold all slots for ever.
     */
    const bool hung = rounds->failing && rounds->attempt > 0;
    for (uint32_t slot = 0; slot < rounds->num_tasks; slot++) {
        const fedge_rounds_task *task = &rounds->tasks[slot];
        if (task->state != FEDGE_TASK_OPEN)
            continue;
        /* The strategy stores no model that old, so the update could not be weighted. */
        if (hung || round - 1 - task->base > rounds->spec.max_staleness)
            drop(rounds, slot);
        else
            rounds->tasks[remaining++] = *task;
    }
    rounds->num_tasks = rounds->num_open = remaining;
    rounds->num_reported = 0;
}

void fedge_rounds_drop_carried(fedge_rounds *rounds, uint32_t slot)
{
    participant *of = fedge_rounds_find_participant(rounds, rounds->tasks[slot].client_index);
    if (of && of->slot == slot)
        free_participant(rounds, of);
    rounds->num_tasks--;
    rounds->num_open--;
    memmove(rounds->tasks + slot, rounds->tasks + slot + 1,
            (rounds->num_tasks - slot) * sizeof(rounds->tasks[0]));
    for (uint32_t p = 0; p < rounds->num_participants; p++) {
        uint32_t *later = &rounds->participants[p].slot;
        *later -= *later != FEDGE_ROUNDS_NO_SLOT && *later > slot;
    }
}

uint32_t fedge_rounds_num_at_work(const fedge_rounds *rounds)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < rounds->num_participants; p++) {
        const participant *one = &rounds->participants[p];
        /* A disconnected client may stay away for long, so others are asked in its place. */
        count += one->connected && fedge_rounds_open_task(rounds, one);
    }
    return count;
}

uint32_t fedge_rounds_empty_slot(const fedge_rounds *rounds, uint32_t from)
{
    while (from < rounds->num_tasks && rounds->tasks[from].state != FEDGE_TASK_LOST)
        from++;
    return from;
}

/* Whether the task trained the newest model: training it again would give the same update. */
static bool has_newest(const fedge_rounds *rounds, uint32_t slot)
{
    return rounds->tasks[slot].base + 1 == rounds->round;
}

void fedge_rounds_release(fedge_rounds *rounds, uint32_t slot)
{
    participant *of = fedge_rounds_find_participant(rounds, rounds->tasks[slot].client_index);
    if (of && of->slot == slot && !has_newest(rounds, slot))
        free_participant(rounds, of);
}

bool fedge_rounds_restore_participant(fedge_rounds *rounds, uint32_t slot)
{
    const fedge_rounds_task *task = &rounds->tasks[slot];
    if (task->state == FEDGE_TASK_REPORTED && !has_newest(rounds, slot))
        return true;
    if (fedge_rounds_find_participant(rounds, task->client_index))
        return false;
    fedge_rounds_add_participant(rounds, task->client_index, slot);
    return true;
}
