#include "aggregator/rounds/rounds.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/sampler.h"
#include "edge/core/rng.h"

/* Last number of a sampling stream's name: which phase of the round, or a restored phase. */
enum { STREAM_TRAIN = 0, STREAM_EVALUATE = 1, STREAM_RESTORED = 2 };

/* A client that has had a task in the present phase, and the slot it was for. */
typedef struct participant {
    uint32_t client_index;
    uint32_t slot;
    bool connected; /* it is one of the connected clients */
} participant;

struct fedge_rounds {
    fedge_rounds_spec spec;
    uint64_t seed;
    fedge_rng rng; /* of the present phase */

    fedge_rounds_state state;
    fedge_task_kind kind;
    uint32_t round, attempt;
    bool failing;  /* CLOSING with too few reports */
    bool draining; /* nothing opens any more */
    bool complete; /* FINISHED since all is done */
    uint64_t deadline_ms;
    uint64_t next_task_id;

    fedge_rounds_task *tasks; /* by slot */
    uint32_t num_tasks, tasks_capacity;
    uint32_t wanted, num_open, num_reported;
    participant *participants; /* ascending by client */
    uint32_t num_participants, participants_capacity;

    uint32_t *connected; /* client indices, ascending */
    uint32_t *sampled;   /* scratch of the same capacity */
    uint32_t num_connected, connected_capacity;

    fedge_action *actions; /* the queue: num_actions from first_action on */
    size_t first_action, num_actions, actions_capacity;
};

/* --- memory: fallible events make room for what the others need ------------------------------- */

static fedge_status grow(void **items, size_t item_size, size_t count, fedge_error *err)
{
    void *grown = realloc(*items, item_size * count);
    if (grown == NULL)
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
    fedge_status status = grow(items, item_size, more, err);
    if (status == FEDGE_OK)
        *capacity = more;
    return status;
}

/* Makes the queue large enough for [extra] actions and those of one more phase. */
static fedge_status reserve_actions(fedge_rounds *rounds, size_t extra, fedge_error *err)
{
    if (rounds->first_action > 0) {
        memmove(rounds->actions, rounds->actions + rounds->first_action,
                rounds->num_actions * sizeof rounds->actions[0]);
        rounds->first_action = 0;
    }
    /* OPEN, SEND to each, CANCEL to each, CLOSE; then OPEN or FINISH. */
    size_t needed = rounds->num_actions + extra + 2 * (size_t)rounds->tasks_capacity + 3;
    if (needed <= rounds->actions_capacity)
        return FEDGE_OK;
    void *items = rounds->actions;
    fedge_status status = grow(&items, sizeof rounds->actions[0], needed * 2, err);
    rounds->actions = items;
    if (status == FEDGE_OK)
        rounds->actions_capacity = needed * 2;
    return status;
}

/* Makes room for [connected] clients, [tasks] slots and one more participant. */
static fedge_status reserve(fedge_rounds *rounds, uint32_t connected, uint32_t tasks,
                            fedge_error *err)
{
    void *items = rounds->connected;
    uint32_t capacity = rounds->connected_capacity;
    fedge_status status = grow_u32(&items, sizeof(uint32_t), connected, &capacity, err);
    rounds->connected = items;
    if (status == FEDGE_OK && capacity != rounds->connected_capacity) {
        items = rounds->sampled;
        status = grow(&items, sizeof(uint32_t), capacity, err);
        rounds->sampled = items;
    }
    if (status != FEDGE_OK)
        return status;
    rounds->connected_capacity = capacity;

    items = rounds->tasks;
    status = grow_u32(&items, sizeof rounds->tasks[0], tasks, &rounds->tasks_capacity, err);
    rounds->tasks = items;
    if (status != FEDGE_OK)
        return status;

    uint32_t participants = rounds->num_participants + 1;
    items = rounds->participants;
    status =
        grow_u32(&items, sizeof rounds->participants[0],
                 participants > tasks ? participants : tasks, &rounds->participants_capacity, err);
    rounds->participants = items;
    return status == FEDGE_OK ? reserve_actions(rounds, 1, err) : status;
}

/* The largest cohort that [connected] clients can give. */
static uint32_t cohort_limit(const fedge_rounds *rounds, uint32_t connected)
{
    return connected < rounds->spec.max_cohort ? connected : rounds->spec.max_cohort;
}

/* --- actions ---------------------------------------------------------------------------------- */

static void push(fedge_rounds *rounds, fedge_action_type type, uint32_t slot, bool fresh)
{
    size_t at = rounds->first_action + rounds->num_actions;
    /* Full only when the caller goes on without taking the actions. */
    assert(at < rounds->actions_capacity);
    fedge_action action = {
        .type = type, .kind = rounds->kind, .round = rounds->round, .attempt = rounds->attempt};
    if (type == FEDGE_ACTION_SEND || type == FEDGE_ACTION_CANCEL) {
        action.task_id = rounds->tasks[slot].task_id;
        action.client_index = rounds->tasks[slot].client_index;
        action.slot = slot;
        action.fresh = fresh;
    }
    rounds->actions[at] = action;
    rounds->num_actions++;
}

bool fedge_rounds_next(fedge_rounds *rounds, fedge_action *action)
{
    if (rounds->num_actions == 0)
        return false;
    *action = rounds->actions[rounds->first_action++];
    rounds->num_actions--;
    if (rounds->num_actions == 0)
        rounds->first_action = 0;
    return true;
}

/* --- clients ---------------------------------------------------------------------------------- */

/* Place of the first connected client that is not below [client_index]. */
static uint32_t connected_place(const fedge_rounds *rounds, uint32_t client_index)
{
    uint32_t low = 0, high = rounds->num_connected;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (rounds->connected[middle] < client_index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_connected(const fedge_rounds *rounds, uint32_t client_index)
{
    uint32_t place = connected_place(rounds, client_index);
    return place < rounds->num_connected && rounds->connected[place] == client_index;
}

static uint32_t participant_place(const fedge_rounds *rounds, uint32_t client_index)
{
    uint32_t low = 0, high = rounds->num_participants;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (rounds->participants[middle].client_index < client_index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static participant *find_participant(const fedge_rounds *rounds, uint32_t client_index)
{
    uint32_t place = participant_place(rounds, client_index);
    if (place == rounds->num_participants ||
        rounds->participants[place].client_index != client_index)
        return NULL;
    return &rounds->participants[place];
}

static void add_participant(fedge_rounds *rounds, uint32_t client_index, uint32_t slot)
{
    uint32_t place = participant_place(rounds, client_index);
    participant *at = rounds->participants + place;
    memmove(at + 1, at, (rounds->num_participants - place) * sizeof *at);
    *at = (participant){client_index, slot, is_connected(rounds, client_index)};
    rounds->num_participants++;
}

static void note_connected(fedge_rounds *rounds, uint32_t client_index, bool connected)
{
    participant *has_task = find_participant(rounds, client_index);
    if (has_task != NULL)
        has_task->connected = connected;
}

/* One of the connected clients that has had no task in this phase, each equally likely. In time
 * O(participants), for a simulation's clients may be many more. */
static bool pick_free_client(fedge_rounds *rounds, uint32_t *client_index)
{
    uint32_t num_free = rounds->num_connected;
    for (uint32_t p = 0; p < rounds->num_participants; p++)
        num_free -= rounds->participants[p].connected;
    if (num_free == 0)
        return false;
    /* The place of the free client of this rank: the rank, and one more for each below it that is
     * not free. */
    uint32_t place = fedge_rng_below(&rounds->rng, num_free);
    for (uint32_t p = 0; p < rounds->num_participants &&
                         rounds->participants[p].client_index <= rounds->connected[place];
         p++)
        place += rounds->participants[p].connected;
    *client_index = rounds->connected[place];
    return true;
}

/* --- phases ----------------------------------------------------------------------------------- */

static void finish(fedge_rounds *rounds)
{
    rounds->state = FEDGE_ROUNDS_FINISHED;
    rounds->deadline_ms = 0;
    push(rounds, FEDGE_ACTION_FINISH, 0, false);
}

static int compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* WAITING → OPENING when enough clients are there. */
static void try_open(fedge_rounds *rounds)
{
    if (rounds->state != FEDGE_ROUNDS_WAITING ||
        rounds->num_connected < fedge_cohort_needed(&rounds->spec, rounds->kind))
        return;
    fedge_cohort_size size =
        fedge_cohort_size_of(&rounds->spec, rounds->kind, rounds->num_connected);
    uint16_t stream = rounds->kind == FEDGE_TASK_TRAIN ? STREAM_TRAIN : STREAM_EVALUATE;
    rounds->rng = fedge_rng_stream(rounds->seed, FEDGE_PURPOSE_SAMPLE, rounds->round,
                                   rounds->attempt, stream);
    memcpy(rounds->sampled, rounds->connected, rounds->num_connected * sizeof(uint32_t));
    fedge_sample(&rounds->rng, rounds->sampled, rounds->num_connected, size.asked);
    qsort(rounds->sampled, size.asked, sizeof(uint32_t), compare_u32);

    assert(size.asked <= rounds->tasks_capacity && size.asked <= rounds->participants_capacity);
    for (uint32_t slot = 0; slot < size.asked; slot++) {
        rounds->tasks[slot] = (fedge_rounds_task){
            .task_id = rounds->next_task_id++,
            .client_index = rounds->sampled[slot],
            .state = FEDGE_TASK_OPEN,
        };
        rounds->participants[slot] = (participant){rounds->sampled[slot], slot, true};
    }
    rounds->num_tasks = rounds->num_participants = rounds->num_open = size.asked;
    rounds->num_reported = 0;
    rounds->wanted = size.wanted;
    rounds->state = FEDGE_ROUNDS_OPENING;
    push(rounds, FEDGE_ACTION_OPEN, 0, false);
}

static bool has_min_reports(const fedge_rounds *rounds)
{
    return rounds->num_reported >= fedge_cohort_min_reports(&rounds->spec, rounds->wanted);
}

/* RUNNING → CLOSING. Tasks stay OPEN until fedge_rounds_closed: a result that is on its way to the
 * disk at this moment will count there, so it must count here. */
static void end_phase(fedge_rounds *rounds)
{
    rounds->failing = !has_min_reports(rounds);
    rounds->state = FEDGE_ROUNDS_CLOSING;
    rounds->deadline_ms = 0;
    for (uint32_t slot = 0; slot < rounds->num_tasks; slot++) {
        if (rounds->tasks[slot].state == FEDGE_TASK_OPEN)
            push(rounds, FEDGE_ACTION_CANCEL, slot, false);
    }
    push(rounds, rounds->failing ? FEDGE_ACTION_FAIL : FEDGE_ACTION_CLOSE, 0, false);
}

/* Ends the phase when enough have reported, or all have that can. With too few and nobody left to
 * ask it goes on: a device that joins takes the empty slot, and the deadline keeps a cohort that
 * declines everything from being asked again and again without a pause. An evaluation is not
 * repeated, so it has nothing to wait for. */
static void end_if_complete(fedge_rounds *rounds)
{
    const bool evaluates = rounds->kind == FEDGE_TASK_EVALUATE;
    bool complete = rounds->num_reported >= rounds->wanted ||
                    (rounds->num_open == 0 && (evaluates || has_min_reports(rounds)));
    if (rounds->state == FEDGE_ROUNDS_RUNNING && complete)
        end_phase(rounds);
}

static void start_deadline(fedge_rounds *rounds, uint64_t now_ms)
{
    uint64_t length = rounds->spec.round_deadline_ms;
    bool endless = length == 0 || now_ms > UINT64_MAX - length;
    rounds->deadline_ms = endless ? 0 : now_ms + length;
}

/* A new task for [client_index] in a LOST slot. */
static void assign(fedge_rounds *rounds, uint32_t slot, uint32_t client_index)
{
    rounds->tasks[slot] = (fedge_rounds_task){
        .task_id = rounds->next_task_id++,
        .client_index = client_index,
        .state = FEDGE_TASK_OPEN,
    };
    rounds->num_open++;
    add_participant(rounds, client_index, slot);
    push(rounds, FEDGE_ACTION_SEND, slot, true);
}

/* --- making and restoring --------------------------------------------------------------------- */

static fedge_status check_spec(const fedge_rounds_spec *spec, fedge_error *err)
{
    const char *wrong = NULL;
    if (spec->num_server_rounds == 0 || spec->num_server_rounds == UINT32_MAX)
        wrong = "num-server-rounds must be at least 1 and below 4294967295";
    else if (!(spec->fraction_train > 0.0 && spec->fraction_train <= 1.0))
        wrong = "fraction-train must be in (0, 1]";
    else if (!(spec->fraction_evaluate >= 0.0 && spec->fraction_evaluate <= 1.0))
        wrong = "fraction-evaluate must be in [0, 1]";
    else if (!(spec->over_selection >= 1.0 && spec->over_selection <= (double)UINT32_MAX))
        wrong = "the over-selection factor must be at least 1";
    else if (!(spec->min_report_fraction > 0.0 && spec->min_report_fraction <= 1.0))
        wrong = "the minimum share of reports must be in (0, 1]";
    else if (spec->max_cohort == 0)
        wrong = "the largest cohort must be at least 1";
    else if (spec->max_cohort < spec->min_train_nodes)
        wrong = "the largest cohort must be at least min-train-nodes";
    if (wrong != NULL)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "rounds: %s", wrong);
    return FEDGE_OK;
}

fedge_status fedge_rounds_new(const fedge_rounds_spec *spec, uint64_t seed, fedge_rounds **rounds,
                              fedge_error *err)
{
    *rounds = NULL;
    fedge_status status = check_spec(spec, err);
    if (status != FEDGE_OK)
        return status;
    fedge_rounds *made = calloc(1, sizeof *made);
    if (made == NULL)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the round machine");
    made->spec = *spec;
    made->seed = seed;
    made->state = FEDGE_ROUNDS_WAITING;
    made->kind = FEDGE_TASK_TRAIN;
    made->round = 1;
    made->next_task_id = 1;
    status = reserve(made, 1, 1, err);
    if (status != FEDGE_OK) {
        fedge_rounds_free(made);
        return status;
    }
    *rounds = made;
    return FEDGE_OK;
}

void fedge_rounds_free(fedge_rounds *rounds)
{
    if (rounds == NULL)
        return;
    free(rounds->tasks);
    free(rounds->participants);
    free(rounds->connected);
    free(rounds->sampled);
    free(rounds->actions);
    free(rounds);
}

/* Takes over the tasks of an open phase; room for them is there. */
static fedge_status restore_tasks(fedge_rounds *rounds, const fedge_rounds_task *tasks,
                                  uint32_t num_tasks, fedge_error *err)
{
    for (uint32_t slot = 0; slot < num_tasks; slot++) {
        const fedge_rounds_task *task = &tasks[slot];
        if (task->task_id >= rounds->next_task_id)
            return fedge_fail(err, FEDGE_CORRUPT,
                              "restored task %" PRIu64 " is not below the next task id %" PRIu64,
                              task->task_id, rounds->next_task_id);
        if (find_participant(rounds, task->client_index) != NULL)
            return fedge_fail(err, FEDGE_CORRUPT,
                              "client %" PRIu32 " has two tasks in the restored phase",
                              task->client_index);
        rounds->tasks[slot] = *task;
        add_participant(rounds, task->client_index, slot);
        rounds->num_open += task->state == FEDGE_TASK_OPEN;
        rounds->num_reported += task->state == FEDGE_TASK_REPORTED;
    }
    rounds->num_tasks = num_tasks;
    return FEDGE_OK;
}

fedge_status fedge_rounds_restore(fedge_rounds *rounds, uint32_t last_closed, uint32_t attempt,
                                  uint64_t next_task_id, uint32_t wanted,
                                  const fedge_rounds_task *tasks, uint32_t num_tasks,
                                  uint64_t now_ms, fedge_error *err)
{
    assert(rounds->state == FEDGE_ROUNDS_WAITING && rounds->next_task_id == 1);
    if (next_task_id == 0 || num_tasks > rounds->spec.max_cohort)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "cannot restore a phase of %" PRIu32 " tasks (at most %" PRIu32
                          ") with next task id %" PRIu64,
                          num_tasks, rounds->spec.max_cohort, next_task_id);
    rounds->next_task_id = next_task_id;
    if (last_closed >= rounds->spec.num_server_rounds) {
        rounds->round = rounds->spec.num_server_rounds;
        rounds->complete = true;
        finish(rounds);
        return FEDGE_OK;
    }
    rounds->round = last_closed + 1;
    rounds->attempt = attempt;
    if (num_tasks == 0)
        return FEDGE_OK;
    if (wanted == 0 || wanted > num_tasks)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "cannot restore a phase of %" PRIu32 " tasks that wants %" PRIu32
                          " reports",
                          num_tasks, wanted);
    fedge_status status = reserve(rounds, 1, num_tasks, err);
    if (status == FEDGE_OK)
        status = restore_tasks(rounds, tasks, num_tasks, err);
    if (status != FEDGE_OK)
        return status;
    rounds->wanted = wanted;
    rounds->rng = fedge_rng_stream(rounds->seed, FEDGE_PURPOSE_SAMPLE, rounds->round, attempt,
                                   STREAM_RESTORED);
    rounds->state = FEDGE_ROUNDS_RUNNING;
    start_deadline(rounds, now_ms);
    end_if_complete(rounds);
    return FEDGE_OK;
}

void fedge_rounds_restore_evaluation(fedge_rounds *rounds, uint32_t last_closed,
                                     uint64_t next_task_id)
{
    assert(rounds->state == FEDGE_ROUNDS_WAITING && rounds->next_task_id == 1);
    assert(last_closed >= 1 && last_closed <= rounds->spec.num_server_rounds && next_task_id >= 1);
    rounds->next_task_id = next_task_id;
    rounds->round = last_closed;
    rounds->kind = FEDGE_TASK_EVALUATE;
}

/* --- events ----------------------------------------------------------------------------------- */

/* The client has an open task: sends it (again). It has had none and a slot is empty: takes it. */
static void give_work(fedge_rounds *rounds, uint32_t client_index)
{
    const participant *found = find_participant(rounds, client_index);
    if (found != NULL) {
        const fedge_rounds_task *task = &rounds->tasks[found->slot];
        if (task->client_index == client_index && task->state == FEDGE_TASK_OPEN)
            push(rounds, FEDGE_ACTION_SEND, found->slot, false);
        return;
    }
    if (rounds->num_open + rounds->num_reported == rounds->num_tasks)
        return;
    for (uint32_t slot = 0; slot < rounds->num_tasks; slot++) {
        if (rounds->tasks[slot].state == FEDGE_TASK_LOST) {
            assign(rounds, slot, client_index);
            return;
        }
    }
}

fedge_status fedge_rounds_join(fedge_rounds *rounds, uint32_t client_index, uint64_t now_ms,
                               fedge_error *err)
{
    (void)now_ms;
    uint32_t place = connected_place(rounds, client_index);
    bool known = place < rounds->num_connected && rounds->connected[place] == client_index;
    if (!known && rounds->num_connected >= FEDGE_ROUNDS_MAX_CLIENTS)
        return fedge_fail(err, FEDGE_TOO_BIG, "client %" PRIu32 " is one more than the limit of %u",
                          client_index, FEDGE_ROUNDS_MAX_CLIENTS);
    uint32_t connected = rounds->num_connected + !known;
    fedge_status status = reserve(rounds, connected, cohort_limit(rounds, connected), err);
    if (status != FEDGE_OK)
        return status;
    if (!known) {
        uint32_t *at = rounds->connected + place;
        memmove(at + 1, at, (rounds->num_connected - place) * sizeof *at);
        *at = client_index;
        rounds->num_connected++;
        note_connected(rounds, client_index, true);
    }
    if (rounds->state == FEDGE_ROUNDS_RUNNING)
        give_work(rounds, client_index);
    else
        try_open(rounds);
    return FEDGE_OK;
}

fedge_status fedge_rounds_join_all(fedge_rounds *rounds, const uint32_t *client_indices,
                                   uint32_t num_clients, uint64_t now_ms, fedge_error *err)
{
    (void)now_ms;
    assert(rounds->state == FEDGE_ROUNDS_WAITING || rounds->state == FEDGE_ROUNDS_FINISHED);
    assert(rounds->num_connected == 0);
    if (num_clients > FEDGE_ROUNDS_MAX_CLIENTS)
        return fedge_fail(err, FEDGE_TOO_BIG, "%" PRIu32 " clients are more than the limit of %u",
                          num_clients, FEDGE_ROUNDS_MAX_CLIENTS);
    fedge_status status = reserve(rounds, num_clients, cohort_limit(rounds, num_clients), err);
    if (status != FEDGE_OK)
        return status;
    memcpy(rounds->connected, client_indices, num_clients * sizeof *client_indices);
    rounds->num_connected = num_clients;
    try_open(rounds);
    return FEDGE_OK;
}

void fedge_rounds_leave(fedge_rounds *rounds, uint32_t client_index, uint64_t now_ms)
{
    (void)now_ms;
    if (!is_connected(rounds, client_index))
        return;
    uint32_t *at = rounds->connected + connected_place(rounds, client_index);
    rounds->num_connected--;
    memmove(at, at + 1, (size_t)(rounds->connected + rounds->num_connected - at) * sizeof *at);
    note_connected(rounds, client_index, false);
}

static fedge_rounds_task *find_task(const fedge_rounds *rounds, uint64_t task_id)
{
    /* Ids count up with the slots, except where a slot has changed hands. */
    if (rounds->num_tasks > 0 && task_id >= rounds->tasks[0].task_id) {
        uint64_t slot = task_id - rounds->tasks[0].task_id;
        if (slot < rounds->num_tasks && rounds->tasks[slot].task_id == task_id)
            return &rounds->tasks[slot];
    }
    for (uint32_t slot = 0; slot < rounds->num_tasks; slot++) {
        if (rounds->tasks[slot].task_id == task_id)
            return &rounds->tasks[slot];
    }
    return NULL;
}

static fedge_status fail_stale(const fedge_rounds *rounds, uint64_t task_id, fedge_error *err)
{
    return fedge_fail(err, FEDGE_STALE,
                      "task %" PRIu64 " is not open; round %" PRIu32 " attempt %" PRIu32
                      " is the present one",
                      task_id, rounds->round, rounds->attempt);
}

fedge_status fedge_rounds_report(fedge_rounds *rounds, uint64_t task_id, uint64_t now_ms,
                                 fedge_error *err)
{
    (void)now_ms;
    fedge_rounds_task *task = find_task(rounds, task_id);
    bool failed = rounds->state == FEDGE_ROUNDS_CLOSING && rounds->failing;
    if (task == NULL || task->state == FEDGE_TASK_LOST || failed)
        return fail_stale(rounds, task_id, err);
    if (task->state == FEDGE_TASK_REPORTED)
        return fedge_fail(err, FEDGE_DUPLICATE, "task %" PRIu64 " has been reported before",
                          task_id);
    if (rounds->state != FEDGE_ROUNDS_RUNNING && rounds->state != FEDGE_ROUNDS_CLOSING)
        return fail_stale(rounds, task_id, err);
    task->state = FEDGE_TASK_REPORTED;
    rounds->num_open--;
    rounds->num_reported++;
    end_if_complete(rounds);
    return FEDGE_OK;
}

fedge_status fedge_rounds_lose(fedge_rounds *rounds, uint64_t task_id, uint64_t now_ms,
                               fedge_error *err)
{
    (void)now_ms;
    fedge_rounds_task *task = find_task(rounds, task_id);
    bool in_phase = rounds->state != FEDGE_ROUNDS_WAITING && rounds->state != FEDGE_ROUNDS_FINISHED;
    if (task == NULL || task->state != FEDGE_TASK_OPEN || !in_phase)
        return fail_stale(rounds, task_id, err);
    uint32_t slot = (uint32_t)(task - rounds->tasks);
    fedge_status status =
        reserve(rounds, rounds->num_connected, cohort_limit(rounds, rounds->num_connected), err);
    if (status != FEDGE_OK)
        return status;
    rounds->tasks[slot].state = FEDGE_TASK_LOST;
    rounds->num_open--;
    uint32_t client_index;
    if (rounds->state == FEDGE_ROUNDS_RUNNING && pick_free_client(rounds, &client_index))
        assign(rounds, slot, client_index);
    end_if_complete(rounds);
    return FEDGE_OK;
}

void fedge_rounds_tick(fedge_rounds *rounds, uint64_t now_ms)
{
    try_open(rounds);
    if (rounds->state == FEDGE_ROUNDS_RUNNING && rounds->deadline_ms != 0 &&
        now_ms >= rounds->deadline_ms)
        end_phase(rounds);
}

void fedge_rounds_opened(fedge_rounds *rounds, uint64_t now_ms)
{
    assert(rounds->state == FEDGE_ROUNDS_OPENING);
    rounds->state = FEDGE_ROUNDS_RUNNING;
    start_deadline(rounds, now_ms);
    for (uint32_t slot = 0; slot < rounds->num_tasks; slot++) {
        uint32_t client_index = rounds->tasks[slot].client_index;
        if (rounds->tasks[slot].state != FEDGE_TASK_LOST) {
            if (is_connected(rounds, client_index))
                push(rounds, FEDGE_ACTION_SEND, slot, false);
        } else if (rounds->num_participants < rounds->participants_capacity &&
                   pick_free_client(rounds, &client_index)) {
            assign(rounds, slot, client_index); /* was lost while the phase was opened */
        }
    }
}

void fedge_rounds_closed(fedge_rounds *rounds, uint64_t now_ms)
{
    (void)now_ms;
    assert(rounds->state == FEDGE_ROUNDS_CLOSING);
    for (uint32_t slot = 0; slot < rounds->num_tasks; slot++) {
        if (rounds->failing || rounds->tasks[slot].state == FEDGE_TASK_OPEN)
            rounds->tasks[slot].state = FEDGE_TASK_LOST;
    }
    rounds->num_open = 0;
    bool train = rounds->kind == FEDGE_TASK_TRAIN;
    bool repeat = train && rounds->failing;
    bool evaluate = train && !rounds->failing && rounds->spec.fraction_evaluate > 0.0;
    bool last = rounds->round == rounds->spec.num_server_rounds && !repeat && !evaluate;
    rounds->failing = false;
    rounds->complete = last;
    if (rounds->draining || last) {
        finish(rounds);
        return;
    }
    rounds->state = FEDGE_ROUNDS_WAITING;
    rounds->attempt = repeat ? rounds->attempt + 1 : 0;
    rounds->kind = evaluate ? FEDGE_TASK_EVALUATE : FEDGE_TASK_TRAIN;
    if (!repeat && !evaluate)
        rounds->round++;
    try_open(rounds);
}

void fedge_rounds_drain(fedge_rounds *rounds, uint64_t now_ms)
{
    (void)now_ms;
    rounds->draining = true;
    if (rounds->state == FEDGE_ROUNDS_WAITING)
        finish(rounds);
}

/* --- where it stands -------------------------------------------------------------------------- */

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

uint32_t fedge_rounds_wanted(const fedge_rounds *rounds)
{
    return rounds->wanted;
}

uint32_t fedge_rounds_num_reported(const fedge_rounds *rounds)
{
    return rounds->num_reported;
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

const fedge_rounds_task *fedge_rounds_find(const fedge_rounds *rounds, uint64_t task_id,
                                           uint32_t *slot)
{
    const fedge_rounds_task *task = find_task(rounds, task_id);
    if (task != NULL && slot != NULL)
        *slot = (uint32_t)(task - rounds->tasks);
    return task;
}

void fedge_rounds_describe(const fedge_rounds *rounds, char *text, size_t size)
{
    const char *phase = rounds->kind == FEDGE_TASK_TRAIN ? "training" : "evaluation";
    switch (rounds->state) {
    case FEDGE_ROUNDS_WAITING:
        snprintf(text, size, "waiting for nodes: %" PRIu32 " of %" PRIu32 " connected",
                 rounds->num_connected, fedge_cohort_needed(&rounds->spec, rounds->kind));
        return;
    case FEDGE_ROUNDS_OPENING:
        snprintf(text, size, "opening round %" PRIu32 ": %s on %" PRIu32 " clients", rounds->round,
                 phase, rounds->num_tasks);
        return;
    case FEDGE_ROUNDS_RUNNING:
        snprintf(text, size,
                 "round %" PRIu32 ", %s: %" PRIu32 " of %" PRIu32 " reported, %" PRIu32 " at work",
                 rounds->round, phase, rounds->num_reported, rounds->wanted, rounds->num_open);
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
